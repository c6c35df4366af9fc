"""The public transform."""

from __future__ import annotations

import functools
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Protocol, Self, TypeVar, overload

from memsafe.function import Calls
from memsafe.jax_internals import dispatched
from memsafe.options import DEFAULT_REWRITES, MAX_SLOWDOWN, Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from jax import Device
    from jax.stages import Lowered
    from jax.stages import Traced as TracedAhead

    from memsafe.budget import Budget
    from memsafe.options import Options

__all__ = ["Staged", "memsafe"]

P = ParamSpec("P")
R = TypeVar("R")

_LATER: Any = object()
"""Placeholder for the function that a decorator receives later."""


class Staged(Generic[P, R]):
    """A memsafe function, called, traced and lowered like a function that `jax.jit` returns."""

    def __init__(self, calls: Calls) -> None:
        f = calls.function

        @functools.wraps(f)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            results: R = calls.run(args, kwargs)
            return results

        functools.update_wrapper(self, f)
        self._calls = calls
        self._call = dispatched(inside, calls.missed, **calls.options.of_jit())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The results of one call."""
        results: R = self._call(*args, **kwargs)
        return results

    def __get__(self, instance: object, owner: object = None) -> Any:
        """Bind to `instance` as a method, as a function does that is an attribute of a class."""
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Self:
        """Return itself, as for a function, so that a model that holds it can be copied."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Return itself, as `copy.copy` does."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the function and its options. The process that loads them plans again.

        A `device` among the options cannot be pickled: JAX raises TypeError.
        """
        return _loaded, (self._calls.function, self._calls.options)

    def trace(self, *args: Any, **kwargs: Any) -> TracedAhead:
        """Trace the call on arrays or `jax.ShapeDtypeStruct`s."""
        return self._calls.trace(args, kwargs)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        """The planned program, ready to compile; raises BudgetError."""
        lowered: Lowered = self.trace(*args, **kwargs).lower()
        return lowered

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        """The shapes and types of the results."""
        return self.trace(*args, **kwargs).out_info


def _loaded(f: Callable[P, R], options: Options) -> Staged[P, R]:
    return Staged(Calls(function=f, options=options))


class Decorator(Protocol):
    """`memsafe` with options, to be applied to a function."""

    def __call__(self, f: Callable[P, R], /) -> Staged[P, R]:
        """The function within its budget."""


@overload
def memsafe(
    f: Callable[P, R], budget: Budget | None = None, **options: Unpack[Asked]
) -> Staged[P, R]: ...


@overload
def memsafe(*, budget: Budget | None = None, **options: Unpack[Asked]) -> Decorator: ...


def memsafe(  # noqa: PLR0913 — each option is one that its users know by name.
    f: Callable[..., Any] = _LATER,
    budget: Budget | None = None,
    *,
    device: Device | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    rewrites: Sequence[str] = DEFAULT_REWRITES,
    max_slowdown: float = MAX_SLOWDOWN,
    tensor_size_threshold: Budget | None = None,
    tensor_split_size: Budget | None = None,
) -> Any:
    """Return a function with the values of `f` whose memory stays within `budget`.

    Its peak (temporary + arguments + results, as the compiler counts them) is at most `budget`.
    Values that are too large are computed slice by slice, in loops. A program that the compiler
    makes fit by itself is left as it is. Values agree to rounding: sums may add in another order.

    Call it like `f`, inside or outside `jax.jit`. It can be differentiated forward and in reverse
    (a backward pass recomputes), linearized, transposed and batched. Each of these programs keeps
    the budget. Inside `shard_map` the budget is that of one device. Like a function that `jax.jit`
    returns, it has the methods `lower`, `trace` and `eval_shape`.

    Args:
        f: Any function of pytrees of arrays to a pytree of arrays. Without it, `memsafe` with these
            options is a decorator: `@memsafe(budget="1GB")`.
        budget: Bytes, or a size such as `"16GB"`. Default: all of the device's memory; on a CPU,
            the memory that the machine has available.
        device: The device to fit, which may be compile-only. Default: where the arguments are.
        static_argnums: Positions of arguments that are not arrays, as in `jax.jit`.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of arguments whose memory may be reused, as in `jax.jit`.
        rewrites: Names of the allowed rewrites, and of what may be computed again or moved to the
            host (see `docs/rewrites.md`). Default: all but `distances`, which changes rounding.
        max_slowdown: Maximum predicted time of a plan, as a multiple of the time of `f`. The
            prediction counts operations, kernels on a GPU, the bytes that they read and write, and
            bytes that move to the host and back.
        tensor_size_threshold: Maximum bytes of a stored tensor, whatever the peak; eXLA's option.
        tensor_split_size: Bytes of one slice; eXLA's option.

    Raises:
        ValueError: A budget or a name is not understood; or (when called) a function on a mesh
            with explicit axes sets shardings itself, and jax refuses its plan.
        BudgetError: (when called) no plan keeps both the budget and `max_slowdown`. The error names
            the smallest peak and its cause, or the predicted time.
    """
    asked = Asked(
        device=device,
        static_argnums=static_argnums,
        static_argnames=static_argnames,
        donate_argnums=donate_argnums,
        rewrites=rewrites,
        max_slowdown=max_slowdown,
        tensor_size_threshold=tensor_size_threshold,
        tensor_split_size=tensor_split_size,
    )
    if f is _LATER:
        return functools.partial(memsafe, budget=budget, **asked)
    return Staged(Calls.asked(f, budget, asked))
