"""A case: a program after one of upstream's tests, and what upstream asserts of it where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import pytest
from packaging.specifiers import SpecifierSet

from .expectations import Expectation
from .observed import Build, Look, observed

GPU = ("gpu-h100:8",)
TPU = ("tpu-v5e:2x4",)
CPU = ("cpu:8",)
DEVICES = (*GPU, *TPU)
EVERYWHERE = (*DEVICES, *CPU)


class Right(Enum):
    """Who is right where Assay and upstream's assertion disagree."""

    UPSTREAM = "upstream's assertion is right; the toolchain or Assay falls short of it"
    TOOLCHAIN = "the assertion is of another stage or release; what this toolchain does is sound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """An expectation that does not hold on some targets with some toolchains.

    ``seen`` is a fragment of what Assay says of it. ``toolchain`` maps a package to the versions.
    """

    of: Expectation
    on: tuple[str, ...]
    seen: str
    right: Right
    why: str
    toolchain: Mapping[str, str] = field(default_factory=dict)

    def applies(self, expectation: Expectation, target: str, versions: Mapping[str, str]) -> bool:
        """Whether it is about this expectation on this target, compiled by these versions."""
        return (
            self.of == expectation
            and target in self.on
            and all(
                name in versions and SpecifierSet(allowed).contains(versions[name])
                for name, allowed in self.toolchain.items()
            )
        )


def elided(*expectations: Expectation) -> tuple[Disagreement, ...]:
    """A round trip through host memory that the GPU compiler leaves out."""
    return tuple(
        Disagreement(
            of=each,
            on=GPU,
            seen="measured 0",
            right=Right.TOOLCHAIN,
            why="nothing but a copy back reads what was copied to the host, so neither is needed",
        )
        for each in expectations
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A program like the case's, of which these assertions of upstream's do not hold.

    ``breaks`` are by default all that the case expects, ``on`` the targets that the case is for.
    """

    program: Build
    breaks: tuple[Expectation, ...] = ()
    on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``after`` is upstream's test, ``asserts`` what it asserts, ``expect`` the same as data."""

    name: str
    after: str
    asserts: str
    program: Build
    expect: Mapping[tuple[str, ...], tuple[Expectation, ...]]
    control: Control | None = None
    disagreements: tuple[Disagreement, ...] = ()

    def __post_init__(self) -> None:
        expected = {each for group in self.expect.values() for each in group}
        strangers = [each.of for each in self.disagreements if each.of not in expected]
        broken = [self.broken(target) for target in self.control_targets()]
        strangers += [each for breaks in broken for each in breaks if each not in expected]
        if strangers or not expected or not all(broken):
            raise ValueError(f"{self.name}: got {strangers}, wanted only what the case expects")

    def broken(self, target: str) -> tuple[Expectation, ...]:
        """What the control breaks there."""
        assert self.control is not None
        return self.control.breaks or tuple(self.expected(target))

    def targets(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(target for targets in self.expect for target in targets))

    def control_targets(self) -> tuple[str, ...]:
        return (self.control.on or self.targets()) if self.control else ()

    def expected(self, target: str) -> Iterator[Expectation]:
        for targets, expectations in self.expect.items():
            if target in targets:
                yield from expectations

    def check(self, target: str) -> None:
        """Every assertion of upstream's holds by Assay's evidence, but for the known ones."""
        for expectation in self.expected(target):
            found = expectation.look(self.program, target)
            versions = observed(self.program, target).toolchain.versions
            known = [
                each for each in self.disagreements if each.applies(expectation, target, versions)
            ]
            if known:
                _still_disagrees(known[0], found)
            else:
                assert found.holds, f"{self.after} asserts that {self.asserts}: {found}"

    def check_control(self, target: str) -> None:
        """Assay measures the control, and upstream's assertions do not hold of it."""
        assert self.control is not None
        for expectation in self.broken(target):
            found = expectation.look(self.control.program, target)
            assert found.measured is not None, f"nothing was measured of the control: {found}"
            assert not found.holds, f"{expectation} holds of the control: {found}"


def _still_disagrees(entry: Disagreement, found: Look) -> None:
    assert not found.holds, f"agrees now, remove the entry: {entry.why}"
    assert entry.seen in str(found), f"got {found}, the entry says {entry.seen!r}"


def checks_of(cases: Sequence[Case]) -> tuple[Callable[..., None], Callable[..., None]]:
    """The two tests of a topic: of each case on its targets, and of each negative control."""

    @_each([(case, case.targets()) for case in cases])
    def test_assay_agrees_with_upstream(case: Case, target: str) -> None:
        case.check(target)

    @_each([(case, case.control_targets()) for case in cases])
    def test_assay_notices_the_control(case: Case, target: str) -> None:
        case.check_control(target)

    return test_assay_agrees_with_upstream, test_assay_notices_the_control


def _each(tried: Sequence[tuple[Case, tuple[str, ...]]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("case", "target"),
        [
            pytest.param(case, target, id=f"{case.name}-{target}")
            for case, targets in tried
            for target in targets
        ],
    )
