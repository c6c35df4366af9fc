"""The command line: a function for each command of ``assay``."""

import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from assay.cli import completion
from assay.cli.bisect_command import bisect_releases
from assay.cli.doctor_command import doctor
from assay.cli.examples import epilog, told
from assay.cli.fleet_command import fleet
from assay.cli.history_command import history, trends_of
from assay.cli.matrix_command import matrix
from assay.cli.outputs import check_outputs
from assay.cli.qualify_command import qualify_target
from assay.cli.run_command import BeforePytest, run
from assay.cli.targets_command import targets
from assay.judge.differences.inspections import compare
from assay.model.blame import UsersFault, WrongValue
from assay.model.history import HistoryError, Trend
from assay.model.inspection import Comparison, Inspection
from assay.model.suggestion import wanted_one_of
from assay.model.target import TargetError
from assay.model.units import format_bytes
from assay.model.verdict import ExitCode, Invocation, Record
from assay.report.formats import Format, formatted
from assay.report.inspection_json import to_json as inspection_json
from assay.report.inspection_output import print_inspection
from assay.report.labels import SIMILAR, plain, plain_json
from assay.report.program_pages import inspection_page
from assay.report.run_page import run_page
from assay.report.summary import measured_table
from assay.report.terminal import print_run
from assay.store import certificate, evidence, records
from assay.store.files import write_whole
from assay.targets import models_of

_INTERRUPTED = 130
app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Check what XLA compilers emit for GPU, TPU and CPU, without the hardware.",
)
_MISUSE = (
    *(TargetError, UsersFault, HistoryError),
    *(records.RecordsError, certificate.CertificateError),
)

_Subject = Annotated[
    str, Argument(help="FILE.py:FUNCTION, or an HLO or StableHLO file (text or proto).")
]
_Targets = Annotated[
    list[str] | None,
    Option(
        "--target",
        help="Target to compile for; repeatable, or comma-separated. Default: cpu; "
        "none for a file that is compiled already.",
        autocompletion=completion.targets,
    ),
]
_AsJson = Annotated[bool, Option("--json", help="Print one JSON object.")]
_Compile = Annotated[
    bool, Option("--compile", help="Compile the module of a file, also if it is already compiled.")
]
_AsIs = Annotated[bool, Option("--as-is", help="Read the module of a file without compiling it.")]
_Donate = Annotated[
    str,
    Option(
        help="Numbers of the arguments that FUNCTION donates (0,1), as donate_argnums of "
        "assay.compile; with --diff, those of both functions."
    ),
]
_Timeout = Annotated[
    float, Option("--compile-timeout", min=1, help="Time limit of one compilation, in seconds.")
]
_Workload = Annotated[
    str, Option(help="Print only the numbers of this workload, as a Markdown table.")
]
_Claims = Annotated[
    str,
    Option(help="Claims for --workload, comma-separated.", autocompletion=completion.claims),
]
_Verbose = Annotated[
    bool, Option("-v", "--verbose", help="Show every variant and every known defect.")
]


def inspect_program(  # noqa: PLR0913 -- typer takes a parameter for each option.
    subject: _Subject,
    *,
    target: _Targets = None,
    as_json: _AsJson = False,
    compile_it: _Compile = False,
    as_is: _AsIs = False,
    diff: Annotated[str, Option(help="Another program to compare SUBJECT with.")] = "",
    donate: _Donate = "",
    timeout: _Timeout = 600.0,
    html: Annotated[Path | None, Option(help="Also write a page with plots to this file.")] = None,
) -> None:
    """Show memory, transfers, copies, overlap and the peak of one program.

    FUNCTION is compiled for the arguments that its file's example_args() returns, and the shardings
    of example_shardings(devices), if there is one.
    """
    from assay.inspection import inspect

    if compile_it and as_is:
        raise WrongValue("got --compile and --as-is, wanted one of them")
    check_outputs(subject, diff, html=html)
    names = [name.strip() for text in target or () for name in text.split(",") if name.strip()]
    if as_json and len(names) > 1:
        raise WrongValue(f"got --json and {len(names)} targets, wanted one: it prints one object")

    donated = _numbers(donate)
    read = partial(inspect, compile_it=compile_it, as_is=as_is, timeout_seconds=timeout)
    codes = [ExitCode.PASSED]
    # A dump that a function is compared with has donations of its own.
    others = list(read(diff, names, donate=donated if ".py:" in diff else ())) if diff else []
    shown: list[tuple[Inspection, Comparison | None]] = []
    for number, after in enumerate(read(subject, names, donate=donated)):
        comparison = compare(others[number], after) if diff else None
        shown.append((after, comparison))
        if as_json:
            typer.echo(plain_json(inspection_json(after, comparison)))
        else:
            console = Console()
            console.print("\n" if number else "", end="")
            print_inspection(console, after, comparison)
        codes += map(_code, (after, *others[number : number + 1]))
    if html:
        write_whole(html, inspection_page(shown).encode())
    raise typer.Exit(max(code.value for code in codes))


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(map(int, text.split(","))) if text else ()
    except ValueError:
        raise WrongValue(f"got --donate {text}, wanted numbers of arguments, as 0,1") from None


