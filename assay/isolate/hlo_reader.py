"""``python -m assay.isolate.hlo_reader``: reads a file of HLO in a process of its own.

The file may come from anybody. XLA's parsers of text abort on some of it, and a file can be made so
that reading takes all time or memory. Then this process ends, and not the one that asked.
"""

import os
import resource
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from assay.frameworks.hlo import (
    MOST_BYTES,
    Form,
    HloFile,
    NoModule,
    recognise,
    why_not_compiled_again,
)
from assay.hlo.assignment import memory_stats
from assay.hlo.schema import MalformedModule
from assay.hlo.summary import read_foreign
from assay.isolate.child import READY, Child, NotStartedError, own_pipes, read, write
from assay.isolate.memory import MemoryExceeded, usual_limit
from assay.isolate.observer import ObservationError
from assay.model.blame import WrongValue, encodable
from assay.model.evidence import Memory
from assay.model.summary import ModuleSummary
from assay.store.files import read_file

_COMMAND: Final = (sys.executable, "-m", "assay.isolate.hlo_reader")


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A file and what is asked of it: see ``read_hlo``."""

    path: str
    platforms: tuple[str, ...]
    as_is: bool
    compile_it: bool


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a file of HLO.

    If the module is to be read as it stands, ``summaries`` has one for each platform. Else
    ``obstacles`` say for each platform why the module cannot be compiled again, or "" if it can.
    ``memory`` is None if the module is not read, or its file has no buffer assignment.
    """

    file: HloFile
    scheduled: bool
    summaries: Mapping[str, ModuleSummary] = {}
    memory: Memory | None = None
    obstacles: Mapping[str, str] = {}


class _Answer(msgspec.Struct, frozen=True):
    """A reading, or why there is none; ``crash`` is the traceback of a fault of Assay."""

    reading: Reading | None = None
    refused: str = ""
    crash: str = ""


def read_hlo(
    data: bytes, name: str, platforms: Sequence[str], *, as_is: bool, compile_it: bool
) -> Reading:
    """What ``data`` holds; errors call the file ``name``.

    With ``as_is`` the module is read as it stands for each platform. So is a scheduled module,
    unless ``compile_it``.

    Raises:
        NoModule: it holds none, only a part of one, or one that cannot be read as it stands.
    """
    try:
        file = recognise(data, name)
        scheduled = file.scheduled
        if not (as_is or (scheduled and not compile_it)):
            obstacles = {each: why_not_compiled_again(file, each) for each in platforms}
            return Reading(file=file, scheduled=scheduled, obstacles=obstacles)
        if file.form is Form.STABLEHLO:
            raise NoModule(
                f"got {name}, {file.form.value}, wanted HLO to read as it stands; "
                "name a --target to compile it for, and omit --as-is"
            )
        assigned = file.buffer_assignment
        return Reading(
            file=file,
            scheduled=scheduled,
            summaries={
                each: read_foreign(file.module, assigned, platform=each) for each in platforms
            },
            memory=memory_stats(assigned) if assigned else None,
        )
    except MalformedModule as error:
        raise NoModule(f"{name}: {error}") from error


def read_hlo_file(
    path: Path, platforms: Sequence[str], *, as_is: bool, compile_it: bool, seconds: float
) -> Reading:
    """What a file holds (``read_hlo``), read in another process within so many seconds.

    Raises:
        WrongValue: the file cannot be read, or holds no module.
        ObservationError: Assay itself failed.
    """
    question = Question(
        path=str(path), platforms=tuple(platforms), as_is=as_is, compile_it=compile_it
    )
    child = Child(_COMMAND, os.environ, usual_limit())
    try:
        child.await_ready()
        child.send(msgspec.json.encode(question), seconds)
        answer = msgspec.msgpack.decode(child.receive(seconds), type=_Answer)
    except NotStartedError as error:
        raise ObservationError(f"the reader of HLO files {error}") from None
    except TimeoutError:
        raise WrongValue(
            f"got {path}, which is not read within {seconds:g} s, wanted a module that is; raise "
            "--compile-timeout if it is large"
        ) from None
    except MemoryExceeded as exceeded:
        raise WrongValue(
            f"got {path}, which takes too much memory to read ({exceeded}), wanted a module that "
            "this machine can read; use a smaller one, or a larger machine"
        ) from None
    except (EOFError, BrokenPipeError):
        raise WrongValue(
            f"got {path}, on which XLA's own parser aborts ({child.ending_with_stderr_tail()}), "
            "wanted HLO that XLA reads; dump the module again, as a proto if it is text"
        ) from None
    finally:
        child.close()
    if answer.reading is None:
        if answer.crash:
            fault = ObservationError(f"the reader failed on {path}")
            fault.add_note(answer.crash)
            raise fault
        raise WrongValue(answer.refused)
    return answer.reading


def _answer(question: Question) -> _Answer:
    path = Path(question.path)
    asked = {"as_is": question.as_is, "compile_it": question.compile_it}
    try:
        data = read_file(path, MOST_BYTES)
        return _Answer(reading=read_hlo(data, str(path), question.platforms, **asked))
    except OSError as error:
        return _Answer(
            refused=f"got {path}, which cannot be read ({error.strerror}), wanted a file of HLO or "
            "FILE.py:FUNCTION; check the path"
        )
    except NoModule as error:
        return _Answer(refused=str(error))
    # The parent must receive every exception of the child as text.
    except Exception:  # noqa: BLE001
        return _Answer(crash=traceback.format_exc())


def serve() -> None:
    """Answer one question."""
    requests, answers = own_pipes()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    write(answers, READY)
    question = msgspec.json.decode(read(requests, None), type=Question)
    answer = _answer(question)
    words = {"refused": encodable(answer.refused), "crash": encodable(answer.crash)}
    write(answers, msgspec.msgpack.encode(msgspec.structs.replace(answer, **words)))


if __name__ == "__main__":
    serve()
