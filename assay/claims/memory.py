"""Claims on memory and transfers: host bytes, device bytes, baselines, bytes per direction."""

from dataclasses import dataclass, replace

from assay.claims.measurement import memory_of, module_of, stop_unless_placement_shows
from assay.judge.baseline import Relation, against_baseline, explain, holds
from assay.model.claim import Case, Formula
from assay.model.evidence import FailureKind
from assay.model.module import Direction, nbytes_per_run
from assay.model.units import Quantity, Unit, same_unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class HostBytes:
    """The step needs exactly the formula's bytes per device of host memory.

    Temporaries, arguments and outputs count; an output that reuses an argument counts once.
    """

    equal: Formula
    name: str = "host-bytes"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the compiler's host bytes are the formula's bytes."""
        stop_unless_placement_shows(case.evidence)
        measured = Quantity(memory_of(case, case.evidence).host_bytes, self.unit)
        limit = self.equal.of(case)
        return finding("host memory", measured, Relation.EQUAL, limit, self.equal.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytesFall:
    """The step needs less device memory than its reference variant, by at least the formula.

    Host bytes alone prove nothing: three useless programs have them (see the suite's README).
    """

    by: Formula
    name: str = "device-bytes-fall"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variant that saves on the device what this one moves to the host."""
        return (variant.reference, *self.by.needs(variant))

    def judge(self, case: Case) -> Finding:
        """Passes if temp bytes fell by the formula's bytes."""
        stop_unless_placement_shows(case.evidence)
        reference = case.other(case.variant.reference)
        mine = memory_of(case, case.evidence).temp_bytes
        theirs = memory_of(case, reference).temp_bytes
        measured = Quantity(theirs - mine, self.unit)
        what = f"device memory saved compared with {reference.variant!r}"
        return finding(what, measured, Relation.AT_LEAST, self.by.of(case), self.by.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBytesAtMost:
    """The step needs at most the device memory of another variant plus the formula.

    A policy that needs more than saving nothing costs both transfers and memory.
    """

    against: str
    beyond: Formula
    name: str = "no-worse-than-nothing"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variant it must not exceed."""
        return (self.against, *self.beyond.needs(variant))

    def judge(self, case: Case) -> Finding:
        """Passes if temp bytes are at most the other variant's."""
        stop_unless_placement_shows(case.evidence)
        beyond = self.beyond.of(case)
        same_unit(beyond, Quantity(0, self.unit))
        theirs = memory_of(case, case.other(self.against)).temp_bytes
        limit = Quantity(theirs + beyond.value, self.unit)
        measured = Quantity(memory_of(case, case.evidence).temp_bytes, self.unit)
        source = f"the memory of {self.against!r}, plus {self.beyond.text}"
        return finding("device memory", measured, Relation.AT_MOST, limit, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class TempBytesAtMost:
    """The step's device temporaries stay within the formula."""

    limit: Formula
    name: str = "temp-bytes-at-most"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.limit.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if temp bytes are at most the formula's."""
        measured = Quantity(memory_of(case, case.evidence).temp_bytes, self.unit)
        limit = self.limit.of(case)
        return finding("device temporaries", measured, Relation.AT_MOST, limit, self.limit.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsBudget:
    """The step's temp + argument + output − alias is within the budget that it was given.

    If the compiler refuses the program, the memory in its error message is the measurement.
    """

    budget: Formula
    name: str = "fits-budget"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.budget.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if what the step needs is at most the budget."""
        failure = case.evidence.failure
        if failure is not None and failure.kind is not FailureKind.OUT_OF_MEMORY:
            failure = None  # FitsBudget is about memory only
        needed = failure.needed_bytes if failure is not None else None
        if needed is None:
            needed = memory_of(case, case.evidence).device_bytes
        limit, text = self.budget.of(case), self.budget.text
        found = finding("device memory", Quantity(needed, self.unit), Relation.AT_MOST, limit, text)
        if failure is not None:
            return replace(found, outcome=Outcome.FAILED, failure=failure)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BaselineTempBytes:
    """Device temporaries have not grown past the baseline stored for this target.

    Fusion and scheduling decide this number, so no formula gives it. On another toolchain, a
    difference within ``tolerance`` (a ratio) is no change.
    """

    tolerance: float = 0.01
    name: str = "temp-bytes"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = True

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if temp bytes equal the baseline, improves if less, fails if more or missing."""
        measured = Quantity(memory_of(case, case.evidence).temp_bytes, self.unit)
        versions = case.evidence.toolchain.identity
        return against_baseline(measured, case.baseline, versions, self.tolerance, case.earlier)


def finding(
    what: str, measured: Quantity, relation: Relation, limit: Quantity, source: str
) -> Finding:
    """Passes or fails by one comparison, with the line that explains it.

    Raises:
        UnitError: measurement and limit count different things.
    """
    passed = holds(measured, relation, limit)
    return Finding(
        outcome=Outcome.PASSED if passed else Outcome.FAILED,
        measured=measured.value,
        limit=limit.value,
        reason=explain(what, measured, relation, limit, source),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferredBytes:
    """Per step, exactly the formula's bytes are transferred in this direction."""

    direction: Direction
    equal: Formula
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    @property
    def name(self) -> str:
        """``to-host-bytes`` or ``to-device-bytes``."""
        return f"{self.direction.value}-bytes"

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the transfers of all loops, trip counts included, add up to the formula."""
        stop_unless_placement_shows(case.evidence)
        module = module_of(case, case.evidence)
        uncertain = [
            transfer
            for transfer in module.transfers
            if transfer.direction is self.direction
            and (transfer.executions is None or transfer.at_most)
        ]
        if uncertain:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"{len(uncertain)} transfers run an unknown number of times, "
                f"the first in {uncertain[0].computation}",
                advice="give the loop a static length; take the transfer out of the conditional",
            )
        total = nbytes_per_run(module.transfers, self.direction)
        assert total is not None
        measured = Quantity(total, self.unit)
        what = f"{self.direction.value} transfers per step"
        return finding(what, measured, Relation.EQUAL, self.equal.of(case), self.equal.text)
