"""Names and words that others rely on: a change here is a change for them."""

import dataclasses
from types import ModuleType

import pytest

import assay
from assay import claims
from assay.model.module import Direction
from assay.model.units import Unit
from assay.model.verdict import MUST_FAIL, RECORD_SCHEMA, ExitCode, Outcome, Record
from assay.model.workload import Level
from assay.run import BaselineUpdate

PUBLIC = [
    "Case",
    "Check",
    "Claim",
    "CompileError",
    "Compiled",
    "Direction",
    "Evidence",
    "Expected",
    "Fails",
    "FailureKind",
    "Finding",
    "Formula",
    "Growth",
    "KnownDefect",
    "Level",
    "Loop",
    "Measures",
    "Outcome",
    "Program",
    "Quantity",
    "RemedyEffect",
    "Role",
    "Scope",
    "SizedVariant",
    "Steps",
    "TargetError",
    "TargetUnavailable",
    "Unit",
    "Upstream",
    "UpstreamIssue",
    "UpstreamState",
    "Variant",
    "Workload",
    "claims",
    "compile",
    "exactly",
]
CLAIMS = [
    "BaselineTempBytes",
    "BaselineTime",
    "BytesExponent",
    "CollectiveBytes",
    "Compiles",
    "CopiedBytes",
    "CopiedBytesOutsideLoops",
    "Cost",
    "DeviceBytesAtMost",
    "DeviceBytesFall",
    "DonatedBytesReused",
    "FitsBudget",
    "FitsDevice",
    "GraphsCompiled",
    "HostBytes",
    "LastCompile",
    "NamesMatch",
    "Parameters",
    "ProcessBytes",
    "Refuses",
    "ResidualsOnHost",
    "Runs",
    "Sent",
    "SentPerStep",
    "StoredTimeRatio",
    "TempBytesAtMost",
    "TimeAgainst",
    "TimeExponent",
    "TimeGrowth",
    "TimeRatio",
    "TraceTimeRatio",
    "TracingSends",
    "TransferredBytes",
    "ValuesEqual",
]


@pytest.mark.parametrize(("module", "names"), [(assay, PUBLIC), (claims, CLAIMS)])
def test_the_public_names_are_listed_sorted_and_there(module: ModuleType, names: list[str]) -> None:
    assert module.__all__ == names == sorted(names)
    assert [name for name in names if not hasattr(module, name)] == []
    assert set(names) <= set(dir(module))


def test_a_star_import_gives_the_public_names_alone() -> None:
    given: dict[str, object] = {}
    exec("from assay import *", given)
    assert set(given) - {"__builtins__"} == set(PUBLIC)


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'assay' has no attribute 'Chekc'"):
        _ = assay.Chekc  # type: ignore[attr-defined] # the very thing that must not work


def test_the_words_of_verdicts_are_fixed() -> None:
    assert [outcome.value for outcome in Outcome] == [
        "passed",
        "failed",
        "known-defect",
        "fixed-upstream",
        "improved",
        "unsupported",
        "inconclusive",
        "error",
    ]


def test_the_exit_codes_are_fixed() -> None:
    codes = {code.name: code.value for code in ExitCode}
    assert codes == {"PASSED": 0, "FAILED": 1, "MISUSE": 2, "CRASHED": 3}


def test_the_fields_of_a_record_are_fixed_in_their_order() -> None:
    fixed = [
        "schema",
        "run",
        "suite",
        "workload",
        "variant",
        "claim",
        "target",
        "toolchain",
        "verdict",
        "measured",
        "limit",
        "unit",
        "baseline",
        "reason",
        "upstream",
        "seconds",
    ]
    fields = [field.name for field in dataclasses.fields(Record)]
    assert [name for name in fields if name in fixed] == fixed
    added = {"advice", "cached", "node", "relation", "remedy", "retries", "test"}
    assert set(fields) - set(fixed) == added
    assert RECORD_SCHEMA == 2


def test_the_words_of_options_and_records_are_fixed() -> None:
    assert [update.value for update in BaselineUpdate] == ["nothing", "new", "all"]
    assert [level.name.lower() for level in Level] == ["quick", "full", "device", "soak"]
    assert [unit.value for unit in Unit] == ["bytes", "count", "seconds", "ratio"]
    assert [direction.value for direction in Direction] == ["to-host", "to-device"]
    assert MUST_FAIL == ".negative-control"
