"""Comparing a number with its limit or baseline, and choosing the nearest toolchain's baseline."""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Protocol, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from assay.model.units import Quantity, same_unit
from assay.model.verdict import BaselineNumber, Finding, Outcome


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
    line = f"{what}: {measured}, expected {relation.value} {limit} ({source})"
    if holds(measured, relation, limit):
        return line
    gap = Quantity(abs(measured.value - limit.value), measured.unit)
    return f"{line}; {gap} too {'much' if measured.value > limit.value else 'little'}"


_ORDER = ("jaxlib", "jax", "torch_xla", "torch", "libtpu", "jax-cuda13-plugin", "jax-cuda12-plugin")


_Age = tuple[tuple[Version, ...], tuple[tuple[str, Version, str], ...]]


def age(versions: Mapping[str, str]) -> _Age:
    """A sort key: the older the toolchain, the smaller.

    The compiler's own package decides; the remaining versions only make the order total.
    """
    leading = tuple(_version(versions.get(name)) for name in _ORDER)
    rest = tuple((name, _version(text), text) for name, text in sorted(versions.items()))
    return leading, rest


def _version(text: str | None) -> Version:
    try:
        return Version(text or "0")
    except InvalidVersion:
        return Version("0")


class _OnToolchain(Protocol):
    """What was stored on some toolchain, be it a number or times."""

    @property
    def toolchain(self) -> Mapping[str, str]:
        """Its versions."""


_OfToolchain = TypeVar("_OfToolchain", bound=_OnToolchain)


def nearest_baseline(
    baseline: Iterable[_OfToolchain], versions: Mapping[str, str]
) -> _OfToolchain | None:
    """What was stored on this very toolchain, else on the newest older one, else None.

    Of several the last counts. A toolchain whose compiler is the same age counts as older,
    whatever else differs.
    """
    compiler, _ = age(versions)
    older = [number for number in baseline if age(number.toolchain)[0] <= compiler]
    exact = [number for number in older if dict(number.toolchain) == dict(versions)]
    best = exact or sorted(older, key=lambda number: age(number.toolchain))
    return best[-1] if best else None


def no_newer(
    baseline: Iterable[_OfToolchain], versions: Mapping[str, str]
) -> tuple[_OfToolchain, ...]:
    """What was stored on toolchains no newer than this one, the oldest first."""
    compiler, _ = age(versions)
    older = (number for number in baseline if age(number.toolchain)[0] <= compiler)
    return tuple(sorted(older, key=lambda number: age(number.toolchain)))


def in_range(specifiers: Mapping[str, str], versions: Mapping[str, str]) -> bool:
    """Whether every package named is present at a version that its specifier admits."""
    return all(
        name in versions and SpecifierSet(specifier).contains(versions[name], prereleases=True)
        for name, specifier in specifiers.items()
    )


STORE_NEW = "store it with --assay-update-baselines=new"
STORE_ALL = "if the change is meant, store it with --assay-update-baselines=all and say why"


def against_baseline(
    measured: Quantity,
    baseline: BaselineNumber | None,
    toolchain: Mapping[str, str],
    tolerance: float,
    earlier: Sequence[BaselineNumber] = (),
) -> Finding:
    """Judge a number of which less is better.

    On the very toolchain that the baseline was stored on, any change counts. On another, a change
    within ``tolerance`` (a ratio) is the compilers' difference; a worse number beyond it is a
    regression all the same, and a better one is ``improved``. A missing number fails.

    There ``earlier``, the numbers of all toolchains up to this one, oldest first, count too: a
    number within the tolerance of the newest and beyond that of the best fails, or many small
    steps would pass one by one.
    """
    if baseline is None:
        return Finding(
            outcome=Outcome.FAILED,
            measured=measured.value,
            reason=f"measured {measured}, but no baseline is stored for this or an older toolchain",
            advice=STORE_NEW,
        )
    exact = dict(baseline.toolchain) == dict(toolchain)
    slack = 0.0 if exact else tolerance
    limit = Quantity(baseline.value, measured.unit)
    change = measured.value - baseline.value
    where = "this toolchain" if exact else _names(baseline.toolchain)
    outcome, word = Outcome.PASSED, "equal to the baseline"
    best = baseline if exact else _best(earlier, baseline, tolerance)
    if change <= slack * abs(baseline.value) and _exceeds(measured.value, best, slack):
        return _drifted(measured, best, limit)
    if change > slack * abs(baseline.value):
        outcome, word = Outcome.FAILED, f"{Quantity(change, measured.unit)} more than the baseline"
    elif change < -slack * abs(baseline.value):
        outcome, word = (
            Outcome.IMPROVED,
            f"{Quantity(-change, measured.unit)} less than the baseline",
        )
    return Finding(
        outcome=outcome,
        measured=measured.value,
        limit=baseline.value,
        reason=f"measured {measured}, baseline {limit} on {where}: {word}",
        advice="" if outcome is Outcome.PASSED else STORE_ALL,
    )


def _best(
    earlier: Sequence[BaselineNumber], newest: BaselineNumber, tolerance: float
) -> BaselineNumber:
    """The least number since the last that was stored although it was worse.

    Only ``--assay-update-baselines=all`` stores a number beyond the tolerance; the comparison
    starts anew there.
    """
    best: BaselineNumber | None = None
    for number in (*earlier, newest):
        if best is None or number.value <= best.value or _exceeds(number.value, best, tolerance):
            best = number
    return best or newest


def _exceeds(value: float, number: BaselineNumber, slack: float) -> bool:
    return value - number.value > slack * abs(number.value)


def _drifted(measured: Quantity, best: BaselineNumber, newest: Quantity) -> Finding:
    change = Quantity(measured.value - best.value, measured.unit)
    return Finding(
        outcome=Outcome.FAILED,
        measured=measured.value,
        limit=best.value,
        reason=f"measured {measured}: {change} more than the best baseline, "
        f"{Quantity(best.value, measured.unit)} on {_names(best.toolchain)}, in small steps (the "
        f"newest baseline is {newest})",
        advice=STORE_ALL,
    )


def _names(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
