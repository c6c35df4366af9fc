"""Comparing a number with its baseline, and choosing the nearest toolchain's baseline."""

from collections.abc import Iterable, Mapping, Sequence

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from assay.model.units import Quantity
from assay.model.verdict import BaselineNumber, Finding, Outcome

_ORDER = ("jaxlib", "jax", "torch_xla", "torch", "libtpu", "jax-cuda13-plugin", "jax-cuda12-plugin")

_Age = tuple[tuple[Version, ...], tuple[tuple[str, Version, str], ...]]


def age(versions: Mapping[str, str]) -> _Age:
    """A sort key: the older the toolchain, the smaller.

    The first package of ``_ORDER`` whose version differs decides. All versions follow, only to make
    the order total.
    """
    leading = tuple(_version(versions.get(name, "")) for name in _ORDER)
    rest = tuple((name, _version(text), text) for name, text in sorted(versions.items()))
    return leading, rest


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0")


def no_newer(
    numbers: Iterable[BaselineNumber], versions: Mapping[str, str]
) -> tuple[BaselineNumber, ...]:
    """The numbers of toolchains no newer than this one: the oldest first, its own ones last.

    A toolchain with equal versions of the packages in ``_ORDER`` counts as no newer, whatever else
    differs.
    """
    compiler, _ = age(versions)
    older = (number for number in numbers if age(number.toolchain)[0] <= compiler)
    return tuple(sorted(older, key=lambda each: (each.toolchain == versions, age(each.toolchain))))


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
    device: str = "",
) -> Finding:
    """Judge a number that should be small. A missing baseline fails.

    On the baseline's own toolchain any change counts. On another one a change within ``tolerance``
    (a share) passes; a larger number fails, and a smaller one is ``improved``. On another toolchain
    the number must also be within the tolerance of the best of ``earlier``, the numbers of all
    toolchains up to this one, oldest first. Otherwise many small steps would pass one by one.
    """
    if baseline is None:
        stored_for = f"{device} and this toolchain" if device else "this toolchain"
        return Finding(
            outcome=Outcome.FAILED,
            measured=measured.value,
            reason=f"measured {measured}; no baseline is stored for {stored_for} or an older one",
            advice=STORE_NEW,
        )
    exact = baseline.toolchain == toolchain
    slack = 0.0 if exact else tolerance
    best = baseline if exact else _best(earlier, baseline, tolerance)
    stored = Quantity(baseline.value, measured.unit)
    where = "this toolchain" if exact else _names(baseline)
    change = f"{_change(measured, baseline)} the baseline"
    outcome, limit = Outcome.PASSED, baseline
    reason = f"measured {measured}, baseline {stored} on {where}: {change}"
    if _exceeds(measured.value, baseline, slack):
        outcome = Outcome.FAILED
    elif _exceeds(measured.value, best, slack):
        outcome, limit = Outcome.FAILED, best
        reason = (
            f"measured {measured}: {_change(measured, best)} the best baseline, "
            f"{Quantity(best.value, measured.unit)} on {_names(best)}, in small steps (the newest "
            f"baseline is {stored})"
        )
    elif baseline.value - measured.value > slack * abs(baseline.value):
        outcome = Outcome.IMPROVED
    return Finding(
        outcome=outcome,
        measured=measured.value,
        limit=limit.value,
        reason=reason,
        advice="" if outcome is Outcome.PASSED else STORE_ALL,
    )


def _best(
    earlier: Sequence[BaselineNumber], newest: BaselineNumber, tolerance: float
) -> BaselineNumber:
    """The least number since the last one that ``--assay-update-baselines=all`` stored.

    Only that option stores a number beyond the tolerance.
    """
    best = earlier[0] if earlier else newest
    for number in (*earlier, newest):
        if number.value <= best.value or _exceeds(number.value, best, tolerance):
            best = number
    return best


def _exceeds(value: float, number: BaselineNumber, slack: float) -> bool:
    return value - number.value > slack * abs(number.value)


def _change(measured: Quantity, number: BaselineNumber) -> str:
    change = measured.value - number.value
    if not change:
        return "equal to"
    return f"{Quantity(abs(change), measured.unit)} {'more' if change > 0 else 'less'} than"


def _names(number: BaselineNumber) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(number.toolchain.items()))