def _code(inspection: Inspection) -> ExitCode:
    """A target that cannot be used is misuse; a program that fails is a failure."""
    if inspection.evidence.unavailable is not None:
        return ExitCode.MISUSE
    return ExitCode.FAILED if inspection.evidence.failure is not None else ExitCode.PASSED


def report(
    run: Annotated[Path, Argument(help="The folder of a run, or its records.jsonl.")],
    *,
    workload: _Workload = "",
    claims: _Claims = "temp-bytes",
    verbose: _Verbose = False,
    html: Annotated[Path | None, Option(help="Write the run's page to this file.")] = None,
    form: Annotated[Format | None, Option("--format", help="Print for another tool.")] = None,
    db: Annotated[
        str, Option("--db", help="Show when each failure began, from this history database.")
    ] = "",
) -> None:
    """Print the summary of a run, or the numbers of one workload, from its records.

    Exits with 0 if the records are whole, also if the run failed, and with 1 if some are missing.
    """
    folder = run if run.is_dir() else run.parent
    check_outputs(folder / records.FILE_NAME, html=html)
    lines = records.read(run)
    seen = records.decode(lines)
    invocation = records.invocation_of(folder)
    if form:
        typer.echo(formatted(form, seen, invocation), nl=False)
    elif workload:
        typer.echo(_table(seen, workload, claims.split(",")))
    else:
        trends = trends_of(db, seen) if db else ()
        _print(seen, invocation, folder, trends, verbose=verbose, html=html)
    try:
        records.check_whole(lines, seen, invocation.ending)
    except records.RecordsError as error:
        typer.echo(plain(f"assay: {error}"), err=True)
        raise typer.Exit(ExitCode.FAILED.value) from None


def _table(seen: Sequence[Record], workload: str, claims: Sequence[str]) -> str:
    """The numbers of a workload as a Markdown table."""
    known = sorted({record.workload for record in seen})
    if workload not in known:
        raise WrongValue(f"got workload {workload!r}, {wanted_one_of(workload, known)}")
    known = sorted({record.claim for record in seen if record.workload == workload})
    for name in [each for each in claims if each not in known]:
        raise WrongValue(f"got --claims {name}, {wanted_one_of(name, known)}")
    return measured_table(seen, workload=workload, claims=claims)


def _print(
    seen: Sequence[Record],
    invocation: Invocation,
    folder: Path,
    trends: Sequence[Trend],
    *,
    verbose: bool,
    html: Path | None,
) -> None:
    """Print the summary of a run, and write its page."""
    times, damaged = evidence.TIMES.load_all(folder)
    reruns, unread = evidence.RERUNS.load_all(folder)
    print_run(Console(), seen, times, reruns, invocation, trends, verbose=verbose)
    if html:
        programs, lost = evidence.load_programs(folder)
        devices = models_of({record.target for record in seen})
        page = run_page(seen, times, reruns, invocation, programs, trends, devices)
        write_whole(html, page.encode())
        unread += lost
    for error in (*damaged, *unread):
        typer.echo(plain(f"assay: {error}"), err=True)


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove everything.")] = False,  # noqa: FBT002
) -> None:
    """Show what Assay keeps in the user's cache folder, or remove it."""
    from assay.toolchains.cache import MOST_BYTES, entries, root, shrink

    table = Table("kind", "entries", "size", "limit", "folder", box=None, pad_edge=False)
    for kind, limit in MOST_BYTES.items():
        found = shrink(kind, 0) if clear else entries(kind)
        total, at_most = (format_bytes(each) for each in (sum(e.nbytes for e in found), limit))
        table.add_row(kind, str(len(found)), total, at_most, str(root() / kind))
    Console().print("removed:" if clear else "", table)


_COMMANDS: dict[str, Callable[..., None]] = {
    "inspect": inspect_program,
    "report": report,
    "targets": targets,
    "run": run,
    "bisect": bisect_releases,
    "matrix": matrix,
    "fleet": fleet,
    "history": history,
    "qualify": qualify_target,
    "doctor": doctor,
    "cache": cache,
}
_FOR_PYTEST = ("run", "fleet")
_KEEPS = (*_FOR_PYTEST, "bisect", "matrix", "qualify")
"""What they measured is on disk when they are interrupted."""
for _name, _command in _COMMANDS.items():
    _kind = BeforePytest if _name in _FOR_PYTEST else None
    app.command(_name, cls=_kind, help=told(_command), epilog=epilog(_name))(_command)


def main() -> None:
    """Run the command; end with the fixed exit codes, a crash of Assay itself with 3."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors=SIMILAR)
    try:
        app()
    except _MISUSE as error:
        typer.echo(plain(f"assay: {error}"), err=True)  # It may hold any file's name.
        sys.exit(ExitCode.MISUSE.value)
    except SystemExit as ended:
        # Typer ends with the shell's code for Ctrl-C.
        is_interrupted = ended.code == _INTERRUPTED
        if is_interrupted:
            kept = "; what was measured is kept" if set(_KEEPS) & set(sys.argv[1:2]) else ""
            typer.echo(f"assay: interrupted{kept}", err=True)
        sys.exit(ExitCode.MISUSE.value if is_interrupted else ended.code)
    # Any other exception is a fault of Assay.
    except Exception:  # noqa: BLE001 -- reported, and turned into the exit code.
        traceback.print_exc()
        sys.exit(ExitCode.CRASHED.value)
