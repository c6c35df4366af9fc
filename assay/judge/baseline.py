"""Comparing a deterministic number with the one that was accepted."""

from collections.abc import Mapping

from assay.model.units import Quantity
from assay.model.verdict import AcceptedNumber, Finding, Outcome

ACCEPT_NEW = "accept it with --update-baselines=new"
ACCEPT_ALL = "if the change is meant, accept it with --update-baselines=all and say why"


def against_accepted(
    measured: Quantity,
    accepted: AcceptedNumber | None,
    toolchain: Mapping[str, str],
    tolerance: float,
) -> Finding:
    """Judge a number of which less is better.

    On the very toolchain the number was accepted on, any change counts. On another, a change
    within ``tolerance`` (a ratio) is the compilers' difference; a worse number beyond it is a
    regression all the same, and a better one is ``improved``. A missing number is broken.
    """
    if accepted is None:
        return Finding(
            outcome=Outcome.BROKEN,
            measured=measured.value,
            reason=f"measured {measured}, but no number is accepted for this or an older toolchain",
            advice=ACCEPT_NEW,
        )
    exact = dict(accepted.toolchain) == dict(toolchain)
    slack = 0.0 if exact else tolerance
    limit = Quantity(accepted.value, measured.unit)
    change = measured.value - accepted.value
    where = "this toolchain" if exact else _names(accepted.toolchain)
    outcome, word = Outcome.KEPT, "as accepted"
    if change > slack * abs(accepted.value):
        outcome, word = Outcome.BROKEN, f"{Quantity(change, measured.unit)} more than accepted"
    elif change < -slack * abs(accepted.value):
        outcome, word = Outcome.IMPROVED, f"{Quantity(-change, measured.unit)} less than accepted"
    return Finding(
        outcome=outcome,
        measured=measured.value,
        limit=accepted.value,
        reason=f"measured {measured}, accepted {limit} on {where}: {word}",
        advice="" if outcome is Outcome.KEPT else ACCEPT_ALL,
    )


def _names(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
