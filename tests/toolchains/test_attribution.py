"""Which package made a step: found by mixtures of both releases, or said to be inseparable."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.bisection import Attribution, Bisection, Point, Step
from assay.model.units import Unit
from assay.report.regression import made_by
from assay.toolchains.attribution import Pins, attribute, conflict, mixed
from assay.toolchains.environments import Environment
from assay.toolchains.releases import Release

STEP = Step(before=Point(version="0.1.0", number=10.0), after=Point(version="0.2.0", number=2.0))
OLD = {"jax": "0.1.0", "jaxlib": "0.1.0", "libtpu": "0.0.1", "numpy": "2.0"}
NEW = {"jax": "0.2.0", "jaxlib": "0.2.0", "libtpu": "0.0.2", "numpy": "2.1"}
AFTER = Release(component="jax", version="0.2.0", platform="tpu")


def made(culprit: str, impossible: str = "", platform: str = "tpu") -> Attribution:
    """What is found if that package makes the step, and no mixture with the other exists."""

    def measure(pins: Pins) -> Point:
        name = mixed(AFTER, pins)
        if impossible in pins:
            return Point(version=name, why="jax 0.2.0 needs jaxlib >=0.2.0")
        return Point(version=name, number=10.3 if culprit in pins else 2.0)

    return attribute(STEP, OLD, NEW, platform, measure)


def in_words(attribution: Attribution) -> str:
    return made_by(
        Bisection(
            subject="f",
            target="tpu-v5e:2x4",
            component="jax",
            metric="returned",
            unit=Unit.COUNT,
            good="0.1.0",
            bad="0.2.0",
            versions=("0.1.0", "0.2.0"),
            attribution=attribution,
        )
    )


@pytest.mark.parametrize(
    ("culprit", "trials"),
    [("jax", 2), ("jaxlib", 2), ("libtpu", 2)],
)
def test_the_package_with_which_the_number_changes_made_the_step(culprit: str, trials: int) -> None:
    found = made(culprit)
    assert found.packages == (culprit,)
    assert len(found.trials) == trials


def test_on_a_cpu_there_are_two_packages_and_one_mixture() -> None:
    assert made("jaxlib", platform="cpu").packages == ("jaxlib",)
    found = made("jax", platform="cpu")
    assert found.packages == ("jax",)
    assert [each.version for each in found.trials] == ["0.2.0 with jaxlib 0.1.0"]
    assert in_words(found) == "Made by jax: jax 0.2.0 with jaxlib 0.1.0 gives 2."


def test_packages_that_need_one_another_cannot_be_separated() -> None:
    found = made("jax", impossible="jaxlib", platform="cpu")
    assert found.packages == ("jax", "jaxlib")
    assert in_words(found) == (
        "Made by jax or jaxlib, which cannot be separated: jax 0.2.0 with jaxlib 0.1.0 gives no "
        "number (jax 0.2.0 needs jaxlib >=0.2.0)."
    )
    assert made("libtpu", impossible="jaxlib").packages == ("libtpu",)
    assert made("jaxlib", impossible="jaxlib").packages == ("jax", "jaxlib")


def test_a_package_that_is_the_same_in_both_releases_is_not_measured() -> None:
    asked: list[Pins] = []

    def measure(pins: Pins) -> Point:
        asked.append(pins)
        return Point(version="", number=2.0)

    found = attribute(STEP, OLD, NEW | {"jaxlib": "0.1.0"}, "cpu", measure)
    assert (found.packages, found.trials, asked) == (("jax",), (), [])
    assert in_words(found) == "Made by jax: all other packages are the same."


def test_the_requirement_of_the_new_jax_decides_what_can_be_mixed(tmp_path: Path) -> None:
    place = tmp_path / "lib" / "python3.11" / "site-packages" / "jax-0.2.0.dist-info"
    place.mkdir(parents=True)
    requires = ("jaxlib<=0.2.0,>=0.1.5", 'libtpu==0.0.2; extra == "tpu"')
    lines = ["Name: jax", "Version: 0.2.0", *(f"Requires-Dist: {each}" for each in requires)]
    (place / "METADATA").write_text("\n".join(lines) + "\n")
    made_here = Environment(folder=tmp_path, versions={})
    assert conflict(made_here, {"jaxlib": "0.1.5"}) == ""
    assert conflict(made_here, {"jaxlib": "0.2.0", "libtpu": "0.0.1"}) == ""
    assert conflict(made_here, {"jaxlib": "0.1.0"}) == "jax 0.2.0 needs jaxlib <=0.2.0,>=0.1.5"


def test_a_mixture_pins_the_older_packages() -> None:
    release = Release(
        component="jax", version="0.9.0", platform="tpu", older=(("libtpu", "0.0.30"),)
    )
    recipe = release.recipe("")
    assert recipe.pins == {"jax": "0.9.0", "libtpu": "0.0.30"}
    assert recipe.requirements == ("jax==0.9.0", "libtpu==0.0.30")
