"""The target's devices as the machine's own: code that was written for them runs unmodified."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from assay.targets.jax_internals import mesh_makers, mesh_setter

if TYPE_CHECKING:
    from assay.targets.jax_internals import Device

_SPELLINGS = {"gpu": {"gpu", "cuda"}}


class _Asked:
    """A module with another answer to one question."""

    def __init__(self, module: ModuleType, question: str, answer: Callable[..., Any]) -> None:
        self._module = module
        setattr(self, question, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


@contextmanager
def mesh_settable() -> Iterator[None]:
    """Let ``jax.set_mesh`` be used by code that is traced although it was written to be run."""
    module = mesh_setter()
    answer = _Asked(module.core, "trace_state_clean", lambda: True)
    with patch.object(module, "core", answer):
        yield


@contextmanager
def emulated(devices: Sequence[Device]) -> Iterator[None]:
    """Have jax name these devices as the machine's own.

    ``jax.devices``, ``local_devices``, ``device_count``, ``local_device_count`` and
    ``default_backend`` answer for them, and so do ``jax.make_mesh`` and ``mesh_utils``. A question
    about another platform by name is answered as usual. Arrays stay on jax's default device.
    """
    import jax

    platform = devices[0].platform
    meant = {None, *_SPELLINGS.get(platform, {platform})}

    def devices_of(known: Callable[..., Any]) -> Callable[..., Any]:
        def answer(backend: Any = None) -> Any:
            return list(devices) if backend in meant else known(backend)

        return answer

    def local_devices(process_index: int | None = None, backend: Any = None, **rest: Any) -> Any:
        if process_index is None and backend in meant:
            return list(devices)
        return known_local(process_index, backend, **rest)

    def count_of(known: Callable[..., int]) -> Callable[..., int]:
        def answer(backend: Any = None) -> int:
            return len(devices) if backend in meant else known(backend)

        return answer

    known_local = jax.local_devices
    answers: tuple[tuple[ModuleType, str, Any], ...] = (
        (jax, "devices", devices_of(jax.devices)),
        (jax, "local_devices", local_devices),
        (jax, "device_count", count_of(jax.device_count)),
        (jax, "local_device_count", count_of(jax.local_device_count)),
        (jax, "default_backend", lambda: platform),
        # Not their ``xb.devices`` itself, which also says where arrays go.
        *(
            (each, "xb", _Asked(each.xb, "devices", devices_of(each.xb.devices)))
            for each in mesh_makers()
        ),
    )
    with ExitStack() as stack:
        for module, name, answer in answers:
            stack.enter_context(patch.object(module, name, answer))
        yield
