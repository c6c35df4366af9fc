"""Which package of a jax release made a step: jax itself, jaxlib, or the compiler's own package."""

from collections.abc import Callable, Mapping
from importlib.metadata import distributions
from itertools import pairwise

from packaging.requirements import Requirement

from assay.model.bisection import Attribution, Point, Step
from assay.toolchains.environments import Environment
from assay.toolchains.releases import FOR_GPU, Release

Pins = Mapping[str, str]
_COMPILERS = {"cuda": FOR_GPU, "tpu": ("libtpu",)}


def attribute(
    step: Step, old: Pins, new: Pins, platform: str, measure: Callable[[Pins], Point]
) -> Attribution:
    """Replace the packages of the old release by those of the new one, jax first, one at a time.

    The package with which the number becomes that of the new release made the step. ``old`` and
    ``new`` are the versions of all packages; ``measure`` gets the older versions that are installed
    with the new jax. A mixture without a number leaves packages that cannot be separated. If no
    older package is left, the mixture is the new release.
    """
    packages: list[tuple[str, ...]] = [("jax",), ("jaxlib",)]
    if platform in _COMPILERS:
        packages.append(_COMPILERS[platform])
    trials: list[Point] = []
    known = [(0, False)]
    for count in range(1, len(packages)):
        kept = [name for group in packages[count:] for name in group]
        pins = {name: old[name] for name in kept if old[name] != new[name]}
        if not pins:
            known.append((count, True))
            break
        trials.append(measure(pins))
        if (number := trials[-1].number) is not None:
            known.append((count, _is_new(step, number)))
    known.append((len(packages), True))
    first, last = next((a, b) for (a, _), (b, changed) in pairwise(known) if changed)
    return Attribution(
        packages=tuple(group[0] for group in packages[first:last]), trials=tuple(trials)
    )


def _is_new(step: Step, number: float) -> bool:
    """Whether the number is closer to that after the step than to that before."""
    assert step.before.number is not None
    assert step.after.number is not None
    return abs(number - step.after.number) < abs(number - step.before.number)


def mixed(release: Release, pins: Pins) -> str:
    """The release and the older packages in it, in words."""
    return f"{release.version} with {' and '.join(' '.join(pin) for pin in pins.items())}"


def conflict(environment: Environment, pins: Pins) -> str:
    """The requirement of that environment's jax which forbids one of the pins, or nothing."""
    places = [str(path) for path in environment.folder.glob("lib/python*/site-packages")]
    for found in distributions(name="jax", path=places):
        for needed in map(Requirement, found.requires or ()):
            is_asked = needed.marker is None or needed.marker.evaluate({"extra": ""})
            version = pins.get(needed.name)
            if is_asked and version and not needed.specifier.contains(version, prereleases=True):
                return f"jax {found.version} needs {needed.name} {needed.specifier}"
    return ""
