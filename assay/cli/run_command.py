"""The command ``assay run``: the suites of this folder, or those of Assay, run by pytest."""

from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument

from assay.cli import completion
from assay.model.blame import WrongValue
from assay.model.verdict import ExitCode
from assay.store import shipped

_Arguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[SUITES… [-- PYTEST OPTIONS]]",
        help="Names of suites or paths, default: all suites; then pytest's options.",
        autocompletion=completion.suites,
    ),
]


def run(arguments: _Arguments = None) -> None:
    """Run suites by pytest: those of this folder, or without any those that come with Assay.

    Results are written to the folder results. Baselines are those of the suites.
    """
    from assay.cli.checkups import need_suites
    from assay.plugin.session import launch

    here = Path.cwd()
    home = shipped.home(here)
    if home is None:
        raise WrongValue(f"got {here} without suites, and Assay was installed without them")
    words = arguments or []
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    suites = shipped.paths(names, here) or [home / shipped.SUITES]
    options = shipped.pytest_options(suites)
    if options:
        if not names:
            need_suites()
        options += [f"--assay-results-dir={here / 'results'}"]
        options += [f"--assay-baselines-dir={home / shipped.BASELINES}"]
    code, _ = launch([*options, *map(str, suites), *words[len(names) :]])
    if options and code == ExitCode.MISUSE.value:  # A suite that could not be imported.
        need_suites()
    raise typer.Exit(code)
