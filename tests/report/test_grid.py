"""A cell tells its worst, no record is lost, and columns come in an order a reader expects."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.verdict import Outcome, Record
from assay.report.tables import NEGATIVE_CONTROLS, Cell, Row, grid, in_order, short_names

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


@given(st.lists(FIELDS))
def test_every_record_is_counted_exactly_once(
    record_of: RecordOf, fields: list[dict[str, object]]
) -> None:
    records = [record_of(**field) for field in fields]
    shown = grid(records)
    for (row, target), cell in shown.cells.items():
        for outcome in Outcome:
            mine = [
                record
                for record in records
                if (record.suite, record.workload) == (row.suite, row.workload)
                and (NEGATIVE_CONTROLS if record.must_fail else record.variant) == row.variant
                and (record.target, record.verdict) == (target, outcome)
            ]
            assert cell.counts.get(outcome, 0) == len(mine)
    assert sum(sum(cell.counts.values()) for cell in shown.cells.values()) == len(records)


@given(st.lists(FIELDS).flatmap(lambda fields: st.tuples(st.just(fields), st.permutations(fields))))
def test_cells_do_not_depend_on_the_order_of_records(
    record_of: RecordOf, orders: tuple[list[dict[str, object]], list[dict[str, object]]]
) -> None:
    first, second = (grid(record_of(**fields) for fields in order) for order in orders)
    assert first.cells == second.cells
    assert first.targets == second.targets
    assert {key: cell.verdict for key, cell in first.cells.items()} == {
        key: cell.verdict for key, cell in second.cells.items()
    }


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
    assert Cell(counts=counts).verdict is verdict


def test_a_passed_cell_owns_up_to_what_was_not_measured() -> None:
    partly = Cell(counts={Outcome.PASSED: 3, Outcome.INCONCLUSIVE: 2, Outcome.UNSUPPORTED: 1})
    assert partly.partly_measured
    assert (partly.passed, partly.measurable) == (3, 5)
    assert not Cell(counts={Outcome.PASSED: 3, Outcome.UNSUPPORTED: 1}).partly_measured


def test_rows_keep_the_order_of_first_appearance(record_of: RecordOf) -> None:
    shown = grid(
        record_of(variant=variant) for variant in ("remedy", "control", "remedy", "defect")
    )
    assert [row.variant for row in shown.rows] == ["remedy", "control", "defect"]


def test_the_controls_of_a_workload_share_its_last_row(record_of: RecordOf) -> None:
    negative_controls = [
        record_of(variant=variant, claim="host-bytes.negative-control")
        for variant in ("tie", "bow")
    ]
    shown = grid([*negative_controls, record_of()])
    last = Row(suite="scan_offload", workload="scan_stack", variant=NEGATIVE_CONTROLS)
    assert shown.rows[-1] == last
    assert shown.cells[last, "gpu-h100:8"].passed == 2


def test_rows_of_one_workload_stand_together(record_of: RecordOf) -> None:
    order = [("a", "x"), ("b", "x"), ("a", "y")]
    shown = grid(record_of(workload=workload, variant=variant) for workload, variant in order)
    assert [(row.workload, row.variant) for row in shown.rows] == [
        ("a", "x"),
        ("a", "y"),
        ("b", "x"),
    ]


def test_a_variant_not_tried_has_no_cell(record_of: RecordOf) -> None:
    shown = grid([record_of(variant="a", target="cpu"), record_of(variant="b", target="tpu")])
    assert shown.cells.get((shown.rows[0], "tpu")) is None
    assert shown.cells.get((shown.rows[0], "cpu")) is not None


def test_live_targets_come_first() -> None:
    targets = ["tpu-v4:2x2x1", "tpu", "gpu-h100:8", "cpu:8", "gpu", "cpu", "gpu-h100:8"]
    assert in_order(targets) == ("cpu", "cpu:8", "gpu", "tpu", "gpu-h100:8", "tpu-v4:2x2x1")


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
