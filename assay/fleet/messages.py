"""What a fleet's machines send one another: how a session starts, and what it reports."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec

from assay.frameworks.installed import KNOWN, toolchain
from assay.store.files import digest_of
from assay.toolchains.recipe import Recipe, checked, recipe


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the fleet: its name for people, Ray's id, and the folder of the run there."""

    name: str
    id: str
    folder: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """The pytest session that a worker starts.

    ``arguments`` are pytest's, given in the folder ``root`` (empty: where the worker is).
    ``selected`` are the ids that the driver selected, in its order. ``toolchain`` names another one
    to run on, with the packages ``also``. ``identity`` is what the driver runs on. With
    ``keeps_programs`` compiled programs come back too.
    """

    arguments: tuple[str, ...]
    run: str = ""
    selected: tuple[str, ...] = ()
    root: str = ""
    environment: Mapping[str, str] = {}
    toolchain: str = ""
    also: tuple[str, ...] = ()
    identity: Mapping[str, str] = {}
    keeps_programs: bool = False

    @property
    def recipe(self) -> Recipe:
        """The recipe of the toolchain. Raises UnreadableToolchain if no toolchain has that name."""
        found = recipe(self.toolchain)
        wanted = {*found.requirements, *map(checked, self.also)}
        return replace(found, requirements=tuple(sorted(wanted)))


class Started(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The session of a worker is ready and runs the first item."""

    place: Place


class Ended(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """An item ended: pytest's reports as JSON, and the files that it added to the run's folder.

    Of a whole run, the reports are its exit code as JSON, and the files are all of its folder.
    """

    item: str
    reports: bytes
    files: Mapping[str, bytes] = {}


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The worker cannot run what the driver asks for: got …, wanted …."""

    reason: str


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """No more messages come from the worker. Says why, and the machine if it is known."""

    why: str
    node: str = ""


Message = Started | Ended | Refused | Lost


def encode(message: Message | Job | tuple[str, ...]) -> bytes:
    """The message as bytes."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes) -> Message:
    """The message in the bytes."""
    message: Message = msgspec.msgpack.decode(data, type=Message)
    return message


@cache
def identity() -> dict[str, str]:
    """Assay's own digest, and the versions of every compiler and framework here.

    The machines of a fleet need not have the same processor.
    """
    versions: dict[str, str] = {}
    for framework in KNOWN:
        for backend in ("cpu", "cuda", "tpu"):
            versions |= toolchain(framework, backend).versions
    versions.pop("host-isa", None)
    return {"assay": digest_of(Path(__file__).parents[1])[:12], **versions}
