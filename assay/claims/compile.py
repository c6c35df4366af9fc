"""Claims on the compilation itself: it succeeds, takes what it should, and fits the device."""

from dataclasses import dataclass

from assay.claims.measurement import (
    describe_failure,
    memory_of,
    module_of,
    never_executed,
    stop_unless_available,
    stop_unless_compiled,
)
from assay.claims.memory import finding
from assay.judge.comparison import Relation, explain, holds
from assay.model.claim import Case, Formula, MeasurementMissing
from assay.model.evidence import Failure, FailureKind
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiles:
    """The program traces, lowers and compiles, whether or not it then fits or runs.

    Measures the number of failures. ``FitsDevice`` judges a program that runs out of memory,
    ``Runs`` one that compiles and fails when it runs.
    """

    name: str = "compiles"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if the compiler returned an executable."""
        evidence = case.evidence
        stop_unless_available(evidence)
        failure = evidence.failure
        does_not_fit = failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY
        if failure is None or does_not_fit or failure.left_executable:
            return Finding(outcome=Outcome.PASSED, measured=0, limit=0, reason="it compiles")
        return _failed(failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The program that was compiled runs, and gives results.

    Measures the number of failures: an exception, a crash or a timeout while it runs.
    """

    name: str = "runs"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if it ran to its end."""
        evidence = case.evidence
        stop_unless_compiled(case, evidence)
        if evidence.failure is not None:
            return _failed(evidence.failure)
        if evidence.values is None:
            return never_executed(evidence, "results")
        return Finding(outcome=Outcome.PASSED, measured=0, limit=0, reason="it runs")


def _failed(failure: Failure) -> Finding:
    return Finding(
        outcome=Outcome.FAILED,
        measured=1,
        limit=0,
        reason=describe_failure(failure),
        failure=failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsDevice:
    """The step's temp + argument + output − alias is within the device's memory.

    The TPU compiler refuses a program that does not fit and names the size; the GPU compiler
    accepts anything, so there the sum is compared with the device model.
    """

    name: str = "fits-device"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if it fits; otherwise the finding says by how much it does not."""
        evidence = case.evidence
        stop_unless_available(evidence)
        failure = evidence.failure
        if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY:
            return Finding(
                outcome=Outcome.FAILED,
                measured=failure.needed_bytes,
                limit=failure.capacity_bytes,
                reason=describe_failure(failure),
                advice="shard it further, save less, or offload",
                failure=failure,
            )
        memory_of(case, evidence)
        needed = Quantity(evidence.needed_bytes or 0, self.unit)
        if evidence.device_memory_bytes is None:
            return Finding(
                outcome=Outcome.UNSUPPORTED,
                measured=needed.value,
                reason="this target has no memory size of its own",
                advice="judge it on a GPU or TPU target",
            )
        capacity = Quantity(evidence.device_memory_bytes, Unit.BYTES)
        passed = holds(needed, Relation.AT_MOST, capacity)
        return Finding(
            outcome=Outcome.PASSED if passed else Outcome.FAILED,
            measured=needed.value,
            limit=capacity.value,
            reason=explain(
                "device memory", needed, Relation.AT_MOST, capacity, "the device's memory"
            ),
            advice="" if passed else "shard it further, save less, or offload",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The compiled program takes exactly the formula's number of arrays."""

    equal: Formula
    name: str = "parameters"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the entry computation has as many parameters; a tuple counts as its arrays."""
        inventory = module_of(case, case.evidence).inventory
        if inventory is None:
            raise MeasurementMissing(
                f"got no inventory of {case.evidence.variant!r}, wanted the module's arguments; "
                "read the module with assay.hlo.summary.read"
            )
        measured = Quantity(len(inventory.arguments), self.unit)
        limit = self.equal.of(case)
        return finding("the program's arrays", measured, Relation.EQUAL, limit, self.equal.text)
