"""The command ``assay history``: show a claim over the runs of a database, or add runs to it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from assay.cli import completion
from assay.model.blame import WrongValue
from assay.model.collector import collector_off
from assay.model.history import HistoryError, SeriesName, Trend
from assay.model.suggestion import wanted_one_of
from assay.model.verdict import ExitCode, Record
from assay.model.workload import matches_any
from assay.store import records

if TYPE_CHECKING:
    from assay.store.history import History

_NAME_PARTS = 4
_Patterns = list[str] | None
_Claim = Annotated[
    str,
    Argument(
        help="A claim, or suite/workload/variant/claim; * matches any text.",
        autocompletion=completion.claims,
    ),
]
_Add = Annotated[
    list[Path] | None,
    Option("--add", help="Add this run, or each run in this folder; repeatable."),
]
_Targets = Annotated[
    _Patterns,
    Option(
        "--target",
        help="Only this target; repeatable, * works.",
        autocompletion=completion.targets,
    ),
]
_Database = Annotated[
    str,
    Option(
        "--db",
        metavar="URL",
        help="A file, sqlite:///FILE or postgresql://USER@HOST/NAME; default: $ASSAY_HISTORY, or "
        "a file in the user's data folder.",
    ),
]
_Verbose = Annotated[bool, Option("-v", "--verbose", help="Also show series without changes.")]


def history(
    claim: _Claim = "",
    *,
    add: _Add = None,
    target: _Targets = None,
    db: _Database = "default",
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    verbose: _Verbose = False,
) -> None:
    """Show a claim over all runs of a database: its numbers, verdicts, and when they changed."""
    from assay.report.labels import plain
    from assay.store.history import opened

    if not (claim or add):
        raise WrongValue("got no CLAIM, wanted one, such as temp-bytes, or --add RUN")
    # The samples of a long history live to the end. To look for garbage among them took 40 % of
    # the time of reading them.
    with collector_off():
        code = ExitCode.PASSED
        with opened(db, to_read=not add) as database:
            for run in _runs(add or ()):
                try:
                    _add_run(database, run)
                except (HistoryError, records.RecordsError) as error:
                    typer.echo(plain(f"assay: {error}"), err=True)
                    code = ExitCode.MISUSE
            trends = _trends(database, claim, target or ()) if claim else ()
        if claim:
            _show(trends, as_json=as_json, verbose=verbose)
    raise typer.Exit(code.value)


def _show(trends: Sequence[Trend], *, as_json: bool, verbose: bool) -> None:
    from assay.report.history_output import history_json, print_history
    from assay.report.labels import plain_json

    if as_json:
        typer.echo(plain_json(history_json(trends)))
    else:
        print_history(Console(), trends, verbose=verbose)


def _runs(given: Sequence[Path]) -> Iterator[Path]:
    """The runs that are named, and those in folders that are named."""
    for path in given:
        if path.is_dir() and not (path / records.FILE_NAME).exists():
            inside = sorted(each.parent for each in path.glob(f"*/{records.FILE_NAME}"))
            # ``latest`` is a link to a run of the same folder.
            runs = [each for each in inside if not each.is_symlink()]
            if not runs:
                raise WrongValue(
                    f"got --add {path} without a run, wanted a run or a folder of runs"
                )
            yield from runs
        else:
            yield path


def _add_run(database: "History", run: Path) -> None:
    from assay.report.history_output import added_line
    from assay.report.labels import plain

    folder = run if run.is_dir() else run.parent
    line = added_line(database.add(run), records.invocation_of(folder).ending)
    typer.echo(plain(line), err=True)


def _trends(database: "History", claim: str, targets: Sequence[str]) -> tuple[Trend, ...]:
    from assay.stats.trends import with_changes

    if found := database.trends(_selection(claim, targets)):
        return with_changes(found)
    names = [name for name, _ in database.series().values()]
    if not names:
        raise WrongValue(
            f"got {database.place} without runs, wanted some; add a run with --add results/latest"
        )
    # If the claim has series on other targets, the target is wrong.
    on_any = sorted({name.target for name in names if _selection(claim, ())(name)})
    if targets and on_any:
        raise WrongValue(
            f"got --target {', '.join(targets)} for {claim}, which matches no series, "
            f"{wanted_one_of(targets[0], on_any)}"
        )
    known = sorted({name.claim for name in names})
    raise WrongValue(f"got {claim}, which matches no series, {wanted_one_of(claim, known)}")


def _selection(claim: str, targets: Sequence[str]) -> Callable[[SeriesName], bool]:
    """Whether a series matches the claim, or each part of its name, and a target."""
    parts = claim.split("/")
    if len(parts) not in (1, _NAME_PARTS):
        raise WrongValue(f"got {claim!r}, wanted a claim, or suite/workload/variant/claim")

    def matches(name: SeriesName) -> bool:
        own = name[:_NAME_PARTS][-len(parts) :]
        named = all(matches_any(text, (part,)) for text, part in zip(own, parts, strict=True))
        return named and (not targets or matches_any(name.target, targets))

    return matches


def trends_of(text: str, seen: Sequence[Record]) -> tuple[Trend, ...]:
    """The series of a run over the newest runs of the database, with their changes."""
    from assay.stats.trends import with_changes
    from assay.store.history import opened

    with opened(text, to_read=True) as database:
        return with_changes(database.trends_of(seen))
