"""Known defects: how a claim is expected to fail, where that is reported, and what helps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from math import inf, isfinite
from typing import Any

from assay.model.blame import WrongType, WrongValue
from assay.model.evidence import Failure, FailureKind
from assay.model.units import Quantity

# The argument is a ``Case``, whose module imports those that import this one; hence Any.
Bound = int | float | Callable[[Any], int | float | Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """The claim fails with a measurement between two bounds, both included.

    A bound is a number in the claim's unit, or a function of the case. Without a bound on one side,
    every finite measurement that fails the claim is expected there. A program that runs out of
    memory is measured by the memory that it needs.
    """

    least: Bound | None = None
    most: Bound | None = None

    def holds(self, measured: float | None, failure: Failure | None, case: Any) -> bool:
        """Whether the claim failed in this way."""
        failed = failure is not None and failure.kind is not FailureKind.OUT_OF_MEMORY
        if measured is None or not isfinite(measured) or failed:
            return False
        return _number(self.least, case, -inf) <= measured <= _number(self.most, case, inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fails:
    """The program fails at this stage, with this fragment in the message."""

    kind: FailureKind
    message: str

    def __post_init__(self) -> None:
        if not self.message.strip():
            raise ValueError("got Fails(message=''), wanted a part of the failure's message")

    def holds(self, measured: float | None, failure: Failure | None, case: Any) -> bool:
        """Whether the claim failed in this way."""
        return failure is not None and failure.kind is self.kind and self.message in failure.message


Expected = Measures | Fails


def exactly(value: Bound) -> Measures:
    """This value only."""
    return Measures(least=value, most=value)


def _number(bound: Bound | None, case: Any, otherwise: float) -> float:
    if bound is None:
        return otherwise
    value = bound(case) if callable(bound) else bound
    return value.value if isinstance(value, Quantity) else value


class UpstreamState(Enum):
    """Where an upstream report stands; ``unknown`` if no source says."""

    OPEN = "open"
    CLOSED = "closed"
    UNREPORTED = "unreported"
    UNKNOWN = "unknown"


_STANDING = {
    UpstreamState.OPEN: "open upstream",
    UpstreamState.CLOSED: "closed upstream",
    UpstreamState.UNREPORTED: "not reported upstream",
    UpstreamState.UNKNOWN: "state upstream unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """An upstream report, or the project of a problem that is not reported.

    ``opened`` and ``closed`` are the ISO dates of its opening and closing, empty if no source says
    them. ``seen`` is the ISO date on which the state was read.
    """

    link: str
    state: UpstreamState = UpstreamState.UNKNOWN
    opened: str = ""
    closed: str = ""
    seen: str = ""

    @property
    def standing(self) -> str:
        """Where the report stands, as a clause."""
        return f"{_STANDING[self.state]}{f' on {self.closed}' if self.closed else ''}"

    def __post_init__(self) -> None:
        if self.closed and self.state is not UpstreamState.CLOSED:
            raise WrongValue(
                f"got {self.link} closed on {self.closed} in state {self.state.value!r}, wanted "
                "UpstreamState.CLOSED"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDefect:
    """Claims that are expected to fail in a known way on some targets and toolchains.

    ``variants``, ``targets``, ``workloads`` and the keys of ``expects`` (claims) are shell
    patterns. A claim that fails in another way than ``expects`` says is ``failed``. ``toolchain``
    maps a package to a version specifier (``{"jaxlib": ">=0.10"}``). ``last_seen`` is an ISO date.
    ``remedies`` maps patterns of variants to the variant that does the same without the defect.
    """

    variants: tuple[str, ...]
    expects: Mapping[str, Expected | tuple[Expected, ...]]
    targets: tuple[str, ...]
    workloads: tuple[str, ...] = ("*",)
    reason: str
    upstream: Upstream
    last_seen: str
    toolchain: Mapping[str, str] = field(default_factory=dict)
    remedies: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        upstream: object = self.upstream
        if not isinstance(upstream, Upstream):
            raise WrongType(
                f"got upstream={upstream!r} of a known defect of {self.variants}, wanted an "
                "Upstream; write Upstream(link='https://…')"
            )
        if not self.expects or () in self.expects.values():
            raise ValueError(
                f"got a known defect of {self.variants} that expects nothing, wanted how its "
                "claims fail; write expects={'temp-bytes': Measures(least=…, most=…)} or Fails(…)"
            )

    def remedy(self, variant: str) -> str:
        """The variant to use in place of this one, by the first pattern that matches, else ""."""
        found = (name for pattern, name in self.remedies.items() if fnmatchcase(variant, pattern))
        return next(found, "")

    def ways(self, claim: str) -> tuple[Expected, ...]:
        """The expected failures of the claim, by the first pattern that matches; or none."""
        ways = (each for pattern, each in self.expects.items() if fnmatchcase(claim, pattern))
        found = next(ways, ())
        return found if isinstance(found, tuple) else (found,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyEffect:
    """The measurement of a claim on two variants: without a remedy and ``remedied``.

    ``quantity`` names the number. Reports show it for the first target that has both numbers, in
    the order of ``targets`` (shell patterns).
    """

    quantity: str
    workload: str
    claim: str
    without: str
    remedied: str
    targets: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamIssue:
    """A reported problem that a suite reproduces.

    A compiler has the problem if one of ``claims`` fails for one of ``variants`` of ``workloads``
    (shell patterns). ``problem`` is a clause; reports append "on 2 of 3 compilers". ``remedy`` is
    an imperative. Reports show the first of ``effects`` that was measured.
    """

    problem: str
    upstream: Upstream
    variants: tuple[str, ...]
    claims: tuple[str, ...]
    workloads: tuple[str, ...] = ("*",)
    remedy: str = ""
    effects: tuple[RemedyEffect, ...] = ()
