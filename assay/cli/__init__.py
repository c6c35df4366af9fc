"""The command line: a function for each command of ``assay``."""

import platform
import sys
import traceback
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table
from typer import Argument, Option

from assay.cli.bisect_command import bisect_releases
from assay.cli.history_command import history, trends_of
from assay.cli.matrix_command import matrix
from assay.judge.differences.inspections import compare
from assay.model.blame import UsersFault, WrongValue
from assay.model.history import HistoryError
from assay.model.inspection import Comparison, Inspection
from assay.model.target import TargetError
from assay.model.units import format_bytes
from assay.model.verdict import ExitCode
from assay.report.formats import Format, formatted
from assay.report.inspection_output import print_inspection
from assay.report.inspection_output import to_json as inspection_json
from assay.report.program_pages import inspection_page
from assay.report.qualification import qualify, to_json, vendor_page, vendor_summary
from assay.report.run_page import run_page
from assay.report.summary import measured_table
from assay.report.terminal import print_run
from assay.store import evidence, records
from assay.store.files import write_whole
from assay.targets import resolve, survey

_INTERRUPTED = 130
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Check what XLA compilers emit for GPU, TPU and CPU, without the hardware.",
)
_MISUSE = (TargetError, UsersFault, records.RecordsError, HistoryError)

_Thorough = Annotated[bool, Option("--check", help="Also compile a small program for each target.")]
_Subject = Annotated[
    str, Argument(help="FILE.py:FUNCTION, or an HLO or StableHLO file (text or proto).")
]
_Targets = Annotated[
    list[str] | None,
    Option("--target", help="Target to compile for; repeatable, or comma-separated."),
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
_From = Annotated[
    Path | None, Option("--from", help="Use the records of this run; do not run the suites.")
]
_Workers = Annotated[str, Option("-n", "--workers", help="pytest-xdist workers: a number or auto.")]
_Workload = Annotated[
    str, Option(help="Print only the numbers of this workload, as a Markdown table.")
]
_Verbose = Annotated[
    bool, Option("-v", "--verbose", help="Show every variant and every known defect.")
]


@app.command()
def targets(*, check: _Thorough = False) -> None:
    """List every target: live, compile-only or unavailable, and why."""
    table = Table("target", "state", "device memory", "why", box=None, pad_edge=False)
    for target, missing in survey(thorough=check):
        memory = format_bytes(target.model.memory_bytes) if target.model else ""
        state, why = "[green]live[/]" if target.executes else "[cyan]compile-only[/]", ""
        if missing:
            state, why = "[dim]unavailable[/]", f"{missing.reason}; {missing.remedy}"
        table.add_row(str(target.name), state, memory, why)
    Console().print(table)


@app.command("inspect")
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
            typer.echo(inspection_json(after, comparison))
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


@app.command("qualify")
def qualify_target(
    target: Annotated[str, Option(help="The target to qualify, such as gpu-h100:8.")],
    level: Annotated[str, Option(help="quick, full, device or soak.")] = "quick",
    suites: Annotated[Path, Option(help="The folder of suites to run.")] = Path("suites"),
    results_dir: Annotated[Path, Option(help="The folder for results.")] = Path("results"),
    from_run: _From = None,
    workers: _Workers = "0",
) -> None:
    """Decide for one target, feature by feature: pass, fail, unsupported or inconclusive."""
    name = str(resolve(target).name)
    run = from_run or _run_suites(name, level, suites, results_dir, workers)
    folder = run if run.is_dir() else run.parent
    seen = records.load(run)
    if not any(record.target == name for record in seen):
        raise WrongValue(f"got {run} without a record of {name}, wanted a run on that target")
    found = qualify(
        seen,
        target=name,
        platform=platform.platform(),
        python=platform.python_version(),
        date=datetime.now(UTC).date().isoformat(),
        ending=records.invocation_of(folder).ending,
    )
    console = Console()
    console.print(Markdown(vendor_summary(found)))
    pages = {"qualification.json": to_json(found), "qualification.md": vendor_page(found).encode()}
    for file, page in pages.items():
        write_whole(folder / file, page)
        console.print(f"written: {folder / file}", soft_wrap=True)
    raise typer.Exit(found.exit_code.value)


def _run_suites(target: str, level: str, suites: Path, results_dir: Path, workers: str) -> Path:
    from assay.plugin.session import launch

    if not suites.is_dir():
        raise WrongValue(f"got no folder {suites}, wanted one with suites; name it with --suites")
    arguments = [str(suites), "--assay-target", target, "--assay-level", level]
    arguments += ["--assay-results-dir", str(results_dir.resolve())]
    if workers != "0":
        arguments += ["-n", workers]
    code, directory = launch(arguments)
    if directory is None:
        raise typer.Exit(code or ExitCode.CRASHED.value)
    return directory


@app.command()
def report(
    run: Annotated[Path, Argument(help="The folder of a run, or its records.jsonl.")],
    *,
    workload: _Workload = "",
    claims: Annotated[str, Option(help="Claims for --workload, comma-separated.")] = "temp-bytes",
    verbose: _Verbose = False,
    html: Annotated[Path | None, Option(help="Write the run's page to this file.")] = None,
    form: Annotated[Format | None, Option("--format", help="Print for another tool.")] = None,
    db: Annotated[str, Option("--db", help="With --html: also the history in this database.")] = "",
) -> None:
    """Print the summary of a run, or the numbers of one workload, from its records."""
    seen = records.load(run)
    folder = run if run.is_dir() else run.parent
    if form:
        typer.echo(formatted(form, seen, records.invocation_of(folder).ending), nl=False)
        return
    if workload:
        known = sorted({record.workload for record in seen})
        if workload not in known:
            raise WrongValue(f"got workload {workload!r}, wanted one of {', '.join(known)}")
        typer.echo(measured_table(seen, workload=workload, claims=claims.split(",")))
        return
    times, damaged = evidence.TIMES.load_all(folder)
    reruns, unread = evidence.RERUNS.load_all(folder)
    invocation = records.invocation_of(folder)
    print_run(Console(), seen, times, reruns, invocation, verbose=verbose)
    if html:
        programs, lost = evidence.PROGRAMS.load_all(folder)
        trends = trends_of(db, seen) if db else ()
        write_whole(html, run_page(seen, times, reruns, invocation, programs, trends).encode())
        unread += lost
    for error in (*damaged, *unread):
        typer.echo(f"assay: {error}", err=True)


app.command("bisect")(bisect_releases)
app.command("matrix")(matrix)
app.command("history")(history)


@app.command()
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


def main() -> None:
    """Run the command; end with the fixed exit codes, a crash of Assay itself with 3."""
    try:
        app()
    except _MISUSE as error:
        typer.echo(f"assay: {error}", err=True)
        sys.exit(ExitCode.MISUSE.value)
    except SystemExit as ended:
        # Typer ends with the shell's code for Ctrl-C.
        is_interrupted = ended.code == _INTERRUPTED
        if is_interrupted:
            typer.echo("assay: interrupted; what was measured is kept", err=True)
        sys.exit(ExitCode.MISUSE.value if is_interrupted else ended.code)
    # Any other exception is a fault of Assay.
    except Exception:  # noqa: BLE001 -- reported, and turned into the exit code.
        traceback.print_exc()
        sys.exit(ExitCode.CRASHED.value)
