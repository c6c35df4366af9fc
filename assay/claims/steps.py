"""Claims on loops of steps: what a lazy-tensor framework sends, and how often it compiles."""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from assay.claims.measurement import (
    describe_failure,
    never_executed,
    stop_unless_available,
    stop_unless_compiled,
    stop_unless_executed,
)
from assay.claims.memory import finding
from assay.judge.baseline import Relation
from assay.judge.differences.step_graphs import difference_of_steps
from assay.model.claim import Case, Formula, MeasurementMissing, Stopped
from assay.model.evidence import Evidence, FailureKind
from assay.model.steps import Counters, StepsSeen
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant

_TOLD: Final = 3
"""Differences between graphs that a finding tells."""

_REFUSED: Final = (FailureKind.TRACE, FailureKind.LOWERING, FailureKind.EXECUTION)


class Sent(Enum):
    """What of the traffic to the device is counted."""

    TENSORS = "tensors"
    BYTES = "bytes"

    def of(self, counters: Counters | None) -> int:
        """The count.

        Raises:
            MeasurementMissing: the framework does not count it.
        """
        count = None
        if counters is not None:
            count = counters.sent if self is Sent.TENSORS else counters.sent_bytes
        if count is None:
            raise MeasurementMissing(
                f"got no count of the {self.value} sent, wanted one; judge a program of a "
                "framework that counts them, such as torch_xla"
            )
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPerStep:
    """Every step sends as much to the device as the same step of the reference variant.

    Measures the step that differs most, the last one of equals. ``TENSORS`` counts tensors that
    were sent because an operation needed their IR value (IrValueTensorToXlaData). ``BYTES`` counts
    all bytes sent (OutboundData).
    """

    sent: Sent
    uses_baseline: bool = False

    @property
    def name(self) -> str:
        """``sent-tensors-per-step`` or ``sent-bytes-per-step``."""
        return f"sent-{self.sent.value}-per-step"

    @property
    def unit(self) -> Unit:
        """Of what is counted."""
        return Unit.COUNT if self.sent is Sent.TENSORS else Unit.BYTES

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variant that sends no more than it must."""
        return (variant.reference,)

    def judge(self, case: Case) -> Finding:
        """Passes if no step sends more, or less."""
        ours = steps_of(case, case.evidence).steps
        theirs = steps_of(case, case.other(case.variant.reference)).steps
        if len(ours) != len(theirs):
            raise MeasurementMissing(
                f"got {len(ours)} steps and {len(theirs)} of the reference variant, wanted as "
                "many; give both variants one count"
            )
        pairs = [
            (self.sent.of(our.counters), self.sent.of(their.counters), number)
            for number, (our, their) in enumerate(zip(ours, theirs, strict=True))
        ]
        measured, wanted, number = max(pairs, key=lambda pair: (abs(pair[0] - pair[1]), pair[2]))
        what = f"what step {number} sends ({self.sent.value})"
        limit = Quantity(wanted, self.unit)
        source = f"step {number} of {case.variant.reference!r}"
        return finding(what, Quantity(measured, self.unit), Relation.EQUAL, limit, source)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSends:
    """Tracing and lowering a program send at most the formula's bytes to the device."""

    at_most: Formula
    name: str = "sent-bytes-while-tracing"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.at_most.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if no more was sent until the program was lowered."""
        evidence = case.evidence
        stop_unless_compiled(case, evidence)
        if evidence.traced is None:
            raise Stopped(
                Finding(
                    outcome=Outcome.UNSUPPORTED,
                    reason="this target also runs the steps, so tracing is not measured alone",
                    advice="use a compile-only target, such as gpu-h100",
                )
            )
        measured = Quantity(Sent.BYTES.of(evidence.traced.counters), self.unit)
        limit = self.at_most.of(case)
        return finding("what tracing sends", measured, Relation.AT_MOST, limit, self.at_most.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphsCompiled:
    """Over all steps at most the formula's number of graphs is compiled.

    A graph that differs only in the order of operations is compiled again. The reason says how each
    graph differs from the previous one.
    """

    at_most: Formula
    name: str = "graphs-compiled"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.at_most.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the graph cache missed no oftener."""
        seen = steps_of(case, case.evidence)
        compiles = sum(step.counters.compiles for step in seen.steps)
        limit = self.at_most.of(case)
        what = f"graphs compiled in {len(seen.steps)} steps"
        found = finding(
            what, Quantity(compiles, self.unit), Relation.AT_MOST, limit, self.at_most.text
        )
        return _with_differences(found, seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCompile:
    """No graph is compiled after the formula's number of steps."""

    within: Formula
    name: str = "steps-until-last-compile"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.within.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if every later step ran a graph that was there."""
        seen = steps_of(case, case.evidence)
        compiling = [number for number, step in enumerate(seen.steps, 1) if step.counters.compiles]
        measured = Quantity(max(compiling, default=0), self.unit)
        limit = self.within.of(case)
        found = finding(
            "last step that compiles", measured, Relation.AT_MOST, limit, self.within.text
        )
        return _with_differences(found, seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses:
    """The program is refused with an ``error``: it neither succeeds nor takes its process down.

    Measures 1 if it does, or if it ends with another exception, which may be a fault of its own.
    """

    error: str = "RuntimeError"
    name: str = "refuses"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if the framework raised just that."""
        evidence = case.evidence
        stop_unless_available(evidence)
        failure = evidence.failure
        if failure is None:
            return Finding(outcome=Outcome.FAILED, measured=1, limit=0, reason="it was not refused")
        refused = failure.kind in _REFUSED and failure.message.startswith(f"{self.error}: ")
        return Finding(
            outcome=Outcome.PASSED if refused else Outcome.FAILED,
            measured=0 if refused else 1,
            limit=0,
            reason=f"wanted a {self.error}; {describe_failure(failure)}",
            failure=None if refused else failure,
        )


def steps_of(case: Case, evidence: Evidence) -> StepsSeen:
    """The steps that were run, or ``Stopped``."""
    stop_unless_executed(case, evidence)
    if evidence.steps is None:
        raise Stopped(never_executed(evidence, "loop of steps"))
    return evidence.steps


def _with_differences(found: Finding, seen: StepsSeen) -> Finding:
    """The finding, and how each compiled graph differs from the one before it."""
    if found.outcome is Outcome.PASSED:
        return found
    lines = [
        f"step {_step_of(seen, number)}: {difference_of_steps(before, after, seen.parameters)}"
        for number, (before, after) in enumerate(pairwise(seen.graphs), 1)
    ]
    return Finding(
        outcome=found.outcome,
        measured=found.measured,
        limit=found.limit,
        reason="; ".join((found.reason, *lines[:_TOLD])),
        advice=found.advice,
    )


def _step_of(seen: StepsSeen, graph: int) -> int:
    return next(number for number, step in enumerate(seen.steps, 1) if graph in step.graphs)
