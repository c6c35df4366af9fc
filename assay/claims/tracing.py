"""Claims that need no compiler: what the jaxpr already tells about a remat policy."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod

from assay.claims.measurement import traced_of
from assay.claims.memory import finding
from assay.judge.comparison import Relation
from assay.model.claim import Case, Formula, MeasurementMissing
from assay.model.evidence import Residual
from assay.model.units import Quantity, Unit
from assay.model.verdict import Finding, Outcome
from assay.model.workload import Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualsOnHost:
    """The residuals that autodiff keeps in host memory are the formula's bytes, all devices."""

    equal: Formula
    name: str = "residuals-on-host"
    unit: Unit = Unit.BYTES
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """The variants that the formula reads."""
        return self.equal.needs(variant)

    def judge(self, case: Case) -> Finding:
        """Passes if the saved residuals placed on the host add up to the formula."""
        residuals = traced_of(case).residuals
        if residuals is None:
            raise MeasurementMissing(
                f"got no saved residuals of {case.variant.name!r}, wanted its Program to name the "
                "differentiated function; set Program.differentiated"
            )
        on_host = [residual for residual in residuals if residual.on_host]
        measured = Quantity(sum(map(nbytes, on_host)), self.unit)
        result = finding(
            "what autodiff saves on the host",
            measured,
            Relation.EQUAL,
            self.equal.of(case),
            self.equal.text,
        )
        listed = ", ".join(map(str, residuals)) or "nothing"
        return Finding(
            outcome=result.outcome,
            measured=result.measured,
            limit=result.limit,
            reason=f"{result.reason}; saved: {listed}",
        )


def nbytes(residual: Residual) -> int:
    """Logical bytes of a residual, summed over all devices; bits are rounded up to bytes.

    The first number in a type's name is its bits: ``float8_e4m3fn``, ``int4``; ``bool`` has none.
    """
    bits = re.search(r"[0-9]+", residual.dtype)
    return (prod(residual.shape) * int(bits[0] if bits else 8) + 7) // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesMatch:
    """Every name that the policy asks for is given to some value by ``checkpoint_name``.

    A name that matches nothing is accepted by JAX in silence, and then nothing is offloaded.
    """

    name: str = "names-match"
    unit: Unit = Unit.COUNT
    uses_baseline: bool = False

    def needs(self, variant: Variant) -> tuple[str, ...]:
        """No other variant."""
        return ()

    def judge(self, case: Case) -> Finding:
        """Passes if none of the policy's names is missing from the jaxpr."""
        present = traced_of(case).names
        if not case.variant.names:
            return Finding(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"the policy of {case.variant.name!r} asks for no name",
                advice="list the policy's names in Variant.names, or leave the variant out of the "
                "check",
            )
        missing = [name for name in case.variant.names if name not in present]
        if not missing:
            names = ", ".join(case.variant.names)
            return Finding(
                outcome=Outcome.PASSED, measured=0, limit=0, reason=f"the program names {names}"
            )
        close = get_close_matches(missing[0], present, n=1)
        return Finding(
            outcome=Outcome.FAILED,
            measured=len(missing),
            limit=0,
            reason=f"the policy names {missing}, but the program names only {sorted(present)}",
            advice=f"did you mean {close[0]!r}?" if close else "name a value with checkpoint_name",
        )
