"""``baselines/times/<machine>/<target>/<suite>.json``: accepted times, of which none is replaced.

The file is sorted, and writing the same times twice gives the same bytes. The samples of a session
stand on one line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import msgspec

from assay.judge.changes import Better
from assay.model.history import AcceptedTimes, History, KeptSession
from assay.model.timing import Machine, digest
from assay.model.units import Unit
from assay.store.baselines import BaselineError, Key, entry_key, entry_name
from assay.store.files import write_whole

SCHEMA = 1
FOLDER = "times"
_PENDING = "accepted-times"
_NUMBERS = re.compile(rb"\[\n\s*(-?[0-9][-+.0-9eE,\s]*?)\s*\]")


class _Point(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: str
    run: str
    why: str
    anew: bool
    toolchain: dict[str, str]
    sessions: list[KeptSession]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    unit: Unit
    better: Better
    points: list[_Point]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    suite: str
    target: str
    machine: dict[str, str]
    accepted: dict[str, _Entry]


class _Pending(msgspec.Struct, frozen=True):
    suite: str
    target: str
    key: Key
    machine: Machine
    point: AcceptedTimes


@dataclass(frozen=True, slots=True)
class Place:
    """Where times belong: one suite on one target, on the machine of that fingerprint."""

    machine: str
    suite: str
    target: str

    def path(self, root: Path) -> Path:
        """Its file (``:`` is written ``-``)."""
        return root / FOLDER / self.machine / self.target.replace(":", "-") / f"{self.suite}.json"


@dataclass(frozen=True, slots=True)
class Histories:
    """All accepted times of one place; ``identity`` is the machine's."""

    place: Place
    identity: Mapping[str, str]
    entries: Mapping[Key, _Entry] = field(default_factory=dict)

    def without(self, keys: Iterable[Key]) -> "Histories":
        """The same without some keys."""
        gone = set(keys)
        kept = {key: entry for key, entry in self.entries.items() if key not in gone}
        return replace(self, entries=kept)

    def accepting(self, key: Key, point: AcceptedTimes) -> "Histories":
        """The same with one more point; a run's own, written before, is written again."""
        entry = self.entries.get(key, _Entry(unit=Unit.SECONDS, better=Better.LESS, points=[]))
        others = [known for known in entry.points if known.run != point.run]
        new = _Point(
            at=point.at,
            run=point.run,
            why=point.why,
            anew=point.anew,
            toolchain=dict(sorted(point.toolchain.items())),
            sessions=list(point.sessions),
        )
        points = sorted([*others, new], key=lambda each: (each.at, each.run))
        entry = _Entry(unit=entry.unit, better=entry.better, points=points)
        return replace(self, entries={**self.entries, key: entry})


def history(root: Path, machine: Machine, suite: str, target: str, key: Key) -> History:
    """What was accepted under the key on a machine, the oldest first.

    Raises:
        BaselineError: the file is damaged, or speaks of something else.
    """
    place = Place(machine.fingerprint, suite, target)
    seen = any(place.path(root).parent.glob("*.json"))
    entry = load(root, place, machine.identity).entries.get(key)
    if entry is None:
        return History(machine=machine, seen=seen)
    points = tuple(
        AcceptedTimes(
            run=point.run,
            at=point.at,
            why=point.why,
            toolchain=point.toolchain,
            sessions=tuple(point.sessions),
            anew=point.anew,
        )
        for point in entry.points
    )
    return History(
        machine=machine, seen=seen, unit=entry.unit, better=entry.better.value, accepted=points
    )


def load(root: Path, place: Place, identity: Mapping[str, str]) -> Histories:
    """The accepted times of a place, none where there is no file.

    Raises:
        BaselineError: the file is damaged, or speaks of another suite, target or machine.
    """
    path = place.path(root)
    if not path.exists():
        return Histories(place, identity)
    file = _decode(path)
    told = (file.schema, file.suite, file.target, file.machine)
    if told != (SCHEMA, place.suite, place.target, dict(identity)):
        raise BaselineError(
            f"{path}: got schema {file.schema} for {file.suite} on {file.target}, {file.machine}, "
            f"wanted schema {SCHEMA} for {place.suite} on {place.target}, {dict(identity)}; "
            "move the file to its own place, or accept times here anew"
        )
    return _histories(path, place, file)


