"""What others' modules hold and no compiler of ours wrote: each form once broke the reading.

Found by `benchmarks.outside_dumps` on public HLO texts; the texts here are our own.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.hlo.module import Module
from assay.hlo.schema import wrap
from assay.model.module import TripSource
from assay.model.summary import ModuleSummary
from benchmarks.outside_dumps import Dump, Parser, dumps, main, row

from .conftest import proto_of
from .programs import counting_loop, entry, with_computations

Summary = Callable[[str], ModuleSummary]


@pytest.mark.parametrize(
    ("kind", "init", "bound", "step", "direction", "trips"),
    [
        ("s64", "0", "10", "1", "LT", 10),
        ("s64", "9", "2", "-1", "GT", 7),
        ("u64", "9", "2", str(2**64 - 1), "GT", 7),
        ("s64", str(-(2**63)), str(2**63 - 1), "1", "LT", 2**64 - 1),
    ],
)
def test_a_64_bit_counter_is_counted(
    *, summary: Summary, kind: str, init: str, bound: str, step: str, direction: str, trips: int
) -> None:
    (loop,) = summary(
        counting_loop(kind=kind, init=init, bound=bound, step=step, direction=direction)
    ).loops
    assert loop.trips == trips
    assert loop.trips_from is TripSource.DERIVED


def test_a_64_bit_counter_that_meets_no_bound_has_no_count(summary: Summary) -> None:
    (loop,) = summary(
        counting_loop(
            kind="s64", init=str(-(2**63)), bound=str(2**63 - 1), step="1", direction="LE"
        )
    ).loops
    assert loop.trips is None
    assert "leaves the range of s64[]" in loop.reason


@pytest.mark.parametrize("element_type", ["f6e2m3fn", "f6e3m2fn"])
def test_a_six_bit_float_takes_the_byte_that_xla_gives_it(element_type: str) -> None:
    text = entry(f"ROOT x = {element_type}[9] parameter(0)")
    root = Module.from_proto(proto_of(text)).entry.root
    assert root.shape.element_type == element_type
    assert root.shape.nbytes == 9


def test_an_empty_tuple_beside_a_host_array_holds_no_array(summary: Summary) -> None:
    host = "f32[2]{0:S(5)}"
    read = summary(
        entry(
            f"x = {host} parameter(0)",
            "nothing = () tuple()",
            f"pair = ((), {host}) tuple(nothing, x)",
            "ROOT moved = ((), f32[2]) copy(pair)",
        )
    )
    assert (read.to_host_bytes_per_run, read.to_device_bytes_per_run) == (0, 8)


CUT = {
    "test.cc": ('auto a = R"(\n{text})";\nauto b = R"hlo({text})hlo";\nchar c[] = "HloModule";', 2),
    "test.py": ('a = """{text}"""\nb = \'\'\'\n{text}\'\'\'\nc = "HloModule "', 2),
    "page.md": ("An `HloModule` in words.\n```hlo\n{text}\n```\nand so on", 1),
    "dump.txt": ("// what made it\n{text}\n{text}", 2),
    "notes.rst": ("{text}", 0),
}


@pytest.mark.parametrize("name", CUT)
def test_modules_are_cut_out_of_what_holds_them(name: str, tmp_path: Path) -> None:
    around, modules = CUT[name]
    text = entry("ROOT x = f32[4] parameter(0)")
    (tmp_path / name).write_text(around.replace("{text}", text))
    found = list(dumps(tmp_path))
    assert len(found) == modules
    parser = Parser()
    assert [row(each, parser).verdict for each in found] == ["ok"] * modules


def test_a_dumped_proto_is_read(tmp_path: Path) -> None:
    proto = proto_of(counting_loop(init="0", bound="4", step="1", direction="LT"))
    (tmp_path / "module_0001.hlo.pb").write_bytes(wrap(proto))
    (tmp_path / "module_0002.hlo.pb").write_bytes(wrap(proto)[:-9])
    whole, part = (row(each, Parser()) for each in dumps(tmp_path))
    assert whole.verdict == "ok"
    assert whole.counts[1] == 1
    assert part.verdict.startswith("XLA's own parser refuses: got")


def test_what_xla_refuses_or_dies_of_is_no_failure_of_assay() -> None:
    parser = Parser()
    refused = Dump(name="template", content=entry("ROOT x = $0[4] parameter(0)"))
    deadly = Dump(name="deadly", content=entry("ROOT x = token[4] parameter(0)"))
    fine = Dump(name="fine", content=entry("ROOT x = f32[4] parameter(0)"))
    rows = [row(each, parser) for each in (refused, deadly, fine)]
    assert not any(each.failed for each in rows)
    assert rows[0].verdict.startswith("XLA's own parser refuses: expects opcode")
    assert rows[1].verdict == ("XLA's own parser refuses: a failed check of XLA ended the process")
    assert rows[2].verdict == "ok"


def test_a_module_that_xla_reads_and_assay_does_not_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("assay.hlo.instruction._ELEMENT_TYPES", {})
    offloads = entry("x = f32[4] parameter(0)", "ROOT y = f32[4]{0:S(5)} copy(x)")
    found = row(Dump(name="new type", content=offloads), Parser())
    assert found.failed
    assert found.verdict.startswith("Assay fails: MalformedModule: got element type 11")


@pytest.mark.parametrize(
    ("instruction", "code"),
    [("ROOT x = f32[4] parameter(0)", 0), ("ROOT x = $0[4] parameter(0)", 1)],
)
def test_a_folder_passes_only_if_something_in_it_was_read(
    instruction: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.hlo").write_text(entry(instruction))
    assert main([str(tmp_path)]) == code
    assert (
        f"1 modules: {1 - code} ok, 0 that Assay fails on, {code} that" in capsys.readouterr().out
    )


def test_a_start_that_names_no_operands_of_its_kernel_is_read(summary: Summary) -> None:
    """As libtpu 0.0.52 starts a gather on a SparseCore; XLA refuses such text elsewhere."""
    text = with_computations(
        """kernel { table = f32[8,4] parameter(0)
  rows = s32[2] parameter(1)
  ROOT taken = f32[2,4] custom-call(table, rows), custom_call_target="gather" }""",
        "ROOT start = ((), (), s32[4]) async-start(), calls=kernel",
    )
    assert summary(text).transfers == ()


def test_a_fusion_in_a_kernel_started_without_operands_is_read(summary: Summary) -> None:
    text = with_computations(
        """inner { p = f32[8,4] parameter(0)
  ROOT copied = f32[8,4] copy(p) }
kernel { table = f32[8,4] parameter(0)
  ROOT fused = f32[8,4] fusion(table), kind=kLoop, calls=inner }""",
        "ROOT start = ((), f32[8,4], s32[4]) async-start(), calls=kernel",
    )
    assert summary(text).full_buffer_writes == ()


def test_a_copy_start_without_a_source_in_its_result_is_read(summary: Summary) -> None:
    """XLA's parser takes it, and only its verifier refuses it."""
    text = entry(
        "p = f32[8,4] parameter(0)",
        "begun = f32[8,4] copy-start(p)",
        "ROOT done = f32[8,4] copy-done(begun)",
    )
    (write,) = summary(text).full_buffer_writes
    assert write.nbytes_per_execution == 128
