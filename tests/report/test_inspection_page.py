"""The page of ``assay inspect``: every section says what it found, or why it cannot know."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from assay.model.evidence import Failure, FailureKind
from assay.model.inspection import Aspect, Comparison, Difference, Inspection
from assay.model.module import Inventory, Shape
from assay.report.inspection_output import print_inspection
from tests.report.inspections import (
    BUFFER,
    COLLECTIVE,
    DONATION,
    FULL_BUFFER_WRITE,
    GIB,
    INSPECTION,
    MEMORY,
    MIB,
    PAIR,
    PEAK,
    TRANSFER,
    module,
    seen,
)

ON_HOST = Shape(element_type="f32", dimensions=(1024, 1024), memory_space=5)
ON_DEVICE = replace(ON_HOST, memory_space=0)
HOSTED = seen(
    memory=replace(
        MEMORY,
        host_argument_bytes=5 * MIB,
        host_output_bytes=4 * MIB,
        host_alias_bytes=4 * MIB,
    ),
    module=replace(
        INSPECTION.evidence.module,
        inventory=Inventory(
            arguments=(ON_DEVICE, ON_HOST),
            argument_names=("x", "state"),
            outputs=(ON_DEVICE, ON_HOST),
            shared=(),
            operations=(),
            host_arrays=(),
        ),
    ),
)
DIFFERENCE = Difference(aspect=Aspect.TRIPS, subject="trips", before=15, after=30)


def page(inspection: Inspection, width: int = 90, comparison: Comparison | None = None) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, color_system=None)
    print_inspection(console, inspection, comparison)
    return stream.getvalue()


def section(inspection: Inspection, title: str) -> str:
    """A section's lines, its runs of blanks as one."""
    (found,) = [part for part in page(inspection).split("\n\n") if part.startswith(title)]
    return " ".join(found.split())


@pytest.mark.parametrize(
    ("inspection", "title", "words"),
    [
        (INSPECTION, "MEMORY", "fits: 6.0 GiB needed of 16.0 GiB, 10.0 GiB free"),
        (seen(device_memory_bytes=4 * GIB), "MEMORY", "DOES NOT FIT: 6.0 GiB needed of 4.0 GiB"),
        (seen(device_memory_bytes=None), "MEMORY", "memory of this device is not known"),
        (seen(memory=None), "MEMORY", "no buffer assignment in this dump: dump with --xla_dump"),
        (
            INSPECTION,
            "HOST MEMORY",
            "temporaries 60.0 MiB, arguments 0 B, outputs 0 B, of them sha",
        ),
        (HOSTED, "HOST MEMORY", "arguments 5.0 MiB, outputs 4.0 MiB, of them shared 4.0 MiB"),
        (HOSTED, "HOST MEMORY", "4.0 MiB argument state f32[1024,1024]S(5)"),
        (HOSTED, "HOST MEMORY", "4.0 MiB output 1 f32[1024,1024]S(5)"),
        (HOSTED, "MEMORY", "65.0 MiB"),
        (INSPECTION, "TRANSFERS", "60.0 MiB to the host and 0 B to the device per step"),
        (INSPECTION, "TRANSFERS", "4.0 MiB 15 to-host copy-start.1 train.py:12"),
        (module(transfers=()), "TRANSFERS", "none between host and device"),
        (
            seen(
                separate_host_memory=False, module=replace(INSPECTION.evidence.module, transfers=())
            ),
            "TRANSFERS",
            "cannot be seen: a CPU has one memory",
        ),
        (
            module(transfers=(replace(TRANSFER, executions=None),)),
            "TRANSFERS",
            "? to the host and 0 B to the device per step",
        ),
        (INSPECTION, "COLLECTIVES", "a device sends 15.0 MiB to others per step"),
        (INSPECTION, "COLLECTIVES", "1.0 MiB 15 15.0 MiB all-gather 8 train.py:13"),
        (
            module(collectives=(replace(COLLECTIVE, devices=None, nbytes_per_execution=None),)),
            "COLLECTIVES",
            "? 15 ? all-gather ? train.py:13",
        ),
        (INSPECTION, "COPIES", "1 in loops, 0 outside; 60.0 MiB per step"),
        (INSPECTION, "COPIES", "4.0 MiB 15 60.0 MiB body copy f32[1024,1024] train.py:14"),
        (module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, at_most=True),)), "COPIES", " ≤15 "),
        (module(full_buffer_writes=()), "COPIES", "no full-buffer copies"),
        (INSPECTION, "OVERLAP", "1 asynchronous operation, 1.5 s per step exposed"),
        (INSPECTION, "OVERLAP", "1.0 MiB 2 1 s 250 ms to-host copy-start.1 train.py:12"),
        (module(overlaps=()), "OVERLAP", "no asynchronous operation"),
        (replace(INSPECTION, device=None), "OVERLAP", "name a --target"),
        (module(overlaps=(replace(PAIR, between=None),)), "OVERLAP", "1 of unknown duration"),
        (INSPECTION, "ALIVE AT THE PEAK", "5.0 GiB at fusion.3 (train.py:20)"),
        (module(peak=None), "ALIVE AT THE PEAK", "no buffer assignment in this dump: dump with"),
        (INSPECTION, "DONATION", "1 of 2 honoured, 4.0 MiB reused"),
        (INSPECTION, "DONATION", "4.0 MiB state is given away, but no output takes its buffer"),
        (module(donations=(DONATION,)), "DONATION", "1 of 1 honoured"),
        (module(donations=()), "DONATION", "none reaches the compiler"),
        (INSPECTION, "WARNINGS", "- donation lost: state"),
    ],
)
def test_a_section_says_what_it_found_or_why_it_cannot_know(
    inspection: Inspection, title: str, words: str
) -> None:
    assert words in section(inspection, title)


