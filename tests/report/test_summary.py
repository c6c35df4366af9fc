"""``summary.md`` shows every variant, explains every cause, and no text breaks its tables."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from assay.model.defect import Upstream, UpstreamIssue
from assay.model.verdict import Invocation, Outcome, Record
from assay.report.summary import code, escape, summary, table

RecordOf = Callable[..., Record]


def test_the_grid_has_a_row_for_each_variant_and_a_column_for_each_target(
    record_of: RecordOf,
) -> None:
    page = summary(
        [
            record_of(variant="nothing", target="cpu:8"),
            record_of(variant="nothing", target="gpu-h100:8", verdict=Outcome.FAILED),
            record_of(variant="tie", target="gpu-h100:8", verdict=Outcome.KNOWN_DEFECT),
        ]
    )
    assert "## scan\\_offload / scan\\_stack\n\n| variant | cpu:8 | gpu-h100:8 |" in page
    assert "| nothing | passed | **FAILED** |" in page
    assert "| tie | · | known-defect |" in page


def test_a_failed_claim_is_explained_in_full(record_of: RecordOf) -> None:
    page = summary([record_of(verdict=Outcome.FAILED, measured=0, reason="too little")])
    assert "### FAILED · host-bytes · scan\\_offload/scan\\_stack/offload-hidden" in page
    assert "- measured: 0 B, limit 16.0 GiB" in page
    assert "- finding: too little" in page
    assert "- rerun: `pytest suites --assay-target gpu-h100:8 -k scan_stack/offload-hidden`" in page


def test_each_suite_tells_its_issue(record_of: RecordOf) -> None:
    issue = UpstreamIssue(
        problem="<b> fails", upstream=Upstream(link="https://x.org"), variants=("*",), claims=("*",)
    )
    page = summary([record_of()], invocation=Invocation(upstream_issues={"scan_offload": (issue,)}))
    assert "- **scan\\_offload**: 1 verdict: 1 passed\n" in page
    assert "\n  - today: \\<b\\> fails on 0 of 1 compiler (GPU 0 of 1).\n" in page
    assert "\n  - upstream: <https://x.org>\n" in page


def test_a_run_that_passed_all_needs_no_reader(record_of: RecordOf) -> None:
    page = summary([record_of()])
    assert "## Causes" not in page
    assert "## Other causes" not in page


def test_a_pipe_in_a_name_opens_no_column(record_of: RecordOf) -> None:
    page = summary([record_of(variant="a | b\nc")])
    (row,) = [line for line in page.splitlines() if "a \\| b c" in line]
    assert row == "| a \\| b c | passed |"


def test_a_reason_and_its_advice_are_no_markup(record_of: RecordOf) -> None:
    page = summary([record_of(verdict=Outcome.UNSUPPORTED, reason="a | b\nc", advice="<b>x</b>")])
    assert "- finding: a \\| b c\n- next: \\<b\\>x\\</b\\>\n" in page


def test_every_cause_names_its_workloads_and_variants(record_of: RecordOf) -> None:
    unjudged = {"verdict": Outcome.UNSUPPORTED, "reason": "no device", "measured": None}
    known = {"verdict": Outcome.KNOWN_DEFECT, "upstream": "https://example.org/1"}
    page = summary(
        [
            *(record_of(workload=f"w{number}", **unjudged) for number in range(5)),
            *(record_of(workload=name, variant="tie", **known) for name in ("block", "flax")),
        ]
    )
    assert "w0/offload-hidden, w1/offload-hidden, w2/offload-hidden and 2 more" in page
    assert "scan\\_offload/\\{block, flax\\}/tie" in page


def test_a_command_that_compares_hlo_stands_by_itself(record_of: RecordOf) -> None:
    advice = "compare the two programs: assay inspect a.hlo.pb.gz --diff b.hlo.pb.gz"
    page = summary([record_of(verdict=Outcome.FAILED, advice=advice)])
    assert "- next: compare the two programs\n" in page
    assert "- run: `assay inspect a.hlo.pb.gz --diff b.hlo.pb.gz`" in page


def test_an_upstream_that_is_no_link_is_text(record_of: RecordOf) -> None:
    for upstream, shown in {
        "https://example.org/1": "<https://example.org/1>",
        "javascript:x": "javascript:x",
        "https://x> <script>": "https://x\\> \\<script\\>",
    }.items():
        page = summary([record_of(verdict=Outcome.KNOWN_DEFECT, upstream=upstream)])
        assert f"- upstream: {shown}\n" in page


@given(st.text(), st.text())
def test_any_text_stays_in_its_cell(left: str, right: str) -> None:
    row = table(["a", "b"], [[escape(left), escape(right)]]).split("\n")[2:]
    assert len(row) == 1
    unescaped = row[0].replace("\\\\", "").replace("\\|", "")
    assert unescaped.count("|") == 3


def test_code_outgrows_the_backticks_in_it() -> None:
    assert code("a `b` c") == "``a `b` c``"
    assert code("`b`") == "`` `b` ``"
