"""A room of the house imports only rooms below it; the lower rooms know no framework."""

import ast
import json
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FRAMEWORKS = ("jax", "jaxlib", "torch", "torch_xla", "flax")
ABOVE_ASSAY = ("memsafe", "suites", "tests", "benchmarks")

_OBSERVING = frozenset(
    {"model", "hlo", "targets", "frameworks", "observe", "isolate", "inspection"}
)
_JUDGING = frozenset({"model", "judge", "stats", "claims", "store", "measure", "run"})
_EVERYTHING = _OBSERVING | _JUDGING | {"report"}

MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "model": frozenset(),
    "hlo": frozenset({"model"}),
    "judge": frozenset({"model"}),
    "stats": frozenset({"model"}),
    "claims": frozenset({"model", "judge", "stats"}),
    "store": frozenset({"model", "judge"}),
    "targets": frozenset({"model"}),
    "frameworks": frozenset({"model", "hlo", "targets"}),
    "observe": frozenset({"model", "hlo", "targets", "frameworks", "store"}),
    "isolate": frozenset({"model", "hlo", "targets", "frameworks", "observe", "store"}),
    "inspection": frozenset({"model", "targets", "frameworks", "observe", "isolate", "store"}),
    "toolchains": frozenset(
        {"model", "hlo", "judge", "stats", "store", "targets", "frameworks", "isolate"}
    ),
    "fleet": frozenset({"model", "frameworks", "isolate", "store", "toolchains"}),
    "report": frozenset({"model"}),
    "measure": frozenset({"model", "judge", "store"}),
    "run": frozenset({"model", "judge", "store", "measure"}),
    "api": frozenset({"model", "hlo", "judge", "targets", "frameworks", "isolate", "report"}),
    "plugin": _EVERYTHING | {"toolchains", "fleet", "api"},
    "cli": _EVERYTHING | {"plugin", "toolchains", "fleet"},
    "command": frozenset({"cli"}),
    # The package itself: the words at the ground, and the claims for who asks.
    "assay": frozenset({"model", "claims", "api"}),
}
"""The layer map: each room of ``assay``, and the rooms that it may import."""


def imported(source: str, package: str) -> Iterator[str]:
    """Dotted names that a module of the package imports, at its top or anywhere within."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            above = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def room_of(name: str, rooms: Collection[str]) -> str:
    """The room of ``assay`` that a dotted name leads to."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in rooms else "assay"


def wrong_arrows(root: Path, may_import: Mapping[str, Collection[str]]) -> list[str]:
    """Every import in ``root/assay`` that the map does not allow, as ``file: room -> room``."""
    found = []
    files = sorted((root / "assay").rglob("*.py"))
    rooms = {file.relative_to(root / "assay").parts[0].removesuffix(".py") for file in files}
    for file in files:
        dotted = file.relative_to(root).with_suffix("").parts
        here = room_of(".".join(dotted), rooms - {"__init__"})
        package = ".".join(dotted[:-1])
        for name in imported(file.read_text(), package):
            top = name.partition(".")[0]
            there = room_of(name, rooms) if top == "assay" else top
            allowed = {here, *may_import.get(here, ())}
            if top in {"assay", *ABOVE_ASSAY} and there not in allowed:
                found.append(f"{file.relative_to(root)}: {here} -> {there}")
    return found


def rooms_of(root: Path) -> set[str]:
    """The rooms that stand in ``root/assay``."""
    entries = [path for path in (root / "assay").iterdir() if not path.name.startswith("_")]
    packages = {path.name for path in entries if (path / "__init__.py").exists()}
    return packages | {path.stem for path in entries if path.suffix == ".py"}


def test_every_room_imports_only_rooms_below_it() -> None:
    assert wrong_arrows(ROOT, MAY_IMPORT) == []


def test_every_room_of_the_house_is_on_the_map() -> None:
    assert rooms_of(ROOT) == set(MAY_IMPORT) - {"assay"}


def test_the_map_has_no_circle() -> None:
    left = dict(MAY_IMPORT)
    while left:
        free = [room for room, below in left.items() if not set(below) & set(left)]
        assert free, f"these rooms import one another: {sorted(left)}"
        for room in free:
            del left[room]


FAKE_HOUSE = {
    "__init__.py": "",
    "model/__init__.py": "from dataclasses import dataclass\nimport model",
    "hlo/__init__.py": "from assay.model import units\nfrom .loops import trips",
    "hlo/loops.py": "from assay.hlo import module\nimport assay.model",
    "run.py": "from assay import hlo",
}
FAKE_MAP: Mapping[str, frozenset[str]] = {
    "model": frozenset(),
    "hlo": frozenset({"model"}),
    "run": frozenset({"hlo"}),
    "assay": frozenset(),
}


