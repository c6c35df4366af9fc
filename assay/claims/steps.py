"""Claims on loops of steps: what a lazy-tensor framework sends, and how often it compiles."""

from dataclasses import dataclass
from enum import Enum
from itertools import islice, pairwise
from typing import ClassVar, Final

from assay.claims.measurement import (
    given,
    noted,
    result_of_run,
    stop,
    stop_unless_compiled,
)
from assay.judge.differences.step_graphs import difference_of_steps
from assay.model.claim import Case, Claim, Formula, MeasurementMissing
from assay.model.evidence import Counters, Evidence, StepsSeen
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant

_SHOWN: Final = 3
"""The most differences between graphs that a reason shows."""


class Sent(Enum):
    """What of the traffic to the device is counted."""

    TENSORS = "tensors"
    BYTES = "bytes"

    def of(self, counters: Counters | None) -> int:
        """The count.

        Raises:
            MeasurementMissing: the framework does not count it.
        """
        field = "sent" if self is Sent.TENSORS else "sent_bytes"
        count: int | None = getattr(counters, field, None)
        return given(
            count,
            f"got no count of the {self.value} sent, wanted one; judge a program of a framework "
            "that counts them, such as torch_xla",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPerStep(Claim):
    """Every step sends as much to the device as the same step of the reference variant.

    Measures the step that differs most, the last one of equals. ``TENSORS`` counts tensors that
    were sent because an operation needed their IR value (IrValueTensorToXlaData). ``BYTES`` counts
    all bytes sent (OutboundData).
    """

    sent: Sent

    @property
    def name(self) -> str:
        """``sent-tensors-per-step`` or ``sent-bytes-per-step``."""
        return f"sent-{self.sent.value}-per-step"

    @property
    def unit(self) -> Unit:
        """Of what is counted."""
        return Unit.COUNT if self.sent is Sent.TENSORS else Unit.BYTES

    def _references(self, variant: Variant) -> tuple[str, ...]:
        return (variant.reference,)

    def judge(self, case: Case) -> Finding:
        ours = _steps_of(case, case.evidence).steps
        theirs = _steps_of(case, case.other(case.variant.reference)).steps
        if len(ours) != len(theirs):
            raise MeasurementMissing(
                f"got {len(ours)} steps and {len(theirs)} of the reference variant, wanted equal "
                "numbers; give both variants one count"
            )
        pairs = [
            (self.sent.of(our.counters), self.sent.of(their.counters), number)
            for number, (our, their) in enumerate(zip(ours, theirs, strict=True))
        ]
        measured, wanted, number = max(pairs, key=lambda pair: (abs(pair[0] - pair[1]), pair[2]))
        limit = Quantity(wanted, self.unit)
        same = Formula(f"step {number} of {case.variant.reference!r}", lambda _case: limit)
        what = f"what step {number} sends ({self.sent.value})"
        return self._compare(case, what, measured, "=", same)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracingSends(Claim):
    """Tracing and lowering a program send at most the formula's bytes to the device."""

    at_most: Formula
    name: str = "sent-bytes-while-tracing"

    def judge(self, case: Case) -> Finding:
        stop_unless_compiled(case, case.evidence)
        if case.evidence.traced is None:
            stop(
                Outcome.UNSUPPORTED,
                "this target also runs the steps, so tracing is not measured alone",
                "use a compile-only target, such as gpu-h100",
            )
        sent = Sent.BYTES.of(case.evidence.traced.counters)
        return self._compare(case, "what tracing sends", sent, "≤", self.at_most)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphsCompiled(Claim):
    """Over all steps at most the formula's number of graphs is compiled.

    A graph that differs only in the order of operations is compiled again. If the claim fails, the
    reason says how the first graphs differ, each from the previous one.
    """

    at_most: Formula
    name: str = "graphs-compiled"
    unit: ClassVar[Unit] = Unit.COUNT

    def judge(self, case: Case) -> Finding:
        seen = _steps_of(case, case.evidence)
        count = sum(step.counters.compiles for step in seen.steps)
        what = f"graphs compiled in {len(seen.steps)} steps"
        found = self._compare(case, what, count, "≤", self.at_most)
        return _with_differences(found, seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastCompile(Claim):
    """No graph is compiled after the formula's number of steps."""

    within: Formula
    name: str = "steps-until-last-compile"
    unit: ClassVar[Unit] = Unit.COUNT

    def judge(self, case: Case) -> Finding:
        seen = _steps_of(case, case.evidence)
        compiling = [number for number, step in enumerate(seen.steps, 1) if step.counters.compiles]
        last = max(compiling, default=0)
        found = self._compare(case, "last step that compiles", last, "≤", self.within)
        return _with_differences(found, seen)


def _steps_of(case: Case, evidence: Evidence) -> StepsSeen:
    return result_of_run(case, evidence, evidence.steps, "loop of steps", "steps=…")


def _with_differences(found: Finding, seen: StepsSeen) -> Finding:
    """A failed finding also says how the first graphs differ, each from the previous one."""
    if found.outcome is Outcome.PASSED:
        return found
    step_of = {graph: number for number, step in enumerate(seen.steps, 1) for graph in step.graphs}
    pairs = islice(enumerate(pairwise(seen.graphs), 1), _SHOWN)
    differences = (
        f"step {step_of[graph]}: {difference_of_steps(*pair, seen.parameters)}"
        for graph, pair in pairs
    )
    return noted(found, *differences)
