"""What devices exchange is counted over all loops, or not at all."""

from dataclasses import replace
from typing import Any

import pytest

from assay import claims
from assay.judge.case import judge
from assay.model.verdict import Outcome

from .cases import MEMORY, case, collective, formula, module, processes

CLAIM = claims.CollectiveBytes(at_most=formula(100))


def test_collectives_are_named_the_largest_first() -> None:
    seen = replace(module(), collectives=(collective(1), collective(200)))
    finding = judge(CLAIM, case(module=seen))
    assert (finding.outcome, finding.measured) == (Outcome.FAILED, 201)
    assert finding.reason.endswith(
        "; 1 × all-gather that sends 200 B among 8 devices, fsdp.py:11; 1 × all-gather that sends "
        "1 B among 8 devices, fsdp.py:11"
    )


def test_a_program_without_collectives_sends_nothing() -> None:
    finding = judge(CLAIM, case(module=module()))
    assert (finding.outcome, finding.measured) == (Outcome.PASSED, 0)


@pytest.mark.parametrize(
    "unknown", [{"executions": None}, {"at_most": True}, {"nbytes_per_execution": None}]
)
def test_bytes_that_are_not_known_are_inconclusive(unknown: dict[str, Any]) -> None:
    seen = replace(module(), collectives=(collective(200), collective(1, **unknown)))
    finding = judge(CLAIM, case(module=seen))
    assert (finding.outcome, finding.measured) == (Outcome.INCONCLUSIVE, None)
    assert finding.reason.startswith("1 collectives run an unknown number of times or among")


@pytest.mark.parametrize(("limit", "reached"), [(100, Outcome.PASSED), (99, Outcome.INCONCLUSIVE)])
def test_what_libraries_may_hold_counts_on_each_device(limit: int, reached: Outcome) -> None:
    seen = processes(100)
    in_libraries = 7 * seen[0].device_count
    memory = replace(MEMORY, library_bytes=7)
    finding = judge(
        claims.ProcessBytes(at_most=formula(limit)), case(processes=seen, memory=memory)
    )
    assert (finding.outcome, finding.measured) == (reached, 100 - in_libraries)


@pytest.mark.parametrize("needed", [(), (50, None)])
def test_a_process_whose_memory_is_not_known_is_an_error(needed: tuple[int | None, ...]) -> None:
    claim = claims.ProcessBytes(at_most=formula(100))
    finding = judge(claim, case(processes=processes(*needed)))
    assert (finding.outcome, finding.measured) == (Outcome.ERROR, None)
