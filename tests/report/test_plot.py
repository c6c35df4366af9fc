"""Plots: same bytes, real text, the reader's colours, and nothing left out."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree as ET

import matplotlib as mpl
import pytest

from assay.model.bisection import Bisection, Point, Step
from assay.model.summary import Peak
from assay.model.units import Unit
from assay.report.plot import Series, plot, plot_schedule, plot_series
from assay.report.regression import sentence

SVG = "{http://www.w3.org/2000/svg}"
MIB = 2**20


def bisection(numbers: list[float | None], unit: Unit = Unit.BYTES) -> Bisection:
    """Releases 0.1.0, 0.2.0, … of which those without a number are broken."""
    points = tuple(
        Point(version=f"0.{minor}.0", number=number, why="" if number is not None else "broken")
        for minor, number in enumerate(numbers, 1)
    )
    known = [point for point in points if point.number is not None]
    found = [Step(before=old, after=new) for old, new in pairwise(known)]
    return Bisection(
        subject="dus.py:$f$ <&>\x1b[0m",
        target="cpu",
        component="jax",
        metric="loop_copies",
        unit=unit,
        good="0.1.0",
        bad=points[-1].version,
        versions=tuple(point.version for point in points),
        points=points,
        steps=tuple(step for step in found if step.size),
    )


def texts(svg: str, tag: str = "text") -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}{tag}")]


STEP = bisection([1.5 * MIB, None, 1.5 * MIB, 3 * MIB])


def test_releases_numbers_and_steps_are_text() -> None:
    shown = texts(plot(STEP))
    assert {"0.1.0", "0.2.0", "0.3.0", "0.4.0", "no number"} <= set(shown)
    assert "loop_copies [MiB]" in shown
    assert "0.4.0: 1.5 MiB → 3.0 MiB" in shown
    assert any("dus.py:$f$ <&>" in text for text in shown)


def test_its_title_is_the_answer() -> None:
    svg = plot(STEP)
    assert ET.fromstring(svg).get("role") == "img"
    assert [text.replace("\ufffd", "\x1b") for text in texts(svg, "title")] == [sentence(STEP)]


def test_the_same_bisection_gives_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    first = plot(STEP)
    monkeypatch.setitem(mpl.rcParams, "font.size", 30)
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "path")
    assert plot(STEP) == first
    assert not re.search(r"20\d\d-\d\d-\d\d|Matplotlib v", first)
    assert plot(bisection([1.0, 2.0])) != first


def test_every_colour_follows_the_scheme_of_the_reader() -> None:
    svg = plot(STEP)
    rules = "".join(texts(svg, "style"))
    drawn = svg.replace(rules, "")
    used = set(re.findall(r"(?:fill|stroke): ([^;\"]+)", drawn)) - {"none"}
    assert used == {f"var(--{role})" for role in ("paper", "ink", "faint", "line", "step")}
    for colour in used:
        assert rules.count(colour[len("var(") : -1] + ":#") == 2, "light and dark"


def test_numbers_that_are_all_zero_or_missing_are_drawn() -> None:
    assert "0.2.0" in texts(plot(bisection([0.0, 0.0])))
    assert "no number" in texts(plot(bisection([None, None])))


def test_a_release_that_was_not_measured_has_its_place() -> None:
    known = bisection([1.0, 1.0, 2.0], Unit.RATIO)
    gap = replace(known, points=(known.points[0], known.points[2]), steps=())
    assert texts(plot(gap))[:3] == ["0.1.0", "0.2.0", "0.3.0"]
    assert "stroke-dasharray" in plot(gap)
    assert "stroke-dasharray" not in plot(bisection([1.0, 1.0, 1.0]))


def test_reports_load_no_matplotlib_until_they_plot() -> None:
    program = "import assay.cli, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_schedule_shows_its_peak_and_the_devices_memory_if_near() -> None:
    peak = Peak(nbytes=3 * MIB, at="dot.1", line="<&>.py:2", buffers=(), levels=(MIB, 3 * MIB, 0))
    near, far = (texts(plot_schedule(peak, capacity)) for capacity in (4 * MIB, 400 * MIB))
    title = "Device memory over the schedule: 3.0 MiB at most at dot.1 (<&>.py:2)"
    assert title in near
    assert title in far
    assert "bytes alive [MiB]" in near
    assert "memory of the device: 4.0 MiB" in near
    assert not any("memory of the device" in text for text in far)
    assert plot_schedule(peak, None) == plot_schedule(peak, None)


def test_a_line_for_each_name_over_the_sizes() -> None:
    line = [(10, MIB), (100, 10 * MIB), (1000, 0)]
    series = Series(title="of <&>", unit=Unit.BYTES, lines={"a <&>": line, "b": line[:1]})
    svg = plot_series(series)
    shown = texts(svg)
    assert {"a <&>", "b", "of <&>", "0 B", "10", "100", "1,000"} <= set(shown)
    assert not any("$" in text for text in shown)
    assert plot_series(series) == svg
    assert plot_series(series._replace(lines={"a <&>": line[:2]})) != svg
