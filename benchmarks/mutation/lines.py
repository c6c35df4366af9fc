"""Which test runs which line: ``sys.monitoring`` in the tests' process and in its children.

A copy of this file is the ``sitecustomize.py`` of the copied tree. A line is written down when a
test runs it for the first time, so that a process that is killed has told what it ran.
"""

import os
import sys
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from types import CodeType
from typing import Final

FOLDER: Final = "MUTATION_LINES"  # the variable that names the folder of the files below
TESTS: Final = "tests.txt"
_TEST: Final = "test"
_RAN: Final = "ran.txt"
_DIGITS: Final = 8


def start(folder: Path) -> None:
    """Write down every line of the copied tree's ``assay`` that this process and its forks run."""
    watch = sys.monitoring
    inside = f"{folder.parent}/assay/"
    test = os.open(folder / _TEST, os.O_RDONLY)
    ran = os.open(folder / _RAN, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def line(code: CodeType, number: int) -> object:
        if code.co_filename.startswith(inside):
            path = code.co_filename[len(inside) :]
            os.write(ran, os.pread(test, _DIGITS, 0) + f" assay/{path} {number}\n".encode())
        return watch.DISABLE

    watch.use_tool_id(watch.COVERAGE_ID, "mutation")
    watch.register_callback(watch.COVERAGE_ID, watch.events.LINE, line)
    watch.set_events(watch.COVERAGE_ID, watch.events.LINE)


def begin(folder: Path, test: int) -> None:
    """From here on lines belong to the test of this number; before the first they are imports'."""
    folder.mkdir(exist_ok=True)
    (folder / _TEST).touch()
    with (folder / _TEST).open("r+") as file:
        file.write(f"{test:0{_DIGITS}}")
    sys.monitoring.restart_events()


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """The tests that pass on the unchanged tree, their seconds, and who runs which line."""

    seconds: dict[str, float]
    ran: dict[str, dict[int, set[str]]]

    @classmethod
    def read(cls, folder: Path) -> "Map":
        """What was written down in this folder."""
        told = [line.split(" ", 2) for line in (folder / TESTS).read_text().splitlines()]
        names = {
            f"{number:0{_DIGITS}}": name
            for number, (_, ended, name) in enumerate(told, start=1)
            if ended == "passed"
        }
        ran: dict[str, dict[int, set[str]]] = {}
        for line in (folder / _RAN).read_text().splitlines():
            test, path, number = line.split(" ")
            if test in names:
                ran.setdefault(path, {}).setdefault(int(number), set()).add(names[test])
        return cls(seconds={name: float(taken) for taken, _, name in told}, ran=ran)

    def tests(self, path: str, lines: range, folder: str, most_seconds: float) -> list[str]:
        """Whom to ask of these lines: those that run them, this folder's and fast ones first.

        A fixture or a cache may have run a line for an earlier test, so the rest of the same files
        follows. Of what the import runs, and where no test runs a line, all of these are asked.
        """
        ran = self.ran.get(path, {})
        direct = set().union(*(ran.get(line, set()) for line in lines))
        near = direct or set().union(*ran.values())
        files = {each.partition("::")[0] for each in near}
        also = {each for each in self.seconds if each.partition("::")[0] in files}
        order = [*self._ranked(direct, folder), *self._ranked(also - direct, folder)]
        begins = accumulate((self.seconds[each] for each in order[:-1]), initial=0.0)
        timed = zip(order, begins, strict=True) if order else ()
        return [each for each, seconds in timed if seconds < most_seconds]

    def _ranked(self, tests: set[str], folder: str) -> list[str]:
        away = f"{folder}/"
        return sorted(tests, key=lambda each: (not each.startswith(away), self.seconds[each], each))


if __name__ == "sitecustomize" and FOLDER in os.environ:
    start(Path(os.environ[FOLDER]))
