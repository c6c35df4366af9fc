"""The command ``assay doctor``: what works on this machine, what is missing, and what fixes it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text
from typer import Option

from assay.cli import completion
from assay.model.verdict import ExitCode
from assay.report.labels import plain, plain_json

if TYPE_CHECKING:
    from assay.cli.checkups import Checkup

_STYLES = {"ok": "green", "missing": "bold red", "optional": "dim", "note": "yellow"}
_Targets = Annotated[
    list[str] | None,
    Option(
        "--target",
        help="Only the compilers of this target; repeatable, or comma-separated. Default: all.",
        autocompletion=completion.targets,
    ),
]


def doctor(
    *,
    target: _Targets = None,
    results_dir: Annotated[Path, Option(help="The folder for results.")] = Path("results"),
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check what works on this machine, what is missing, and which command fixes it.

    Compiles a program for each target. Exit code 0: programs can be checked here; 1: a required
    part is missing.
    """
    # It loads the frameworks' and pytest's side of Assay, which no other command should wait for.
    from assay.cli.checkups import SUITES, State, checkups

    names = [name.strip() for text in target or () for name in text.split(",") if name.strip()]
    found: list[Checkup] = []
    console = Console()
    for each in checkups(names, results_dir):
        found.append(each)
        if not as_json:
            _print(console, each)
    missing = [each for each in found if each.state is State.MISSING]
    if as_json:
        typer.echo(plain_json(_json(found, works=not missing)))
    else:
        suites = all(each.state is State.OK for each in found if each.name == SUITES)
        console.print(_conclusion(missing, suites=suites), soft_wrap=True)
    raise typer.Exit((ExitCode.FAILED if missing else ExitCode.PASSED).value)


def _print(console: Console, checkup: "Checkup") -> None:
    line = Text.assemble(
        (f"{checkup.state.value:<9}", _STYLES[checkup.state.value]),
        f"{checkup.name:<18}",
        plain(checkup.found),
    )
    console.print(line, soft_wrap=True)
    if checkup.fix:
        console.print(Text(f"{'':<27}fix: {plain(checkup.fix)}", style="cyan"), soft_wrap=True)


def _conclusion(missing: Sequence["Checkup"], *, suites: bool) -> str:
    if missing:
        names = ", ".join(dict.fromkeys(each.name for each in missing))
        return f"Not everything works here (exit 1): {names}. Run the commands after 'fix:'."
    if not suites:
        return "Your own programs can be checked here (exit 0). The suites need: extra suites."
    return "Your own programs can be checked here, and the suites can run (exit 0)."


def _json(found: Sequence["Checkup"], *, works: bool) -> str:
    checks = [
        {"name": each.name, "state": each.state.value, "found": each.found, "fix": each.fix}
        for each in found
    ]
    return json.dumps({"works": works, "checks": checks}, indent=1)
