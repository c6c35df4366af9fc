"""``assay.compile``: one program compiled for a target, in a test, a script or a notebook."""

import atexit
import functools
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, Final

from assay.compiled import Compiled, compiled
from assay.isolate import Observer
from assay.model.blame import WrongValue, legible
from assay.model.workload import Program, Role, Variant, Workload
from assay.targets import resolve

_MOST_PROCESSES: Final = 2


def compile(  # noqa: A001, PLR0913 - the public name, and jax.jit's own arguments
    function: Callable[..., Any],
    *arguments: Any,
    target: str = "cpu",
    in_shardings: Any = None,
    out_shardings: Any = None,
    donate_argnums: int | Sequence[int] = (),
    static_argnums: int | Sequence[int] = (),
    context: Callable[[], Any] | None = None,
    timeout_seconds: float = 600.0,
) -> Compiled:
    """Compile ``function(*arguments)`` for a target, with or without its hardware.

    ``arguments`` are arrays, numpy arrays or ``ShapeDtypeStruct``. Only their shapes, types and
    shardings are used. A single function may return them instead; it is traced and not run.

    Shardings on this machine's devices are moved to the target's devices. ``in_shardings`` and
    ``out_shardings`` may also be functions of the target's devices. A program without shardings is
    placed on the first device. It is traced inside the context manager that ``context()`` returns,
    such as ``jax.set_mesh(mesh)``.

    The program is compiled in a child process, where ``jax.devices()`` gives the target's devices.

    Raises:
        CompileError: it does not trace, lower or compile. A program that needs too much memory does
            not raise; its ``fits`` is false.
        TargetError: no target has that name.
        TargetUnavailable: its compiler is not installed, or cannot compile this program.
    """
    name = str(resolve(target).name)
    workload = workload_of(
        function,
        arguments,
        suite="compile",
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        donate_argnums=donate_argnums,
        static_argnums=static_argnums,
        context=context,
    )
    observer = _PROCESSES.of(name, timeout_seconds)
    return compiled(observer.observe(workload, workload.variants[0], name))


def workload_of(  # noqa: PLR0913 - jax.jit's own arguments
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    suite: str,
    name: str = "program",
    in_shardings: Any,
    out_shardings: Any,
    donate_argnums: int | Sequence[int],
    static_argnums: int | Sequence[int],
    context: Callable[[], Any] | None,
) -> Workload:
    """The workload of one function; its arguments are sent as shapes."""
    if not callable(function):
        raise WrongValue(
            f"got {type(function).__name__} to compile, wanted a function; write "
            "assay.compile(train_step, params, batch, target=…)"
        )
    program = functools.partial(
        _program,
        function=function,
        arguments=_shapes(arguments),
        in_shardings=in_shardings,
        out_shardings=out_shardings,
        donate_argnums=_numbers(donate_argnums),
        static_argnums=_numbers(static_argnums),
        context=context,
    )
    variant = Variant(name=title_of(function), role=Role.CONTROL, program=program)
    return Workload(suite=suite, name=name, variants=(variant,))


def title_of(function: Callable[..., Any]) -> str:
    """The function's own name, as part of an id."""
    own = getattr(function, "func", function)
    return legible(getattr(own, "__name__", type(own).__name__))


def _program(devices: Sequence[Any], **given: Any) -> Program:
    for name in ("in_shardings", "out_shardings"):
        if isinstance(given[name], FunctionType | functools.partial):
            given[name] = given[name](devices)
    arguments = given.pop("arguments")
    if len(arguments) == 1 and isinstance(arguments[0], _MAKERS):
        return Program(make_arguments=arguments[0], **given)
    return Program(arguments=arguments, **given)


_MAKERS = (FunctionType, MethodType, functools.partial)


def _shapes(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(arguments) == 1 and isinstance(arguments[0], _MAKERS):
        return arguments
    # Imports jax, which a caller with arguments of its own has done.
    from assay.frameworks.jax_placement import shapes_of

    return shapes_of(arguments)


def _numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


class Processes:
    """Child processes that compile, one for each target and time limit."""

    def __init__(self, *, cached: bool = True) -> None:
        self._cached = cached
        self._observers: dict[tuple[str, float], Observer] = {}

    def of(self, target: str, timeout_seconds: float) -> Observer:
        """The target's process. The least recently used ones are ended: each holds a compiler."""
        key = (target, timeout_seconds)
        observer = self._observers.pop(key, None)
        if observer is None:
            observer = Observer([resolve(target).name], timeout_seconds, cached=self._cached)
        self._observers[key] = observer
        for oldest in list(self._observers)[:-_MOST_PROCESSES]:
            self._observers.pop(oldest).close()
        return observer

    def close(self) -> None:
        """End all."""
        while self._observers:
            self._observers.popitem()[1].close()


_PROCESSES: Final = Processes()
atexit.register(_PROCESSES.close)
