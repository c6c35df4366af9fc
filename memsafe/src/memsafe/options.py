"""What a user asks of memsafe, checked once."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import jax

from memsafe.budget import Budget, as_number, device_bytes, parsed
from memsafe.programs import with_sub_jaxprs
from memsafe.rewrites import (
    Rewritten,
    bystanders_apart,
    computed_in_blocks,
    counted_draws,
    euclidean_distances,
    loop_invariants,
    matrix_chains,
    one_direction_each,
    online_sums,
    ordered_convolutions,
    redundant,
    reshape_sinking,
    rolls,
    rows_in_place,
    selected,
    short_reductions,
    sums_apart,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax.extend.core import ClosedJaxpr

    Known = dict[tuple[str, ClosedJaxpr], Rewritten]

__all__ = ["DEFAULT_REWRITES", "MAX_SLOWDOWN", "REWRITES", "Asked", "Options"]

REWRITES: dict[str, Callable[[ClosedJaxpr], Any]] = {
    "redundant": redundant,
    "draws": counted_draws,
    "rows": rows_in_place,
    "selection": selected,
    "invariants": loop_invariants,
    "bystanders": bystanders_apart,
    "reshapes": reshape_sinking,
    "rolls": rolls,
    "directions": one_direction_each,
    "sums": sums_apart,
    "blocks": computed_in_blocks,
    "distances": euclidean_distances,
    "chains": matrix_chains,
    "reductions": short_reductions,
    "online": online_sums,
    "convolutions": ordered_convolutions,
}
"""The rewrites that a user can name, in the order in which memsafe applies them."""

_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_ONLY_ON = {
    "convolutions": ("cpu",),
    "reductions": ("cpu",),
    "draws": ("cpu", "gpu"),
    "rows": ("gpu",),
}
"""Platforms of rewrites that are useful, or correct, only with the compilers of these platforms."""

_AT_LAST = ("selection", "directions", "sums")
"""Rewrites that add work, applied where the budget is not kept without them."""

_FOR_SLICES = ("bystanders",)
"""Rewrites that move results of a backward loop into a loop of their own, for loops over slices."""

_FOR_WHOLE_VALUES = ("rows",)
"""Rewrites that save no memory in slices, because slices are transposed one by one."""

RECOMPUTING = ("checkpoints", "segments", "offload")
"""Further names that `rewrites` accepts, to save memory in gradients.

