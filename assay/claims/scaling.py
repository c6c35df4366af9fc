"""Claims on growth with a size: the exponent of a power law, or the ratio of two sizes."""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from assay.claims.measurement import ClaimBase, assigned_module_of, memory_of, result_of_run, stop
from assay.model.claim import Case, Formula, MeasurementMissing
from assay.model.evidence import Evidence, GrowthTimes
from assay.model.summary import copied_bytes_per_iteration
from assay.model.timing import format_seconds
from assay.model.units import Unit, format_bytes
from assay.model.verdict import Finding, Outcome
from assay.model.workload import SizedVariant, Variant
from assay.stats.ratios import ratio_of_turns
from assay.stats.scaling import Exponent, Growth, fitted_exponent, grows

_OUTCOMES: Final = {
    Growth.WITHIN: Outcome.PASSED,
    Growth.BEYOND: Outcome.FAILED,
    Growth.CANNOT_SAY: Outcome.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _GrowthOfTime(ClaimBase):
    unit: ClassVar[Unit] = Unit.RATIO

    def growth(self, case: Case) -> GrowthTimes:
        """Times of the loop on each length, or ``Stopped``."""
        return result_of_run(case, case.evidence, case.evidence.growth, "times of a growing loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeGrowth(_GrowthOfTime):
    """An iteration takes no longer on a long buffer than on a short one.

    Measures the ratio of times divided by the ratio of lengths, with the same number of iterations:
    1 if each iteration touches the whole buffer, 1/ratio if it touches a part of fixed size. The
    limit is half way on a logarithmic scale, ratio ** -0.5. If the interval of the measurement
    contains the limit, the verdict is ``inconclusive``. The claim detects copies that the module
    does not show.
    """

    name: str = "time-growth"

    def judge(self, case: Case) -> Finding:
        times = self.growth(case)
        short, long = times.lengths[0], times.lengths[-1]
        longer = long / short
        limit = longer**-0.5
        found = ratio_of_turns(times.seconds[0], times.seconds[-1], against=longer * limit, looks=1)
        grown = grows(found, at_most=longer * limit, slack=0)
        line = (
            f"{format_seconds(times.fastest[-1])} at length {long}, "
            f"{format_seconds(times.fastest[0])} at {short}: ratio of times / "
            f"ratio of lengths {found.ratio / longer:.3g} ({found.low / longer:.3g} to "
            f"{found.high / longer:.3g} from {found.units} pairs), expected at most {limit:.3g} "
            f"(the square root of {short}/{long})"
        )
        advice = "run it on a quieter machine, or use lengths further apart"
        return _by_growth(grown, found.ratio / longer, limit, line, ("too noisy to decide", advice))


class Cost(Enum):
    """Bytes that may grow with a program's size; each names the claim."""

    TEMP = "temp-bytes"
    COPIED = "copied-bytes-per-iteration"

    def bytes_of(self, case: Case, evidence: Evidence) -> int:
        """The bytes of a program, or ``Stopped``."""
        if self is Cost.TEMP:
            return memory_of(case, evidence).temp_bytes
        return copied_bytes_per_iteration(assigned_module_of(case, evidence).full_buffer_writes, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BytesExponent(ClaimBase):
    """A program's bytes grow at most as a given power of its size, plus a tenth.

    For a ``SizedVariant``: the power is fitted to the sizes of its family. The bytes are
    temporaries, or full-buffer writes in an iteration of the worst loop. Zero bytes at every size
    do not grow. Bytes that follow no power closely, and families of fewer than four sizes, are
    ``inconclusive``.
    """

    of: Cost
    at_most: Formula
    unit: ClassVar[Unit] = Unit.RATIO

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
        ends = [f"{format_bytes(costs[size])} at {size}" for size in (min(costs), max(costs))]
        fitted = fitted_exponent(list(costs), list(costs.values()))
        limit = (self._limit(case, self.at_most), self.at_most.text)
        return _by_exponent(self.of.value, fitted, limit, ends, slack=0.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeExponent(_GrowthOfTime):
    """Its time grows at most as a given power of the length, with the same number of iterations.

    For programs with a ``Growth`` of four lengths or more. The fastest run at each length counts.
    If the interval contains the limit, the verdict is ``inconclusive``. The claim detects copies
    that the module does not show.
    """

    at_most: Formula
    name: str = "time-exponent"

    def judge(self, case: Case) -> Finding:
        times = self.growth(case)
        fitted = fitted_exponent(times.lengths, times.fastest)
        ends = [f"{format_seconds(times.fastest[end])} at {times.lengths[end]}" for end in (0, -1)]
        limit = (self._limit(case, self.at_most), self.at_most.text)
        return _by_exponent("time", fitted, limit, ends, slack=0.0)


def _by_exponent(
    what: str, fitted: Exponent, limit: tuple[float, str], ends: list[str], *, slack: float
) -> Finding:
    """The verdict on a fitted exponent; ``ends`` are the costs at the least and largest size."""
    at_most, formula = limit
    line = (
        f"growth of {what}: size ** {fitted.value:.3g} ({fitted.low:.3g} to {fitted.high:.3g} from "
        f"{fitted.sizes} sizes; {', '.join(ends)}), expected at most {at_most:g} ({formula})"
    )
    why = fitted.reason or f"costs lie up to {fitted.worst:.3g} times off what was fitted"
    unclear = (f"undecided ({why})", "measure at more sizes, further apart")
    grown = grows(fitted, at_most=at_most, slack=slack)
    return _by_growth(grown, fitted.value, at_most, line, unclear)


def _by_growth(
    grown: Growth, measured: float, limit: float, line: str, unclear: tuple[str, str]
) -> Finding:
    """The verdict; ``unclear`` is the cause and the advice where the interval holds the limit."""
    cause, advice = unclear if grown is Growth.CANNOT_SAY else ("", "")
    return Finding(
        outcome=_OUTCOMES[grown],
        measured=measured,
        limit=limit,
        reason=f"{cause}: {line}" if cause else line,
        advice=advice,
    )


def _sized(variant: Variant) -> SizedVariant:
    if not isinstance(variant, SizedVariant):
        raise MeasurementMissing(
            f"got variant {variant.name!r} of no size, wanted a SizedVariant with its family; "
            "put the check to variants of that kind"
        )
    return variant
