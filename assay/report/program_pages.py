"""Inspected programs, and a bisection with its two programs, as HTML pages."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from assay.model.bisection import Bisection
from assay.model.inspection import Comparison, Inspection
from assay.report.html_page import render
from assay.report.inspection_output import Section, sections
from assay.report.labels import DASH, amount, plain
from assay.report.plot import plot, plot_schedule
from assay.report.regression import answer


class _Row(NamedTuple):
    version: str
    number: str
    why: str = "not measured"
    changed: bool = False


def bisection_page(
    found: Bisection,
    sides: Sequence[Inspection],
    differences: Sequence[str],
    *,
    command: str,
    issue: str,
) -> str:
    """The answer, the plot, every release, and both ``sides`` of the largest step.

    ``command`` repeats the bisection; ``issue`` is the text for the upstream project, or empty.
    """
    from markupsafe import Markup

    return render(
        "bisection.html",
        answer=[plain(line) for line in answer(found)],
        plot=Markup(plot(found)),  # noqa: S704 -- matplotlib escapes the texts of its SVG
        command=command,
        found=found,
        releases=list(_rows(found)),
        differences=differences,
        sides=[(each.subject, list(sections(each))) for each in sides],
        issue=issue,
    )


def _rows(found: Bisection) -> Iterator[_Row]:
    measured = {point.version: point for point in found.points}
    changed = {step.after.version for step in found.steps}
    for version in found.versions:
        if (point := measured.get(version)) is None:
            yield _Row(version, DASH)
            continue
        yield _Row(version, amount(point.number, found.unit), plain(point.why), version in changed)


class _Program(NamedTuple):
    title: str
    toolchain: str
    plot: str
    sections: Sequence[Section]


def inspection_page(inspected: Sequence[tuple[Inspection, Comparison | None]]) -> str:
    """The programs, each with its memory over the schedule, and all that the terminal shows."""
    return render("inspection.html", programs=[_program(*each) for each in inspected])


def _program(inspection: Inspection, comparison: Comparison | None) -> _Program:
    from markupsafe import Markup

    evidence = inspection.evidence
    peak = evidence.module.peak if evidence.module else None
    svg = plot_schedule(peak, evidence.device_memory_bytes) if peak and peak.levels else ""
    return _Program(
        title=inspection.title,
        toolchain=str(evidence.toolchain),
        plot=Markup(svg),  # noqa: S704 -- as above
        sections=list(sections(inspection, comparison)),
    )
