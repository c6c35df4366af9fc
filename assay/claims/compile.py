"""Claims on tracing, compiling and running: each succeeds, names match, and the program fits."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod

from assay.claims.measurement import (
    describe_failure,
    memory_of,
    module_of,
    never_executed,
    stop_unless_available,
    stop_unless_compiled,
    traced_of,
)
from assay.claims.memory import finding
from assay.judge.baseline import Relation, explain, holds
from assay.model.claim import Case, Formula, MeasurementMissing
from assay.model.evidence import Failure, FailureKind, Residual
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualsOnHost:
    """Autodiff keeps exactly the formula's bytes of residuals in host memory, over all devices."""

    equal: Formula
    name: str = "residuals-on-host"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the saved residuals placed on the host add up to the formula."""
        residuals = traced_of(case).residuals
        if residuals is None:
            raise MeasurementMissing(
                f"got no saved residuals of {case.variant.name!r}, wanted its Program to name the "
                "differentiated function; set Program.differentiated"
            )
        on_host = [residual for residual in residuals if residual.on_host]
        measured = Quantity(sum(map(nbytes, on_host)), self.unit)
        result = finding(
            "residuals on the host",
            measured,
            Relation.EQUAL,
            self.equal.of(case),
            self.equal.text,
        )
        listed = ", ".join(map(str, residuals)) or "nothing"
        return Finding(
            outcome=result.outcome,
            measured=result.measured,
            limit=result.limit,
            reason=f"{result.reason}; saved: {listed}",
        )


def nbytes(residual: Residual) -> int:
    """Logical bytes of a residual, summed over all devices; bits are rounded up to bytes.

    The first number in a type's name is its bits: ``float8_e4m3fn``, ``int4``; ``bool`` has none.
    """
    bits = re.search(r"[0-9]+", residual.dtype)
    return (prod(residual.shape) * int(bits[0] if bits else 8) + 7) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesMatch:
    """Every name in the policy is given to a value by ``checkpoint_name``.

    JAX accepts a name that matches nothing without a warning, and offloads nothing.
    """

    name: str = "names-match"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if none of the policy's names is missing from the jaxpr."""
        present = traced_of(case).names
        if not case.variant.names:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"the policy of {case.variant.name!r} asks for no name",
                advice="list the policy's names in Variant.names, or leave the variant out of the "
                "check",
            )
        missing = [name for name in case.variant.names if name not in present]
        if not missing:
            names = ", ".join(case.variant.names)
            return Finding(
                outcome=Outcome.PASSED, measured=0, limit=0, reason=f"the program names {names}"
            )
        close = get_close_matches(missing[0], present, n=1)
        return Finding(
            outcome=Outcome.FAILED,
            measured=len(missing),
            limit=0,
            reason=f"the policy names {missing}, but the program names only {sorted(present)}",
            advice=f"did you mean {close[0]!r}?" if close else "name a value with checkpoint_name",
        )


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
        # Before any other failure: here no variant is judged, so no negative control need be.
        if evidence.device_memory_bytes is None:
            return Finding(
                outcome=Outcome.UNSUPPORTED,
                measured=evidence.needed_bytes,
                reason="this target has no memory size",
                advice="use a GPU or TPU target",
            )
        memory_of(case, evidence)
        needed = Quantity(evidence.needed_bytes or 0, self.unit)
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