def build_fake_house(root: Path, changed: Mapping[str, str]) -> None:
    for name, source in {**FAKE_HOUSE, **changed}.items():
        file = root / "assay" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)


def test_a_house_in_order_has_no_wrong_arrow(tmp_path: Path) -> None:
    build_fake_house(tmp_path, {})
    assert wrong_arrows(tmp_path, FAKE_MAP) == []
    assert rooms_of(tmp_path) == {"model", "hlo", "run"}


@pytest.mark.parametrize(
    ("file", "source", "arrow"),
    [
        ("model/units.py", "import assay.hlo", "model -> hlo"),
        ("model/units.py", "from assay.hlo.summary import trips", "model -> hlo"),
        ("model/units.py", "from assay import hlo", "model -> hlo"),
        ("model/units.py", "from .. import hlo", "model -> hlo"),
        ("model/units.py", "from ..hlo import loops", "model -> hlo"),
        ("model/__init__.py", "from ..hlo import loops", "model -> hlo"),
        ("model/units.py", "def late():\n    from assay.run import Run", "model -> run"),
        ("model/units.py", "from assay import Check", "model -> assay"),
        ("model/units.py", "import assay", "model -> assay"),
        ("__init__.py", "from assay.model import units", "assay -> model"),
        ("run.py", "import memsafe", "run -> memsafe"),
        ("run.py", "from suites.scan_offload import workloads", "run -> suites"),
        ("attic.py", "from assay.model import units", "attic -> model"),
    ],
)
def test_a_wrong_arrow_is_found_however_it_is_written(
    tmp_path: Path, file: str, source: str, arrow: str
) -> None:
    build_fake_house(tmp_path, {file: source})
    assert wrong_arrows(tmp_path, FAKE_MAP) == [f"assay/{file}: {arrow}"]


def loaded_by(modules: Collection[str], root: Path = ROOT) -> set[str]:
    """Top-level names of what a fresh interpreter loads to import the modules."""
    program = (
        "import importlib, json, sys; before = set(sys.modules);"
        f"[importlib.import_module(name) for name in {list(modules)!r}];"
        "print(json.dumps(sorted({name.partition('.')[0] for name in set(sys.modules) - before})))"
    )
    child = subprocess.run(
        [sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True
    )
    return set(json.loads(child.stdout))


def modules_of(room: str) -> list[str]:
    """Every module of a room, as dotted names."""
    files = sorted((ROOT / "assay" / room).glob("*.py"))
    assert files
    return [f"assay.{room}.{file.stem}".removesuffix(".__init__") for file in files]


@pytest.mark.parametrize("room", ["model", "hlo", "judge", "claims", "store", "report"])
def test_a_room_without_a_framework_loads_none(room: str) -> None:
    assert loaded_by(modules_of(room)).isdisjoint(FRAMEWORKS)


def test_judging_a_run_loads_no_framework() -> None:
    assert loaded_by(["assay.run", "assay"]).isdisjoint(FRAMEWORKS)


def test_only_a_history_loads_a_database() -> None:
    libraries = {"sqlalchemy", "alembic", "psycopg"}
    assert loaded_by(["assay.plugin.hooks", "assay.cli"]).isdisjoint(libraries)
    assert loaded_by(["assay.store.history"]) & libraries == {"sqlalchemy"}


def test_the_command_line_loads_cryptography_only_to_sign() -> None:
    assert "cryptography" not in loaded_by(["assay.cli"])


def test_ray_is_loaded_only_where_a_fleet_is_connected() -> None:
    assert "ray" not in loaded_by(["assay.cli", "assay.plugin.fleet", "assay.plugin.fleet_session"])


def test_the_words_at_the_ground_load_the_standard_library_alone() -> None:
    assert loaded_by(modules_of("model")) - {"assay"} <= sys.stdlib_module_names


def test_the_package_itself_loads_the_standard_library_alone() -> None:
    assert loaded_by(["assay"]) - {"assay"} <= sys.stdlib_module_names


def test_a_room_that_loads_a_framework_would_be_seen(tmp_path: Path) -> None:
    (tmp_path / "flax.py").touch()
    (tmp_path / "room.py").write_text("def late():\n    import flax\n\nlate()\n")
    assert loaded_by(["room"], tmp_path) == {"room", "flax"}
