"""What upstream asserts of a program, put to the evidence that Assay has of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from assay import claims
from assay.model.claim import Claim, Formula
from assay.model.evidence import Evidence, FailureKind
from assay.model.module import Direction, Inventory, Shape
from assay.model.summary import ModuleSummary
from assay.model.units import Quantity, Unit

from .observed import Build, Look, ended, judged, observed


class Expectation(Protocol):
    """One of upstream's assertions. Law: it holds only of something that was measured."""

    def look(self, program: Build, target: str) -> Look:
        """Whether it holds of the program on the target."""


@dataclass(frozen=True)
class _Equals:
    """Assay measures exactly this."""

    wanted: Any

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        measured = self.measured(evidence)
        holds = measured is not None and measured == self.wanted
        return Look(holds=holds, measured=measured, wanted=self.wanted, words=ended(evidence))

    def measured(self, evidence: Evidence) -> Any:
        """The measurement; None where Assay has none."""
        return evidence.module and self.of_module(evidence.module)

    def of_module(self, module: ModuleSummary) -> Any:
        """The measurement of a compiled program."""
        raise NotImplementedError


class ArgumentKinds(_Equals):
    """The memory of each array that the program takes, in the order of the arguments."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _kinds(_inventory(module).arguments)


class ResultKinds(_Equals):
    """The memory of each array that the program gives, in the order of the results."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _kinds(_inventory(module).outputs)


class ArgumentOrders(_Equals):
    """The order of dimensions in memory of each argument, the outermost first (major_to_minor)."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _orders(_inventory(module).argument_layouts)


class ResultOrders(_Equals):
    """The order of dimensions in memory of each result, the outermost first (major_to_minor)."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _orders(_inventory(module).output_layouts)


class Arguments(_Equals):
    """How many arrays the compiled program takes."""

    def of_module(self, module: ModuleSummary) -> Any:
        return len(_inventory(module).arguments)


class TakenOver(_Equals):
    """The arguments (by number of the array) whose buffers results took over.

    Upstream asserts that they are deleted; a copy elsewhere does not count.
    """

    def of_module(self, module: ModuleSummary) -> Any:
        return _taken_over(module)


class Honoured(_Equals):
    """The arguments whose buffers results took over without a copy: what ``inspect`` counts."""

    def of_module(self, module: ModuleSummary) -> Any:
        return tuple(sorted(each.parameter_number for each in module.donations if each.honoured))


class Trips(_Equals):
    """The trips of each loop, sorted."""

    def of_module(self, module: ModuleSummary) -> Any:
        return tuple(sorted(each.trips or -1 for each in module.loops))


class HostArguments(_Equals):
    """Bytes of arguments in host memory, by the compiler's memory analysis."""

    def measured(self, evidence: Evidence) -> Any:
        return evidence.memory and evidence.memory.host_argument_bytes


class HostResults(_Equals):
    """Bytes of results in host memory, by the compiler's memory analysis."""

    def measured(self, evidence: Evidence) -> Any:
        return evidence.memory and evidence.memory.host_output_bytes


class AliasBytes(_Equals):
    """Bytes of results that lie in the buffers of arguments, in device memory."""

    def measured(self, evidence: Evidence) -> Any:
        return evidence.memory and evidence.memory.alias_bytes


class HostResiduals(_Equals):
    """How many values autodiff saves in host memory."""

    def measured(self, evidence: Evidence) -> Any:
        residuals = evidence.traced.residuals if evidence.traced else None
        return None if residuals is None else sum(each.on_host for each in residuals)


class Residuals(_Equals):
    """How many values autodiff saves, wherever they lie."""

    def measured(self, evidence: Evidence) -> Any:
        residuals = evidence.traced.residuals if evidence.traced else None
        return None if residuals is None else len(residuals)

    def look(self, program: Build, target: str) -> Look:
        found = super().look(program, target)
        traced = observed(program, target).traced
        words = "; ".join(map(str, (traced and traced.residuals) or ()))
        return replace(found, words=words or found.words)


@dataclass(frozen=True, slots=True)
class SomeHostTemporaries:
    """At least so many bytes of temporaries in host memory (upstream asserts: more than 0)."""

    at_least: int = 1

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        measured = None if evidence.memory is None else evidence.memory.host_temp_bytes
        holds = measured is not None and measured >= self.at_least
        return Look(
            holds=holds, measured=measured, wanted=f">= {self.at_least}", words=ended(evidence)
        )


@dataclass(frozen=True)
class _Passes:
    """A claim of Assay's passes, whose limit is this number of bytes if it has one."""

    nbytes: int = 0

    def look(self, program: Build, target: str) -> Look:
        return judged(self.claim(_bytes(self.nbytes)), program, target)

    def claim(self, limit: Formula) -> Claim:
        """The claim."""
        raise NotImplementedError


class HostTemporaries(_Passes):
    """Bytes of temporaries in host memory."""

    def claim(self, limit: Formula) -> Claim:
        return claims.HostBytes(equal=limit)


class ToHost(_Passes):
    """Bytes from device to host memory per run."""

    def claim(self, limit: Formula) -> Claim:
        return claims.TransferredBytes(direction=Direction.TO_HOST, equal=limit)


class ToDevice(_Passes):
    """Bytes from host to device memory per run."""

    def claim(self, limit: Formula) -> Claim:
        return claims.TransferredBytes(direction=Direction.TO_DEVICE, equal=limit)


