"""Claims on tracing, compiling and running: each succeeds, names match, and the program fits."""

import re
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from assay.claims.measurement import (
    VALUES,
    given,
    module_of,
    needed_bytes_of,
    noted,
    result_of_run,
    stop,
    stop_if_crowded,
    stop_unless_available,
    stop_unless_compiled,
    traced_of,
)
from assay.model.claim import Case, Claim, Formula
from assay.model.evidence import Failure, FailureKind, Residual
from assay.model.inspection import describe
from assay.model.suggestion import nearest
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome

_MAKE_IT_FIT = "shard it further, save less, or offload"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualsOnHost(Claim):
    """Autodiff keeps exactly the formula's bytes of residuals in host memory, over all devices."""

    equal: Formula
    name: str = "residuals-on-host"

    def judge(self, case: Case) -> Finding:
        residuals = given(
            traced_of(case).residuals,
            f"got no saved residuals of {case.variant.name!r}, wanted its Program to name the "
            "differentiated function; set Program.differentiated",
        )
        on_host = sum(nbytes(residual) for residual in residuals if residual.on_host)
        found = self._compare(case, "residuals on the host", on_host, "=", self.equal)
        return noted(found, f"saved: {', '.join(map(str, residuals)) or 'nothing'}")


def nbytes(residual: Residual) -> int:
    """Logical bytes of a residual, summed over all devices; bits are rounded up to bytes.

    The first number in a type's name is its bits: ``float8_e4m3fn``, ``int4``; ``bool`` has none.
    """
    bits = re.search(r"[0-9]+", residual.dtype)
    return -(-prod(residual.shape) * int(bits[0] if bits else 8) // 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesMatch(Claim):
    """Every name in the policy is given to a value by ``checkpoint_name``.

    JAX accepts a name that matches nothing without a warning, and offloads nothing.
    """

    name: str = "names-match"
    unit: ClassVar[Unit] = Unit.COUNT

    def judge(self, case: Case) -> Finding:
        present, wanted = traced_of(case).names, case.variant.names
        if not wanted:
            stop(
                Outcome.INCONCLUSIVE,
                f"the policy of {case.variant.name!r} asks for no name",
                "list the policy's names in Variant.names, or leave the variant out of the check",
            )
        missing = [name for name in wanted if name not in present]
        if not missing:
            return _failures(0, f"the program names {', '.join(wanted)}")
        close = nearest(missing[0], present)
        advice = f"did you mean {close[0]!r}?" if close else "name a value with checkpoint_name"
        reason = (
            f"{len(missing)} unmatched: the policy names {missing}, but the program names only "
            f"{sorted(present)}"
        )
        return _failures(len(missing), reason, advice=advice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiles(Claim):
    """The program traces, lowers and compiles, whether or not it then fits or runs.

    Measures the number of failures. ``FitsDevice`` judges a program that runs out of memory,
    ``Runs`` one that compiles and fails when it runs.
    """

    name: str = "compiles"
    unit: ClassVar[Unit] = Unit.COUNT
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        stop_unless_available(case.evidence)
        failure = case.evidence.failure
        beyond = (FailureKind.EXECUTION, FailureKind.OUT_OF_MEMORY)
        if failure is None or failure.stage in beyond:
            return _failures(0, "it compiles")
        return _failures(1, describe(failure), failure=failure)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs(Claim):
    """The program that was compiled runs, and gives results.

    Measures the number of failures: an exception, a crash or a timeout while it runs.
    """

    name: str = "runs"
    unit: ClassVar[Unit] = Unit.COUNT

    def judge(self, case: Case) -> Finding:
        stop_unless_compiled(case, case.evidence)
        failure = case.evidence.failure
        if failure is not None:
            return _failures(1, describe(failure), failure=failure)
        result_of_run(case, case.evidence, case.evidence.values, *VALUES)
        return _failures(0, "it runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuses(Claim):
    """The program is refused with an ``error``: it neither succeeds nor crashes its process.

    Measures 1 if it is not refused, or if it ends with another exception, which may be a fault of
    its own. Tracing, lowering or a run must refuse it: an error of the compiler is no refusal.
    """

    error: str = "RuntimeError"
    name: str = "refuses"
    unit: ClassVar[Unit] = Unit.COUNT

    def judge(self, case: Case) -> Finding:
        stop_unless_available(case.evidence)
        failure = case.evidence.failure
        if failure is None:
            return _failures(1, "it was not refused")
        refused = failure.kind in _REFUSED and failure.message.startswith(f"{self.error}: ")
        reason = f"wanted a {self.error}; {describe(failure)}"
        return _failures(0, reason) if refused else _failures(1, reason, failure=failure)


_REFUSED = (FailureKind.TRACE, FailureKind.LOWERING, FailureKind.EXECUTION)


def _failures(
    count: int, reason: str, *, advice: str = "", failure: Failure | None = None
) -> Finding:
    """Passes if there is none."""
    return Finding(
        outcome=Outcome.FAILED if count else Outcome.PASSED,
        measured=count,
        limit=0,
        reason=reason,
        advice=advice,
        failure=failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FitsDevice(Claim):
    """The step's temp + argument + output − alias, and its peak, are within the device's memory.

    The peak also has constants. The TPU compiler refuses a program that does not fit and names the
    size. The GPU compiler accepts anything if there is no GPU, so the larger number is compared
    with the device model. On a live GPU the compiler allocates arrays to try kernels on. If a
    program should fit and cannot be allocated, other programs hold the memory, and the verdict is
    ``inconclusive``.
    """

    name: str = "fits-device"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        evidence = case.evidence
        stop_unless_available(evidence)
        failure = evidence.failure
        if failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY:
            stop_if_crowded(evidence)
            return Finding(
                outcome=Outcome.FAILED,
                measured=failure.needed_bytes,
                limit=failure.capacity_bytes or evidence.device_memory_bytes,
                reason=describe(failure),
                advice=_MAKE_IT_FIT,
                failure=failure,
            )
        # Before any other failure: no variant is judged here, so no negative control is either.
        if evidence.device_memory_bytes is None:
            return Finding(
                outcome=Outcome.UNSUPPORTED,
                measured=evidence.needed_bytes,
                reason="this target has no memory size",
                advice="use a GPU or TPU target",
            )
        needed = needed_bytes_of(case)
        capacity = Quantity(evidence.device_memory_bytes, self.unit)
        limit = Formula("the device's memory", lambda _case: capacity)
        found = self._compare(case, "device memory", needed, "≤", limit)
        return found if found.outcome is Outcome.PASSED else replace(found, advice=_MAKE_IT_FIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(Claim):
    """The program takes exactly the formula's number of arrays, those of tuples included."""

    equal: Formula
    name: str = "parameters"
    unit: ClassVar[Unit] = Unit.COUNT
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        missing = "got a module without an inventory; read it with assay.hlo.summary.read"
        count = len(given(module_of(case).inventory, missing).arguments)
        return self._compare(case, "the program's arrays", count, "=", self.equal)
