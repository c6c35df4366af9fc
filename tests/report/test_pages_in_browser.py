"""Pages look right in headless Chromium: wide and narrow, light and dark, folded and opened."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.model.defect import RemedyEffect, Upstream, UpstreamIssue, UpstreamState
from assay.model.evidence import Evidence
from assay.model.timing import Machine, Times, VariantTimes
from assay.model.units import Unit
from assay.model.verdict import BaselineNumber, Ending, Invocation, Missing, Outcome, Record
from assay.report.html_page import render
from assay.report.program_pages import inspection_page
from assay.report.run_page import run_page
from assay.store import records
from tests.report.browser import Scheme, faults, launched, pictures
from tests.report.inspections import DEVICE, EVIDENCE, GIB, INSPECTION, MIB, PEAK, module

ROOT = Path(__file__).parents[2]
LINK = "https://github.com/openxla/xla/issues/17541"
LOOKS: list[tuple[int, Scheme]] = [
    (1280, "light"),
    (1280, "dark"),
    (390, "light"),
    (390, "dark"),
]
LONG = "a_name_" * 30


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started


SCHEDULED = module(peak=replace(PEAK, levels=tuple(range(0, 5 * GIB, GIB // 10))))


def a_run(record_of: Callable[..., Record]) -> str:
    """A page with something in every section, and names that are far too long."""
    baseline = BaselineNumber(value=2**30, toolchain={"jax": "0.10.2", "jaxlib": "0.10.2"})
    found = [
        record_of(),
        record_of(variant=LONG, verdict=Outcome.FAILED, baseline=baseline, reason=f"{LONG}: why"),
        record_of(target="cpu:8", verdict=Outcome.UNSUPPORTED, reason="one memory", measured=None),
        record_of(variant="lost", verdict=Outcome.KNOWN_DEFECT, upstream=LINK, reason="dropped"),
        record_of(variant="quick", verdict=Outcome.IMPROVED, baseline=baseline),
        record_of(
            suite="times",
            claim="baseline-time",
            unit=Unit.SECONDS,
            measured=0.002,
            limit=0.001,
            baseline=replace(baseline, value=0.0015),
        ),
    ]
    upstream = Upstream(
        link=LINK, state=UpstreamState.CLOSED, opened="2024-09-24", seen="2026-11-25"
    )
    issue = UpstreamIssue(
        problem="An offload is ignored",
        upstream=upstream,
        variants=("lost",),
        claims=("host-bytes",),
        remedy="Name the value at the block's input",
        effects=(
            RemedyEffect(
                quantity="host memory",
                workload="scan_stack",
                claim="host-bytes",
                without="lost",
                remedied="offload-hidden",
            ),
        ),
    )
    invocation = Invocation(
        ending=Ending(
            coverage="5 of 6 expected verdicts judged",
            missing=(Missing(target="cpu:8", reason=f"{LONG} is missing"),),
        ),
        upstream_issues={"scan_offload": (issue,)},
        upstreams={LINK: upstream},
        uncontrolled=("test_x",),
        environment={"processor": "one of 2 cores", "started": "2026-11-25 03:31 UTC"},
    )
    of_run = {"suite": "scan_offload", "workload": "scan_stack", "target": "gpu-h100:8"}
    measured = replace(SCHEDULED.evidence, **of_run)
    programs = [replace(measured, variant=variant) for variant in ("offload-hidden", "lost", LONG)]
    programs += [
        sized(measured, name, size) for name in ("plain", "kept") for size in (128, 1024, 4096)
    ]
    times = Times(
        suite="times",
        workload="scan_stack",
        target="gpu-h100:8",
        question="alone",
        toolchain=EVIDENCE.toolchain,
        reference=VariantTimes(variant=""),
        judged=VariantTimes(variant="offload-hidden", samples=(0.001, 0.002, 0.004)),
        machine=Machine(cpu="a", cores=2, device="cpu"),
    )
    pair = replace(times, limit=2.0, reference=VariantTimes(variant="plain", samples=(0.001,) * 9))
    return run_page(found, [times, pair], (), invocation, programs, (), {"gpu-h100:8": DEVICE})


def sized(evidence: Evidence, name: str, size: int) -> Evidence:
    """The program at a size; one of them needs the same at each."""
    assert evidence.memory
    grown = MIB * (size if name == "plain" else 100)
    memory = replace(evidence.memory, temp_bytes=grown)
    return replace(evidence, variant=f"{name}-at-{size}", size=size, memory=memory)


PAGES: dict[str, Callable[[Callable[..., Record]], str]] = {
    "run": a_run,
    "inspection": lambda _: inspection_page([(SCHEDULED, None), (INSPECTION, None)]),
}


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_wide_and_narrow_light_and_dark(
    browser: Any,
    tmp_path: Path,
    record_of: Callable[..., Record],
    name: str,
    width: int,
    scheme: Scheme,
) -> None:
    page = tmp_path / f"{name}.html"
    page.write_text(PAGES[name](record_of))
    picture = pictures(tmp_path, f"{name}-{width}-{scheme}")
    assert faults(browser, page, width, scheme, picture) == []
    assert picture.stat().st_size > 10_000


_SCROLLING = """
() => [...document.querySelectorAll("details")].map((each) => each.open = true) && [
  ...document.querySelectorAll(".wide")].filter((each) =>
  each.querySelector(".stack") && each.scrollWidth > each.clientWidth).map((each) =>
  each.getAttribute("aria-label") || each.getAttribute("aria-labelledby"))
