"""Taking a measurement out of evidence, or the finding that says why there is none."""

from assay.model.claim import Case, MeasurementMissing, Stopped
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, Traced, Unavailable
from assay.model.summary import ModuleSummary
from assay.model.timing import Times
from assay.model.units import format_bytes
from assay.model.verdict import Finding, Outcome

_DURING = {
    FailureKind.BUILD: "is built",
    FailureKind.TRACE: "is traced",
    FailureKind.LOWERING: "is lowered",
    FailureKind.COMPILER: "is compiled",
    FailureKind.EXECUTION: "runs",
}


def describe_failure(failure: Failure) -> str:
    """One line: the stage that failed, the sizes that an out-of-memory error named, the message."""
    when = f" while it {_DURING[failure.during]}" if failure.during in _DURING else ""
    place = f"{failure.line}: " if failure.line else ""
    line = f"the program {failure.kind.value}{when}: {place}{failure.message}"
    if failure.needed_bytes is not None and failure.capacity_bytes is not None:
        needed, capacity = format_bytes(failure.needed_bytes), format_bytes(failure.capacity_bytes)
        line = f"the compiler needs {needed} of {capacity} per device"
    return line


def stop_unless_available(seen: Evidence | Times) -> None:
    """Raise ``Stopped`` with ``unsupported`` where target or toolchain cannot do it."""
    if seen.unavailable is not None:
        raise Stopped(
            Finding(
                outcome=Outcome.UNSUPPORTED,
                reason=seen.unavailable.reason,
                advice=seen.unavailable.remedy,
            )
        )


def stop_unless_compiled(case: Case, evidence: Evidence) -> None:
    """Raise ``Stopped`` where there is no executable; one that then did not run left one.

    The judged variant's own failure fails the claim; a reference variant's leaves it inconclusive.
    """
    stop_unless_available(evidence)
    if evidence.failure is not None and not evidence.failure.left_executable:
        raise _nothing_to_measure(case, evidence, evidence.failure)


def stop_unless_executed(case: Case, evidence: Evidence) -> None:
    """Raise ``Stopped`` where the program gave no executable, or one that failed when it ran."""
    stop_unless_available(evidence)
    if evidence.failure is not None:
        raise _nothing_to_measure(case, evidence, evidence.failure)


def _nothing_to_measure(case: Case, evidence: Evidence, failure: Failure) -> Stopped:
    own = evidence is case.evidence
    whose = "" if own else f"reference variant {evidence.variant!r}: "
    return Stopped(
        Finding(
            outcome=Outcome.FAILED if own else Outcome.INCONCLUSIVE,
            reason=f"nothing to measure: {whose}{describe_failure(failure)}",
            advice="" if own else f"fix {evidence.variant!r}, which it is compared with",
            failure=failure if own else None,
        )
    )


def never_executed(evidence: Evidence, what: str) -> Finding:
    """``unsupported``, and what would fix it, where evidence holds nothing of what a run gives."""
    why = evidence.not_executed or Unavailable(
        reason=f"the program gives no {what}", remedy="use the claim for programs that give it"
    )
    return Finding(outcome=Outcome.UNSUPPORTED, reason=why.reason, advice=why.remedy)


def memory_of(case: Case, evidence: Evidence) -> Memory:
    """The compiler's memory analysis, or ``Stopped``."""
    stop_unless_compiled(case, evidence)
    if evidence.memory is None:
        raise MeasurementMissing(_missing(evidence, "memory analysis"))
    return evidence.memory


def module_of(case: Case, evidence: Evidence) -> ModuleSummary:
    """The optimised module's summary, or ``Stopped``."""
    stop_unless_compiled(case, evidence)
    if evidence.module_unreadable:
        raise Stopped(
            Finding(
                outcome=Outcome.UNSUPPORTED,
                reason="the program compiles, but this toolchain cannot read what it compiled: "
                + evidence.module_unreadable,
                advice="install the plugin that this jax asks for, such as pip install 'jax[tpu]'",
            )
        )
    if evidence.module is None:
        raise MeasurementMissing(_missing(evidence, "HLO module"))
    return evidence.module


def traced_of(case: Case) -> Traced:
    """What tracing recorded, also if the compiler failed; or ``Stopped``."""
    evidence = case.evidence
    stop_unless_available(evidence)
    if evidence.traced is None:
        stop_unless_compiled(case, evidence)
        raise MeasurementMissing(_missing(evidence, "jaxpr"))
    return evidence.traced


def stop_unless_placement_shows(evidence: Evidence) -> None:
    """Raise ``Stopped`` where this target or toolchain cannot show memory placement at all."""
    stop_unless_available(evidence)
    if not evidence.separate_host_memory:
        raise Stopped(
            Finding(
                outcome=Outcome.UNSUPPORTED,
                reason="this target has one memory space and ignores memory kinds",
                advice="use a GPU or TPU target",
            )
        )
    traced = evidence.traced
    if traced and traced.host_placements_traced and not traced.placements_lowered:
        raise Stopped(
            Finding(
                outcome=Outcome.UNSUPPORTED,
                reason="the jaxpr places data on the host, but this jax drops placement when it "
                "lowers for a device that is not present",
                advice="use jax 0.9 or newer, or a machine that has the device",
            )
        )


def _missing(evidence: Evidence, what: str) -> str:
    return (
        f"got no {what} of {evidence.workload}/{evidence.variant} on {evidence.target}, wanted one "
        "from a program that compiled; this is a fault of Assay or of its adapter to jax"
    )
