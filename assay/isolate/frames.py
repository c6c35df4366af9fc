"""Frames between the two sides of a child process, and the pickled workloads that they carry."""

import copyreg
import io
import os
import select
import signal
import struct
import sys
import threading
import time
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import IO, Any, ClassVar

import cloudpickle
import msgspec

from assay.model.blame import WrongValue, encodable
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.timing import TimedPair, Times
from assay.model.workload import Variant, Workload


class NotPortable(WrongValue):
    """The workload cannot be sent to the observer's process."""


def pickled(workload: Workload, variant: Variant, target: str) -> bytes:
    """The workload, with this variant alone, and the target.

    Raises:
        NotPortable: the workload holds something that cannot be pickled.
    """
    # Only this variant is sent: another's fault is not its own, and forty variants need not travel.
    alone = Variant(name=variant.name, role=variant.role, program=variant.program)
    bare = Workload(
        suite=workload.suite, name=workload.name, variants=(alone,), framework=workload.framework
    )
    foreign = [module for module in _modules_of(alone) if not _importable(module)]
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        return _dumped((bare, alone, target))
    # Pickling runs the user's objects' code, which may raise anything.
    except Exception as error:
        raise NotPortable(
            f"got variant {variant.name!r} of {workload.name!r} that cannot be sent to another "
            f"process ({error}), wanted functions and plain values; build arrays inside the "
            "program's functions"
        ) from error
    finally:
        for module in foreign:
            cloudpickle.unregister_pickle_by_value(module)


def _dumped(value: object) -> bytes:
    file = io.BytesIO()
    _Pickler(file).dump(value)
    return file.getvalue()


def _code(code: CodeType) -> Any:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _from_file, (code.co_filename, make, arguments)


def _from_file(filename: str, make: Callable[..., CodeType], arguments: Sequence[Any]) -> CodeType:
    return make(*arguments).replace(co_filename=filename)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Sends devices, jitted functions with their attributes, and the file of each function.

    A ``PjitFunction`` pickles only its own state (jaxlib 0.10 to 0.12, pjit.cc). cloudpickle 3.1.3
    sends ``<dynamic-code>`` in place of the file, which measurements and failures name.
    """

    dispatch_table: ClassVar = ChainMap({CodeType: _code}, cloudpickle.Pickler.dispatch_table)

    def reducer_override(self, obj: Any) -> Any:
        if type(obj).__name__ == "Device" and type(obj).__module__.startswith("jaxlib"):
            return _device, (self._number(obj),)
        if type(obj).__name__ != "PjitFunction":
            return super().reducer_override(obj)
        state = (obj.__getstate__(), dict(obj.__dict__))
        return copyreg.__newobj__, (type(obj),), state, None, None, _restore  # type: ignore[attr-defined]

    @staticmethod
    def _number(device: Any) -> int:
        """Which of its machine's devices it is: shardings and meshes hold devices."""
        return [each.id for each in device.client.devices()].index(device.id)


def _device(number: int) -> Any:
    """The target's device in the place of one of this machine's."""
    import jax

    devices = jax.devices()
    if number >= len(devices):
        raise WrongValue(
            f"got a mesh or sharding with device {number} of this machine, wanted one of the "
            f"target's {len(devices)}; name a target with more devices"
        )
    return devices[number]


def _restore(jitted: Any, state: tuple[Any, dict[str, Any]]) -> None:
    own, attributes = state
    jitted.__setstate__(own)
    jitted.__dict__.update(attributes)


def _modules_of(variant: Variant) -> list[ModuleType]:
    programs = (variant.program, getattr(variant.program, "func", None))
    names = {getattr(program, "__module__", "") for program in programs}
    return [sys.modules[name] for name in sorted(names) if name in sys.modules]


def _importable(module: ModuleType) -> bool:
    """Whether a fresh process would import this very module by its name.

    Its presence in ``sys.modules`` does not tell: pytest may have loaded it from a file.
    """
    if module.__name__ in sys.builtin_module_names:
        return True
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.__name__.split(".")
    for end in range(1, len(parts) + 1):
        spec = _find(".".join(parts[:end]), path)
        path = spec.submodule_search_locations if spec else []
    return spec is not None and spec.origin == getattr(module, "__file__", None)


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    found = (finder.find_spec(name, path) for finder in sys.meta_path)
    return next(filter(None, found), None)


