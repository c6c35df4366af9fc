"""What a machine of the fleet does: a group of items, or a whole run, in a process of its own."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from assay.fleet.messages import Job, Lost, Place, Refused, Started, encode
from assay.isolate.child import Child, NotStartedError
from assay.model.blame import UsersFault
from assay.toolchains.environments import WrongVersions, environment
from assay.toolchains.pairs import link_assay

SESSION: Final = "assay.plugin.fleet_session"
"""The module that a worker's process runs."""
_FOREVER: Final = 1e9
"""A program has time limits of its own."""
_sessions: dict[bytes, Child] = {}


def run_group(job: bytes, items: Sequence[str], here: Place) -> Iterator[bytes]:
    """Run the items in this worker's session, which stays for the next group of the job.

    Yields the messages as bytes.
    """
    place = replace(here, folder=str(folder_of(job, here.id)))
    for other in _sessions.keys() - {job}:
        _sessions.pop(other).close()
    try:
        if job not in _sessions:
            _sessions[job] = _started(job, place)
        child = _sessions[job]
        child.send(msgspec.msgpack.encode(tuple(items)), _FOREVER)
        # It first says whether it collected the same items.
        answer = child.receive(_FOREVER)
        yield answer or encode(Started(place=place))
        for _ in items if not answer else ():
            yield child.receive(_FOREVER)
    except NotStartedError as error:
        yield encode(Lost(why=f"its session {error}", node=place.name))
    except (UsersFault, WrongVersions) as error:
        yield encode(Refused(reason=f"{place.name}: {error}"))
    except (EOFError, BrokenPipeError):
        gone = _sessions.pop(job)
        yield encode(Lost(why=gone.ending_with_stderr_tail(), node=place.name))


def folder_of(job: bytes, node: str) -> Path:
    """The folder of a job on a machine, which all its workers share."""
    run = msgspec.msgpack.decode(job, type=Job).run
    return Path(tempfile.gettempdir()) / f"assay-fleet-{os.getuid()}" / f"{run}-{node[:8]}"


def clean(job: bytes, node: str) -> None:
    """Remove the folders of a job on this machine."""
    folder = folder_of(job, node)
    for each in (folder, *folder.parent.glob(f"{folder.name}-*")):
        shutil.rmtree(each, ignore_errors=True)


def _started(job: bytes, place: Place) -> Child:
    """The process of a new session, after its job was sent.

    Raises:
        NotStartedError: the process did not start.
        UsersFault: the job's toolchain cannot be installed here.
        WrongVersions: what was installed is not what was asked for.
    """
    asked = msgspec.msgpack.decode(job, type=Job)
    interpreter, variables = sys.executable, {**os.environ, **asked.environment}
    if asked.toolchain:
        interpreter = str(environment(asked.recipe).interpreter)
        here = Path(place.folder).with_name(f"{Path(place.folder).name}-assay")
        if not here.exists():
            here.mkdir(parents=True)
            link_assay(here)
        paths = (str(here), variables.get("PYTHONPATH", ""))
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    child = Child([interpreter, "-P", "-m", SESSION], variables)
    child.await_ready()
    child.send(job, _FOREVER)
    child.send(msgspec.msgpack.encode(place), _FOREVER)
    return child
