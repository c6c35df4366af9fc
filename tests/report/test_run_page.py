"""``report.html``: what failed comes first, every verdict is there, and no text becomes markup."""

from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.timing import Times, VariantTimes
from assay.model.verdict import USUAL, Ending, Outcome, Record
from assay.report.run_page import run_page

RecordOf = Callable[..., Record]

TEXT = st.text(st.characters(codec="utf-8"))
VOID = {"br", "line", "link", "meta", "rect"}
OFFLOADED = Evidence(
    suite="scan_offload",
    workload="scan_stack",
    variant="offload-hidden",
    target="gpu-h100:8",
    toolchain=Toolchain(versions={}),
    memory=Memory(
        temp_bytes=3 * 2**30,
        argument_bytes=0,
        output_bytes=0,
        alias_bytes=0,
        host_temp_bytes=16 * 2**30,
    ),
)


class Read(HTMLParser):
    """A page's tags, links and text; a tag that is not closed in order is an error."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("href", "src")]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(" ".join(data.split()))

    @property
    def text(self) -> str:
        return " ".join(filter(None, self.texts))


@given(text=TEXT)
def test_no_text_of_a_program_becomes_markup(record_of: RecordOf, text: str) -> None:
    usual = Read(run_page([record_of(verdict=Outcome.FAILED, reason="why", advice="fix")]))
    hostile = record_of(
        verdict=Outcome.FAILED,
        reason=f"<script>{text}</script>",
        advice=f'"><img src=x>{text}',
        variant="a<b>c",
        suite="s&<i>",
    )
    found = Read(run_page([hostile]))
    assert found.tags == usual.tags
    assert found.links == usual.links


def test_a_page_needs_no_script_and_no_other_file(record_of: RecordOf) -> None:
    page = Read(run_page([record_of(verdict=Outcome.KNOWN_DEFECT, upstream="https://x/1")]))
    assert not {"script", "img", "iframe", "link"} & set(page.tags)
    assert {link for link in page.links if not link.startswith("#")} == {"https://x/1"}
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


def test_what_failed_stands_before_all_suites(record_of: RecordOf) -> None:
    passed, failed = record_of(), record_of(variant="lost", verdict=Outcome.FAILED, reason="why")
    text = Read(run_page([passed, failed])).text
    assert text.index("The run fails") < text.index("why") < text.index("Verdicts by suite")
    assert "pytest suites --assay-target gpu-h100:8 -k scan_stack/lost" in text


def test_a_run_that_judged_nothing_says_what_to_act_on(record_of: RecordOf) -> None:
    unjudged = record_of(verdict=Outcome.UNSUPPORTED, reason="no device", advice="find one")
    text = Read(run_page([unjudged])).text
    assert text.index("Act on these") < text.index("find one") < text.index("Verdicts by suite")
    assert "Not judged" not in text


def test_a_run_that_passed_asks_for_nothing(record_of: RecordOf) -> None:
    text = Read(run_page([record_of()])).text
    assert "Nothing regressed (exit 0): 1 passed." in text
    assert "Act on these" not in text


def test_a_variant_shows_its_memory_and_its_claims(record_of: RecordOf) -> None:
    text = Read(run_page([record_of()], programs=[OFFLOADED])).text
    assert "offload-hidden passed 3.0 GiB 16.0 GiB" in text
    assert "host-bytes passed : 16.0 GiB, limit 16.0 GiB" in text


def test_a_variant_without_measurements_shows_none(record_of: RecordOf) -> None:
    other = replace(OFFLOADED, variant="another")
    assert "offload-hidden passed – – –" in Read(run_page([record_of()], programs=[other])).text


def test_a_lost_item_and_missing_coverage_are_told(record_of: RecordOf) -> None:
    ending = Ending(lost=("test_x[w/v@cpu]",), coverage="1 of 2 expected verdicts judged")
    text = Read(run_page([record_of()], invocation=replace(USUAL, ending=ending))).text
    assert "1 item reached no verdict" in text
    assert "coverage: 1 of 2 expected verdicts judged" in text


def test_times_are_boxes_on_one_scale(record_of: RecordOf) -> None:
    times = Times(
        suite="s",
        workload="w",
        target="cpu",
        question="q",
        toolchain=Toolchain(versions={}),
        reference=VariantTimes(variant="slow", samples=(0.002, 0.003, 0.004)),
        judged=VariantTimes(variant="fast", samples=(0.001,)),
    )
    page = run_page([record_of()], [times])
    text = Read(page).text
    assert "slow 3 ms, 3 samples" in text
    assert "fast 1 ms, 1 samples" not in text
    assert "fast 1 ms, 1 sample" in text
    assert page.count("<svg") == 2
