"""Claims on a program over several devices or processes: bytes sent, and memory of a process."""

from dataclasses import dataclass
from typing import ClassVar

from assay.claims.measurement import given, memory_of, module_of, noted, stop, with_libraries
from assay.model.claim import Case, Claim, Formula
from assay.model.module import Collective
from assay.model.units import format_bytes
from assay.model.verdict import Finding, Outcome

_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveBytes(Claim):
    """Per step, loops counted, a device sends at most the formula's bytes in collectives.

    `assay.hlo.collectives` says what a device sends in each. A compiler may send less than the
    program says: a TPU gathers as bf16 what only feeds a bf16 product. If a number of bytes is
    unknown, or known only as an upper bound, the verdict is ``inconclusive``.
    """

    at_most: Formula
    name: str = "collective-bytes"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        found = module_of(case).collectives
        unknown = [each for each in found if each.nbytes_per_run is None or each.at_most]
        if unknown:
            stop(
                Outcome.INCONCLUSIVE,
                f"{len(unknown)} collectives run an unknown number of times or among an unknown "
                f"number of devices, the first in {unknown[0].computation}",
                "give the loop a static length; take the collective out of the conditional",
            )
        total = sum(each.nbytes_per_run or 0 for each in found)
        what = "sent in collectives per step and device"
        largest = sorted(found, key=lambda each: -(each.nbytes_per_run or 0))[:_NAMED]
        return noted(
            self._compare(case, what, total, "≤", self.at_most),
            "; ".join(map(_in_words, largest)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessBytes(Claim):
    """No process needs more than the formula's bytes of memory on all of its devices together.

    A compile-only target says which of its devices belong to one process, as a machine of it would.
    """

    at_most: Formula
    name: str = "process-bytes"
    judges_compiled: ClassVar[bool] = True

    def judge(self, case: Case) -> Finding:
        memory = memory_of(case)
        missing = "got a process without a memory analysis, wanted that of each process"
        processes = given(case.evidence.processes or None, missing)
        needs = {given(each.device_bytes, missing): each.device_count for each in processes}
        largest = max(needs)
        in_libraries = needs[largest] * memory.library_bytes
        what = f"device memory of the largest of {len(processes)} processes"
        found = self._compare(case, what, largest - in_libraries, "≤", self.at_most)
        return with_libraries(found, in_libraries)


def _in_words(collective: Collective) -> str:
    """``6 × all-gather that sends 224 KiB among 8 devices, model.py:11``."""
    source = f", {collective.source}" if collective.source else ""
    sent = format_bytes(collective.nbytes_per_execution or 0)
    runs = f"{collective.executions} × {collective.opcode}"
    return f"{runs} that sends {sent} among {collective.devices} devices{source}"
