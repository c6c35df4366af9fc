"""Pickling: a workload with one variant, sent to a process that may not have the user's modules."""

import copyreg
import io
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import cloudpickle

from assay.model.blame import WrongValue
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


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Sends devices, and functions that are jitted with their attributes, which tracing needs.

    A ``PjitFunction`` pickles its own state alone (jaxlib 0.10 to 0.12, pjit.cc).
    """

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
