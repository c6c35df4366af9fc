"""A function's calls: traced, planned and run."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from memsafe.engine import Engine
from memsafe.errors import advising
from memsafe.explicit import Automatic, Axes, ByType, NoAxes, explicit_mesh
from memsafe.jax_internals import fast_path, trace_settings, without_constants
from memsafe.options import Options
from memsafe.placement import are_traced, at_hand, constants_place, described, moved
from memsafe.programs import unplaced

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from jax import Array
    from jax.extend.core import ClosedJaxpr
    from jax.sharding import Sharding
    from jax.stages import Traced as TracedAhead

    from memsafe.budget import Budget
    from memsafe.compiled_plan import Fit
    from memsafe.options import Asked

__all__ = ["Calls"]


@dataclass(slots=True, kw_only=True)
class Calls:
    """A function with its options, and the programs traced and planned for it so far."""

    function: Callable[..., Any]
    options: Options
    engine: Engine = field(init=False)
    programs: dict[Hashable, Traced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(options=self.options)

    @classmethod
    def asked(cls, function: Callable[..., Any], budget: Budget | None, asked: Asked) -> Calls:
        """The calls that a user requests; raises ValueError or TypeError for an invalid request."""
        if not callable(function):
            raise TypeError(
                f"got {function!r}; wanted a function; do this: memsafe(f, budget=…)(arguments)"
            )
        return cls(function=function, options=Options.checked(budget, asked).of(function))

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The results of one call."""
        return self._results(self._called(args, kwargs))

    def missed(self, *args: Any, **kwargs: Any) -> tuple[Any, Any]:
        """The results of one call, and the `fast_path` data for calls like it, or None."""
        call = self._called(args, kwargs)
        program, inputs, donated = self._traced(call)
        if not isinstance(program.axes, NoAxes) or not at_hand(inputs):
            return self._results(call), None
        compiled = self.engine.compiled(program.closed, inputs, donated)
        if compiled is None or program.closed.effects:
            return self._results(call), None
        found, tree = compiled(*inputs), program.results
        fixed = inputs[: len(program.constants)]
        known = fast_path(compiled, tree, call.leaves, found, fixed)
        return jax.tree.unflatten(tree, found), known

    def trace(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TracedAhead:
        """One call, traced ahead of time; it is planned for the placement of its arguments."""
        program, inputs, donated = self._traced(flattened_call(args, kwargs, self.options))

        def place(*inputs: Any) -> ClosedJaxpr:
            return self.engine.placed(program.closed, inputs, donated)

        closed = program.axes.see(place, inputs)

        @functools.wraps(self.function)
        def ahead(*args: Any, **kwargs: Any) -> Any:
            return self._results(self._called(args, kwargs), closed)

        return jax.jit(ahead, **self.options.of_jit()).trace(*args, **kwargs)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        call = flattened_call(args, kwargs, self.options)
        if any(isinstance(each, jax.ShapeDtypeStruct) for each in call.leaves):
            raise TypeError(
                "got a jax.ShapeDtypeStruct; wanted arrays; do this: memsafe.explain(f, …) prints "
                "how such a call would be computed"
            )
        return call

    def _results(self, call: Call, closed: ClosedJaxpr | None = None) -> Any:
        program, inputs, donated = self._traced(call)
        computed = closed or program.closed

        def results(*inputs: Array) -> Any:
            if isinstance(program.axes, ByType) and not at_hand(inputs):
                self.engine.fit(computed)  # Plan now: `ByType` can explain a refusal by jax.
            found = self.engine.run(computed, inputs, donated)
            return jax.tree.unflatten(program.results, found)

        return program.axes.run(results, inputs)

    def fit(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fit:
        """Plan one call without running it."""
        program, inputs, donated = self._traced(flattened_call(args, kwargs, self.options))

        def fit(*inputs: Any) -> Fit:
            return self.engine.fit(program.closed, inputs, donated)

        found: Fit = program.axes.see(fit, inputs)
        return found

    def _traced(self, call: Call) -> tuple[Traced, list[Any], list[int]]:
        program = self.programs.get(call.key) or traced(self.function, call)
        if program.is_lasting:
            self.programs[call.key] = program
        donated = [len(program.constants) + at for at in call.donated]
        return program, [*program.beside(call.leaves), *call.leaves], donated


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """The arguments of one call, with the arrays separated from the static arguments.

    Attributes:
        leaves: The arrays, or `jax.ShapeDtypeStruct`s in place of them.
        donated: Positions of the leaves whose memory may be reused.
        key: Equal for calls that trace alike.
        rebuilt: Function from leaves to the arguments, by position and by name.
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
        constants: The values that the function closes over.
        results: The tree structure of its results.
        axes: How the explicit axes of its arguments are handled.
        by_place: The constants on the devices of arguments, by sharding.
    """

    closed: ClosedJaxpr
    constants: list[Array]
    results: Any
    axes: Axes = field(default_factory=NoAxes)
    by_place: dict[Sharding, list[Array]] = field(default_factory=dict)

    @property
    def is_lasting(self) -> bool:
        """Whether it stays valid after the trace in progress."""
        return not are_traced(self.constants)

    def beside(self, leaves: Sequence[Any]) -> Sequence[Any]:
        """The constants on the devices of `leaves`."""
        there = constants_place(self.constants, leaves)
        if there is None:
            return self.constants
        if any(isinstance(each, jax.ShapeDtypeStruct) for each in leaves):
            return [described(each, there) for each in self.constants]
        if there not in self.by_place:
            self.by_place[there] = [moved(each, there) for each in self.constants]
        return self.by_place[there]


def flattened_call(args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Call:
    """A call's arrays and its static arguments; raises TypeError for any other argument."""
    numbers = _places(options.static_numbers, len(args))
    donated = {*_places(options.donated, len(args)), *options.donated}
    given: dict[int | str, Any] = dict(enumerate(args))
    given.update(sorted(kwargs.items()))  # As jax orders them where it dispatches calls.
    fixed = {
        at: value for at, value in given.items() if at in numbers or at in options.static_names
    }
    varied = {at: value for at, value in given.items() if at not in fixed}
    paths, tree = jax.tree.flatten_with_path(list(varied.values()))
    leaves = [_checked(leaf, list(varied)[path[0].idx]) for path, leaf in paths]
    reused = [at for at, (path, _) in enumerate(paths) if list(varied)[path[0].idx] in donated]

    def rebuilt(values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        whole = dict(zip(varied, jax.tree.unflatten(tree, values), strict=True)) | fixed
        keywords = {name: whole[name] for name in sorted(kwargs)}  # As `jax.jit` passes them.
        return tuple(whole[at] for at in range(len(args))), keywords

    avals = tuple(map(jax.typeof, leaves))
    static = tuple((at, type(value), _hashable(value, at)) for at, value in fixed.items())
    key = (tree, avals, tuple(varied), static, trace_settings())
    return Call(leaves=leaves, donated=reused, key=key, rebuilt=rebuilt)


_NO_REF = (
    "got a jax.Ref {}; wanted arrays; "
    "do this: pass what it holds, return what it should hold, and write it outside"
)


def traced(f: Callable[..., Any], call: Call) -> Traced:
    """`f` traced on the arrays of `call`."""
    mesh = explicit_mesh(call.leaves)
    if mesh is None:
        return _traced(f, call, *call.leaves)
    axes = Automatic.of(functools.partial(_called, f, call), call.leaves, mesh)
    try:
        program: Traced = axes.see(functools.partial(_traced, f, call), call.leaves)
    # Shardings that the function sets itself, as by `shard_map`, need explicit axes.
    except Exception:  # noqa: BLE001
        return replace(_traced(f, call, *call.leaves), axes=ByType())
    return replace(program, axes=axes)


def _traced(f: Callable[..., Any], call: Call, *leaves: Any) -> Traced:
    trees: list[Any] = []

    def flat(*leaves: Any) -> list[Any]:
        results, tree = jax.tree.flatten(_called(f, call, *leaves))
        trees.append(tree)
        return [_result(each) for each in results]

    with advising("do this: differentiate the memsafe function, jax.grad(memsafe(f))"):
        closed = jax.make_jaxpr(flat)(*map(unplaced, leaves))
    if any(isinstance(each, jax.Ref) for each in closed.consts):
        raise TypeError(_NO_REF.format("that the function holds"))
    # As in `jax.jit`, what a user later writes into a numpy array has no effect.
    constants: list[Any] = [
        each.copy() if isinstance(each, np.ndarray) else each for each in closed.consts
    ]
    return Traced(closed=without_constants(closed), constants=constants, results=trees[-1])


def _called(f: Callable[..., Any], call: Call, *leaves: Any) -> Any:
    args, kwargs = call.rebuilt(leaves)
    return f(*args, **kwargs)


def _checked(leaf: Any, at: int | str) -> Any:
    """A leaf as an array; a `jax.ShapeDtypeStruct` stays as it is."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    if isinstance(leaf, jax.Ref):
        raise TypeError(_NO_REF.format(f"in argument {at!r}"))
    try:
        return leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"got {type(leaf).__name__} in argument {at!r}; wanted arrays; "
            f"do this: memsafe(f, …, static_arg{'nums' if isinstance(at, int) else 'names'}={at!r})"
        ) from error


def _result(leaf: Any) -> Any:
    """A result; raises TypeError if jax cannot return it."""
    try:
        jax.typeof(leaf)
    except TypeError as error:
        raise TypeError(
            f"got {type(leaf).__name__} in a result; wanted arrays; "
            "do this: return only arrays, numbers and trees of them"
        ) from error
    return leaf


def _places(numbers: Sequence[Any], count: int) -> set[int]:
    """Positions from the start that `numbers` select of `count` arguments; names are ignored."""
    return {n % count for n in numbers if isinstance(n, int) and -count <= n < count}


def _hashable(value: Any, at: int | str) -> Hashable:
    """A static argument; raises TypeError if it cannot be hashed, as keys of traces must be."""
    try:
        hash(value)
    except TypeError as error:
        raise TypeError(
            f"got {type(value).__name__} in static argument {at!r}; wanted a hashable value; "
            "do this: pass a tuple, a frozen dataclass, or arrays as arguments that are not static"
        ) from error
    return cast("Hashable", value)
