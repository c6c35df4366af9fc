"""Comparing a deterministic number with the one that was accepted."""

from collections.abc import Mapping, Sequence

from assay.model.units import Quantity
from assay.model.verdict import AcceptedNumber, Finding, Outcome

ACCEPT_NEW = "accept it with --assay-update-baselines=new"
ACCEPT_ALL = "if the change is meant, accept it with --assay-update-baselines=all and say why"


def against_accepted(
    measured: Quantity,
    accepted: AcceptedNumber | None,
    toolchain: Mapping[str, str],
    tolerance: float,
    earlier: Sequence[AcceptedNumber] = (),
) -> Finding:
    """Judge a number of which less is better.

    On the very toolchain the number was accepted on, any change counts. On another, a change
    within ``tolerance`` (a ratio) is the compilers' difference; a worse number beyond it is a
    regression all the same, and a better one is ``improved``. A missing number is broken.

    There ``earlier``, the numbers of all toolchains up to this one, oldest first, count too: a
    number within the tolerance of the newest and beyond that of the best is broken, or many small
    steps would pass one by one.
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
    best = accepted if exact else _best(earlier, accepted, tolerance)
    if change <= slack * abs(accepted.value) and _exceeds(measured.value, best, slack):
        return _crept(measured, best, limit)
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


def _best(
    earlier: Sequence[AcceptedNumber], newest: AcceptedNumber, tolerance: float
) -> AcceptedNumber:
    """The least number since the last that was accepted although it was worse.

    Only ``--assay-update-baselines=all`` accepts a number beyond the tolerance; the comparison
    starts anew there.
    """
    best: AcceptedNumber | None = None
    for number in (*earlier, newest):
        if best is None or number.value <= best.value or _exceeds(number.value, best, tolerance):
            best = number
    return best or newest


def _exceeds(value: float, number: AcceptedNumber, slack: float) -> bool:
    return value - number.value > slack * abs(number.value)


def _crept(measured: Quantity, best: AcceptedNumber, newest: Quantity) -> Finding:
    change = Quantity(measured.value - best.value, measured.unit)
    return Finding(
        outcome=Outcome.BROKEN,
        measured=measured.value,
        limit=best.value,
        reason=f"measured {measured}: {change} more than the best accepted, "
        f"{Quantity(best.value, measured.unit)} on {_names(best.toolchain)}, in small steps (the "
        f"newest accepted is {newest})",
        advice=ACCEPT_ALL,
    )


def _names(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
