"""The command ``assay run``: the suites of this folder, or those of Assay, run by pytest."""

import shlex
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument
from typer.core import TyperCommand

from assay.cli import completion
from assay.model.blame import WrongValue
from assay.store import shipped

_Arguments = Annotated[
    list[str] | None,
    Argument(
        metavar="[SUITES… [-- PYTEST OPTIONS]]",
        help="Names of suites or paths, default: all suites; then pytest's options.",
        autocompletion=completion.suites,
    ),
]

_FOLDERS = ("--assay-results-dir", "--assay-baselines-dir")


class BeforePytest(TyperCommand):
    """A command whose words after ``--`` are pytest's; its error for an unknown option says so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words without options. Raises WrongValue for an option that may be pytest's."""
        names = list(takewhile(lambda word: not word.startswith("-"), args)) or ["SUITES"]
        own = {name for each in self.get_params(ctx) for name in each.opts}
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # Of typer or of click, by typer's version.
            option = getattr(error, "option_name", None)
            is_near = bool(getattr(error, "possibilities", None))
            if not option or option in own or (is_near and not option.startswith("--assay-")):
                raise
            raise WrongValue(
                f"got {option} before --, wanted pytest's options after it: "
                f"{shlex.join(['assay', str(ctx.info_name), *names])} -- --assay-target cpu:8"
            ) from None


def _from(here: Path, word: str) -> str:
    """``--option=PATH`` with PATH relative to ``here``: pytest would take it from its root."""
    option, _, path = word.partition("=")
    return f"{option}={here / path}" if path and option in _FOLDERS else word


def run(arguments: _Arguments = None) -> None:
    """Run the suites of this folder. If it has none, run the suites that come with Assay.

    Results are written to the folder results. Baselines are those of the suites.
    """
    from assay.cli.checkups import need_suites
    from assay.plugin.session import FailedImports, launch

    here = Path.cwd()
    home = shipped.home(here)
    if home is None:
        raise WrongValue(f"got {here} without suites, and Assay was installed without them")
    words = [_from(here, word) for word in arguments or []]
    names = list(takewhile(lambda word: not word.startswith("-"), words))
    suites = shipped.paths(names, here) or [home / shipped.SUITES]
    options = shipped.pytest_options(suites)
    of_wheel, imports = bool(options), FailedImports()
    if of_wheel:
        if not names:
            need_suites()
        options += [f"--assay-baselines-dir={home / shipped.BASELINES}"]
    # pytest would write to its root, which is a folder above the suites.
    elsewhere = not all(each.resolve().is_relative_to(here.resolve()) for each in suites)
    if elsewhere and not any(word.partition("=")[0] == "--assay-resume" for word in words):
        options += [f"--assay-results-dir={here / 'results'}"]
    arguments = [*options, *map(str, suites), *words[len(names) :]]
    code, _ = launch(arguments, ("assay-imports", imports))
    if of_wheel and imports.any:
        need_suites()
    raise typer.Exit(code)
