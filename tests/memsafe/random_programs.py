"""Random programs, and the comparison of memsafe with plain jit that each must pass."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import memsafe
from tests.memsafe.random_operations import OPERATIONS
from tests.memsafe.random_values import Pool, ramp, shrunk

_LARGEST_RESULT: Final = 500
_TOLERANCE: Final = 1e-9
_DRAWS: Final = 8
_LARGE: Final = (60, 64, 96, 97, 120, 127, 150)
_SMALL: Final = (1, 2, 3, 5, 6, 8)
_GROWING: Final = ("outer", "contracted", "attended")
_SHARES: Final = (0.2, 0.4, 0.6, 0.8, 1.1)
_MODES: Final = ("plain", "gradient", "through")
_DEVICES: Final = (1, 1, 1, 2, 4)
_DIMENSIONS: Final = (None, 0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A random program, described by numbers, and its budget.

    Attributes:
        sizes: Rows of the first argument, rows of the second, and columns of both.
        steps: Operations by name, each with the seed of its choices.
        seed: The seed of the arguments and of the choice of results.
        mode: `plain`; `gradient`: memsafe around the gradient; `through`: the gradient of memsafe.
        share: The budget: 0 is arguments and results alone, 1 is the memory of plain jit.
        devices: Number of devices, one if the process has fewer; the budget is one device's.
        along: For each argument, the dimension that is divided over devices, if they divide it.
    """

    sizes: tuple[int, int, int]
    steps: tuple[tuple[str, int], ...]
    seed: int
    mode: str
    share: float
    devices: int = 1
    along: tuple[int | None, ...] = (None, None, None)

    def arguments(self) -> list[np.ndarray]:
        """Three arrays of doubles."""
        numbers = np.random.default_rng(self.seed)
        rows, others, columns = self.sizes
        shapes = ((rows, columns), (others, columns), (4, rows))
        return [numbers.standard_normal(shape) for shape in shapes]

    def placed(self, given: Sequence[np.ndarray] = ()) -> list[Array]:
        """The arguments, or those `given`, placed on the devices."""
        arguments = [jnp.asarray(each) for each in given or self.arguments()]
        if self.is_on_one_device:
            return arguments
        mesh = Mesh(np.array(jax.devices()[: self.devices]), ("d",))
        specs = [self._spec(*pair) for pair in zip(arguments, self.along, strict=True)]
        return [
            jax.device_put(each, NamedSharding(mesh, spec))
            for each, spec in zip(arguments, specs, strict=True)
        ]

    @property
    def is_on_one_device(self) -> bool:
        return self.devices == 1 or self.devices > len(jax.devices())

    def _spec(self, argument: Array, dim: int | None) -> PartitionSpec:
        if dim is None or argument.shape[dim] % self.devices:
            return PartitionSpec()
        return PartitionSpec(*[None] * dim, "d")

    def __call__(self, *arguments: Array) -> list[Array]:
        """Some of the computed values; floats get a ramp, so that none is only rounding noise."""
        pool = Pool(reals=list(arguments))
        for name, seed in self.steps:
            pool.add(OPERATIONS[name](pool, Random(seed)))
        rng = Random(self.seed)
        chosen = [pool.reals[-1], *rng.sample(pool.reals[3:], k=min(1, len(pool.reals) - 3))]
        small = [shrunk(each, _LARGEST_RESULT, rng) for each in chosen]
        others = [each for each in (*pool.indices, *pool.masks) if each.size <= _LARGEST_RESULT]
        return [*(each + ramp(each.shape) for each in small), *others[-1:]]

    def loss(self, *arguments: Array) -> Array:
        """A number whose derivatives with respect to the arguments are not only rounding noise."""
        reals = [each for each in self(*arguments) if jnp.issubdtype(each.dtype, jnp.floating)]
        return sum(
            (jnp.sum(jnp.tanh(each) * (1 + ramp(each.shape))) for each in (*reals, *arguments)),
            start=jnp.zeros(()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of memsafe for a program, compared with plain jit.

    Attributes:
        split: memsafe needs less memory than plain jit, and plain jit exceeds the budget.
        refused: BudgetError was raised.
        plain_is_wrong: memsafe agrees with the operations run one by one, and not with plain jit.
        ill_conditioned: Where memsafe differs, plain jit changes as much if its arguments change by
            one rounding.
        faults: Descriptions of faults of memsafe.
    """

    split: bool = False
    refused: bool = False
    plain_is_wrong: bool = False
    ill_conditioned: bool = False
    faults: tuple[str, ...] = ()


def outcome_of(program: Program) -> Outcome:
    """Compares the results of `program` by memsafe with those by plain jit.

    Where they differ, the operations run one by one show which is right. memsafe may be right: in
    plain jit, several fusions compute a value, each with its own rounding, and no element equals
    its maximum. Or neither is right: the program amplifies rounding, as steps that multiply it do.
    """
    with jax.enable_x64(new_val=True):
        arguments = program.placed()
        plain = compiled_as_written(program)
        taken = plain.memory_analysis()
        floor = taken.argument_size_in_bytes + taken.output_size_in_bytes
        peak = floor + taken.temp_size_in_bytes - taken.alias_size_in_bytes
        budget = round(floor + program.share * (peak - floor))
        try:
            safe = _safe(program, budget).lower(*arguments).compile()
        except memsafe.BudgetError as error:
            fits = error.slowdown is None and error.smallest <= error.budget
            kept = fits or error.budget != budget
            return Outcome(refused=True, faults=(f"refused: {error}",) if kept else ())
        got, wanted = _numbers(safe(*arguments)), _numbers(plain(*arguments))
        faults = differences(got, wanted)
        plain_is_wrong = bool(faults) and not differences(got, _one_by_one(program))
        faults = [] if plain_is_wrong else faults
        ill_conditioned = bool(faults) and _is_rounding(program, plain, got, wanted)
        faults = [] if ill_conditioned else faults
        reached = safe.memory_analysis()
        nbytes = (
            reached.temp_size_in_bytes
            + reached.argument_size_in_bytes
            + reached.output_size_in_bytes
            - reached.alias_size_in_bytes
        )
        if nbytes > budget and program.mode != "through":
            faults.append(f"over budget: {nbytes} of {budget} bytes")
    return Outcome(
        split=nbytes < peak and budget < peak,
        plain_is_wrong=plain_is_wrong,
        ill_conditioned=ill_conditioned,
        faults=tuple(faults),
    )


def compiled_as_written(program: Program) -> Any:
    """`program` compiled by plain jit, in double precision."""
    with jax.enable_x64(new_val=True):
        return jax.jit(_written(program)).lower(*program.placed()).compile()


def _written(program: Program) -> Callable[..., Any]:
    every = (0, 1, 2)
    return _called(program if program.mode == "plain" else jax.value_and_grad(program.loss, every))


def _safe(program: Program, budget: int) -> Any:
    if program.mode == "through":
        within = memsafe.memsafe(_called(program.loss), budget)
        return jax.jit(jax.value_and_grad(within, (0, 1, 2)))
    safe = memsafe.memsafe(_written(program), budget)
    return jax.jit(safe) if program.is_on_one_device else safe  # In jit, placements are unknown.


def _called(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function around `function`, with a name as a user's function has."""

    def called(*arguments: Array) -> Any:
        return function(*arguments)

    return called


def _one_by_one(program: Program) -> list[np.ndarray]:
    """The results without fusions: each value is computed once."""
    with jax.disable_jit():
        results = _numbers(_written(program)(*map(jnp.asarray, program.arguments())))
    finite = all(np.isfinite(each).all() for each in results)
    assert finite, "got a program whose results are no numbers, wanted well-conditioned ones"
    return results


def _is_rounding(
    program: Program, plain: Any, got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
) -> bool:
    """Whether each difference is at most what one rounding of the arguments changes in plain jit.

    Several draws of such arguments are tried.
    """
    numbers, moved = np.random.default_rng(program.seed), [0.0] * len(wanted)
    for _ in range(_DRAWS):
        near = [
            each * (1 + numbers.integers(-1, 2, each.shape) * np.finfo(each.dtype).eps)
            for each in program.arguments()
        ]
        results = _numbers(plain(*program.placed(near)))
        moved = [max(pair) for pair in zip(moved, map(_distance, results, wanted), strict=True)]
    return all(
        _distance(one, other) <= most
        for at, (one, other, most) in enumerate(zip(got, wanted, moved, strict=True))
        if _different(at, one, other)
    )


def _distance(got: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of two arrays of floats; of other types, how many entries differ."""
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return float("inf")
    if not np.issubdtype(wanted.dtype, np.floating):
        return float(np.sum(got != wanted))
    return float(np.max(np.abs(got - wanted), initial=0))


def _numbers(results: Any) -> list[np.ndarray]:
    return [np.asarray(each) for each in jax.tree.leaves(results)]


def differences(got: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> list[str]:
    """Descriptions of results that differ; a wanted float that is not finite is a difference."""
    pairs = zip(got, wanted, strict=True)
    return [fault for at, pair in enumerate(pairs) for fault in _different(at, *pair)]


def _different(at: int, got: np.ndarray, wanted: np.ndarray) -> list[str]:
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return [f"wrong type: result {at} is {got.dtype}{got.shape}, not {wanted.dtype}"]
    if not np.issubdtype(wanted.dtype, np.floating):
        return [] if (got == wanted).all() else [f"wrong values: result {at}, no float"]
    if not np.isfinite(wanted).all():
        return [f"wrong values: result {at} is held against what is no number"]
    most = float(np.max(np.abs(wanted), initial=0))
    off = _distance(got, wanted)
    return [] if off <= _TOLERANCE * most else [f"wrong values: result {at} off by {off} of {most}"]


def numbered(seed: int) -> Program:
    """The program of a number; equal numbers give equal programs, other numbers likely others."""
    rng = Random(seed)
    names = [rng.choice(_GROWING), *rng.choices(list(OPERATIONS), k=rng.randint(0, 4))]
    return Program(
        sizes=(rng.choice(_LARGE), rng.choice(_LARGE), rng.choice(_SMALL)),
        steps=tuple((name, rng.randrange(1000)) for name in names),
        seed=rng.randrange(1000),
        mode=rng.choice(_MODES),
        share=rng.choice(_SHARES),
        devices=rng.choice(_DEVICES),
        along=tuple(rng.choices(_DIMENSIONS, k=3)),
    )


def programs() -> strategies.SearchStrategy[Program]:
    """Programs of one to three steps, the first of which makes something large."""
    seeds, one_of = strategies.integers(0, 999), strategies.sampled_from
    first = strategies.tuples(one_of(_GROWING), seeds)
    rest = strategies.lists(strategies.tuples(one_of(list(OPERATIONS)), seeds), max_size=2)
    return strategies.builds(
        Program,
        sizes=strategies.tuples(one_of(_LARGE), one_of(_LARGE), one_of(_SMALL)),
        steps=strategies.tuples(first, rest).map(lambda both: (both[0], *both[1])),
        seed=seeds,
        mode=one_of(_MODES),
        share=one_of(_SHARES[1:]),
        devices=one_of(_DEVICES),
        along=strategies.tuples(*[one_of(_DIMENSIONS)] * 3),
    )
