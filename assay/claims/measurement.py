"""Measurements for claims, or ``Stopped`` with the reason why there is none."""

from dataclasses import replace
from typing import Final, NoReturn, TypeVar

from assay.model.claim import Case, MeasurementMissing, Stopped
from assay.model.evidence import Evidence, Failure, FailureKind, Memory, Traced
from assay.model.inspection import describe
from assay.model.summary import ModuleSummary
from assay.model.timing import Times
from assay.model.units import format_bytes
from assay.model.verdict import Finding, Outcome

_T = TypeVar("_T")


def given(value: _T | None, missing: str) -> _T:
    """The value.

    Raises:
        MeasurementMissing: there is none; the message says what to do.
    """
    if value is None:
        raise MeasurementMissing(missing)
    return value


def noted(finding: Finding, *notes: str) -> Finding:
    """The finding with notes after its reason."""
    return replace(finding, reason="; ".join(filter(None, (finding.reason, *notes))))


def stop(
    outcome: Outcome, reason: str, advice: str = "", failure: Failure | None = None
) -> NoReturn:
    """Raise ``Stopped``: there is no measurement to judge, and this verdict follows."""
    raise Stopped(Finding(outcome=outcome, reason=reason, advice=advice, failure=failure))


def stop_unless_available(seen: Evidence | Times) -> None:
    """Raise ``Stopped`` with ``unsupported`` where target or toolchain cannot do it."""
    if seen.unavailable is not None:
        stop(Outcome.UNSUPPORTED, seen.unavailable.reason, seen.unavailable.remedy)


def stop_if_crowded(evidence: Evidence) -> None:
    """Raise ``Stopped`` where a live device could not allocate what its memory would hold."""
    failure = evidence.failure
    if failure is None or failure.needed_bytes is None or failure.capacity_bytes is not None:
        return
    if failure.needed_bytes <= (evidence.device_memory_bytes or 0):
        stop(
            Outcome.INCONCLUSIVE,
            f"the device's memory holds {format_bytes(failure.needed_bytes)}, and they could not "
            "be allocated: other programs use it",
            "end the other programs, or run with fewer workers",
            failure,
        )


def stop_unless_compiled(case: Case, evidence: Evidence) -> None:
    """Raise ``Stopped`` where there is no executable; a program that fails as it runs has one.

    The judged variant's own failure fails the claim; a reference variant's leaves it inconclusive.
    """
    if evidence.failure is None or evidence.failure.stage is not FailureKind.EXECUTION:
        stop_unless_executed(case, evidence)


def stop_unless_executed(case: Case, evidence: Evidence) -> None:
    """Raise ``Stopped`` where the program gave no executable, or one that failed when it ran."""
    stop_unless_available(evidence)
    if evidence.failure is None:
        return
    stop_if_crowded(evidence)
    failed = describe(evidence.failure)
    if evidence is case.evidence:
        stop(Outcome.FAILED, f"nothing to measure: {failed}", failure=evidence.failure)
    name = repr(evidence.variant)
    reason = f"nothing to measure: reference variant {name}: {failed}"
    stop(Outcome.INCONCLUSIVE, reason, f"fix {name}, which it is compared with")


VALUES: Final = ("values to run it on", "values=…, observe=…")
"""What a program needs to be run, and the fields of ``Program`` that give it."""


def result_of_run(case: Case, evidence: Evidence, result: _T | None, what: str, field: str) -> _T:
    """What a run of the program gives, or ``Stopped``.

    A target that runs nothing is unsupported. A program without the ``field`` that the claim needs
    is wrong use of the claim, and fails it: a check that can never judge must not look passed.
    """
    stop_unless_executed(case, evidence)
    if result is not None:
        return result
    if (why := evidence.not_executed) is not None:
        stop(Outcome.UNSUPPORTED, why.reason, why.remedy)
    stop(
        Outcome.FAILED,
        f"nothing to measure: the program of {evidence.variant!r} gives no {what}, and this claim "
        "judges nothing else",
        f"write Program({field}), or leave the variant out of the check",
    )


