"""``--assay-resume``: an interrupted run goes on in its folder, and judges what is missing."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from filelock import FileLock, Timeout

from assay.frameworks.installed import KNOWN, PACKAGES, toolchain
from assay.model.verdict import Invocation, Outcome, Record
from assay.plugin.settings import SettingsError
from assay.store import evidence, records
from assay.store.records import RecordsError

_LOCK = ".run-lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
    """What the interrupted run left: its verdicts, and how it was started.

    ``errors`` counts verdicts that judged nothing, because Assay failed, and are reached again.
    """

    directory: Path
    records: tuple[Record, ...]
    invocation: Invocation
    lock: FileLock | None
    torn: bool
    errors: int


def earlier_run(directory: Path, *, in_worker: bool) -> Earlier:
    """The interrupted run of a folder. A last line that it did not finish is removed.

    Outside of a worker the run is locked.

    Raises:
        SettingsError: there is no such run, it is damaged, it still runs, or it had another
            toolchain.
    """
    if not (directory / records.FILE_NAME).is_file():
        raise SettingsError(
            f"got --assay-resume={directory} without a {records.FILE_NAME}, wanted the folder of "
            "an interrupted run, such as results/latest"
        )
    try:
        lock = None if in_worker else claim(directory)
        torn = False if in_worker else records.recover(directory)
        found = records.load(directory)
        invocation = records.invocation_of(directory)
    except RecordsError as error:
        raise SettingsError(f"--assay-resume: {error}") from None
    _check_toolchain(directory, found)
    reached = tuple(record for record in found if record.verdict is not Outcome.ERROR)
    if len(reached) < len(found) and not in_worker:
        evidence.drop_damaged(directory)
    return Earlier(
        directory=directory,
        records=reached,
        invocation=invocation,
        lock=lock,
        torn=torn,
        errors=len(found) - len(reached),
    )


def _check_toolchain(directory: Path, reached: Iterable[Record]) -> None:
    """Raise SettingsError if the run's verdicts are of another toolchain or kind of machine."""
    now: dict[str, str] = {}
    for framework in KNOWN:
        for backend in ("cpu", "cuda", "tpu"):
            now |= toolchain(framework, backend).identity
    for record in reached:
        before = record.toolchain
        for name in before and (before.keys() & PACKAGES) | {"flags"} | (before.keys() & now):
            if before.get(name, "") != now.get(name, ""):
                raise SettingsError(
                    f"got --assay-resume={directory} of a run with {name} "
                    f"{before.get(name) or '(none)'}, and here it is {now.get(name) or '(none)'}; "
                    "continue with the toolchain of that run, or start a new run"
                )


def claim(directory: Path) -> FileLock:
    """The lock of a run's folder, held. Raises SettingsError if another run holds it."""
    lock = FileLock(directory / _LOCK)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise SettingsError(
            f"got {directory}, whose run has not ended, wanted an interrupted run; wait for it"
        ) from None
    return lock


def continued(earlier: Earlier, fresh: Invocation) -> Invocation:
    """What the interrupted run noted, with the ending of the new one.

    Raises:
        SettingsError: the run was started with other options that decide verdicts.
    """
    before, now = _options(earlier.invocation.command), _options(fresh.command)
    if before != now:
        raise SettingsError(
            f"got --assay-resume={earlier.directory} with {' '.join(now) or 'no options'}, and "
            f"the run was started with {' '.join(before) or 'none'}; give the same options"
        )
    return replace(earlier.invocation, ending=fresh.ending)


def _options(command: Sequence[str]) -> tuple[str, ...]:
    """The options of a command, with their values."""
    first = next((at for at, word in enumerate(command) if word.startswith("-")), len(command))
    return tuple(command[first:])


def digests(root: Path, nodeids: Iterable[str]) -> dict[str, str]:
    """The folders of the tests, each with a digest of its Python files."""
    folders = {str(Path(nodeid.partition("::")[0]).parent) for nodeid in nodeids}
    return {folder: _digest(root / folder) for folder in sorted(folders)}


def _digest(folder: Path) -> str:
    files = hashlib.sha256()
    for path in sorted(folder.glob("*.py")):
        files.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return files.hexdigest()


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The folders in both whose files differ."""
    return [folder for folder in now if before.get(folder, now[folder]) != now[folder]]
