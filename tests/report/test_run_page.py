"""``report.html``: what failed comes first, every verdict is there, and no text becomes markup."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.model.defect import Upstream, UpstreamState
from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.history import Change, Sample, SeriesName, Trend
from assay.model.timing import Times, VariantTimes
from assay.model.units import Unit
from assay.model.verdict import USUAL, BaselineNumber, Ending, Invocation, Outcome, Record
from assay.report.run_page import run_page
from tests.report.inspections import BUFFER, DEVICE, EVIDENCE, MODULE, PAIR, PEAK

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


def page_of(record_of: RecordOf, text: str) -> Read:
    """A page on which every text of a program, a message or a report is this one."""
    record = record_of(
        verdict=Outcome.FAILED, reason=text, advice=text, variant=text, suite=text, workload=text,
        claim=text, target=text, toolchain={text: text},
    )  # fmt: skip
    known = replace(record, verdict=Outcome.KNOWN_DEFECT, upstream=f"javascript:{text}")
    buffer = replace(BUFFER, name=text, line=text, nbytes=2**33)
    peak = replace(PEAK, at=text, line=text, buffers=(buffer,), levels=(1, 2))
    module = replace(MODULE, peak=peak, overlaps=(replace(PAIR, start=text),))
    seen = replace(EVIDENCE, suite=text, workload=text, variant=text, target=text, module=module)
    invocation = Invocation(command=(text,), environment={text: text})
    return Read(run_page([record, known], (), (), invocation, [seen], (), {text: DEVICE}))


@settings(max_examples=20)
@given(text=TEXT)
def test_no_text_of_a_program_becomes_markup(record_of: RecordOf, text: str) -> None:
    usual = page_of(record_of, "text")
    for hostile in (
        f"<script>{text}</script>",
        f'"><img src=x>{text}',
        f"'}}}}{{{{ 7 * 7 }}}}{text}",
    ):
        found = page_of(record_of, hostile)
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
    assert "Exit code 0: 1 passed." in text
    assert "Act on these" not in text


def test_a_variant_shows_its_memory_and_its_claims(record_of: RecordOf) -> None:
    text = Read(run_page([record_of()], programs=[OFFLOADED])).text
    assert "offload-hidden passed 3.0 GiB 16.0 GiB" in text
    assert "host-bytes passed : 16.0 GiB, limit 16.0 GiB" in text


def test_a_variant_without_measurements_shows_none(record_of: RecordOf) -> None:
    other = replace(OFFLOADED, variant="another")
    assert (
        "variant verdict offload-hidden passed offload-hidden"
        in Read(run_page([record_of()], programs=[other])).text
    )


def test_each_verdict_leads_to_its_details(record_of: RecordOf) -> None:
    found = [record_of(target=target, variant=v) for target in ("cpu:8", "tpu") for v in "ab"]
    page = Read(run_page(found))
    links = [link[1:] for link in page.links if link.startswith("#p")]
    assert len(set(links)) == 4
    assert set(links) <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))


@pytest.mark.parametrize(
    ("upstream", "words"),
    [
        (
            Upstream(link="l", state=UpstreamState.OPEN, opened="2023-04-05", seen="2026-11-25"),
            "open upstream; opened on 2023-04-05, 3 years 7 months ago; state read on 2026-11-25",
        ),
        (
            Upstream(
                link="l", state=UpstreamState.CLOSED, opened="2026-10-26", closed="2026-11-01"
            ),
            "closed upstream on 2026-11-01; opened on 2026-10-26 ",
        ),
        (Upstream(link="l", state=UpstreamState.UNREPORTED), "not reported upstream "),
    ],
)
def test_a_known_defect_has_the_state_and_age_of_its_report(
    record_of: RecordOf, upstream: Upstream, words: str
) -> None:
    invocation = Invocation(
        upstreams={"l": upstream}, environment={"started": "2026-11-25 03:31 UTC"}
    )
    known = record_of(verdict=Outcome.KNOWN_DEFECT, upstream="l")
    text = Read(run_page([known], invocation=invocation)).text
    assert f"in this run l {words}" in text
    assert "scan_offload: 1 verdict on 1 variant" in text


def test_the_machine_and_the_versions_are_told(record_of: RecordOf) -> None:
    invocation = Invocation(environment={"processor": "an EPYC", "cores": "2"})
    text = Read(run_page([record_of()], invocation=invocation)).text
    assert "processor an EPYC cores 2 jax 0.12.0 jaxlib 0.12.0" in text


def test_a_page_of_3000_verdicts_has_less_than_5_megabytes(record_of: RecordOf) -> None:
    buffers = tuple(replace(BUFFER, nbytes=2**30 + each) for each in range(5))
    levels = tuple(each * 7919 % 2**33 for each in range(200))
    module = replace(
        MODULE, peak=replace(PEAK, buffers=buffers, levels=levels), overlaps=(PAIR,) * 4
    )
    found, programs = [], []
    for number in range(1000):
        variant, suite = f"a-variant-with-a-name-{number}", f"suite-{number % 5}"
        found += [record_of(suite=suite, variant=variant, claim=f"claim-{n}") for n in range(3)]
        programs.append(replace(OFFLOADED, suite=suite, variant=variant, module=module))
    devices = {"gpu-h100:8": DEVICE}
    page = run_page(found, (), (), USUAL, programs, (), devices)
    assert page.count("at the peak") == 1000
    assert len(page.encode()) < 5_000_000


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
    assert 'stroke="var(--bad)"' not in page


def test_times_have_their_limit_or_the_stored_time(record_of: RecordOf) -> None:
    times = Times(
        suite="s",
        workload="w",
        target="cpu",
        question="q",
        limit=2.0,
        toolchain=Toolchain(versions={}),
        reference=VariantTimes(variant="slow", samples=(0.002, 0.003, 0.004)),
        judged=VariantTimes(variant="fast", samples=(0.001,)),
    )
    page = run_page([record_of()], [times])
    assert "fast 1 ms, 1 sample limit: 2 × slow" in Read(page).text
    assert page.count('stroke="var(--bad)"') == 1
    alone = replace(times, reference=VariantTimes(variant=""), limit=None)
    stored = record_of(
        suite="s",
        workload="w",
        variant="fast",
        target="cpu",
        unit=Unit.SECONDS,
        baseline=BaselineNumber(value=0.0005, toolchain={}),
    )
    assert "1 ms, 1 sample stored: 500 µs" in Read(run_page([stored], [alone])).text
    assert "stored:" not in Read(run_page([replace(stored, variant="b")], [alone])).text


def test_a_failure_leads_to_its_program_and_tells_since_when(record_of: RecordOf) -> None:
    failed = record_of(verdict=Outcome.FAILED)
    page = Read(run_page([record_of(variant="a"), failed]))
    assert page.links.count("#p1-1-1") == 3  # the title, the table of verdicts, that of its target
    assert "since no earlier run is known; add --assay-history=default" in page.text
    last = Sample(
        "r1", datetime(2026, 11, 1, tzinfo=UTC), Outcome.PASSED, 1.0, 2.0, "", {"jax": "1"}
    )
    now = last._replace(run="r2", verdict=Outcome.FAILED, toolchain={"jax": "2"})
    change = Change(last, now, (1.0, 2.0), (Outcome.PASSED, Outcome.FAILED))
    trend = Trend(
        name=SeriesName.of(failed), unit=Unit.BYTES, samples=(last, now), changes=(change,)
    )
    text = Read(run_page([replace(failed, run="r2")], history=[trend])).text
    assert (
        "since this run; last good run: r1 (2026-11-01 00:00 UTC); the toolchain changed: " in text
    )
    assert "16.0 GiB, was 1 B" in text


def test_a_page_says_how_each_target_was_judged(record_of: RecordOf) -> None:
    text = Read(run_page([record_of(), record_of(target="cpu:8", verdict=Outcome.FAILED)])).text
    assert "gpu-h100:8 compiled only 1 0 1" in text
    assert "cpu:8 compiled and run 1 1 0" in text
    assert "all 2 1 1" in text
    assert "compiled only the real compiler for this device ran" in text


def test_the_title_counts_causes_and_a_card_names_lines(record_of: RecordOf) -> None:
    failed = [record_of(verdict=Outcome.FAILED, claim=claim) for claim in ("a", "b")]
    seen = replace(OFFLOADED, module=replace(MODULE, peak=replace(PEAK, line="block.py:7")))
    text = Read(run_page(failed, programs=[seen])).text
    assert "The run fails, in 1 group" in text
    assert re.search("copies and peak [^ ]*.*block.py:7", text)
    silent = record_of(verdict=Outcome.ERROR, measured=None, limit=None, reason="")
    assert re.search(
        "copies and peak [^ ]*.*block.py:7", Read(run_page([silent], programs=[seen])).text
    )


def test_a_negative_control_that_fails_as_it_must_says_so(record_of: RecordOf) -> None:
    control = record_of(claim="host-bytes.negative-control", measured=1, limit=0)
    text = Read(run_page([record_of(), control])).text
    assert "passed : the check detects this program, which breaks the claim on purpose" in text
