"""The share of small faults that the tests notice: ``python -m benchmarks.mutation``.

Tries a sample of mutants of each room that leads to a verdict, with the tests that run the changed
line. Fails where a room's tests notice too few, or where ``equivalent.toml`` lists a mutant that a
test notices or that is gone. Needs Python 3.12.
"""

import argparse
import hashlib
import pickle
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.mutation.lines import Map
from benchmarks.mutation.mutants import Key, Mutant, mutants_of
from benchmarks.mutation.trials import Tree

AT_LEAST: Final = 0.92
_REPOSITORY: Final = Path(__file__).parents[2]
_EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
_TIMED: Final = ("tests/hlo/test_scaling.py",)  # asks for wall time, which a busy neighbour takes


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Files, how many of their mutants are tried, and whose tests are asked first.

    A mutant that survives ``seconds`` of tests has survived.
    """

    files: tuple[str, ...]
    sample: int
    tests: str
    seconds: float = 20.0


def _named(folder: str, names: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}.py" for name in names.split())


_HLO: Final = (
    "full_buffer_writes host_transfers trip_count loop_evaluation value_provenance assignment "
    "summary"
)
ROOMS: Final[Mapping[str, Room]] = {
    "judge": Room(files=("assay/judge/*.py",), sample=40, tests="tests/judge"),
    "stats": Room(files=("assay/stats/*.py",), sample=40, tests="tests/stats"),
    "claims": Room(files=("assay/claims/*.py",), sample=80, tests="tests/claims"),
    "hlo": Room(files=_named("assay/hlo", _HLO), sample=110, tests="tests/hlo"),
    "store": Room(files=("assay/store/*.py",), sample=50, tests="tests/store"),
    "run": Room(files=("assay/run.py", "assay/measure.py"), sample=40, tests="tests/run"),
    # Each of its tests is a run of pytest.
    "plugin": Room(files=("assay/plugin/*.py",), sample=60, tests="tests/plugin", seconds=60.0),
    "qualification": Room(
        files=("assay/judge/qualification.py", "assay/store/certificate.py"),
        sample=30,
        tests="tests/store",
    ),
}
_FOLDERS: Final = [
    "tests/model",
    *(room.tests for room in ROOMS.values()),
    "tests/cli",
    "tests/faults",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A room's result; a mutant that no test can notice counts neither way."""

    room: str
    noticed: int
    equivalent: int
    survivors: tuple[Mutant, ...]

    @property
    def share(self) -> float:
        """The noticed among those that a test could notice."""
        return self.noticed / max(self.noticed + len(self.survivors), 1)

    def __str__(self) -> str:
        tried = self.noticed + self.equivalent + len(self.survivors)
        counts = f"{tried} | {self.noticed} | {self.equivalent} | {len(self.survivors)}"
        return f"| {self.room} | {counts} | {self.share:.1%} |"


def main() -> int:
    """Prints a table and the survivors; 1 if a room fails or the list is wrong."""
    arguments = _parser().parse_args()
    everything = {name: mutants_in(room) for name, room in ROOMS.items()}
    listed = set(listed_mutants())
    there = {mutant.key for mutants in everything.values() for mutant in mutants}
    wrong = [f"listed, but gone: {key}" for key in sorted(listed - there)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="mutation-") as folder:
        tree = Tree(_REPOSITORY, Path(folder).resolve() / "tree")
        tests = _mapped(tree, arguments)
        for name in arguments.rooms:
            mutants = [each for each in everything[name] if arguments.only in str(each.key)]
            sample = _sample(mutants, arguments.seed)[: ROOMS[name].sample]
            tried = dict.fromkeys([*sample, *(each for each in mutants if each.key in listed)])
            noticed = [each for each in tried if _notice(tree, tests, each, ROOMS[name])]
            wrong += [f"listed, but noticed: {each.key}" for each in noticed if each.key in listed]
            rows.append(_row(name, sample, noticed, listed))
    survivors = [str(each.key) for row in rows for each in row.survivors]
    lines = [
        f"seed {arguments.seed}; survivors that are not known to be equivalent:",
        *(survivors or ["none"]),
        "",
        "| room | mutants | noticed | equivalent | other survivors | noticed of the rest |",
        "|---|---|---|---|---|---|",
        *map(str, rows),
        *wrong,
    ]
    passed = not wrong and all(row.share >= AT_LEAST for row in rows)
    sys.stdout.write("\n".join([*lines, "PASS" if passed else "FAIL", ""]))
    return 0 if passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("rooms", nargs="*", default=list(ROOMS), help=", ".join(ROOMS))
    parser.add_argument("--seed", default="17", help="another seed, another sample")
    parser.add_argument("--only", default="", help="mutants whose file, line or change has this")
    parser.add_argument("--tests", nargs="+", default=_FOLDERS, help="folders or files of tests")
    parser.add_argument("--map", type=Path, help="keep there which test runs which line")
    return parser


def mutants_in(room: Room) -> list[Mutant]:
    """Every mutant of a room's files."""
    paths = sorted(path for pattern in room.files for path in _REPOSITORY.glob(pattern))
    names = [path.relative_to(_REPOSITORY).as_posix() for path in paths]
    return [each for name in names for each in mutants_of(name, (_REPOSITORY / name).read_text())]


def listed_mutants() -> dict[Key, str]:
    """The mutants that no test can notice, each with the reason."""
    entries = tomllib.loads(_EQUIVALENT.read_text())["equivalent"]
    return {(each["file"], each["line"], each["mutation"]): each["reason"] for each in entries}


def _sample(mutants: Sequence[Mutant], seed: str) -> list[Mutant]:
    """In an order by chance; a change of the code moves the mutants of its own lines only."""
    return sorted(
        mutants, key=lambda each: hashlib.sha256(repr((seed, each.key)).encode()).digest()
    )


def _mapped(tree: Tree, arguments: argparse.Namespace) -> Map:
    if arguments.map is not None and arguments.map.exists():
        found: Map = pickle.loads(arguments.map.read_bytes())  # noqa: S301 # written below
        return found
    found = tree.mapped([*arguments.tests, *(f"--deselect={each}" for each in _TIMED)])
    if arguments.map is not None:
        arguments.map.write_bytes(pickle.dumps(found))
    return found


def _notice(tree: Tree, tests: Map, mutant: Mutant, room: Room) -> bool:
    start = time.monotonic()
    asked = tests.tests(mutant.path, mutant.lines, room.tests, room.seconds)
    end = tree.trial(mutant, asked, sum(tests.seconds[each] for each in asked))
    taken = f"{time.monotonic() - start:.1f} s of {len(asked)} tests"
    sys.stderr.write(f"{end.value}: {mutant.path}:{mutant.line}: {mutant.mutation} ({taken})\n")
    return end.noticed


def _row(name: str, sample: Sequence[Mutant], noticed: Sequence[Mutant], listed: set[Key]) -> Row:
    survivors = [each for each in sample if each not in noticed]
    return Row(
        room=name,
        noticed=len(sample) - len(survivors),
        equivalent=sum(each.key in listed for each in survivors),
        survivors=tuple(each for each in survivors if each.key not in listed),
    )


if __name__ == "__main__":
    sys.exit(main())
