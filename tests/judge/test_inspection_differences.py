"""What differs between two inspections besides the HLO: memory, and the toolchain."""

from dataclasses import replace

from assay.judge.differences.inspections import compare
from assay.model.evidence import Toolchain
from assay.model.inspection import Comparison, Inspection
from tests.report.inspections import INSPECTION, MEMORY, MIB


def seen(inspection: Inspection = INSPECTION, **evidence: object) -> Inspection:
    return replace(inspection, evidence=replace(inspection.evidence, **evidence))  # type: ignore[arg-type] # any field


def told(comparison: Comparison) -> list[str]:
    assert comparison.differences is not None
    return [str(each) for each in comparison.differences]


def test_an_inspection_does_not_differ_from_itself() -> None:
    comparison = compare(INSPECTION, INSPECTION)
    assert (told(comparison), comparison.notes) == ([], ())


def test_less_memory_of_the_same_hlo_is_a_difference() -> None:
    large = seen(memory=replace(MEMORY, temp_bytes=512 * MIB))
    small = seen(memory=replace(MEMORY, temp_bytes=196))
    (found,) = compare(large, small).differences or ()
    assert (found.before, found.after, found.nbytes) == (512 * MIB, 196, 196 - 512 * MIB)
    assert str(found) == "temporaries 512.0 MiB → 196 B"


def test_memory_that_one_side_does_not_know_is_said_to_be_left_out() -> None:
    comparison = compare(seen(memory=None), INSPECTION)
    assert told(comparison) == []
    assert comparison.notes[0].startswith("memory is not compared: there is no buffer assignment")


def test_the_same_hlo_of_another_toolchain_may_be_other_code() -> None:
    newer = seen(toolchain=Toolchain(versions={"jaxlib": "0.13.9"}))
    (note,) = compare(INSPECTION, newer).notes
    assert note.startswith("the HLO is the same, but the toolchain differs (")
    assert "jaxlib 0.13.9 now" in note
    assert "--xla_dump_to" in note


def test_another_hlo_of_another_toolchain_names_both() -> None:
    assert INSPECTION.evidence.module is not None
    other = replace(INSPECTION.evidence.module, fingerprint="other")
    newer = seen(module=other, toolchain=Toolchain(versions={"jaxlib": "0.13.9"}))
    (note,) = compare(INSPECTION, newer).notes
    assert note.startswith("the toolchain differs too: ")


def test_a_dump_does_not_say_who_wrote_it() -> None:
    unknown = seen(toolchain=Toolchain(versions={}))
    (note,) = compare(unknown, unknown).notes
    assert "does not say which toolchain wrote it" in note


def test_a_program_that_failed_is_not_compared() -> None:
    comparison = compare(seen(module=None), INSPECTION)
    assert comparison.differences is None