class Reused(_Passes):
    """At least so many donated bytes are reused without a copy."""

    def claim(self, limit: Formula) -> Claim:
        return claims.DonatedBytesReused(at_least=limit)


class TemporariesAtMost(_Passes):
    """Bytes of device temporaries."""

    def claim(self, limit: Formula) -> Claim:
        return claims.TempBytesAtMost(limit=limit)


class Compiles(_Passes):
    """The program compiles."""

    def claim(self, limit: Formula) -> Claim:
        return claims.Compiles()


class Fits(_Passes):
    """The program fits the device."""

    def claim(self, limit: Formula) -> Claim:
        return claims.FitsDevice()


@dataclass(frozen=True, slots=True)
class LoopCopies:
    """Bytes that the worst loop's iteration writes whole in arrays larger than a size."""

    nbytes: int = 0
    larger_than: int = 0

    def look(self, program: Build, target: str) -> Look:
        claim = claims.CopiedBytes(
            larger_than=_bytes(self.larger_than), at_most=_bytes(self.nbytes)
        )
        return judged(claim, program, target)


@dataclass(frozen=True, slots=True)
class SomeLoopCopies:
    """At least so many bytes per iteration are copied whole: the copy that upstream inserts."""

    at_least: int
    larger_than: int = 0

    def look(self, program: Build, target: str) -> Look:
        found = LoopCopies(self.at_least - 1, self.larger_than).look(program, target)
        return replace(found, holds=not found.holds and found.measured is not None)


@dataclass(frozen=True, slots=True)
class CopiesOutside:
    """Exactly these bytes are copied outside of loops per run, in arrays of at least a size.

    By the claim ``CopiedBytesOutsideLoops``, which must find that they are no more.
    """

    nbytes: int
    at_least: int = 1

    def look(self, program: Build, target: str) -> Look:
        claim = claims.CopiedBytesOutsideLoops(
            larger_than=_bytes(self.at_least - 1), at_most=_bytes(self.nbytes)
        )
        found = judged(claim, program, target)
        return replace(found, holds=found.holds and found.measured == self.nbytes)


@dataclass(frozen=True, slots=True)
class Operations:
    """How many instructions of an opcode the module has, ``None`` for at least one."""

    opcode: str
    count: int | None = None

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        found = evidence.module and _count(evidence.module, self.opcode)
        holds = bool(found) if self.count is None else found == self.count
        words = ended(evidence) or self.opcode
        return Look(holds=holds, measured=found, wanted=self.count, words=words)


class HostCalls(_Equals):
    """How many parts of the program the compiler has the host compute, each written once."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _count(module, "custom-call HostExecute")


class Kernels(_Equals):
    """How many kernels of the user the program calls, each written once."""

    def of_module(self, module: ModuleSummary) -> Any:
        return _count(module, "custom-call tpu_custom_call")


@dataclass(frozen=True, slots=True)
class DonationRefused:
    """jax warns that a donated buffer is of no use, and no result takes it."""

    fragment: str = "Some donated buffers were not usable"

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        if evidence.module is None:
            return Look(holds=False, measured=None, wanted=self.fragment, words=ended(evidence))
        warned = any(self.fragment in each for each in evidence.warnings)
        taken = _taken_over(evidence.module)
        return Look(
            holds=warned and not taken,
            measured=(warned, taken),
            wanted="a warning, and nothing taken over",
            words="; ".join(evidence.warnings),
        )


@dataclass(frozen=True, slots=True)
class Refused:
    """The program is refused at a stage, with a fragment of the message."""

    kind: FailureKind
    fragment: str

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        failure = evidence.failure
        holds = (
            failure is not None and failure.kind is self.kind and self.fragment in failure.message
        )
        # What compiled is a measurement too: the refusal did not come.
        measured = failure.kind.phrase if failure else ("it compiles" if evidence.memory else None)
        return Look(holds=holds, measured=measured, wanted=self.fragment, words=ended(evidence))


@dataclass(frozen=True, slots=True)
class Values:
    """What the program computes, in the order of the results; exact."""

    wanted: Callable[[], tuple[Any, ...]]

    def look(self, program: Build, target: str) -> Look:
        evidence = observed(program, target)
        if evidence.values is None:
            return Look(holds=False, measured=None, wanted="values", words=ended(evidence))
        found = tuple(
            np.frombuffer(each.data, dtype=each.dtype).reshape(each.shape)
            for each in evidence.values
        )
        wanted = tuple(map(np.asarray, self.wanted()))
        holds = len(found) == len(wanted) and all(map(np.array_equal, found, wanted))
        return Look(holds=holds, measured=found, wanted=wanted)


def _inventory(module: ModuleSummary) -> Inventory:
    assert module.inventory is not None
    return module.inventory


def _count(module: ModuleSummary, opcode: str) -> int:
    return sum(each.count for each in _inventory(module).operations if each.opcode == opcode)


def _orders(layouts: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    minor_to_major = (each.strip("{}").partition(":")[0] for each in layouts)
    return tuple(tuple(map(int, each.split(",")))[::-1] for each in minor_to_major)


def _kinds(shapes: tuple[Shape, ...]) -> tuple[str, ...]:
    return tuple("host" if each.on_host else "device" for each in shapes)


def _taken_over(module: ModuleSummary) -> tuple[int, ...]:
    given = (each for each in module.donations if each.output_index is not None)
    return tuple(sorted(each.parameter_number for each in given))


def _bytes(number: int) -> Formula:
    return Formula("upstream's number", lambda _case: Quantity(number, Unit.BYTES))