def on_every_machine(root: Path, suite: str, target: str) -> Iterator[Histories]:
    """The accepted times of a suite on a target, machine by machine.

    Raises:
        BaselineError: a file is damaged.
    """
    for folder in sorted((root / FOLDER).glob("*/")):
        place = Place(folder.name, suite, target)
        path = place.path(root)
        if path.exists():
            yield _histories(path, place, _decode(path))


def check_all(root: Path) -> None:
    """Read every file of accepted times.

    Raises:
        BaselineError: one of them is damaged, or lies where others belong.
    """
    for path in sorted((root / FOLDER).glob("*/*/*.json")):
        file = _decode(path)
        place = Place(path.parent.parent.name, file.suite, file.target)
        is_own = place.path(root) == path and place.machine.endswith(f"-{digest(file.machine)}")
        if file.schema != SCHEMA or not is_own:
            raise BaselineError(
                f"{path}: got schema {file.schema} for {file.suite} on {file.target}, "
                f"{file.machine}, wanted schema {SCHEMA} for what its place names; "
                "move the file to its own place, or accept times here anew"
            )
        _histories(path, place, file)


def save(root: Path, histories: Histories) -> Path:
    """Write the file, or remove it where nothing is accepted; returns its path.

    Raises:
        BaselineError: a name holds the ``/`` that stands between the names of an entry.
    """
    place, path = histories.place, histories.place.path(root)
    if not histories.entries:
        path.unlink(missing_ok=True)
        return path
    file = _File(
        schema=SCHEMA,
        suite=place.suite,
        target=place.target,
        machine=dict(sorted(histories.identity.items())),
        accepted={entry_name(path, key): entry for key, entry in sorted(histories.entries.items())},
    )
    text = msgspec.json.format(msgspec.json.encode(file), indent=1)
    write_whole(path, _NUMBERS.sub(_on_one_line, text) + b"\n")
    return path


def put_aside(
    directory: Path, suite: str, target: str, key: Key, machine: Machine, point: AcceptedTimes
) -> None:
    """Keep accepted times in a run's folder, until the one process that writes files takes them."""
    pending = _Pending(suite=suite, target=target, key=key, machine=machine, point=point)
    name = "-".join((suite, target, *key)).replace(":", "-").replace("/", "-")
    write_whole(directory / _PENDING / f"{name}.json", msgspec.json.encode(pending))


def write_accepted(root: Path, directory: Path) -> tuple[Path, ...]:
    """Write what was put aside in a run's folder; returns the files written.

    One process calls this at the end of a run, so that no two write the same file.
    """
    changed: dict[Place, Histories] = {}
    for path in sorted((directory / _PENDING).glob("*.json")):
        each = msgspec.json.decode(path.read_bytes(), type=_Pending)
        place = Place(each.machine.fingerprint, each.suite, each.target)
        if place not in changed:
            changed[place] = load(root, place, each.machine.identity)
        changed[place] = changed[place].accepting(each.key, each.point)
    return tuple(save(root, histories) for histories in changed.values())


def _histories(path: Path, place: Place, file: _File) -> Histories:
    entries = {entry_key(path, text): entry for text, entry in file.accepted.items()}
    for text, entry in file.accepted.items():
        for point in entry.points:
            if why := _unusable(point):
                raise BaselineError(
                    f"{path}: got {why} in {text}, run {point.run!r}, wanted what "
                    "--update-baselines writes; restore it from version control"
                )
    return Histories(place, file.machine, entries)


def _unusable(point: _Point) -> str:
    """What no run can have accepted, or nothing."""
    try:
        datetime.fromisoformat(point.at)
    except ValueError:
        return f"the time {point.at!r}"
    if not point.sessions:
        return "no session"
    if any(min(session.samples, default=0) <= 0 for session in point.sessions):
        return "a session without samples, or one that took no time"
    return ""


def _decode(path: Path) -> _File:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_File)
    except (OSError, msgspec.MsgspecError) as error:
        raise BaselineError(
            f"{path}: got a file that holds no accepted times ({error}), "
            "wanted what --update-baselines writes; restore it from version control"
        ) from None


def _on_one_line(array: re.Match[bytes]) -> bytes:
    return b"[" + b" ".join(array[1].split()) + b"]"
