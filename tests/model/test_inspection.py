"""What an inspection comes to: fit, order, overlap and warnings."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.model.evidence import Failure, FailureKind
from assay.model.module import Shape
from assay.model.target import Unavailable
from tests.report.inspections import (
    DONATION,
    FULL_BUFFER_WRITE,
    GIB,
    INSPECTION,
    LOOP,
    LOST,
    MIB,
    PAIR,
    module,
    seen,
)


@pytest.mark.parametrize(
    ("capacity", "fits", "headroom"),
    [(6 * GIB, True, 0), (6 * GIB - 1, False, -1), (16 * GIB, True, 10 * GIB), (None, None, None)],
)
def test_a_program_fits_up_to_the_last_byte(
    *, capacity: int | None, fits: bool | None, headroom: int | None
) -> None:
    inspection = seen(device_memory_bytes=capacity)
    assert (inspection.fits, inspection.headroom_bytes) == (fits, headroom)


def test_what_is_alive_at_the_peak_is_needed_constants_too() -> None:
    assert INSPECTION.evidence.module is not None
    assert INSPECTION.evidence.module.peak is not None
    peak = replace(INSPECTION.evidence.module.peak, nbytes=7 * GIB)
    assert module(peak=peak).evidence.needed_bytes == 7 * GIB
    assert module(peak=None).evidence.needed_bytes == 6 * GIB


def test_a_program_that_the_compiler_finds_too_large_does_not_fit() -> None:
    failure = Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        message="no room",
        needed_bytes=20 * GIB,
        capacity_bytes=16 * GIB,
    )
    inspection = seen(failure=failure, memory=None, module=None)
    assert inspection.fits is False
    assert inspection.error == (
        "it runs out of memory: needs 20.0 GiB, the device has 16.0 GiB: no room"
    )


def test_a_target_that_cannot_be_had_is_an_error_with_a_remedy() -> None:
    missing = Unavailable(reason="no libtpu", remedy="pip install libtpu")
    error = seen(unavailable=missing, memory=None, module=None).error
    assert error.endswith("no libtpu; do this: pip install libtpu")


def test_a_program_that_compiled_has_no_error() -> None:
    assert INSPECTION.error == ""


def test_copies_in_loops_come_first_and_the_most_bytes_per_run_before_others() -> None:
    small = Shape(element_type="f32", dimensions=(8,))
    outside = replace(
        FULL_BUFFER_WRITE, instruction="outside", loop="", iterations=None, executions=10**6
    )
    often = replace(FULL_BUFFER_WRITE, instruction="often", executions=16)
    tiny = replace(FULL_BUFFER_WRITE, instruction="tiny", shape=small)
    unknown = replace(FULL_BUFFER_WRITE, instruction="unknown", executions=None, shape=small)
    inspection = module(full_buffer_writes=(outside, tiny, FULL_BUFFER_WRITE, often, unknown))
    names = [each.instruction for each in inspection.copies]
    assert names == ["unknown", "often", "copy.1", "tiny", "outside"]


def test_what_is_never_run_is_no_copy() -> None:
    assert module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, executions=0),)).copies == ()


def test_a_host_transfer_is_listed_among_the_transfers_alone() -> None:
    assert (
        module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, crosses_host_link=True),)).copies
        == ()
    )


def test_an_array_turned_round_in_its_own_place_is_listed() -> None:
    assert len(module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, in_place=True),)).copies) == 1


def test_a_copy_counts_where_the_buffers_are_not_known() -> None:
    assert len(module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, in_place=None),)).copies) == 1


def test_the_work_beside_a_transfer_hides_at_most_all_of_it() -> None:
    (overlap,) = INSPECTION.overlaps
    assert (overlap.needed_seconds, overlap.hidden_seconds) == (1.0, 0.25)
    assert overlap.exposed_seconds_per_run == 1.5
    assert PAIR.between is not None
    long = replace(PAIR, between=replace(PAIR.between, nbytes=9 * GIB))
    (hidden,) = module(overlaps=(long,)).overlaps
    assert (hidden.hidden_seconds, hidden.exposed_seconds_per_run) == (1.0, 0.0)


def test_overlap_is_not_known_without_a_schedule_or_a_device() -> None:
    (unscheduled,) = module(overlaps=(replace(PAIR, between=None),)).overlaps
    assert (unscheduled.needed_seconds, unscheduled.hidden_seconds) == (1.0, None)
    (anywhere,) = replace(INSPECTION, device=None).overlaps
    assert (anywhere.needed_seconds, anywhere.exposed_seconds_per_run) == (None, None)


def test_the_longest_exposed_comes_first_and_the_unknown_last() -> None:
    slow = replace(PAIR, start="slow", nbytes=9 * MIB)
    unknown = replace(PAIR, start="unknown", executions=None, nbytes=GIB)
    inspection = module(overlaps=(unknown, PAIR, slow))
    assert [each.pair.start for each in inspection.overlaps] == ["slow", "copy-start.1", "unknown"]


def test_nothing_is_warned_of_where_all_is_known_and_well() -> None:
    assert module(donations=(DONATION,)).warnings == ()


@pytest.mark.parametrize(
    ("inspection", "words"),
    [
        (module(donations=(LOST,)), "donation lost: state (4.0 MiB) is given away, but no output"),
        (module(donations=(replace(DONATION, copied_by=("copy.7",)),)), "but copied by copy.7"),
        (module(buffers_assigned=False, donations=()), "--xla_dump_hlo_as_proto"),
        (
            module(loops=(replace(LOOP, trips=None, reason="no bound"),), donations=()),
            "unknown trips of while.1 (train.py:11): no bound",
        ),
        (seen(device_memory_bytes=5 * GIB), "does not fit: 1.0 GiB more than the device has"),
        (seen(separate_host_memory=False), "a CPU has one memory"),
        (seen(module=None, module_unreadable="new field"), "cannot read what was compiled: new"),
        (replace(INSPECTION, notes=("not scheduled",)), "not scheduled"),
    ],
)
def test_what_limits_the_answer_is_a_warning(inspection: object, words: str) -> None:
    assert any(words in warning for warning in inspection.warnings)  # type: ignore[attr-defined]
