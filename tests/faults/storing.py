"""Faults of what is written and read back: evidence, baselines, records, pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.faults.changes import Change, alters, finds_no_room, gives, raises
from tests.faults.fault import CRASHED, FAILED, MISUSE, SUITE, Fault
from tests.faults.reading import COMPILES

_FAILS = "Assay itself failed (exit 3)"
_SOME = ("-k", "parameters or temporaries")
_BASELINE = "baselines/cpu/mine.json"


def _writes(part: str, alter: Callable[[bytes], bytes]) -> Change:
    """``write_whole`` writes something else to the files that have this in their path."""

    def change(real: Callable[[Path, bytes], None]) -> Callable[[Path, bytes], None]:
        def stand_in(path: Path, data: bytes) -> None:
            real(path, alter(data) if part in str(path) else data)

        return stand_in

    return change


def _baseline(alter: Callable[[str], str]) -> Callable[[Path], None]:
    def prepare(root: Path) -> None:
        path = root / _BASELINE
        path.write_text(alter(path.read_text()))

    return prepare


def _with_unused_baseline(root: Path) -> None:
    path = root / _BASELINE
    file = json.loads(path.read_text())
    (number,) = file["baselines"].values()
    file["baselines"]["stacks/gone/temp-bytes"] = number
    path.write_text(json.dumps(file))


def _through_a_link(real: Callable[..., None]) -> Callable[..., None]:
    """Somebody put a link in place of the file: nothing is written through it."""

    def stand_in(folder: Path, record: object) -> None:
        link = folder / "records.jsonl"
        if not link.is_symlink():
            link.symlink_to("/dev/full")
        real(folder, record)

    return stand_in


def _is_twice() -> Change:
    def change(real: Callable[..., None]) -> Callable[..., None]:
        def stand_in(*arguments: object) -> None:
            real(*arguments)
            real(*arguments)

        return stand_in

    return change


def _is_lost_once() -> Change:
    def change(real: Callable[..., None]) -> Callable[..., None]:
        calls: list[None] = []

        def stand_in(*arguments: object) -> None:
            calls.append(None)
            if len(calls) != 3:
                real(*arguments)

        return stand_in

    return change


STORING = (
    Fault(
        name="evidence breaks off as it is written",
        place="assay.store.files:write_whole",
        change=_writes("/evidence/", lambda data: data[: len(data) // 2]),
        more=_SOME,
        ends=CRASHED,
        says=("evidence", _FAILS),
    ),
    Fault(
        name="an empty file of evidence is written",
        place="assay.store.files:write_whole",
        change=_writes("/evidence/", lambda _: b""),
        more=_SOME,
        ends=CRASHED,
        says=("evidence", _FAILS),
    ),
    Fault(
        name="no room for evidence",
        place="assay.store.files:write_whole",
        change=finds_no_room("/evidence/"),
        more=_SOME,
        ends=CRASHED,
        says=("No space left on device", _FAILS),
    ),
    Fault(
        name="all programs share one file of evidence",
        place="assay.store.evidence:MeasurementCache.path",
        change=alters(lambda path: path.with_name("one.json")),
        ends=CRASHED,
        says=("evidence", _FAILS),
    ),
    Fault(
        name="once raises",
        place="assay.store.evidence:once",
        change=raises(),
        more=_SOME,
        ends=CRASHED,
        says=("assay/store/evidence.py", _FAILS),
    ),
    Fault(
        name="baselines cannot be loaded",
        place="assay.store.baselines:load",
        change=raises(),
        ends=CRASHED,
        says=("assay/store/baselines.py",),
    ),
    Fault(
        name="the baseline file breaks off",
        prepare=_baseline(lambda text: text[: len(text) // 2]),
        ends=MISUSE,
        says=(_BASELINE, "restore it from version control"),
    ),
    Fault(
        name="the baseline file has another schema",
        prepare=_baseline(lambda text: text.replace('"schema": 1', '"schema": 99')),
        ends=MISUSE,
        says=(_BASELINE, "schema 99"),
    ),
    Fault(
        name="the baseline is not a number",
        prepare=_baseline(lambda text: text.replace('"value": ', '"value": NaN, "was": ')),
        ends=MISUSE,
        says=(_BASELINE,),
    ),
    Fault(
        name="the baseline is negative",
        prepare=_baseline(lambda text: text.replace('"value": ', '"value": -')),
        ends=FAILED,
        says=("temp-bytes", "The run fails (exit 1)"),
    ),
    Fault(
        name="the baselines are gone",
        prepare=lambda root: shutil.rmtree(root / "baselines"),
        ends=FAILED,
        says=("temp-bytes", "The run fails (exit 1)"),
    ),
    Fault(
        name="a baseline is of a program that is gone",
        prepare=_with_unused_baseline,
        ends=FAILED,
        says=("temp-bytes.unused", "stacks/gone", "The run fails (exit 1)"),
    ),
    Fault(
        name="the folder of baselines cannot be written",
        prepare=lambda root: (root / "file").touch(),
        more=("--assay-update-baselines=all", "--assay-baselines-dir=file/baselines"),
        ends=MISUSE,
        says=("--assay-baselines-dir",),
    ),
    Fault(
        name="no room for a baseline",
        place="assay.store.files:write_whole",
        change=finds_no_room("/baselines/"),
        prepare=_baseline(lambda text: text.replace('"value": ', '"value": 1')),
        more=("--assay-update-baselines=all",),
        ends=CRASHED,
        says=("No space left on device", "(exit 3)"),
    ),
    Fault(
        name="the baselines' folder refuses to be written",
        place="assay.store.baselines:save",
        change=raises(PermissionError),
        prepare=_baseline(lambda text: text.replace('"value": ', '"value": 1')),
        more=("--assay-update-baselines=all",),
        ends=CRASHED,
        says=("injected", "(exit 3)"),
    ),
    Fault(
        name="the run cannot be added to the history",
        place="assay.store.history:History.add",
        change=raises(PermissionError),
        more=(*COMPILES, "--assay-history=history.db"),
        ends=CRASHED,
        says=("injected", "(exit 3)"),
    ),
    Fault(
        name="no room for a record",
        place="assay.store.records:append",
        change=finds_no_room(),
        more=COMPILES,
        ends=CRASHED,
        says=("No space left on device", "(exit 3)"),
    ),
    Fault(
        name="the records are a link to another file",
        place="assay.store.records:append",
        change=_through_a_link,
        more=COMPILES,
        ends=CRASHED,
        says=("Too many levels of symbolic links", "(exit 3)"),
    ),
    Fault(
        name="records are not written",
        place="assay.store.records:append",
        change=gives(None),
        more=_SOME,
        ends=CRASHED,
        says=("records.jsonl", "(exit 3)"),
    ),
    Fault(
        name="one record is not written",
        place="assay.store.records:append",
        change=_is_lost_once(),
        ends=CRASHED,
        says=("records.jsonl", "(exit 3)"),
    ),
    Fault(
        name="records are written twice",
        place="assay.store.records:append",
        change=_is_twice(),
        more=_SOME,
        ends=CRASHED,
        says=("records.jsonl", "(exit 3)"),
    ),
    Fault(
        name="no room for summary.md",
        place="assay.store.files:write_whole",
        change=finds_no_room("summary.md"),
        more=COMPILES,
        ends=CRASHED,
        says=("summary.md", "(exit 3)"),
    ),
    Fault(
        name="no room for report.html",
        place="assay.store.files:write_whole",
        change=finds_no_room("report.html"),
        more=COMPILES,
        ends=CRASHED,
        says=("report.html", "(exit 3)"),
    ),
    Fault(
        name="no room for junit.xml",
        place="assay.store.files:write_whole",
        change=finds_no_room("junit.xml"),
        more=COMPILES,
        ends=CRASHED,
        says=("junit.xml", "(exit 3)"),
    ),
    Fault(
        name="no room for invocation.json",
        place="assay.store.files:write_whole",
        change=finds_no_room("invocation.json"),
        more=COMPILES,
        ends=CRASHED,
        says=("invocation.json", "(exit 3)"),
    ),
    Fault(
        name="the results cannot be made",
        command=SUITE,
        more=("--assay-results-dir=/proc/assay", *COMPILES),
        ends=MISUSE,
        says=("/proc/assay",),
    ),
    Fault(
        name="the results are a file",
        prepare=lambda root: (root / "results").touch(),
        ends=MISUSE,
        says=("--assay-results-dir",),
    ),
    Fault(
        name="latest is a folder",
        prepare=lambda root: (root / "results/latest/kept").mkdir(parents=True),
        more=COMPILES,
        ends=CRASHED,
        says=("latest", "(exit 3)"),
    ),
)