`checkpoints` recomputes values that loops keep, `segments` values outside of loops. `offload` moves
values that loops keep to host memory.
"""

DEFAULT_REWRITES = (*(name for name in REWRITES if name != "distances"), *RECOMPUTING)
"""The rewrites applied by default: all but `distances`, which changes rounding (cancellation)."""


MAX_SLOWDOWN = 2.0
"""Default maximum of a plan's time, as a multiple of the function's own: a step may double."""


class Asked(TypedDict, total=False):
    """The keywords of `memsafe` and of `explain`, as a user gives them."""

    device: jax.Device | None
    static_argnums: int | Sequence[int]
    static_argnames: str | Sequence[str]
    donate_argnums: int | Sequence[int]
    rewrites: Sequence[str]
    max_slowdown: float
    tensor_size_threshold: Budget | None
    tensor_split_size: Budget | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A checked request.

    Attributes:
        budget: Bytes; None if no budget was given.
        device: The device or compile-only target to fit; None: where the arguments are.
        static_numbers: Positions of the function's arguments that are no arrays.
        static_names: Names of such arguments.
        donated: Positions and names of the function's arguments whose memory may be reused.
        rewrites: Which rewrites are done.
        max_slowdown: Maximum predicted time of a plan, as a multiple of the function's own time.
        size_threshold: Bytes above which no tensor is kept, whatever the peak (eXLA's option).
        split_size: Bytes of one slice (eXLA's option).
    """

    budget: int | None
    device: jax.Device | None
    static_numbers: tuple[int, ...]
    static_names: tuple[str, ...]
    donated: tuple[int | str, ...]
    rewrites: tuple[str, ...]
    max_slowdown: float
    size_threshold: int | None
    split_size: int | None

    @classmethod
    def checked(cls, budget: Budget | None, asked: Asked) -> Options:
        """The checked request, sizes in bytes; raises ValueError or TypeError if it is invalid."""
        for option in asked:
            if option not in Asked.__annotations__:
                known = ", ".join(Asked.__annotations__)
                raise TypeError(f"got {option}=; wanted {known}; do this: correct the name")
        rewrites = _many(asked, "rewrites", str, DEFAULT_REWRITES)
        names = (*REWRITES, *RECOMPUTING)
        if not set(rewrites) <= set(names):
            raise _refused(ValueError, "rewrites", rewrites, f"names among {', '.join(names)}")
        device = asked.get("device")
        if not isinstance(device, jax.Device | None):
            raise _refused(TypeError, "device", device, "one of jax.devices(), or none")
        return cls(
            budget=None if budget is None else parsed(budget),
            device=device,
            static_numbers=_many(asked, "static_argnums", int),
            static_names=_many(asked, "static_argnames", str),
            donated=_many(asked, "donate_argnums", int),
            rewrites=rewrites,
            max_slowdown=_times(asked),
            size_threshold=_bytes(asked, "tensor_size_threshold"),
            split_size=_bytes(asked, "tensor_split_size"),
        )

    def of(self, function: Callable[..., Any]) -> Options:
        """The request with positions also as names and names also as positions, as in `jax.jit`.

        Raises ValueError for a position or a name that `function` does not take.
        """
        try:
            parameters = inspect.signature(function).parameters.values()
        except ValueError:  # Some builtins have no signature.
            return self
        kinds = {each.kind for each in parameters}
        ordered = [each.name for each in parameters if each.kind in _BY_POSITION]
        named = {each.name for each in parameters if each.kind in _BY_NAME}
        static, donated = self.static_numbers, self.donated
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            static = _counted(static, len(ordered), "static_argnums")
            donated = _counted(donated, len(ordered), "donate_argnums")
        if inspect.Parameter.VAR_KEYWORD not in kinds:
            for name in set(self.static_names) - named:
                wanted = f"names among {', '.join(sorted(named))}"
                raise _refused(ValueError, "static_argnames", name, wanted)
        static = (*static, *(n for n, name in enumerate(ordered) if name in self.static_names))
        for n in set(static) & set(donated):
            raise _refused(ValueError, "donate_argnums", n, "arguments that are not static")
        return replace(
            self,
            static_numbers=static,
            static_names=(*self.static_names, *_names(static, ordered)),
            donated=(*donated, *_names(donated, ordered)),
        )

    def without(self, rewrite: str) -> Options:
        """The request without one of the rewrites."""
        return replace(self, rewrites=tuple(name for name in self.rewrites if name != rewrite))

    def of_jit(self) -> dict[str, Any]:
        """Keyword arguments for `jax.jit`: the options that it has too, under its names."""
        return {
            "static_argnums": self.static_numbers,
            "static_argnames": self.static_names,
            "donate_argnums": tuple(at for at in self.donated if isinstance(at, int)),
            "donate_argnames": tuple(at for at in self.donated if isinstance(at, str)),
        }

    def budget_on(self, device: jax.Device) -> int | None:
        """The budget given, else `device_bytes(device)`; None if only a size threshold is given."""
        if self.budget is not None:
            return self.budget
        return None if self.size_threshold is not None else device_bytes(device)

    def prepared(self, closed: ClosedJaxpr, platform: str, known: Known | None = None) -> Rewritten:
        """`closed` and all programs in it, rewritten for slices; `known` caches the results."""
        return self._rewritten(closed, platform, known, (*_AT_LAST, *_FOR_WHOLE_VALUES))

    def prepared_as_written(
        self, closed: ClosedJaxpr, platform: str, known: Known | None = None
    ) -> Rewritten:
        """`closed` rewritten for whole values too; a loop stays paired with its gradient's loop."""
        return self._rewritten(closed, platform, known, (*_AT_LAST, *_FOR_SLICES))

    def prepared_at_last(
        self, closed: ClosedJaxpr, platform: str, known: Known | None = None
    ) -> Rewritten:
        """`closed` rewritten for slices, also by the rewrites that add work."""
        return self._rewritten(closed, platform, known, _FOR_WHOLE_VALUES)

    def _rewritten(
        self, closed: ClosedJaxpr, platform: str, known: Known | None, without: Sequence[str]
    ) -> Rewritten:
        notes: list[str] = []
        asked = set(self.rewrites) - set(without)
        known = {} if known is None else known

        def rewritten(program: ClosedJaxpr) -> ClosedJaxpr:
            for name, rewrite in REWRITES.items():
                if name in asked and platform in _ONLY_ON.get(name, (platform,)):
                    if (name, program) not in known:
                        known[name, program] = rewrite(program)
                    result = known[name, program]
                    program = result.program
                    notes.extend(result.notes)
            return with_sub_jaxprs(program, rewritten)

        return Rewritten(program=rewritten(closed), notes=tuple(notes))


def _times(asked: Asked) -> float:
    given: Any = asked.get("max_slowdown", MAX_SLOWDOWN)
    times = as_number(given)
    if times is None or not times >= 1:
        raise _refused(ValueError, "max_slowdown", given, "a number from 1 on, such as 2.0")
    return float(times)


def _bytes(asked: Asked, option: str) -> int | None:
    given: Any = asked.get(option)
    return None if given is None else parsed(given, option)


def _many(asked: Asked, option: str, kind: type, default: Any = ()) -> tuple[Any, ...]:
    """The value of an option as a tuple of `kind`; raises TypeError for other types."""
    given: Any = asked.get(option, default)
    several = (given,) if isinstance(given, int | str) else given
    if not isinstance(several, Iterable) or not all(isinstance(each, kind) for each in several):
        raise _refused(TypeError, option, given, f"{kind.__name__} or a sequence of them")
    return tuple(several)


def _counted(numbers: Sequence[Any], count: int, option: str) -> tuple[int, ...]:
    """Positions counted from the start; raises ValueError for one outside of `count` arguments."""
    for number in numbers:
        if not -count <= number < count:
            wanted = f"positions of the {count} arguments that the function takes"
            raise _refused(ValueError, option, number, wanted)
    return tuple(number % count for number in numbers)


def _names(numbers: Sequence[Any], ordered: Sequence[str]) -> list[str]:
    return [ordered[number] for number in numbers if 0 <= number < len(ordered)]


def _refused(kind: type[Exception], option: str, given: Any, wanted: str) -> Exception:
    return kind(
        f"got {option}={given!r}; wanted {wanted}; do this: give one of them, or leave it out"
    )
