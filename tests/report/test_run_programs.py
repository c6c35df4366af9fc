"""What the page of a run shows of one program: bars, the schedule, overlap, growth with a size."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from assay.model.evidence import Evidence, GrowthTimes
from assay.model.units import Unit
from assay.model.verdict import USUAL, Record
from assay.report.run_programs import HEIGHT, Place, over_size, place
from tests.report.inspections import (
    DEVICE,
    EVIDENCE,
    GIB,
    MEMORY,
    MIB,
    MODULE,
    PAIR,
    PEAK,
)

RecordOf = Callable[..., Record]

OF_RECORD = {"suite": "scan_offload", "workload": "scan_stack", "target": "gpu-h100:8"}
SEEN = replace(EVIDENCE, variant="offload-hidden", **OF_RECORD)


def placed(record_of: RecordOf, *seen: Evidence, known: bool = True) -> Place:
    """The page's rows for these programs, one record for each."""
    found = [record_of(variant=each.variant) for each in seen]
    programs = {each.key: each for each in seen}
    devices = {"gpu-h100:8": DEVICE} if known else {}
    return place(found, programs, devices, USUAL, "p1")


def scheduled(levels: tuple[int, ...], capacity: int | None = None) -> Evidence:
    module = replace(MODULE, peak=replace(PEAK, levels=levels, nbytes=max(levels)))
    return replace(SEEN, module=module, device_memory_bytes=capacity)


def test_bars_of_one_kind_share_a_scale(record_of: RecordOf) -> None:
    half = replace(SEEN, variant="half", memory=replace(MEMORY, temp_bytes=0))
    found = placed(record_of, SEEN, half)
    first, second = found.rows
    shares = dict(zip(found.heads, first.bars, strict=True))
    assert shares["device memory"].share == 1
    assert second.bars[0].share == 0.5
    assert shares["host memory"].nbytes == 60 * MIB
    assert shares["host memory"].share == 60 * MIB / (6 * GIB)
    assert shares["to host"].share == 1
    assert shares["to device"].nbytes == 0
    assert shares["all copies per iteration"].nbytes == 4 * MIB


def test_a_negative_control_does_not_flatten_the_other_bars(record_of: RecordOf) -> None:
    huge = replace(SEEN, variant="huge", memory=replace(MEMORY, temp_bytes=2**50))
    records = [record_of(), record_of(variant="huge", claim="compiles.negative-control")]
    seen = {each.key: each for each in (SEEN, huge)}
    first, second = place(records, seen, {}, USUAL, "p1").rows
    assert (first.bars[0].share, second.bars[0].share) == (1, 1)
    assert (first.bars[0].is_cut, second.bars[0].is_cut) == (False, True)
    (alone,) = place(records[1:], seen, {}, USUAL, "p1").rows
    assert alone.bars[0].share == 1


def test_transfers_that_one_memory_hides_are_not_0(record_of: RecordOf) -> None:
    found = placed(record_of, replace(SEEN, separate_host_memory=False))
    assert found.heads == ["device memory", "host memory", "all copies per iteration"]
    assert len(found.rows[0].bars) == 3


def test_a_program_without_measurements_has_no_bars_and_no_plots(record_of: RecordOf) -> None:
    row = place([record_of()], {}, {}, USUAL, "p1").rows[0]
    assert row.bars == []
    assert (row.schedule, list(row.buffers), list(row.overlaps)) == (None, [], [])


def test_the_outline_keeps_the_highest_level_of_each_part(record_of: RecordOf) -> None:
    levels = [MIB] * 200
    levels[77] = 4 * MIB
    (row,) = placed(record_of, scheduled(tuple(levels))).rows
    assert row.schedule
    found = re.findall(r"V([\d.]+)h(\d+)", row.schedule.path)
    assert [float(level) for level, _ in found] == [0.75 * HEIGHT, 0, 0.75 * HEIGHT]
    assert sum(int(width) for _, width in found) == row.schedule.width


@pytest.mark.parametrize(
    ("capacity", "line"), [(3 * GIB, 0), (GIB, HEIGHT / 2), (5 * GIB, None), (None, None)]
)
def test_the_devices_memory_is_a_line_if_it_is_near(
    record_of: RecordOf, capacity: int | None, line: float | None
) -> None:
    (row,) = placed(record_of, scheduled((GIB, 2 * GIB), capacity)).rows
    assert row.schedule
    assert row.schedule.capacity == line
    assert ("the device has" in row.schedule.text) is (line is not None)
    assert "2.0 GiB at fusion.3 (train.py:20)" in row.schedule.text


def test_what_hides_a_transfer_and_what_does_not_fill_its_bar(record_of: RecordOf) -> None:
    (row,) = placed(record_of, SEEN).rows
    (found,) = row.overlaps
    assert (found.hidden, found.exposed) == (0.25, 0.75)
    assert found.text.endswith("copy-start.1, 2 × per run: takes 1 s, 250 ms hidden")
    (row,) = placed(record_of, SEEN, known=False).rows
    assert row.overlaps[0].text.endswith("duration not known")


def test_operations_that_are_not_shown_are_counted(record_of: RecordOf) -> None:
    many = replace(SEEN, module=replace(MODULE, overlaps=(PAIR,) * 8))
    (row,) = placed(record_of, many).rows
    assert [each.text for each in row.overlaps][-1] == "and 2 other operations"


def sized(name: str, *bytes_of_sizes: int) -> list[Evidence]:
    """A program at the sizes 10, 100, … with so many bytes; the largest has the plain name."""
    sizes = [10 ** (power + 1) for power in range(len(bytes_of_sizes))]
    return [
        replace(
            SEEN,
            variant=name if size == sizes[-1] else f"{name}-at-{size}",
            size=size,
            memory=replace(MEMORY, temp_bytes=nbytes),
            module=replace(MODULE, full_buffer_writes=()),
        )
        for size, nbytes in zip(sizes, bytes_of_sizes, strict=True)
    ]


def test_sizes_of_one_program_are_one_line() -> None:
    (found,) = over_size([*sized("plain", 1, 10, 100), *sized("flat", 5, 5, 5)])
    assert found.title == "temporaries of scan_stack on gpu-h100:8"
    assert found.lines == {
        "plain": [(10, 1), (100, 10), (1000, 100)],
        "flat": [(10, 5), (100, 5), (1000, 5)],
    }


def test_what_has_two_sizes_or_needs_nothing_is_not_plotted() -> None:
    assert over_size([SEEN, *sized("two", 1, 2)]) == []
    assert over_size(sized("none", 0, 0, 0)) == []


def test_a_growing_loop_has_its_fastest_times() -> None:
    growth = GrowthTimes(lengths=(1, 2, 4), seconds=((3.0, 2.0), (4.0, 4.5), (9.0, 8.0)))
    (found,) = over_size([replace(SEEN, memory=None, module=None, growth=growth)])
    assert (found.unit, found.title) == (Unit.SECONDS, "time of scan_stack on gpu-h100:8")
    assert found.lines == {"offload-hidden": [(1, 2.0), (2, 4.0), (4, 8.0)]}
