"""HTML pages of programs need no other file and no script, and no text can break them."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from jinja2 import UndefinedError

from assay.model.bisection import Bisection, Point, Step
from assay.model.evidence import Failure, FailureKind
from assay.model.units import Unit
from assay.report.html_page import render
from assay.report.program_pages import bisection_page, inspection_page
from tests.report.inspections import GIB, INSPECTION, PEAK, module, seen

HOSTILE = "f<script>alert(1)</script>&{{ 7 * 7 }}"
POINTS = (
    Point(version="0.1.0", number=1024.0),
    Point(version="0.2.0", why=f"does not compile: {HOSTILE}"),
    Point(version="0.4.0", number=4096.0),
)
FOUND = Bisection(
    subject=HOSTILE,
    target="gpu-h100:8",
    component="jax",
    metric="temp_bytes",
    unit=Unit.BYTES,
    good="0.1.0",
    bad="0.4.0",
    versions=("0.1.0", "0.2.0", "0.3.0", "0.4.0"),
    points=POINTS,
    steps=(Step(before=POINTS[0], after=POINTS[2], skipped=POINTS[1:2], unmeasured=1),),
)


class Reader(HTMLParser):
    """What a browser would see: tags with attributes, and texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def page() -> str:
    return bisection_page(
        FOUND,
        (replace(INSPECTION, subject=f"{HOSTILE} with jax 0.1.0"), INSPECTION),
        [f"copy of {HOSTILE} is new"],
        command=f"assay bisect '{HOSTILE}'",
        issue=f"# {HOSTILE}",
    )


def test_every_text_is_a_text_whatever_it_holds() -> None:
    read = Reader(page())
    assert not read.open
    assert "script" not in {tag for tag, _ in read.tags}
    shown = "".join(read.texts)
    for words in ("copy of {} is new", "assay bisect '{}'", "# {}", "{} with jax 0.1.0"):
        assert words.format(HOSTILE) in shown
    assert f"does not compile: {HOSTILE}" in shown


def test_it_loads_nothing_else() -> None:
    read = Reader(page())
    linked = [
        value
        for _, attributes in read.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href") and not (value or "").startswith("#")
    ]
    assert linked == []
    assert not re.search(r"@import|url\((?!#)", page())


def test_it_reads_on_a_phone_and_in_the_dark() -> None:
    read = Reader(page())
    metas = [attributes for tag, attributes in read.tags if tag == "meta"]
    assert any(each.get("name") == "viewport" for each in metas)
    style = page()
    defined = set(re.findall(r"(--[\w]+):", style))
    assert set(re.findall(r"var\((--[\w]+)\)", style)) <= defined
    for name in defined:
        assert len(re.findall(rf"{name}: ?#", style)) % 2 == 0, f"{name}: light and dark"


def test_each_release_has_a_row_with_its_number_or_the_reason() -> None:
    text = " ".join(" ".join(Reader(page()).texts).split())
    assert "0.1.0 1.0 KiB" in text
    assert "0.2.0 – does not compile" in text
    assert "0.3.0 – not measured" in text
    assert "0.4.0 4.0 KiB changed" in text


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("bisection.html")


def test_an_inspected_program_has_its_schedule_and_all_sections() -> None:
    inspected = module(peak=replace(PEAK, levels=(GIB, 5 * GIB)))
    shown = Reader(inspection_page([(inspected, None)]))
    text = " ".join(shown.texts)
    assert not shown.open
    assert "Device memory over the schedule: 5.0 GiB at most at fusion.3" in text
    for title in ("MEMORY", "TRANSFERS", "COPIES", "OVERLAP", "ALIVE AT THE PEAK", "DONATION"):
        assert title in text


def test_a_program_that_did_not_compile_shows_the_error_alone() -> None:
    failure = Failure(kind=FailureKind.COMPILER, message=HOSTILE)
    failed = seen(failure=failure, memory=None, module=None)
    shown = Reader(inspection_page([(failed, None)]))
    assert HOSTILE in " ".join(shown.texts)
    assert "svg" not in {tag for tag, _ in shown.tags}
