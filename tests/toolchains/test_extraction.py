"""The extracted source of a suite's program runs alone and makes the same program."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import pytest

from assay.toolchains.extraction import NotExtractable, extracted

SHAPES = """
from dataclasses import dataclass
from enum import Enum

class Kind(Enum):
    SUM = "sum"
    LARGEST = "largest"

@dataclass(frozen=True)
class Sizes:
    rows: int
    columns: int = 8
    scale: float = 1.0
"""
STEPS = """
import functools
import jax.numpy as jnp
from .shapes import Kind, Sizes as AllSizes

FACTOR = 3 * 2
UNUSED = undefined_on_purpose if False else None

def scaled(x):
    return x * FACTOR

def twice(function):
    @functools.wraps(function)
    def both(x):
        return function(function(x))
    return both

@twice
def doubled(x):
    return x + x

def by(kind, sizes: AllSizes, also=lambda x: x):
    total = {Kind.SUM: jnp.sum, Kind.LARGEST: jnp.max}[kind]
    def step(x):
        return total(scaled(also(doubled(x)))) * sizes.scale
    return step
"""
BUILDERS = """
from functools import partial
import os
import jax
from assay import Program, claims
from mine import steps
from mine.shapes import Kind, Sizes
from mine.steps import by

def unneeded():
    return claims

def build(step, sizes, devices):
    return Program(
        function=step,
        arguments=(jax.ShapeDtypeStruct((sizes.rows, sizes.columns), "float32"),),
        values=lambda: unneeded(),
    )

def of(step, sizes):
    return partial(build, step, sizes)

def closed(width):
    x = jax.ShapeDtypeStruct((width,), "float32")
    return lambda devices: Program(function=lambda x: x * width, arguments=(x,))

def by_module(devices):
    return Program(function=steps.scaled)

def by_assay(devices):
    return claims

ONE, TWO = (lambda d: Program(arguments=("a",))), (lambda d: Program(arguments=("b",)))
HELD = partial(build, os.environ)
"""


@pytest.fixture
def builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package of three modules below the temporary folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    texts = {"__init__": "", "shapes": SHAPES, "steps": STEPS, "builders": BUILDERS}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("mine.builders")
    for name in [each for each in sys.modules if each.partition(".")[0] == "mine"]:
        del sys.modules[name]


def alone(source: str) -> dict[str, Any]:
    """What the source defines, run without the package that it was taken from."""
    assert "mine" not in source
    assert "assay" not in source.lower()
    # dataclasses look their module up by its name.
    module = ModuleType("extracted_program")
    sys.modules[module.__name__] = module
    exec(compile(source, "repro.py", "exec"), vars(module))
    return vars(module)


def source_of(builder: Any, tmp_path: Path) -> str:
    return extracted(builder, "program_for", (str(tmp_path),))


def test_a_program_of_closures_and_records_is_made_again(
    builders: ModuleType, tmp_path: Path
) -> None:
    sizes = builders.Sizes(4, scale=float("inf"))
    step = builders.by(builders.Kind.LARGEST, sizes)
    source = source_of(builders.of(step, sizes), tmp_path)
    program = alone(source)["program_for"]([])
    (shape,) = program.arguments
    assert shape == jax.ShapeDtypeStruct((4, 8), "float32")
    expected = jax.make_jaxpr(step)(shape)
    assert str(jax.make_jaxpr(program.function)(shape)) == str(expected)
    for name in ("UNUSED", "unneeded", "Quantity"):
        assert name not in source


def test_a_lambda_is_found_by_its_place_and_keeps_what_it_closes_over(
    builders: ModuleType, tmp_path: Path
) -> None:
    program = alone(source_of(builders.closed(7), tmp_path))["program_for"]([])
    assert program.arguments == (jax.ShapeDtypeStruct((7,), "float32"),)
    assert program.function(2) == 14
    for builder, given in ((builders.ONE, ("a",)), (builders.TWO, ("b",))):
        made = alone(source_of(builder, tmp_path))["program_for"]
        assert made([]).arguments == given


def test_a_class_of_another_package_is_imported(tmp_path: Path) -> None:
    source = source_of(jax.ShapeDtypeStruct, tmp_path)
    assert source.endswith("program_for = ShapeDtypeStruct\n")


@pytest.mark.parametrize(
    ("builder", "why"),
    [
        ("by_module", "it uses the module mine.steps by its name"),
        ("by_assay", "it uses claims of Assay"),
        ("HELD", "it holds a value of _Environ"),
    ],
)
def test_what_cannot_be_written_says_why(
    builders: ModuleType, tmp_path: Path, builder: str, why: str
) -> None:
    with pytest.raises(NotExtractable, match=why):
        source_of(getattr(builders, builder), tmp_path)


def test_two_definitions_of_one_name_are_refused(builders: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "mine" / "other.py").write_text("def scaled(x):\n    return x\n")
    other = importlib.import_module("mine.other")
    step = builders.by(builders.Kind.SUM, builders.Sizes(4), also=other.scaled)
    with pytest.raises(NotExtractable, match="scaled is bound by two of its modules"):
        source_of(builders.of(step, builders.Sizes(4)), tmp_path)
