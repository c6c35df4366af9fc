"""The public transform."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from memsafe.engine import Engine
from memsafe.jax_internals import without_constants
from memsafe.options import DEFAULT_REWRITES, Options
from memsafe.programs import unplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from jax import Array, Device
    from jax.extend.core import ClosedJaxpr

    from memsafe.budget import Budget

__all__ = ["Call", "Traced", "memsafe", "parted", "traced"]

P = ParamSpec("P")
R = TypeVar("R")


def memsafe(  # noqa: PLR0913 — each option is one that its users know by name.
    f: Callable[P, R],
    budget: Budget | None = None,
    *,
    device: Device | None = None,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    donate_argnums: int | Sequence[int] = (),
    rewrites: Sequence[str] = DEFAULT_REWRITES,
    tensor_size_threshold: Budget | None = None,
    tensor_split_size: Budget | None = None,
) -> Callable[P, R]:
    """A function with the values of `f` whose memory stays within `budget`.

    Its peak (temporary + arguments + results, as the compiler counts them) is at most `budget`.
    What is too large is computed slice by slice, in loops; what the compiler manages by itself is
    left as it is. Values agree to rounding: sums may add in another order.

    It may be called as `f` is, inside or outside `jax.jit`, differentiated in reverse (the
    backward pass recomputes, and keeps the budget too) and batched by `jax.vmap`. Inside
    `shard_map` the budget is one device's; there it is planned for, but not compiled and checked.

    Args:
        f: Any function of pytrees of arrays to a pytree of arrays.
        budget: Bytes, or a size such as `"16GB"`; all of the device's memory where it is left out.
        device: The device to fit, which may be a compile-only one; where the arguments are.
        static_argnums: Positions of arguments that are no arrays, as of `jax.jit`.
        static_argnames: Names of such arguments.
        donate_argnums: Positions of arguments whose memory may be reused, as of `jax.jit`.
        rewrites: What may be rewritten first: `redundant`, `invariants`, `reshapes`, `chains`; and
            not unasked `reductions` (on a CPU a short sum, term by term: faster, and at times
            larger), `distances` (changes rounding by cancellation).
        tensor_size_threshold: No tensor of more bytes is kept, whatever the peak; eXLA's option.
        tensor_split_size: Bytes of one slice; eXLA's option.

    Raises:
        ValueError: A budget or a name is not understood.
        BudgetError: (when called) no plan keeps the budget; it names the smallest peak and why.
    """
    options = Options.checked(
        budget=budget,
        device=device,
        donated=donate_argnums,
        rewrites=rewrites,
        size_threshold=tensor_size_threshold,
        split_size=tensor_split_size,
    )
    engine = Engine(options=options)
    programs: dict[Hashable, Traced] = {}

    @functools.wraps(f)
    def safe(*args: P.args, **kwargs: P.kwargs) -> R:
        call = parted(args, kwargs, static_argnums, static_argnames, options.donated)
        program = programs.get(call.key) or traced(f, call)
        if program.is_lasting:
            programs[call.key] = program
        donated = [len(program.constants) + at for at in call.donated]
        results = engine.run(program.closed, [*program.constants, *call.leaves], donated)
        unflattened: R = jax.tree.unflatten(program.results, results)
        return unflattened

    return safe


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of one call, arrays apart from the rest.

    Attributes:
        leaves: The arrays, or what stands for them.
        donated: Which of them may be reused.
        key: Equal for calls that trace alike.
        rebuilt: Leaves → the arguments as given.
    """

    leaves: list[Any]
    donated: list[int]
    key: Hashable
    rebuilt: Callable[[Sequence[Any]], tuple[tuple[Any, ...], dict[str, Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A traced function.

    Attributes:
        closed: Its program, whose first arguments are its constants.
        constants: What it closes over.
        results: The tree of its results.
    """

    closed: ClosedJaxpr
    constants: list[Array]
    results: Any

    @property
    def is_lasting(self) -> bool:
        """Whether it outlives the trace in progress."""
        return not any(isinstance(each, jax.core.Tracer) for each in self.constants)


def parted(
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static_argnums: int | Sequence[int],
    static_argnames: str | Sequence[str],
    donated: Sequence[int] = (),
) -> Call:
    """A call's arrays and the rest; raises TypeError for an argument that is neither."""
    numbers = {n % len(args) for n in _many(static_argnums) if -len(args) <= n < len(args)}
    names = set(_many(static_argnames))
    given: dict[int | str, Any] = dict(enumerate(args))
    given.update(kwargs)
    fixed = {at: value for at, value in given.items() if at in numbers or at in names}
    varied = {at: value for at, value in given.items() if at not in fixed}
    paths, tree = jax.tree.flatten_with_path(list(varied.values()))
    leaves = [_checked(leaf, list(varied)[path[0].idx]) for path, leaf in paths]
    reused = [at for at, (path, _) in enumerate(paths) if list(varied)[path[0].idx] in donated]

    def rebuilt(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        whole = dict(zip(varied, jax.tree.unflatten(tree, values), strict=True)) | fixed
        keywords = {name: whole[name] for name in kwargs}
        return tuple(whole[at] for at in range(len(args))), keywords

    avals = tuple(str(jax.typeof(leaf)) + str(getattr(leaf, "weak_type", "")) for leaf in leaves)
    settings: Any = jax.config
    key = (tree, avals, tuple(varied), tuple(fixed.items()), bool(settings.jax_enable_x64))
    return Call(leaves=leaves, donated=reused, key=key, rebuilt=rebuilt)


def traced(f: Callable[..., Any], call: Call) -> Traced:
    """`f` traced on the arrays of `call`."""
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        args, kwargs = call.rebuilt(leaves)
        results, tree = jax.tree.flatten(f(*args, **kwargs))
        trees.append(tree)
        return results

    closed = jax.make_jaxpr(flat)(*map(unplaced, call.leaves))
    return Traced(
        closed=without_constants(closed), constants=list(closed.consts), results=trees[-1]
    )


def _checked(leaf: Any, at: int | str) -> Any:
    """A leaf as an array or what stands for one."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    try:
        return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"got {type(leaf).__name__} in argument {at!r}; wanted arrays; "
            f"do this: memsafe(f, …, static_arg{'nums' if isinstance(at, int) else 'names'}={at!r})"
        ) from error


def _many(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, int | str) else tuple(given)
