"""Equations that run programs of their own: loops, branches, per-device programs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import jax
from jax import lax
from jax.extend.core import ClosedJaxpr, Jaxpr, jaxpr_as_fun

from memsafe.jax_internals import as_written, has_effects, scan_operands, switched

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jax import Array
    from jax.extend.core import JaxprEqn

    Run = Callable[..., list[Array]]

__all__ = ["While", "as_closed", "draws_anew", "programs_in", "rebuilt", "sub_jaxprs_of"]


def sub_jaxprs_of(equation: JaxprEqn) -> dict[str, ClosedJaxpr]:
    """The programs that `equation` runs and that can be replaced, by name."""
    match equation.primitive.name:
        case "scan" | "shard_map":
            found = {"jaxpr": equation.params["jaxpr"]}
        case "while":
            found = {"body_jaxpr": equation.params["body_jaxpr"]}
        case "cond":
            branches = enumerate(equation.params["branches"])
            found = {f"branches {number}": branch for number, branch in branches}
        case _:
            found = {}
    return {name: as_closed(program) for name, program in found.items()}


def programs_in(equation: JaxprEqn) -> list[ClosedJaxpr]:
    """All programs among the parameters of `equation`."""
    params = equation.params.values()
    several = (each if isinstance(each, tuple | list) else (each,) for each in params)
    return [as_closed(each) for each in chain(*several) if isinstance(each, ClosedJaxpr | Jaxpr)]


def draws_anew(equation: JaxprEqn) -> bool:
    """Whether a second run may give other results: random numbers, or those of an `io_callback`."""
    inside = programs_in(equation)
    if inside:
        return any(draws_anew(own) for each in inside for own in each.jaxpr.eqns)
    has_results = bool(equation.outvars)
    return equation.primitive.name == "rng_uniform" or (has_results and has_effects(equation))


def rebuilt(
    equation: JaxprEqn, operands: Sequence[Array], programs: Mapping[str, Run]
) -> list[Array]:
    """The results of `equation` with the named programs in place of its own."""
    build = {"scan": _scan, "while": _while, "cond": _cond, "shard_map": _shard_map}
    with as_written(equation):
        return build[equation.primitive.name](equation, list(operands), programs)


def as_closed(program: Any) -> ClosedJaxpr:
    """`program` as a ClosedJaxpr; an open one has no constants."""
    # In jax 0.12 both are one class. Closing a program again would drop its constants.
    return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())


def _scan(equation: JaxprEqn, operands: list[Array], programs: Mapping[str, Run]) -> list[Array]:
    params = equation.params
    constants, carried = scan_operands(equation)
    fixed, start, rows = (
        operands[:constants],
        operands[constants : constants + carried],
        operands[constants + carried :],
    )

    def step(carry: list[Array], row: list[Array]) -> tuple[list[Array], list[Array]]:
        results = programs["jaxpr"](*fixed, *carry, *row)
        return results[:carried], results[carried:]

    last, stacked = lax.scan(
        step,
        start,
        rows,
        length=params["length"],
        reverse=params["reverse"],
        unroll=params["unroll"],
    )
    return [*last, *stacked]


@dataclass(frozen=True, slots=True, kw_only=True)
class While:
    """A `while` with its operands.

    Attributes:
        start: Carried values before the first step.
        unfinished: Carried values → whether the loop goes on; in a batch, which elements go on.
        body: Carried values before a step → carried values after it.
        is_batched: Whether it carries a batch, whose elements may finish at different steps.
    """

    start: list[Array]
    unfinished: Callable[[list[Array]], Array]
    body: Run
    is_batched: bool

    @classmethod
    def of(cls, equation: JaxprEqn, operands: Sequence[Array], body: Run) -> While:
        """The loop of `equation`, with `body` in place of its own body."""
        params = equation.params
        asking, doing = params["cond_nconsts"], params["body_nconsts"]
        for_condition, for_body = operands[:asking], operands[asking : asking + doing]
        condition = jaxpr_as_fun(as_closed(params["cond_jaxpr"]))

        def unfinished(carry: list[Array]) -> Array:
            (found,) = condition(*for_condition, *carry)
            return cast("Array", found)

        start = list(operands[asking + doing :])
        return cls(
            start=start,
            unfinished=unfinished,
            body=partial(body, *for_body),
            is_batched=bool(params["cond_jaxpr"].out_avals[0].shape),
        )

    def step(self, carry: list[Array]) -> list[Array]:
        """Carried values after a step. Finished elements of a batch keep their values."""
        after = self.body(*carry)
        if not self.is_batched:
            return list(after)
        going = self.unfinished(carry)
        return [_where(going, new, old) for new, old in zip(after, carry, strict=True)]


def _while(equation: JaxprEqn, operands: list[Array], programs: Mapping[str, Run]) -> list[Array]:
    loop = While.of(equation, operands, programs["body_jaxpr"])
    last: list[Array] = lax.while_loop(
        lambda carry: loop.unfinished(carry).any(),
        loop.step,
        loop.start,
    )
    return list(last)


def _where(going: Array, new: Array, old: Array) -> Array:
    """`new` for the elements of a batch that go on, `old` for finished ones."""
    return lax.select(lax.broadcast_in_dim(going, new.shape, range(going.ndim)), new, old)


def _cond(equation: JaxprEqn, operands: list[Array], programs: Mapping[str, Run]) -> list[Array]:
    params = equation.params
    index, *rest = operands
    branches = [
        programs.get(f"branches {number}", jaxpr_as_fun(as_closed(branch)))
        for number, branch in enumerate(params["branches"])
    ]
    return switched(equation, index, branches, rest)


def _shard_map(
    equation: JaxprEqn, operands: list[Array], programs: Mapping[str, Run]
) -> list[Array]:
    params = equation.params
    keywords = {"check_vma": params["check_vma"]} if "check_vma" in params else {}
    mapped = jax.shard_map(
        lambda *local: list(programs["jaxpr"](*local)),
        mesh=params["mesh"],
        in_specs=tuple(params["in_specs"]),
        out_specs=list(params["out_specs"]),
        axis_names=set(params["newly_manual_axes"]),
        **keywords,
    )
    results: list[Array] = mapped(*operands)  # type: ignore[no-untyped-call]
    return list(results)