"""


def test_a_narrow_page_hides_no_column_and_no_command(
    browser: Any, tmp_path: Path, record_of: Callable[..., Record]
) -> None:
    page = tmp_path / "run.html"
    page.write_text(a_run(record_of))
    tab = browser.new_page(viewport={"width": 390, "height": 900})
    tab.goto(page.as_uri())
    assert tab.locator(".stack").count() > 3
    assert tab.evaluate(_SCROLLING) == []
    command = tab.locator("dd > pre").first
    assert command.evaluate("each => each.scrollWidth <= each.clientWidth")
    tab.close()


BROKEN = {
    "the document is": '<p style="width:3000px">too wide</p>',
    "on paper: the document is": "<style>@media print { p { width: 800px } }</style><p>a</p>",
    "cut: P": '<p style="width:5rem;white-space:nowrap;overflow:hidden">more than fits here</p>',
    "outside of its plot": '<svg width="50" height="20"><text x="20" y="15">too long</text></svg>',
    "axe: color-contrast": '<p style="color:#ddd;background:#fff">hardly to be seen</p>',
    "axe: link-name": '<a href="#x"></a>',
    "console: bad": "<script>console.error('bad')</script>",
    "error: gone": "<script>throw new Error('gone')</script>",
    "request: http": '<img alt="x" src="http://127.0.0.1:9/x.png">',
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_of_a_page_is_found(browser: Any, tmp_path: Path, fault: str) -> None:
    page = tmp_path / "broken.html"
    whole = render("page.html")
    page.write_text(whole.replace("</body>", f"<main>{BROKEN[fault]}</main></body>"))
    found = faults(browser, page, 390, "light", tmp_path / "broken.png")
    assert any(each.startswith(fault) for each in found), found


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of two suites on a CPU and for a GPU."""
    results = tmp_path_factory.mktemp("results")
    command = (
        "-m",
        "pytest",
        "-q",
        "suites/scan_offload",
        "suites/dus_remat",
        "-p",
        "no:cacheprovider",
        "-k",
        "block-full and (nothing or residual-input) or stack-executed and reshape and not read",
        "--assay-target",
        "cpu:8,gpu-h100:8",
        f"--assay-results-dir={results}",
    )
    ended = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-3000:]
    assert len(records.load(results / "latest")) > 30
    return results / "latest" / "report.html"


@pytest.mark.exhaustive
@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_page_of_a_run_is_whole(
    browser: Any, tmp_path: Path, real: Path, width: int, scheme: Scheme
) -> None:
    picture = pictures(tmp_path, f"real-{width}-{scheme}")
    assert faults(browser, real.resolve(), width, scheme, picture) == []
