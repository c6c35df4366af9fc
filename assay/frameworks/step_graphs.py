"""The graphs that a loop of steps compiled, numbered over the whole loop."""

from assay.frameworks.framework import RanSteps
from assay.hlo.canonical import canonical
from assay.hlo.module import Module
from assay.hlo.schema import split
from assay.model.step_graph import StepGraph
from assay.model.steps import Step, StepsSeen


def steps_seen(ran: RanSteps) -> StepsSeen:
    """Each step with what was counted in it, and the graphs that it had compiled."""
    graphs: list[StepGraph] = []
    steps = []
    for step in ran.steps:
        first = len(graphs)
        graphs += [canonical(Module.from_proto(split(proto)[0])) for proto in step.compiled]
        steps.append(Step(counters=step.counters, graphs=tuple(range(first, len(graphs)))))
    return StepsSeen(
        steps=tuple(steps),
        graphs=tuple(graphs),
        modules=tuple(proto for step in ran.steps for proto in step.compiled),
        parameters=dict(ran.parameters),
    )
