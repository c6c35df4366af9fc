"""Messages between the two sides of a child process: pickled programs, requests and answers."""

import copyreg
import io
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType
from typing import Any, ClassVar, Final

import cloudpickle
import msgspec

from assay.model.blame import WrongValue, encodable
from assay.model.evidence import Evidence, Failure, FailureKind
from assay.model.timing import Times
from assay.model.workload import SizedVariant, Variant, Workload

RUN: Final = b"run"
"""The frame after an answer that asks: all processes of the group are ready."""


class NotPortable(WrongValue):
    """The workload cannot be sent to the observer's process."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A variant to measure, pickled as `pickled` does.

    With ``most_seconds`` alone its growing loop is timed, for about that long. With ``turns``,
    pickled as well, it is timed for about ``most_seconds``, in turns with the ``reference`` if
    there is one.
    """

    program: bytes
    reference: bytes | None = None
    turns: bytes | None = None
    most_seconds: float | None = None


class Answer(msgspec.Struct, frozen=True):
    """What the child says of a request: the evidence or the times, or why there are none.

    ``crash`` says where Assay itself failed, and ``trace`` is the traceback. ``failure`` is of a
    program that could not be loaded. ``died`` says what ended the process of the program, if that
    was a fork of the child. An answer that is not ``final`` is followed by others. It holds the
    times so far, or says that a stage begins: ``stage`` is the kind of failure if this stage fails
    (None in Assay's own work), and ``evidence`` is kept in this case. After an answer that
    ``asks``, the child waits for a frame: ``RUN`` lets the program run, and any other does not.
    """

    evidence: Evidence | None = None
    failure: Failure | None = None
    stage: FailureKind | None = None
    crash: str = ""
    trace: str = ""
    died: str = ""
    times: Times | None = None
    asks: bool = False
    final: bool = True


def encoded(message: Answer | Request) -> bytes:
    """The message as a payload; text that UTF-8 cannot hold, such as a file's odd name, is escaped.

    Programs may name their values, files and errors with any text that Python can hold.
    """
    try:
        return msgspec.msgpack.encode(message)
    except UnicodeEncodeError:
        plain = msgspec.to_builtins(message, builtin_types=(bytes,))
        return msgspec.msgpack.encode(_encodable(plain))


def _encodable(plain: Any) -> Any:
    if isinstance(plain, str):
        return encodable(plain)
    if isinstance(plain, dict):
        return {_encodable(key): _encodable(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [_encodable(value) for value in plain]
    return plain


def pickled(workload: Workload, variant: Variant, target: str) -> bytes:
    """The workload, with this variant alone, and the target.

    Raises:
        NotPortable: the workload holds something that cannot be pickled.
    """
    # Only this variant is sent: it must not fail by another's fault, and forty need not travel.
    alone = Variant(name=variant.name, role=variant.role, program=variant.program)
    if isinstance(variant, SizedVariant):
        alone = SizedVariant(
            name=variant.name, role=variant.role, program=variant.program, size=variant.size
        )
    bare = Workload(
        suite=workload.suite, name=workload.name, variants=(alone,), framework=workload.framework
    )
    programs = (variant.program, getattr(variant.program, "func", None))
    names = sorted({getattr(program, "__module__", "") for program in programs})
    modules = [sys.modules[name] for name in names if name in sys.modules]
    foreign = [module for module in modules if not _importable(module)]
    for module in foreign:
        cloudpickle.register_pickle_by_value(module)
    try:
        file = io.BytesIO()
        _Pickler(file).dump((bare, alone, target))
        return file.getvalue()
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


def _importable(module: ModuleType) -> bool:
    """Whether a fresh process would import this very module by its name.

    Its presence in ``sys.modules`` is no proof: pytest may have loaded it from a file.
    """
    path: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.__name__.split(".")
    for end in range(1, len(parts) + 1):
        name = ".".join(parts[:end])
        found = (finder.find_spec(name, path) for finder in sys.meta_path)
        spec = next(filter(None, found), None)
        path = spec.submodule_search_locations if spec else []
    origins = ("built-in", getattr(module, "__file__", None))
    return spec is not None and spec.origin in origins


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
            # Shardings and meshes hold devices. Each is sent as its number on this machine.
            number = [each.id for each in obj.client.devices()].index(obj.id)
            return _device, (number,)
        if type(obj).__name__ != "PjitFunction":
            return super().reducer_override(obj)
        state = (obj.__getstate__(), dict(obj.__dict__))
        return copyreg.__newobj__, (type(obj),), state, None, None, _restore  # type: ignore[attr-defined]


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
