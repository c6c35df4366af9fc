"""A program compiled for a compile-only device: as written, and by memsafe within a budget."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import jax  # noqa: TID251 — what is compiled is written in JAX.

from assay.targets import resolve
from benchmarks.peers.products import products_of
from memsafe import BudgetError  # noqa: TID251 — it is measured here.
from memsafe.function import Calls  # noqa: TID251 — its plan is looked at.
from memsafe.measure import Place, measured  # noqa: TID251
from memsafe.options import MAX_SLOWDOWN, Asked  # noqa: TID251

TARGET: Final = "gpu-h100"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A function, the shapes and types of its arguments, and the device to compile for."""

    run: Callable[..., Any]
    arguments: tuple[Any, ...]
    device: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A compiled program: the bytes that its compiler reports, and its operations.

    ``nbytes`` is temporaries, arguments and results. If the compiler refuses the program, both
    sizes follow its message, or are infinite. ``products`` are the operations of matrix products
    and convolutions. ``operations`` and ``slowdown`` are memsafe's counts: all operations and the
    predicted time, both over those of the program as written.
    """

    temp_bytes: float
    nbytes: float
    products: float
    operations: float = 1.0
    slowdown: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A refusal by memsafe: ``nbytes`` is the smallest peak that it reached.

    ``slowdown`` is the predicted slowdown of the fastest plan that fits; None if no plan fits.
    """

    nbytes: float
    slowdown: float | None


def device_of(target: str) -> Any:
    """The first device of a target."""
    return resolve(target).devices()[0]


def written(program: Program) -> Compiled:
    """The program compiled as written."""
    tree: Any
    leaves, tree = jax.tree.flatten(program.arguments)
    found = measured(
        lambda *leaves: jax.tree.leaves(program.run(*tree.unflatten(leaves))),
        [jax.typeof(leaf) for leaf in leaves],
        Place(device=program.device),
    )
    products = products_of(program.run, *program.arguments)
    return Compiled(temp_bytes=found.temp_bytes, nbytes=found.nbytes, products=products)


def within(program: Program, budget: float, most: float = MAX_SLOWDOWN) -> Compiled | Refused:
    """The program by memsafe in ``budget`` bytes and ``most`` times its time, by prediction."""
    asked = Asked(device=program.device, max_slowdown=most)
    calls = Calls.asked(program.run, int(budget), asked)
    try:
        fit = calls.fit(program.arguments, {})
    except BudgetError as refusal:
        return Refused(nbytes=refusal.smallest, slowdown=refusal.slowdown)
    return Compiled(
        temp_bytes=fit.result.temp_bytes,
        nbytes=fit.result.nbytes,
        products=products_of(fit.program, *jax.tree.leaves(program.arguments)),
        operations=fit.operations,
        slowdown=fit.slowdown,
    )
