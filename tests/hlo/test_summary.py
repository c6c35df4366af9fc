"""The summary: plain values, source lines, and no framework behind it."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import assay
from assay.model.module import Direction
from assay.model.summary import ModuleSummary

from .programs import entry, offloading_loop

FRAMES = """HloModule framed

FileNames
1 "/home/me/model.py"
2 "/opt/python/site-packages/flax/linen.py"

FunctionNames
1 "layer"
2 "apply"

FileLocations
1 {file_name_id=1 function_name_id=1 line=41 end_line=41 column=1 end_column=2}
2 {file_name_id=2 function_name_id=2 line=7 end_line=7 column=1 end_column=2}

StackFrames
1 {file_location_id=1 parent_frame_id=1}
2 {file_location_id=2 parent_frame_id=2}
3 {file_location_id=2 parent_frame_id=3}


ENTRY main {
  d = f32[8,4] parameter(0)
  ROOT h = f32[8,4]{1,0:S(5)} copy(d), metadata={op_name="copy" stack_frame_id=3}
}
"""


def test_a_transfer_names_the_users_line_not_the_frameworks(
    summary: Callable[[str], ModuleSummary],
) -> None:
    (transfer,) = summary(FRAMES).transfers
    assert transfer.source == "model.py:41"


def test_a_stack_of_installed_packages_alone_names_its_innermost_line(
    summary: Callable[[str], ModuleSummary],
) -> None:
    (transfer,) = summary(FRAMES.replace("/home/me/", "/x/site-packages/y/")).transfers
    assert transfer.source == "linen.py:7"


def test_a_transfer_without_a_line_takes_that_of_the_value_it_moves(
    summary: Callable[[str], ModuleSummary],
) -> None:
    text = entry(
        "x = f32[8,4] parameter(0)",
        'd = f32[8,4] negate(x), metadata={source_file="model.py" source_line=9}',
        "ROOT h = f32[8,4]{1,0:S(5)} copy(d)",
    )
    (transfer,) = summary(text).transfers
    assert transfer.source == "model.py:9"


def test_a_summary_survives_json(summary: Callable[[str], ModuleSummary]) -> None:
    msgspec = pytest.importorskip("msgspec", reason="the store's codec is not installed")
    read = summary(offloading_loop(trips=8))
    encoded = msgspec.json.encode(read)
    assert msgspec.json.decode(encoded, type=ModuleSummary) == read
    assert read.transfers[0].direction is Direction.TO_HOST


def test_a_summary_counts_what_the_text_holds(summary: Callable[[str], ModuleSummary]) -> None:
    read = summary(entry("x = f32[2] parameter(0)", "ROOT y = f32[2] negate(x)"))
    assert (read.name, read.instructions, read.computations) == ("entry_only", 2, 1)
    assert (read.loops, read.transfers) == ((), ())


def modules_loaded_by(statement: str) -> set[str]:
    """Top-level names of what a fresh interpreter has loaded after ``statement``."""
    report = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


HEAVY = {"jax", "jaxlib", "numpy", "torch", "pytest"}
# The room alone: the package around it is only a place, whatever its __init__ would load.
ROOM = (
    "import sys, types; around = types.ModuleType('assay'); "
    f"around.__path__ = [{str(Path(assay.__file__).parent)!r}]; sys.modules['assay'] = around; "
    "import assay.hlo.summary"
)


def test_reading_needs_no_framework() -> None:
    loaded = modules_loaded_by(ROOM)
    assert "google" in loaded
    assert not loaded & HEAVY


def test_the_check_for_frameworks_can_fail() -> None:
    assert modules_loaded_by(f"{ROOM}; import numpy") & HEAVY
