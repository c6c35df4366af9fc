"""Ordering toolchains, to find the baseline that a new one is compared with."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

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
