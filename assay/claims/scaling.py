"""Claims on growth with a size: the exponent of a power law, or the ratio of two sizes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from assay.claims.measurement import (
    assigned_module_of,
    memory_of,
    result_of_run,
    stop,
)
from assay.model.claim import Case, Claim, Formula, GrowthClaim, MeasurementMissing
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.summary import copied_bytes_per_iteration
from assay.model.timing import format_seconds
from assay.model.units import Unit, format_bytes
from assay.model.verdict import Finding, Outcome
from assay.model.workload import SizedVariant, Variant
from assay.stats.ratios import ratio_of_turns
from assay.stats.scaling import Growth, fitted_exponent, grows


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrowth(GrowthClaim):
    """An iteration takes no longer on a long buffer than on a short one.

    Measures the ratio of times divided by the ratio of lengths, with the same number of iterations:
    1 if each iteration touches the whole buffer, 1/ratio if it touches a part of fixed size. The
    limit is half way on a logarithmic scale, ratio ** -0.5. If the interval of the measurement
    contains the limit, the verdict is ``inconclusive``. The claim detects copies that the module
    does not show.
    """

    name: str = "time-growth"
    unit: ClassVar[Unit] = Unit.RATIO

    def growth(self, case: Case) -> GrowthTimes:
        return _growth_of(case)

    def judge(self, case: Case) -> Finding:
        times = self.growth(case)
        short, long = times.lengths[0], times.lengths[-1]
        longer = long / short
        limit = longer**-0.5
        found = ratio_of_turns(times.seconds[0], times.seconds[-1], against=longer * limit, looks=1)
        line = (
            f"{found.ratio:.3g} × the time at {longer:.3g} × the length ({long} and {short}): "
            f"{found.ratio:.3g} / {longer:.3g} = {found.ratio / longer:.3g} "
            f"({found.low / longer:.3g} to {found.high / longer:.3g} from {found.units} pairs), "
            f"expected at most {limit:.3g} (the square root of {short}/{long}); fastest runs: "
            f"{format_seconds(times.fastest[-1])} and {format_seconds(times.fastest[0])}"
        )
        advice = "run it on a quieter machine, or use lengths further apart"
        grown = grows(found, at_most=longer * limit, slack=0)
        return _by_growth(grown, found.ratio / longer, limit, line, ("too noisy to decide", advice))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Exponent(Claim):
    at_most: Formula
    unit: ClassVar[Unit] = Unit.RATIO
    _slack: ClassVar[float] = 0.0

    def _by_exponent(
        self, case: Case, what: str, costs: Mapping[int, float], words: Callable[[float], str]
    ) -> Finding:
        """The verdict on the exponent that fits the costs by size; ``words`` formats a cost."""
        ends = [f"{words(costs[size])} at {size}" for size in (min(costs), max(costs))]
        fitted = fitted_exponent(list(costs), list(costs.values()))
        limit = self._limit(case, self.at_most)
        line = (
            f"growth of {what}: size ** {fitted.value:.3g} ({fitted.low:.3g} to {fitted.high:.3g} "
            f"from {fitted.sizes} sizes; {', '.join(ends)}), expected at most {limit:g} "
            f"({self.at_most.text})"
        )
        why = fitted.reason or f"costs lie up to {fitted.worst:.3g} times off what was fitted"
        unclear = (f"undecided ({why})", "measure at more sizes, further apart")
        grown = grows(fitted, at_most=limit, slack=self._slack)
        return _by_growth(grown, fitted.value, limit, line, unclear)


class Cost(Enum):
    """Bytes that may grow with a program's size; each names the claim."""

    TEMP = "temp-bytes"
    COPIED = "copied-bytes-per-iteration"

    def bytes_of(self, case: Case, evidence: Evidence) -> int:
        """The bytes of a program, or ``Stopped``."""
        if self is Cost.TEMP:
            memory = memory_of(case, evidence)
            return memory.temp_bytes + memory.library_bytes
        return copied_bytes_per_iteration(assigned_module_of(case, evidence).full_buffer_writes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesExponent(_Exponent):
    """A program's bytes grow at most as a given power of its size, plus a tenth.

    For a ``SizedVariant``: the power is fitted to the sizes of its family. The bytes are
    temporaries, with the most that libraries of a CPU hold, or full-buffer writes in an iteration
    of the worst loop. Zero bytes at every size do not grow. Bytes that follow no power closely, or
    are zero at only some sizes, and families of fewer than four sizes, are ``inconclusive``.
    """

    of: Cost
    _slack: ClassVar[float] = 0.1
    judges_compiled: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """One claim for each cost."""
        return f"{self.of.value}-exponent"

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return variant.family if isinstance(variant, SizedVariant) else ()

    def judge(self, case: Case) -> Finding:
        own = _sized(case.variant)
        family = {_sized(case.workload.variant(name)).size: case.other(name) for name in own.family}
        family[own.size] = case.evidence
        costs = {size: self.of.bytes_of(case, family[size]) for size in sorted(family)}
        none_at = [size for size, cost in costs.items() if not cost]
        if none_at and any(costs.values()):
            stop(
                Outcome.INCONCLUSIVE,
                f"undecided: the cost is 0 at the sizes {none_at} and not at others",
                "use sizes at which the cost is not 0, or claim the bytes themselves",
            )
        return self._by_exponent(case, self.of.value, costs, format_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExponent(_Exponent, GrowthClaim):
    """Time grows at most as a given power of the length, with the same number of iterations.

    For programs with a ``Growth`` of four lengths or more. The fastest run at each length counts.
    If the interval contains the limit, the verdict is ``inconclusive``. The claim detects copies
    that the module does not show.
    """

    name: str = "time-exponent"

    def growth(self, case: Case) -> GrowthTimes:
        return _growth_of(case)

    def judge(self, case: Case) -> Finding:
        times = self.growth(case)
        costs = dict(zip(times.lengths, times.fastest, strict=True))
        return self._by_exponent(case, "time", costs, format_seconds)


def _growth_of(case: Case) -> GrowthTimes:
    return result_of_run(
        case, case.evidence, case.evidence.growth, "growing loop to time", "growth=…"
    )


def _by_growth(
    grown: Growth, measured: float, limit: float, line: str, unclear: tuple[str, str]
) -> Finding:
    """The verdict; ``unclear`` is the cause and the advice where the interval holds the limit."""
    outcome, reason, advice = Outcome.INCONCLUSIVE, f"{unclear[0]}: {line}", unclear[1]
    if grown is not Growth.CANNOT_SAY:
        outcome = Outcome.PASSED if grown is Growth.WITHIN else Outcome.FAILED
        reason, advice = line, ""
    return Finding(outcome=outcome, measured=measured, limit=limit, reason=reason, advice=advice)


def _sized(variant: Variant) -> SizedVariant:
    if not isinstance(variant, SizedVariant):
        raise MeasurementMissing(
            f"got variant {variant.name!r} of no size, wanted a SizedVariant with its family; "
            "put the check to variants of that kind"
        )
    return variant
