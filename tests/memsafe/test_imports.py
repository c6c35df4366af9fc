"""memsafe can be installed without Assay: it imports only jax, numpy and the standard library."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import memsafe

ROOT = Path(memsafe.__file__).parent
MAY_IMPORT = {*sys.stdlib_module_names, "jax", "numpy", "memsafe"}
MODULES = sorted(ROOT.rglob("*.py"))


def packages(source: str) -> Iterator[str]:
    """Top-level packages that a module imports, also inside its functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").split(".")[0]


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_jax_alone(module: Path) -> None:
    assert set(packages(module.read_text())) <= MAY_IMPORT


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_private_interfaces_of_jax_are_named_in_one_module(module: Path) -> None:
    private = "jax._src" in module.read_text()
    assert not private or module.name == "jax_internals.py"


def test_the_control_an_import_of_assay_would_be_seen() -> None:
    assert not set(packages("from assay.model import units")) <= MAY_IMPORT


def test_the_public_names_are_these() -> None:
    assert sorted(memsafe.__all__) == ["BudgetError", "explain", "memsafe"]
