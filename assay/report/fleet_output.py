"""The machines of a fleet side by side: a table on the terminal, and a page."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from rich.console import Console

from assay.model.fleet import Deviation, Machine
from assay.model.timing import Change
from assay.model.verdict import ExitCode, Record
from assay.report.html_page import render
from assay.report.labels import DASH, Styled, amount, name_of, plural
from assay.report.terminal import Page, table_of

_HEAD = ("machine", "verdicts", "exit", "times", "interval", "")
_SHOWN = 5


def print_machines(console: Console, machines: Sequence[Machine], folder: Path) -> None:
    """Write a row for each machine, then what makes a machine odd."""
    page = Page(console)
    rows: list[tuple[Styled, ...]] = [
        (*_cells(each), (_state(each), "red" if each.exit_code.value else "green"))
        for each in machines
    ]
    page.table(table_of(_HEAD, rows, shorten=False))
    for line in reasons(machines):
        page.text(line, indent=2)
    page.text((headline(machines), "bold red" if code_of(machines).value else "bold green"))
    page.line(f"runs: {folder}")


def machines_page(machines: Sequence[Machine]) -> str:
    """The machines as one HTML page, which links the page of each machine's run."""
    rows = [
        {
            "cells": _cells(each),
            "page": f"{quote(each.run.folder)}/report.html" if each.run.records else "",
            "state": _state(each),
            "tone": "bad" if each.exit_code.value else "good",
        }
        for each in machines
    ]
    return render(
        "fleet.html",
        rows=rows,
        head=_HEAD,
        code=code_of(machines).value,
        reasons=list(reasons(machines)),
        headline=headline(machines),
    )


def code_of(machines: Sequence[Machine]) -> ExitCode:
    """The worst exit code of the machines."""
    return max((each.exit_code for each in machines), key=lambda code: code.value)


def headline(machines: Sequence[Machine]) -> str:
    """One sentence on all machines."""
    lost = [each.run.name for each in machines if each.run.exit_code is None]
    odd = [each.run.name for each in machines if each.is_odd]
    ended = [each.run for each in machines if each.run.exit_code is not None]
    failed = [run.name for run in ended if run.exit_code is not ExitCode.PASSED]
    parts = [
        f"{plural(len(names), 'machine')} {what}: {', '.join(names)}"
        for names, what in (
            (odd, "unlike the fleet"),
            (failed, "with a run that failed"),
            (lost, "inconclusive"),
        )
        if names
    ]
    summary = "; ".join(parts) or "none is unlike the others"
    return f"{plural(len(machines), 'machine')}: {summary} (exit {code_of(machines).value})."


def reasons(machines: Sequence[Machine]) -> Iterator[str]:
    """Why a machine is odd, or why its run did not end; of many deviations, the first five."""
    for each in machines:
        name = each.run.name
        if each.run.exit_code is None:
            yield f"{name}: inconclusive: {each.run.why}"
        if each.ratio and each.ratio.change in (Change.SLOWER, Change.FASTER):
            how = each.ratio.change.phrase
            yield f"{name}: {how} than the fleet: {_times(each)} of its times ({_interval(each)})"
        for deviation in each.deviations[:_SHOWN]:
            yield f"{name}: {_deviation(deviation)}"
        if (more := len(each.deviations) - _SHOWN) > 0:
            yield f"{name}: {more} more deviations"


def _deviation(deviation: Deviation) -> str:
    record, usual = deviation.record, deviation.usual
    what = f"{record.claim} of {record.workload}/{record.variant} on {record.target}"
    fleet = f"the fleet has {_value(usual)}" if usual else "the machines disagree, without majority"
    return f"{what} is {_value(record)}; {fleet}"


def _value(record: Record) -> str:
    number = "" if record.measured is None else f", {amount(record.measured, record.unit)}"
    return f"{name_of(record.verdict)}{number}"


def _cells(machine: Machine) -> tuple[str, ...]:
    code = machine.run.exit_code
    counted = f"{len(machine.run.records):,}"
    ended = DASH if code is None else str(code.value)
    return (machine.run.name, counted, ended, _times(machine), _interval(machine))


def _times(machine: Machine) -> str:
    return f"{machine.ratio.ratio:.3f}" if machine.ratio else DASH


def _interval(machine: Machine) -> str:
    found = machine.ratio
    if found is None:
        return DASH
    return f"{found.low:.3f} to {found.high:.3f}, {plural(found.units, 'program')}"


def _state(machine: Machine) -> str:
    if machine.run.exit_code is None:
        return "inconclusive"
    if machine.is_odd:
        return "unlike the fleet"
    noisy = machine.ratio is not None and machine.ratio.change is Change.TOO_NOISY
    return Change.TOO_NOISY.phrase if noisy else "like the fleet"