def own_pipes() -> tuple[IO[bytes], IO[bytes]]:
    """The streams of requests and of answers, taken off standard input and output.

    From here on this process ends once nobody can ask any more.
    """
    requests = os.fdopen(os.dup(0), "rb")
    answers = os.fdopen(os.dup(1), "wb")
    # What a program reads or prints must reach neither the requests nor the answers.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    end_with_parent(requests)
    return requests, answers


def end_with_parent(requests: IO[bytes]) -> None:
    """End this process once nobody can ask any more, even in the middle of a program."""

    def wait() -> None:
        hangup = select.poll()
        hangup.register(requests.fileno(), 0)
        hangup.poll()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


READY = b"ready"
_LENGTH = struct.Struct("<I")
_MOST_AT_ONCE = 2**20


class Answer(msgspec.Struct, frozen=True):
    """What the child says of a request: the evidence or the times, or how it came to none.

    ``crash`` says where Assay itself failed, and ``trace`` is the traceback; ``failure`` is that of
    a program that could not be loaded; ``died`` is what ended the process that the program ran in,
    where that was not the child itself. More answers to the same request follow one that is not
    ``final``: it holds the times so far, or names the stage that begins, by the failure that would
    be its own (None is Assay's own work), with the evidence so far where that is worth keeping.
    """

    evidence: Evidence | None = None
    failure: Failure | None = None
    stage: FailureKind | None = None
    crash: str = ""
    trace: str = ""
    died: str = ""
    times: Times | None = None
    final: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TimesRequest:
    """A request for times; each variant travels as it would by itself, the question by itself."""

    reference: bytes | None
    judged: bytes
    turns: bytes
    most_seconds: float

    def pair(self) -> TimedPair:
        """What was asked for, in the process that it was sent to."""
        workload, judged, target = cloudpickle.loads(self.judged)
        return TimedPair(
            workload=workload,
            reference=cloudpickle.loads(self.reference)[1] if self.reference else None,
            judged=judged,
            target=target,
            turns=cloudpickle.loads(self.turns),
            most_seconds=self.most_seconds,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRequest:
    """A request for times of a growing loop; its variant travels as it would by itself."""

    program: bytes
    most_seconds: float


def encoded(answer: Answer) -> bytes:
    """The answer as a payload; text that UTF-8 cannot hold, such as a file's odd name, is escaped.

    Programs may name their values, files and errors with any text that Python can hold.
    """
    try:
        return msgspec.msgpack.encode(answer)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(answer, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_encodable(plain))


def decoded(payload: bytes) -> Answer:
    """The answer that a payload holds."""
    return msgspec.msgpack.decode(payload, type=Answer)


def _encodable(plain: Any) -> Any:
    if isinstance(plain, str):
        return encodable(plain)
    if isinstance(plain, dict):
        return {_encodable(key): _encodable(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_encodable(value) for value in plain]
    return plain


def write(stream: IO[bytes], payload: bytes) -> None:
    """Send one frame."""
    stream.write(_LENGTH.pack(len(payload)) + payload)
    stream.flush()


def read(stream: IO[bytes], timeout_seconds: float | None) -> bytes:
    """The next frame.

    Raises:
        TimeoutError: the whole frame did not come in that time.
        EOFError: the other side is gone.
    """
    deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, deadline))
    return _exactly(stream, length, deadline)


def _exactly(stream: IO[bytes], count: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < count:
        if deadline is not None:
            left = max(0.0, deadline - time.monotonic())
            if not select.select([stream], [], [], left)[0]:
                raise TimeoutError
        # Past the stream's own buffer: a frame that waited there would not be seen by select.
        part = os.read(stream.fileno(), min(count - len(data), _MOST_AT_ONCE))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


def how_it_ended(code: int) -> str:
    """``SIGABRT``, or ``exit status 3``, of a process's exit code as ``subprocess`` gives it."""
    return signal.Signals(-code).name if code < 0 else f"exit status {code}"