def memory_of(case: Case, evidence: Evidence | None = None) -> Memory:
    """The compiler's memory analysis of the judged program or another one, or ``Stopped``."""
    seen = evidence or case.evidence
    return _compiled(case, seen, seen.memory, "memory analysis")


def with_libraries(found: Finding, library_bytes: int) -> Finding:
    """A finding on the bytes that the compiler reports, with those that libraries may add.

    A finding that passed is ``inconclusive`` if the two together could exceed the limit.
    """
    if found.outcome is not Outcome.PASSED or not library_bytes:
        return found
    measured, limit = (
        given(found.measured, "got no measurement"),
        given(found.limit, "got no limit"),
    )
    most = measured + library_bytes
    held = f"libraries hold at most {format_bytes(library_bytes)} more"
    if most <= limit:
        return noted(found, held)
    return replace(
        found,
        outcome=Outcome.INCONCLUSIVE,
        reason=f"{found.reason}; XLA's CPU compiler leaves operations to libraries and does not "
        f"report their memory: {held}, {format_bytes(most)} together",
        advice=WITHOUT_LIBRARIES,
    )


WITHOUT_LIBRARIES: Final = (
    "set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type= to compile without YNNPACK, or judge a "
    "GPU or TPU target"
)
"""How to make the compiler report all memory, except for convolutions that Eigen computes."""


def needed_bytes_of(case: Case) -> int:
    """The device memory that the judged program needs, or ``Stopped``."""
    return _compiled(case, case.evidence, case.evidence.needed_bytes, "memory analysis")


def module_of(case: Case, evidence: Evidence | None = None) -> ModuleSummary:
    """The optimised module's summary, of the judged program or another one, or ``Stopped``."""
    seen = evidence or case.evidence
    if seen.module_unreadable:
        stop_unless_compiled(case, seen)
        stop(
            Outcome.UNSUPPORTED,
            "the program compiles, but this toolchain cannot read what it compiled: "
            + seen.module_unreadable,
            "install the plugin that this jax asks for, such as pip install 'jax[tpu]'",
        )
    return _compiled(case, seen, seen.module, "HLO module")


def assigned_module_of(case: Case, evidence: Evidence | None = None) -> ModuleSummary:
    """The module, or ``Stopped`` where no buffer assignment says which bytes its arrays share."""
    module = module_of(case, evidence)
    if not module.buffers_assigned:
        stop(
            Outcome.INCONCLUSIVE,
            "the compiler gave no buffer assignment, which is needed to tell a copy from an update "
            "in place",
            "use a compiler that takes xla_dump_to as a compile option",
        )
    return module


def traced_of(case: Case) -> Traced:
    """What tracing recorded, also if the compiler failed; or ``Stopped``."""
    stop_unless_available(case.evidence)
    return case.evidence.traced or _compiled(case, case.evidence, None, "jaxpr")


def stop_unless_placement_shows(evidence: Evidence) -> None:
    """Raise ``Stopped`` where this target or toolchain cannot show memory placement at all."""
    stop_unless_available(evidence)
    if not evidence.separate_host_memory:
        stop(
            Outcome.UNSUPPORTED,
            "this target and toolchain keep no placement in host memory",
            "use a GPU or TPU target, with jax 0.8.2 or newer if the device is not present",
        )
    traced = evidence.traced
    if traced and traced.host_placements_traced and not traced.placements_lowered:
        stop(
            Outcome.UNSUPPORTED,
            "the jaxpr places data on the host, but this jax drops placement when it "
            "lowers for a device that is not present",
            "use jax 0.8.2 or newer, or a machine that has the device",
        )


def _compiled(case: Case, evidence: Evidence, found: _T | None, what: str) -> _T:
    """What the compiler gives with an executable, or ``Stopped``."""
    stop_unless_compiled(case, evidence)
    return given(
        found,
        f"got no {what} of {evidence.workload}/{evidence.variant} on {evidence.target}, wanted "
        "one from a program that compiled; this is a fault of Assay or of its adapter to jax",
    )
