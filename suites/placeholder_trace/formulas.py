"""What the claims expect, as formulas of the shapes."""

from dataclasses import dataclass

from assay import Case, Formula, Quantity, Unit, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractVariant(Variant):
    """A variant that says how many arrays its program takes."""

    parameters: int = 0


def _nothing(_case: Case) -> Quantity:
    return Quantity(0, Unit.BYTES)


def _one(_case: Case) -> Quantity:
    return Quantity(1, Unit.COUNT)


def _parameters(case: Case) -> Quantity:
    assert isinstance(case.variant, ContractVariant)
    return Quantity(case.variant.parameters, Unit.COUNT)


NOTHING = Formula("nothing: placeholders have no data", _nothing)
"""Not even a scalar: the staged programs use no number but 0 and 1, which are constants."""

ONE = Formula("one graph for all steps, compiled in the first", _one)
"""Forward and backward of equal shapes, and no state that a first step would make."""

HALF_AS_MUCH_AGAIN = Formula(
    "1.5 × the trace time of one layer", lambda _case: Quantity(1.5, Unit.RATIO)
)
"""A scan is traced as often as one layer asks; what is left for each of 16 layers is to stack its
parameters."""

PARAMETERS = Formula("one parameter for each placeholder that the program uses", _parameters)
"""However many there are of one shape, and however often each is used."""

MOST_ADDENDS = 4 * 256
"""The largest contraction of any layer that is run: the perceptron's at a width of 256."""

REORDERED_SUM = MOST_ADDENDS**0.5 * 2.0**-24
"""An f32 sum of n numbers in another order: n roundings of at most 2⁻²⁴, which add up like steps
of either sign, √n of them; here 2⁻¹⁹, 1.9e-6. XLA's CPU compiler orders the sums of a loop's body
otherwise than those of the same layers written out."""
