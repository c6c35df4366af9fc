"""What a user asks of memsafe, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from memsafe.budget import Budget, device_bytes, parsed
from memsafe.programs import with_bodies
from memsafe.rewrites import (
    euclidean_distances,
    loop_invariants,
    matrix_chains,
    reductions_outward,
    redundant,
    reshape_sinking,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Device
    from jax.extend.core import ClosedJaxpr

__all__ = ["DEFAULT_REWRITES", "REWRITES", "Asked", "Options"]

REWRITES: dict[str, Callable[[ClosedJaxpr], Any]] = {
    "redundant": redundant,
    "invariants": loop_invariants,
    "reshapes": reshape_sinking,
    "distances": euclidean_distances,
    "chains": matrix_chains,
    "reductions": reductions_outward,
}
"""The rewrites that can be asked for, in the order in which they are done."""

_ONLY_ON = {"reductions": ("cpu",)}
"""Rewrites that pay with one platform's compiler."""

DEFAULT_REWRITES = ("redundant", "invariants", "reshapes", "chains")
"""Those done unasked. `distances` changes rounding (cancellation); `reductions` makes some programs
several times faster on a CPU, and lets its compiler move a matrix out of a loop in others."""


class Asked(TypedDict, total=False):
    """The keywords of `memsafe` and of `explain`, as a user gives them."""

    device: Device | None
    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]
    donate_argnums: int | Sequence[int]
    rewrites: Sequence[str]
    tensor_size_threshold: Budget | None
    tensor_split_size: Budget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A checked request.

    Attributes:
        budget: Bytes; None where none was given.
        device: The device or compile-only target to fit; None: where the arguments are.
        static_numbers: Positions of the function's arguments that are no arrays.
        static_names: Names of such arguments.
        donated: Positions of the function's arguments whose memory may be reused.
        rewrites: Which rewrites are done.
        size_threshold: Bytes above which no tensor is kept, whatever the peak (eXLA's option).
        split_size: Bytes of one slice (eXLA's option).
    """

    budget: int | None
    device: Device | None
    static_numbers: tuple[int, ...]
    static_names: tuple[str, ...]
    donated: tuple[int, ...]
    rewrites: tuple[str, ...]
    size_threshold: int | None
    split_size: int | None

    @classmethod
    def checked(cls, budget: Budget | None, asked: Asked) -> Options:
        """The request in bytes; raises ValueError for what is none."""
        rewrites = tuple(asked.get("rewrites", DEFAULT_REWRITES))
        for name in rewrites:
            if name not in REWRITES:
                raise ValueError(
                    f"got rewrites={rewrites!r}; wanted names among "
                    f"{', '.join(REWRITES)}; do this: leave {name!r} out"
                )
        return cls(
            budget=_bytes(budget),
            device=asked.get("device"),
            static_numbers=_many(asked.get("static_argnums", ())),
            static_names=_many(asked.get("static_argnames", ())),
            donated=_many(asked.get("donate_argnums", ())),
            rewrites=rewrites,
            size_threshold=_bytes(asked.get("tensor_size_threshold")),
            split_size=_bytes(asked.get("tensor_split_size")),
        )

    def budget_on(self, device: Device) -> int | None:
        """The budget on `device`: what was asked, else all that it has; None for thresholds."""
        if self.budget is not None:
            return self.budget
        return None if self.size_threshold is not None else device_bytes(device)

    def prepared(self, closed: ClosedJaxpr, platform: str) -> tuple[ClosedJaxpr, tuple[str, ...]]:
        """`closed` and all that it runs after the rewrites, and what they did."""
        notes: list[str] = []

        def rewritten(program: ClosedJaxpr) -> ClosedJaxpr:
            for name, rewrite in REWRITES.items():
                if name in self.rewrites and platform in _ONLY_ON.get(name, (platform,)):
                    result = rewrite(program)
                    program = result.program
                    notes.extend(result.notes)
            return with_bodies(program, rewritten)

        return rewritten(closed), tuple(notes)


def _bytes(asked: Budget | None) -> int | None:
    return None if asked is None else parsed(asked)


def _many(given: Any) -> tuple[Any, ...]:
    return (given,) if isinstance(given, int | str) else tuple(given)
