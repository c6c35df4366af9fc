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
"""Stands for the function that a decorator is given."""


class Staged(Generic[P, R]):
    """A function that is called, traced and lowered as one that `jax.jit` returns."""

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
        """As a function, it is a method of the class that it is an attribute of."""
        return self if instance is None else MethodType(self, instance)

    def __copy__(self) -> Self:
        """Itself, as of a function: a model that holds it can be copied."""
        return self

    def __deepcopy__(self, _: object) -> Self:
        """Itself, as by `copy.copy`."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """As pickled: the function and its options. The process that loads it plans again.

        A `device` among the options cannot be pickled: JAX raises TypeError.
        """
        return _loaded, (self._calls.function, self._calls.options)

    def trace(self, *args: Any, **kwargs: Any) -> TracedAhead:
        """The call as a program, of arrays or of `jax.ShapeDtypeStruct`s."""
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
    """`memsafe` with options, of the function that follows."""

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
    """A function with the values of `f` whose memory stays within `budget`.

    Its peak (temporary + arguments + results, as the compiler counts them) is at most `budget`.
    What is too large is computed slice by slice, in loops; what the compiler manages by itself is
    left as it is. Values agree to rounding: sums may add in another order.

    It may be called as `f` is, inside or outside `jax.jit`, differentiated forward and in reverse
    (a backward pass recomputes), linearized, transposed and batched: each of these programs keeps
    the budget. Inside `shard_map` the budget is one device's. It has the methods `lower`, `trace`
    and `eval_shape` of a function that `jax.jit` returns.

    Args:
        f: Any function of pytrees of arrays to a pytree of arrays. Without it, `memsafe` with these
            options is a decorator: `@memsafe(budget="1GB")`.
        budget: Bytes, or a size such as `"16GB"`; where it is left out, all of the device's
            memory, and on a CPU what the machine has available.
        device: The device to fit, which may be a compile-only one; where the arguments are.
        static_argnums: Positions of arguments that are no arrays, as of `jax.jit`.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of arguments whose memory may be reused, as of `jax.jit`.
        rewrites: What may be rewritten first, and what may be computed again or moved to the host;
            `docs/rewrites.md` describes each. All but `distances`, which changes rounding.
        max_slowdown: How many times the time of `f` a plan may take, by prediction: from its
            operations, its kernels on a GPU, the bytes that they read and write, and those that
            move to the host and back.
        tensor_size_threshold: No tensor of more bytes is kept, whatever the peak; eXLA's option.
        tensor_split_size: Bytes of one slice; eXLA's option.

    Raises:
        ValueError: A budget or a name is not understood; or (when called) a function on a mesh
            with explicit axes sets shardings itself, and jax refuses its plan.
        BudgetError: (when called) no plan keeps the budget and `max_slowdown`; it names the
            smallest peak and why, or the predicted time.
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
