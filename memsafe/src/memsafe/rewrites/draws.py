"""Draws of `rbg` keys, rewritten as draws by counters on platforms where XLA draws them so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from jax import lax

from memsafe.programs import shape_of
from memsafe.rewrites.definitions import Definitions, type_of
from memsafe.rewrites.rewritten import Change, Rewritten, applied, noted
from memsafe.rules.philox import PHILOX_BITS

if TYPE_CHECKING:
    from jax import Array
    from jax.extend.core import ClosedJaxpr, JaxprEqn

    from memsafe.programs import Read, Replacement

__all__ = ["counted_draws"]


def counted_draws(closed: ClosedJaxpr) -> Rewritten:
    """`closed` with random bits that a loop can slice: the same bits."""
    definitions = Definitions.of(closed.jaxpr)
    changes = {}
    for index, equation in enumerate(closed.jaxpr.eqns):
        if equation.primitive.name == "rng_bit_generator" and _is_counted(equation, definitions):
            text = f"{list(shape_of(equation.outvars[1]))} drawn by counters"
            changes[index] = Change(replacement=_drawn(equation), note=noted(equation, text))
    return applied(closed, changes)


def _is_counted(draw: JaxprEqn, definitions: Definitions) -> bool:
    """Whether XLA chooses how to draw from a state of four words and nothing reads the next."""
    later, _ = draw.outvars
    return (
        shape_of(draw.invars[0]) == (4,)
        and type_of(draw.invars[0]) == jnp.uint32
        and draw.params["algorithm"] == lax.RandomAlgorithm.RNG_DEFAULT
        and draw.params.get("out_sharding") is None
        and definitions.uses[later] == 0
    )


def _drawn(equation: JaxprEqn) -> Replacement:
    def replacement(read: Read) -> list[Array]:
        state, (_, bits) = read(equation.invars[0]), equation.outvars
        drawn = PHILOX_BITS.bind(state, shape=shape_of(bits), dtype=jnp.dtype(type_of(bits)))
        return [state, drawn]

    return replacement
