"""What the claims expect, as formulas of how each variant trains."""

from dataclasses import dataclass

from assay import Case, Formula, Quantity, Unit, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopVariant(Variant):
    """A variant that says how many graphs its steps need if none differs without a need."""

    graphs: int = 1


def _needed(case: Case) -> Quantity:
    assert isinstance(case.variant, LoopVariant)
    return Quantity(case.variant.graphs, Unit.COUNT)


def _two(_case: Case) -> Quantity:
    return Quantity(2, Unit.COUNT)


NEEDED = Formula("one graph for each distinct step", _needed)
"""Graphs of PyTorch/XLA: 1, or 2 where an optimiser's state, or a gradient kept as zeros, is made
in the first step. Programs of JAX: the gradient's, and one for each group of a step's shapes."""

QUARTER_LONGER = Formula("1.25 × the reference", lambda _case: Quantity(1.25, Unit.RATIO))
"""A gradient that waits is copied into its bucket and back, and reduced with others at once; a step
that is compiled anew takes many times as long."""

TWO_STEPS = Formula("step 2", _two)
"""The first step that all later ones repeat."""
