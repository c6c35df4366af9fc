"""A cell tells its worst, no record is lost, and columns come in an order a reader expects."""

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import Outcome, Record
from assay.report.document import NEGATIVE_CONTROLS, NOT_TRIED, cell, counted, grid
from assay.report.labels import LABELS, in_order, name_of, short_names

RecordOf = Callable[..., Record]

FIELDS = st.fixed_dictionaries(
    {
        "suite": st.sampled_from(["a", "b"]),
        "workload": st.sampled_from(["w", "x"]),
        "variant": st.sampled_from(["defect", "remedy"]),
        "target": st.sampled_from(["cpu", "gpu-h100:8", "tpu"]),
        "claim": st.sampled_from(["bytes", "bytes.negative-control"]),
        "verdict": st.sampled_from(Outcome),
    }
)


def rows_of(records: list[Record]) -> list[list[str]]:
    """The rows of the only table, with the words of their cells."""
    section, _legend = grid(records)
    assert section.table is not None
    return [[each if isinstance(each, str) else each[0] for each in r] for r in section.table.rows]


@given(st.lists(FIELDS))
def test_every_record_is_counted_exactly_once(
    record_of: RecordOf, fields: list[dict[str, object]]
) -> None:
    records = [record_of(**field) for field in fields]
    total = 0
    for (suite, workload), variants in counted(records).items():
        for variant, row in variants.items():
            for target, verdicts in row.items():
                mine = [
                    record.verdict
                    for record in records
                    if (record.suite, record.workload, record.target) == (suite, workload, target)
                    and (NEGATIVE_CONTROLS if record.must_fail else record.variant) == variant
                ]
                assert verdicts == Counter(mine)
                total += len(mine)
    assert total == len(records)


@given(st.lists(FIELDS).flatmap(lambda fields: st.tuples(st.just(fields), st.permutations(fields))))
def test_cells_do_not_depend_on_the_order_of_records(
    record_of: RecordOf, orders: tuple[list[dict[str, object]], list[dict[str, object]]]
) -> None:
    first, second = (counted(record_of(**fields) for fields in order) for order in orders)
    assert first == second


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ({Outcome.PASSED: 1, Outcome.UNSUPPORTED: 5}, Outcome.PASSED),
        ({Outcome.PASSED: 1, Outcome.INCONCLUSIVE: 5}, Outcome.PASSED),
        ({Outcome.UNSUPPORTED: 5}, Outcome.UNSUPPORTED),
        ({Outcome.UNSUPPORTED: 5, Outcome.INCONCLUSIVE: 1}, Outcome.INCONCLUSIVE),
        ({Outcome.PASSED: 5, Outcome.KNOWN_DEFECT: 1}, Outcome.KNOWN_DEFECT),
        ({Outcome.IMPROVED: 1, Outcome.KNOWN_DEFECT: 5}, Outcome.IMPROVED),
        ({Outcome.IMPROVED: 5, Outcome.FIXED_UPSTREAM: 1}, Outcome.FIXED_UPSTREAM),
        ({Outcome.FIXED_UPSTREAM: 5, Outcome.FAILED: 1}, Outcome.FAILED),
        ({Outcome.FAILED: 5, Outcome.ERROR: 1}, Outcome.ERROR),
    ],
)
def test_the_worst_verdict_stands_for_the_cell(
    counts: dict[Outcome, int], verdict: Outcome
) -> None:
    text, style = cell(Counter(counts))
    assert style == LABELS[verdict].style
    partly = verdict is Outcome.PASSED and Outcome.INCONCLUSIVE in counts
    assert text == ("1/6" if partly else name_of(verdict))


def test_a_passed_cell_owns_up_to_what_was_not_measured() -> None:
    partly = Counter({Outcome.PASSED: 3, Outcome.INCONCLUSIVE: 2, Outcome.UNSUPPORTED: 1})
    assert cell(partly)[0] == "3/5"
    assert cell(Counter({Outcome.PASSED: 3, Outcome.UNSUPPORTED: 1}))[0] == "passed"


def test_rows_keep_the_order_of_first_appearance(record_of: RecordOf) -> None:
    order = ("remedy", "control", "remedy", "defect")
    rows = rows_of([record_of(variant=variant) for variant in order])
    assert [row[0] for row in rows] == ["remedy", "control", "defect"]


def test_the_controls_of_a_workload_share_its_last_row(record_of: RecordOf) -> None:
    negative_controls = [
        record_of(variant=variant, claim="host-bytes.negative-control")
        for variant in ("tie", "bow")
    ]
    assert rows_of([*negative_controls, record_of()])[-1] == [NEGATIVE_CONTROLS, "passed"]


def test_rows_of_one_workload_stand_together(record_of: RecordOf) -> None:
    order = [("a", "x"), ("b", "x"), ("a", "y")]
    *shown, _legend = grid([record_of(workload=name, variant=each) for name, each in order])
    assert [section.title for section in shown] == ["scan_offload / a", "scan_offload / b"]
    assert [len(section.table.rows) for section in shown if section.table] == [2, 1]


def test_a_variant_not_tried_has_an_empty_cell(record_of: RecordOf) -> None:
    rows = rows_of([record_of(variant="a", target="cpu"), record_of(variant="b", target="tpu")])
    assert rows == [["a", "passed", NOT_TRIED], ["b", NOT_TRIED, "passed"]]


def test_live_targets_come_first() -> None:
    targets = ["tpu-v4:2x2x2", "tpu", "gpu-h100:8", "cpu:8", "gpu", "cpu", "gpu-h100:8"]
    assert in_order(targets) == ("cpu", "cpu:8", "gpu", "tpu", "gpu-h100:8", "tpu-v4:2x2x2")


def test_heads_are_short_until_two_targets_would_share_one() -> None:
    assert short_names(["cpu:8", "gpu", "gpu-h100:8", "tpu-v5p:2x2x2", "tpu7x:2x2x1"]) == {
        "cpu:8": "cpu:8",
        "gpu": "gpu",
        "gpu-h100:8": "h100",
        "tpu-v5p:2x2x2": "v5p",
        "tpu7x:2x2x1": "tpu7x",
    }
    assert short_names(["gpu-h100", "gpu-h100:8", "gpu-l4"]) == {
        "gpu-h100": "h100",
        "gpu-h100:8": "h100:8",
        "gpu-l4": "l4",
    }
    assert short_names(["gpu-x:2", "tpu-x:2"]) == {"gpu-x:2": "gpu-x:2", "tpu-x:2": "tpu-x:2"}


@given(
    st.sets(
        st.from_regex(r"(cpu|gpu|tpu|tpu7x|npu|gpu-[xy]|tpu-[xy]|npu-x)(:[12])?", fullmatch=True)
    )
)
def test_no_two_targets_share_a_head(targets: set[str]) -> None:
    assert len(set(short_names(targets).values())) == len(targets)
