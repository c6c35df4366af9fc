"""docs/stories: the plots are those of the records, and every story has one."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from assay.model.verdict import Outcome, Record
from assay.store import records
from benchmarks.story_gallery import FOLDER, Plot, drawing, matched, plots

PLOTS = plots()
EACH = pytest.mark.parametrize("plot", PLOTS, ids=lambda plot: plot.name)
STORIES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")


def kept(plot: Plot) -> tuple[Record, ...]:
    return records.load(plot.measured)


@EACH
def test_a_plot_is_that_of_its_records(plot: Plot) -> None:
    assert plot.drawn.read_text() == drawing(plot, kept(plot))


@EACH
def test_no_record_is_kept_that_no_bar_shows(plot: Plot) -> None:
    assert [record for _, record in matched(plot, kept(plot))] == list(kept(plot))


def test_each_file_belongs_to_one_plot() -> None:
    names = sorted(plot.name for plot in PLOTS)
    for folder in ("measured", "plots"):
        assert sorted(file.stem for file in (FOLDER / folder).iterdir()) == names


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_a_story_has_a_plot_and_leads_to_its_suite(story: Path) -> None:
    text = story.read_text()
    drawn = re.findall(r"\]\((\S+\.svg)\)", text)
    assert drawn
    assert all((FOLDER / link).is_file() for link in drawn)
    assert f"](../../suites/{story.stem}/README.md)" in text


def test_a_bar_without_a_record_is_refused() -> None:
    plot = PLOTS[0]
    with pytest.raises(LookupError, match="got no record of"):
        drawing(plot, kept(plot)[1:])


def test_a_known_defect_is_red_and_each_bar_has_its_number() -> None:
    plot = PLOTS[0]
    one = msgspec.structs.replace(plot, bars=plot.bars[:2])
    found = [
        replace(kept(plot)[0], measured=2**30),
        replace(kept(plot)[1], measured=2**31, verdict=Outcome.KNOWN_DEFECT),
    ]
    text = drawing(one, found)
    assert re.findall(r'<rect class="(passed|known-defect)".* width="([\d.]+)"', text) == [
        ("passed", "175.0"),
        ("known-defect", "350.0"),
    ]
    assert re.findall(r">([\d.]+ GiB)<", text) == ["1.0 GiB", "2.0 GiB"]
