"""``python -m tests.faults.page``: put every fault to the project, and write ``docs/faults.md``.

After each fault the run goes on without it, by ``--assay-resume``. Ends with 1 if a verdict is
lost, twice or changed.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from textwrap import shorten

from assay.model.verdict import Outcome, Record
from assay.report.labels import plural
from assay.store import records
from tests.faults.conftest import Ended, Project, passing_project
from tests.faults.fault import Fault
from tests.faults.injection import NAME
from tests.faults.machine import MOUNTED
from tests.faults.mounted import mounts_work
from tests.faults.table import FAULTS, KILLED_CONTROLLER

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "faults.md"
ALL = (*FAULTS, KILLED_CONTROLLER)
_KEPT = "nothing lost"
_CHARACTERS = 220
_EXCEPTION = r"(E )?[\w.]+(Error|Fault): "
_SIGNAL = "the shell reports the signal; `assay report` says that the run was interrupted"
_WRITES_TWICE = "records are written twice"
_CHANGES = {
    "raises": "raises an exception",
    "gives": "returns a wrong value",
    "alters": "its result is changed",
    "finds_no_room": "finds the disk full",
    "is_killed": "its process is killed by a signal",
    "hangs": "never returns",
    "_writes": "writes other bytes",
    "_refuses": "the system refuses it",
    "_uses_all": "finds that the program exceeds its memory",
    "_through_a_link": "finds a link in place of `records.jsonl`",
    "_is_twice": "happens twice",
    "_is_lost_once": "is left out once",
}
_HEAD = """# Faults, and what they cost

`tests/faults` breaks one part of Assay or of the machine at a time, runs a small project, and
requires the exit code and the sentence of this table. `python -m tests.faults.page` wrote the table
on {date}: it ran every fault, repeated the command without the fault and with `--assay-resume`, and
compared the records. "Nothing lost" means that every verdict on disk stays as it is, that the
continued run has every verdict of an undisturbed one, and that no verdict is there twice. Errors of
Assay judged nothing; they are judged again.

Beyond the table, `tests/plugin/test_nothing_lost.py` kills the controller, the worker and the child
100 times at random moments: the records on disk stay, and the resumed run ends like a run without
the fault. Exit codes: 0 no regression, 1 regression or incomplete run, 2 misuse, 3 Assay failed.

| Fault | How it is injected | Exit code | What the user sees | What was lost |
|---|---|---|---|---|
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table."""

    fault: Fault
    ended: Ended
    root: Path
    lost: str

    def __str__(self) -> str:
        cells = (
            self.fault.name,
            how(self.fault),
            str(self.ended.exit_code),
            sentence(self.fault, self.ended).replace(str(self.root), "."),
            self.lost,
        )
        return f"| {' | '.join(each.replace('|', '&#124;') for each in cells)} |"


def how(fault: Fault) -> str:
    """How the fault is injected."""
    if fault.how:
        return fault.how
    if fault.hides:
        return f"`{', '.join(fault.hides)}` cannot be imported"
    if fault.change is None:
        return "the files or the command of the project are changed first"
    name = fault.change.__qualname__.partition(".")[0]
    return f"`{fault.place.removeprefix('assay.')}` {_CHANGES.get(name, 'is replaced')}"


def sentence(fault: Fault, ended: Ended) -> str:
    """The line that names the part, else the one with the exit code, else the exception there."""
    text = ended.output.replace(f"{ROOT}/", "")
    lines = [" ".join(line.removeprefix("INTERNALERROR>").split()) for line in text.splitlines()]
    named = [line for line in lines if any(words in line for words in fault.says)]
    told = [line for line in named if line.startswith(("ERROR", "FAILED", "Exit:", "assay:"))]
    ends = [line for line in lines if f"(exit {fault.ends})" in line]
    errors = [line.removeprefix("E ") for line in lines if re.match(_EXCEPTION, line)]
    raised = [f"{' '.join(fault.says[:1])}: {line}" for line in errors[-1:]]
    found = [*told, *ends, *raised, *named, _SIGNAL][0]
    return shorten(found, _CHARACTERS, placeholder=" …")


def command_of(fault: Fault) -> tuple[str, ...]:
    """The command without the fault."""
    command = fault.command[len(MOUNTED) + 2 :] if fault.mounts else fault.command
    return (*command, *fault.more)


@lru_cache
def undisturbed(base: Path, command: Sequence[str]) -> frozenset[tuple[str, ...]]:
    """The keys of the verdicts that the command reaches when nothing is at fault."""
    with tempfile.TemporaryDirectory() as folder:
        project = _copied(base, Path(folder) / "project")
        project.run(command, {})
        return frozenset(record.key for record in _records(project.root) or ())


def lost(base: Path, project: Project, fault: Fault) -> str:
    """What was lost, after the run went on without the fault."""
    before = _records(project.root)
    if not before:
        return f"{_KEPT}: no verdict was reached"
    command = command_of(fault)
    if "pytest" not in command:
        return f"{_KEPT}: {plural(len(before), 'verdict')} on disk"
    kept = [record for record in before if record.verdict is not Outcome.ERROR]
    (run,) = (project.root / "results").glob("2*")
    project.run([*command, f"--assay-resume=results/{run.name}"], {})
    after = _records(project.root) or ()
    keys = [record.key for record in after]
    wrong = []
    if list(after[: len(kept)]) != kept:
        wrong.append("records changed")
    if len(set(keys)) < len(keys) and fault.name != _WRITES_TWICE:
        wrong.append("a verdict is there twice")
    if missing := undisturbed(base, command) - set(keys):
        wrong.append(f"{len(missing)} verdicts are missing")
    if wrong:
        return f"LOST: {', '.join(wrong)}"
    return (
        f"{_KEPT}: {len(kept)} verdicts kept, {len(after) - len(kept)} reached by `--assay-resume`"
    )


def _records(root: Path) -> tuple[Record, ...] | None:
    files = list((root / "results").glob("2*/records.jsonl"))
    # A link to /dev/full has no end.
    return records.load(files[0]) if files and not files[0].is_symlink() else None


def _copied(base: Path, root: Path) -> Project:
    shutil.copytree(base, root)
    return Project(root=root)


def row(base: Path, root: Path, fault: Fault) -> Row:
    """Put the fault to a copy of the project."""
    project = _copied(base, root)
    fault.prepare(project.root)
    ended = project.run([*fault.command, *fault.more], {NAME: fault.name})
    found = Row(fault=fault, ended=ended, root=root, lost=lost(base, project, fault))
    shutil.rmtree(root)
    sys.stderr.write(f"{found}\n")
    return found


def main() -> int:
    """Write the page; 1 if something was lost."""
    if not mounts_work():
        raise SystemExit("got no right to mount a disk, wanted root, as in a virtual machine")
    with tempfile.TemporaryDirectory(prefix="faults-") as text:
        base = passing_project(Path(text) / "base").root
        places = (Path(text) / str(number) for number in range(len(ALL)))
        with ThreadPoolExecutor(2) as pool:
            rows = list(pool.map(lambda each: row(base, *each), zip(places, ALL, strict=True)))
    head = _HEAD.format(date=datetime.now(UTC).date().isoformat())
    PAGE.write_text(head + "".join(f"{each}\n" for each in rows))
    return int(any(not each.lost.startswith(_KEPT) for each in rows))


if __name__ == "__main__":
    sys.exit(main())
