"""Claims on loops of steps: what is sent, what is compiled, what is refused."""

from dataclasses import replace

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.evidence import (
    Counters,
    Failure,
    FailureKind,
    Step,
    StepGraph,
    StepParameter,
    StepsSeen,
)
from assay.model.module import Shape
from assay.model.target import Unavailable
from assay.model.verdict import Outcome

from .cases import GOOD, REFERENCE, TRACED, beside, case, failure, steps
from .examples import STEPPED, TWO, Example, name_of

VECTOR = Shape(element_type="f32", dimensions=(4,))


@pytest.mark.parametrize("example", STEPPED, ids=name_of)
def test_a_program_whose_steps_did_not_run_cannot_run(example: Example) -> None:
    without = replace(
        example.passes.evidence, steps=None, not_executed=Unavailable(reason="it only compiles")
    )
    finding = judge(example.claim, replace(example.passes, evidence=without))
    assert (finding.outcome, finding.reason) == (Outcome.UNSUPPORTED, "it only compiles")


def test_the_step_that_differs_most_is_named_also_where_it_sends_less() -> None:
    theirs = steps(1, 0, sent_bytes=100)
    others = {REFERENCE: replace(GOOD, variant=REFERENCE, steps=theirs)}
    ours = case(steps=steps(1, 0, sent_bytes=60))
    finding = judge(claims.SentPerStep(sent=claims.Sent.BYTES), replace(ours, others=others))
    assert (finding.outcome, finding.measured, finding.limit) == (Outcome.FAILED, 60, 100)
    assert "step 1" in finding.reason


def test_loops_of_different_lengths_are_an_error_not_a_pass() -> None:
    others = {REFERENCE: replace(GOOD, variant=REFERENCE, steps=steps(1, 0))}
    finding = judge(claims.SentPerStep(sent=claims.Sent.BYTES), beside(others))
    assert finding.outcome is Outcome.ERROR
    assert "give both variants one count" in finding.reason


def test_a_step_that_compiles_twice_counts_twice() -> None:
    assert judge(claims.GraphsCompiled(at_most=TWO), case(steps=steps(3, 0))).measured == 3


def test_a_loop_that_never_compiles_anew_ends_compiling_at_none() -> None:
    assert judge(claims.LastCompile(within=TWO), case(steps=steps(0, 0))).measured == 0


def test_a_process_that_was_lost_is_no_refusal() -> None:
    finding = judge(claims.Refuses(), case(failure=failure(FailureKind.CRASH)))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 1)


def test_a_mistake_in_the_program_is_no_refusal() -> None:
    mistake = Failure(kind=FailureKind.EXECUTION, message="AttributeError: no such method")
    finding = judge(claims.Refuses(), case(failure=mistake))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 1)
    assert judge(claims.Refuses(error="AttributeError"), case(failure=mistake)).measured == 0


def test_tracing_that_was_not_counted_is_an_error_and_none_at_all_cannot_run() -> None:
    claim = claims.TracingSends(at_most=TWO)
    assert judge(claim, case(traced=TRACED)).outcome is Outcome.ERROR
    assert judge(claim, case(traced=None)).outcome is Outcome.UNSUPPORTED


def test_the_limit_is_of_the_step_and_not_of_the_sum() -> None:
    spread = StepsSeen(steps=(Step(counters=Counters(sent=1)), Step(counters=Counters(sent=1))))
    others = {REFERENCE: replace(GOOD, variant=REFERENCE, steps=steps(0, 0, sent=2))}
    finding = judge(
        claims.SentPerStep(sent=claims.Sent.TENSORS), replace(case(steps=spread), others=others)
    )
    assert finding.outcome is Outcome.FAILED


def test_what_a_framework_does_not_count_is_an_error_not_a_pass() -> None:
    blind = StepsSeen(steps=(Step(counters=Counters(sent=None)),))
    others = {REFERENCE: replace(GOOD, variant=REFERENCE, steps=blind)}
    finding = judge(
        claims.SentPerStep(sent=claims.Sent.TENSORS), replace(case(steps=blind), others=others)
    )
    assert finding.outcome is Outcome.ERROR
    assert "got no count of the tensors sent" in finding.reason


def graph(name: str, *colours: str) -> StepGraph:
    """A compiled step of no collectives; the colours are those of its parameters."""
    parameters = tuple(
        StepParameter(number=number, shape=VECTOR, colour=colour, donated=False)
        for number, colour in enumerate(colours)
    )
    return StepGraph(
        canonical=name,
        raw=name,
        instructions=9,
        duplicate_constants=0,
        parameters=parameters,
        outputs=(),
        collectives=(),
        operations=(),
    )


def test_the_first_three_graphs_that_differ_are_told_each_by_its_step() -> None:
    compiled = [Step(counters=Counters(compiles=1), graphs=(number,)) for number in range(5)]
    quiet = Step(counters=Counters(compiles=0))
    graphs = tuple(graph("abcde"[number], *"xyzuv"[: number + 1]) for number in range(5))
    seen = StepsSeen(steps=(compiled[0], quiet, *compiled[1:]), graphs=graphs)
    told = judge(claims.GraphsCompiled(at_most=TWO), case(steps=seen)).reason.split("; step ")
    assert [each.partition(":")[0] for each in told[1:]] == ["3", "4", "5"]
