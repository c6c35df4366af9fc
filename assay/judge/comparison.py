"""Comparing a measurement with its limit."""

from enum import Enum

from assay.model.units import Quantity, same_unit


class Relation(Enum):
    """How a measurement must stand to its limit."""

    EQUAL = "="
    AT_MOST = "≤"
    AT_LEAST = "≥"


def holds(measured: Quantity, relation: Relation, limit: Quantity) -> bool:
    """Whether the measurement stands to the limit as asked; deterministic numbers, no tolerance.

    Raises:
        UnitError: the two count different things.
    """
    same_unit(measured, limit)
    match relation:
        case Relation.EQUAL:
            return measured.value == limit.value
        case Relation.AT_MOST:
            return measured.value <= limit.value
        case Relation.AT_LEAST:
            return measured.value >= limit.value


def explain(what: str, measured: Quantity, relation: Relation, limit: Quantity, source: str) -> str:
    """One line that names the measurement, the limit, its source and the gap between them."""
    line = f"{what} is {measured}, wanted {relation.value} {limit} ({source})"
    if holds(measured, relation, limit):
        return line
    gap = Quantity(abs(measured.value - limit.value), measured.unit)
    return f"{line}: {gap} too {'much' if measured.value > limit.value else 'little'}"