def test_the_head_names_the_program_the_target_and_the_toolchain() -> None:
    first, second, third = page(INSPECTION).splitlines()[:3]
    assert first == "train.py:step on gpu-made-up"
    assert second == "jaxlib 0.12.0"
    assert third.endswith("1,234 instructions, 1 loop")


def test_a_program_from_the_cache_was_not_compiled_in_no_time() -> None:
    assert "compiled program from the cache; 1,234 instructions" in page(seen(cached=True))
    assert "from the cache" not in page(INSPECTION)


def test_ten_rows_are_shown_and_the_rest_is_counted() -> None:
    inspection = module(full_buffer_writes=(FULL_BUFFER_WRITE,) * 25)
    assert section(inspection, "COPIES").count("train.py:14") == 10
    assert section(inspection, "COPIES").endswith("… and 15 more")


def test_buffers_that_explain_nothing_of_the_peak_are_only_counted() -> None:
    crumbs = replace(BUFFER, nbytes=512)
    peak = replace(PEAK, nbytes=8 * MIB, buffers=(BUFFER, BUFFER, crumbs, crumbs))
    assert section(module(peak=peak), "ALIVE AT THE PEAK").endswith("… and 2 more")


def test_a_failure_is_the_page() -> None:
    failure = Failure(kind=FailureKind.TRACE, message="ValueError: shapes")
    text = page(seen(failure=failure, memory=None, module=None))
    assert "ERROR  it does not trace: ValueError: shapes" in text
    assert "MEMORY" not in text
    assert "COPIES" not in text


@pytest.mark.parametrize(
    ("found", "error", "words"),
    [
        ((DIFFERENCE,), "", "1 from old.py:step, the most important first\n  - trips 15 → 30"),
        ((), "", "none from old.py:step: the same HLO but for names"),
        (None, "it does not trace: no", "not compared with old.py:step: it does not trace: no"),
    ],
)
def test_a_comparison_says_what_differs(
    found: tuple[Difference, ...] | None, error: str, words: str
) -> None:
    comparison = Comparison(before="old.py:step", error=error, differences=found)
    assert f"DIFFERENCES  {words}" in page(INSPECTION, comparison=comparison)


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_console_or_a_hundred(width: int) -> None:
    long = "a_very_long_name_of_an_instruction_that_a_compiler_made_up_by_itself.clone.clone.1"
    inspection = module(
        full_buffer_writes=(replace(FULL_BUFFER_WRITE, loop=long, instruction=long, source=None),),
        transfers=(replace(TRANSFER, instruction=long),),
        overlaps=(replace(PAIR, start=long),),
        peak=replace(PEAK, at=long, buffers=(replace(BUFFER, name=long),)),
        donations=(replace(DONATION, argument=long, copied_by=(long, long)),),
    )
    assert max(map(len, page(inspection, width).splitlines())) <= min(width, 100)


def test_a_name_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in page(
        module(full_buffer_writes=(replace(FULL_BUFFER_WRITE, source="\x1b[31mred"),))
    )
