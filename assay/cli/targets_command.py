"""The command ``assay targets``: each target is live, compile-only or unavailable, and why."""

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from assay.cli.completion import targets as complete
from assay.model.target import Unavailable
from assay.model.units import format_bytes
from assay.report.labels import plain_json
from assay.targets import Target, prepare, survey

_Names = Annotated[
    list[str] | None,
    Argument(
        help="Only these targets; default: one topology of each model.", autocompletion=complete
    ),
]
_Thorough = Annotated[bool, Option("--check", help="Also compile a small program for each target.")]
_AsJson = Annotated[bool, Option("--json", help="Print one JSON array, with an object a target.")]


def targets(names: _Names = None, *, check: _Thorough = False, as_json: _AsJson = False) -> None:
    """List every target: live, compile-only or unavailable, and why."""
    surveyed = survey(names or (), thorough=False)
    if check:
        prepare(target.name for target, _ in surveyed)
        surveyed = survey(names or (), thorough=True)
    if as_json:
        typer.echo(plain_json(json.dumps(list(_rows(surveyed, check=check)), indent=1)))
        return
    table = Table("target", "state", "device memory", "why", box=None, pad_edge=False)
    for target, missing in surveyed:
        memory = format_bytes(target.model.memory_bytes) if target.model else ""
        style = {"live": "green", "compile-only": "cyan"}.get(
            state := _state(target, missing), "dim"
        )
        why = f"{missing.reason}; {missing.remedy}" if missing else ""
        table.add_row(str(target.name), f"[{style}]{state}[/]", memory, why)
    Console().print(table)


def _state(target: Target, missing: Unavailable | None) -> str:
    if missing:
        return "unavailable"
    return "live" if target.executes else "compile-only"


def _rows(
    surveyed: Iterable[tuple[Target, Unavailable | None]], *, check: bool
) -> Iterator[dict[str, Any]]:
    for target, missing in surveyed:
        # Only --check starts the framework, which lists the devices.
        found = target.devices() if check and target.executes and not missing else ()
        yield {
            "target": str(target.name),
            "state": _state(target, missing),
            "memory_bytes": target.model.memory_bytes if target.model else None,
            "devices": [device.device_kind for device in found],
            "why": missing.reason if missing else "",
            "fix": missing.remedy if missing else "",
        }
