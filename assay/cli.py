"""The command-line door: ``assay targets``, ``inspect``, ``qualify``, ``report``, ``bisect``."""

import platform
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

from assay.judge.differences.inspections import compare
from assay.model.bisection import Point
from assay.model.blame import WrongValue
from assay.model.inspection import Inspection, Means
from assay.model.target import State, TargetError
from assay.model.units import format_bytes, parse_bytes
from assay.model.verdict import ExitCode
from assay.report.inspection_output import print_comparison, print_inspection
from assay.report.inspection_output import to_json as inspection_json
from assay.report.qualification import Qualification, qualify, to_json, vendor_page, vendor_summary
from assay.report.regression import issue, point_line, print_bisection, sentence
from assay.report.regression import to_json as bisection_json
from assay.report.summary import measured_table
from assay.report.terminal import print_run
from assay.store import evidence, records
from assay.targets import resolve, survey
from assay.toolchains.bundle import write as write_bundle
from assay.toolchains.environments import CannotMake
from assay.toolchains.metrics import METRICS
from assay.toolchains.probes import Probed
from assay.toolchains.recipe import UnreadableToolchain
from assay.toolchains.regression import Question, Regression, find, subject_of, threshold_of
from assay.toolchains.releases import COMPONENTS

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Check what XLA compilers emit for GPU, TPU and CPU, without the hardware.",
)
_STYLES = {State.LIVE: "green", State.COMPILE_ONLY: "cyan", State.UNAVAILABLE: "dim"}

Thorough = Annotated[
    bool, typer.Option("--check", help="Also compile a small program for each target.")
]
TargetOption = Annotated[
    str, typer.Option("--target", help="The target to qualify, such as gpu-h100:8.")
]
LevelOption = Annotated[str, typer.Option("--level", help="quick, full, device or soak.")]
SuitesOption = Annotated[Path, typer.Option("--suites", help="The folder of suites to run.")]
ResultsOption = Annotated[Path, typer.Option("--results-dir", help="The folder for results.")]
FromOption = Annotated[
    Path | None,
    typer.Option("--from", help="Use the records of this run; do not run the suites."),
]
WorkersOption = Annotated[
    str, typer.Option("-n", "--workers", help="pytest-xdist workers: a number or auto.")
]
InspectTargets = Annotated[
    list[str] | None,
    typer.Option("--target", help="Target to compile for; repeatable, or comma-separated."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Compile = Annotated[
    bool,
    typer.Option("--compile", help="Compile the module of a file, also if it is already compiled."),
]
AsIs = Annotated[
    bool, typer.Option("--as-is", help="Read the module of a file without compiling it.")
]
Diff = Annotated[str, typer.Option("--diff", help="Another program to compare SUBJECT with.")]
Verbose = Annotated[
    bool, typer.Option("-v", "--verbose", help="Show every variant and every known defect.")
]
Scan = Annotated[bool, typer.Option("--scan", help="Measure every release, to find each step.")]
CompileTimeout = Annotated[
    float,
    typer.Option("--compile-timeout", min=1, help="Time limit of one compilation, in seconds."),
]


@app.command()
def targets(check: Thorough = False) -> None:  # noqa: FBT002 -- typer's form of a flag.
    """List every target: live, compile-only or unavailable, and why."""
    table = Table("target", "state", "device memory", "why", box=None, pad_edge=False)
    for target, availability in survey(thorough=check):
        memory = format_bytes(target.model.memory_bytes) if target.model else ""
        why = availability.reason
        if availability.remedy:
            why = f"{why}; {availability.remedy}"
        state = f"[{_STYLES[availability.state]}]{availability.state.value}[/]"
        table.add_row(str(target.name), state, memory, why)
    Console().print(table)


@app.command("inspect")
def inspect_program(
    subject: Annotated[
        str, typer.Argument(help="FILE.py:FUNCTION, or an HLO or StableHLO file (text or proto).")
    ],
    target: InspectTargets = None,
    as_json: AsJson = False,  # noqa: FBT002 -- typer's form of a flag.
    compile_it: Compile = False,  # noqa: FBT002
    as_is: AsIs = False,  # noqa: FBT002
    diff: Diff = "",
    compile_timeout: CompileTimeout = 600.0,
) -> None:
    """Show memory, transfers, copies, overlap and the peak of one program.

    FUNCTION is compiled for the arguments that its file's example_args() returns, and the shardings
    of example_shardings(devices), if there is one.
    """
    from assay.inspection import InspectionError, Treatment, inspect

    if compile_it and as_is:
        _misuse("got --compile and --as-is, wanted one of them")
    treatment = Treatment.COMPILE if compile_it else Treatment.AS_NEEDED
    treatment = Treatment.AS_IT_STANDS if as_is else treatment
    names = [name.strip() for text in target or () for name in text.split(",") if name.strip()]
    if as_json and len(names) > 1:
        _misuse(f"got --json and {len(names)} targets, wanted one: it prints one object")
    console, worst = Console(), ExitCode.PASSED.value
    try:
        others = list(inspect(diff, names, treatment, compile_timeout)) if diff else []
        for number, after in enumerate(inspect(subject, names, treatment, compile_timeout)):
            before = others[number] if diff else None
            console.print("\n" if number and not as_json else "", end="")
            _show(console, after, before, as_json=as_json)
            worst = max(worst, _inspected(after).value, _inspected(before or after).value)
    except InspectionError as error:
        _misuse(str(error))
    raise typer.Exit(worst)


@app.command("qualify")
def qualify_target(
    target: TargetOption,
    level: LevelOption = "quick",
    suites: SuitesOption = Path("suites"),
    results_dir: ResultsOption = Path("results"),
    from_run: FromOption = None,
    workers: WorkersOption = "0",
) -> None:
    """Decide for one target, feature by feature: pass, fail, unsupported or inconclusive."""
    name = str(resolve(target).name)
    run = from_run or _run_suites(name, level, suites, results_dir, workers)
    folder = run if run.is_dir() else run.parent
    seen = records.load(run)
    if not any(record.target == name for record in seen):
        _misuse(f"got {run} without a record of {name}, wanted a run on that target")
    qualification = qualify(
        seen,
        target=name,
        platform=platform.platform(),
        python=platform.python_version(),
        date=datetime.now(UTC).date().isoformat(),
        ending=records.invocation_of(folder).ending,
    )
    _deliver(qualification, folder)
    raise typer.Exit(qualification.exit_code.value)


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or its records.jsonl.")],
    workload: Annotated[
        str,
        typer.Option(
            "--workload", help="Print only the numbers of this workload, as a Markdown table."
        ),
    ] = "",
    claims: Annotated[
        str, typer.Option("--claims", help="Claims for --workload, comma-separated.")
    ] = "temp-bytes",
    verbose: Verbose = False,  # noqa: FBT002 -- typer's form of a flag.
) -> None:
    """Print the summary of a run, or the numbers of one workload, from its records."""
    seen = records.load(run)
    if not workload:
        folder = run if run.is_dir() else run.parent
        taken, damaged = evidence.TIMES.load_all(folder)
        rerun, unread = evidence.RERUNS.load_all(folder)
        invocation = records.invocation_of(folder)
        print_run(Console(), seen, taken, rerun, invocation, verbose=verbose)
        for each in (*damaged, *unread):
            typer.echo(f"assay: {each}", err=True)
        return
    known = sorted({record.workload for record in seen})
    if workload not in known:
        _misuse(f"got workload {workload!r}, wanted one of {', '.join(known)}")
    typer.echo(measured_table(seen, workload=workload, claims=claims.split(",")))


@app.command("bisect")
def bisect_releases(  # noqa: PLR0913, PLR0917 -- typer takes a parameter for each option.
    subject: Annotated[
        str, typer.Argument(help="FILE.py:FUNCTION, or a suite's MODULE:WORKLOAD/VARIANT.")
    ],
    good: Annotated[str, typer.Option("--good", help="A release with the good number.")],
    bad: Annotated[str, typer.Option("--bad", help="A release with the bad number.")],
    target: Annotated[str, typer.Option("--target", help="The target to compile for.")] = "cpu",
    metric: Annotated[str, typer.Option("--metric", help=f"One of {', '.join(METRICS)}.")] = (
        "temp_bytes"
    ),
    threshold: Annotated[
        str, typer.Option("--threshold", help="Numbers above are bad; default: the largest step.")
    ] = "",
    above: Annotated[
        str, typer.Option("--above", help="loop_copies: ignore arrays up to this size.")
    ] = "0",
    scan: Scan = False,  # noqa: FBT002
    component: Annotated[
        str, typer.Option("--component", help=f"What varies: {', '.join(COMPONENTS)}.")
    ] = "jax",
    jax: Annotated[
        str, typer.Option("--jax", help="The jax that another component is installed with.")
    ] = "",
    also: Annotated[
        list[str] | None,
        typer.Option("--with", help="A package that the program imports; repeatable."),
    ] = None,
    python: Annotated[
        str, typer.Option("--python", help="The Python to use; default: the first that works.")
    ] = "",
    bundle: Annotated[
        Path | None, typer.Option("--bundle", help="Write a bundle for an upstream report here.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=1, help="Limit of one measurement, in seconds.")
    ] = 600.0,
    timing_seconds: Annotated[
        float, typer.Option("--timing-seconds", min=1, help="Limit of one comparison of times.")
    ] = 120.0,
    as_json: AsJson = False,  # noqa: FBT002
) -> None:
    """Find the release that changed a number of a program.

    Each release is installed by uv into a cached environment, and the program is compiled there,
    without the hardware. FUNCTION takes what its file's example_args() returns.

    Example: assay bisect step.py:step --good 0.8.0 --bad 0.9.2 --target gpu-h100
    """
    question = Question(
        subject=subject_of(subject),
        target=resolve(target),
        metric=metric,
        good=good,
        bad=bad,
        component=component,
        jax=jax,
        also=tuple(also or ()),
        python=python,
        threshold=threshold_of(metric, threshold),
        above=parse_bytes(above),
        scan=scan,
        timeout_seconds=timeout,
        timing_seconds=timing_seconds,
    )
    console = Console()
    with Console(stderr=True).status("") as status:

        def watch(version: str, point: Point | None) -> None:
            if point is None:
                status.update(f"{component} {version}: installing and measuring")
            else:
                typer.echo(point_line(point), err=True)

        found = find(question, watch)
    if as_json:
        typer.echo(bisection_json(found.bisection))
    else:
        print_bisection(console, found.bisection)
    if found.bisection.steps and len(found.sides) > 1:
        comparison = compare(*(_inspection_of(each, found) for each in found.sides.values()))
        if not as_json and comparison.differences is not None:
            print_comparison(console, comparison)
        if bundle is not None:
            differences = [str(each) for each in comparison.differences or ()]
            for path in write_bundle(
                bundle,
                found.sides,
                found.prober,
                sentence(found.bisection),
                lambda outputs: issue(found.bisection, outputs, differences),
            ):
                typer.echo(f"written: {path}", err=True)
    raise typer.Exit(found.bisection.exit_code.value)


def _inspection_of(probed: Probed, found: Regression) -> Inspection:
    release = probed.release
    return Inspection(
        subject=f"{found.bisection.subject} with {release.component} {release.version}",
        means=Means.COMPILED,
        evidence=probed.evidence,
        device=found.prober.target.model,
    )


def _show(console: Console, after: Inspection, before: Inspection | None, *, as_json: bool) -> None:
    """The page or the object of one inspection, with what is new in it against another."""
    comparison = None if before is None else compare(before, after)
    if as_json:
        typer.echo(inspection_json(after, comparison))
        return
    print_inspection(console, after, comparison)


def _inspected(inspection: Inspection) -> ExitCode:
    """How an inspection ends: a target that cannot be had is misuse, a program that fails is 1."""
    if inspection.evidence.unavailable is not None:
        return ExitCode.MISUSE
    return ExitCode.FAILED if inspection.evidence.failure is not None else ExitCode.PASSED


def _run_suites(target: str, level: str, suites: Path, results_dir: Path, workers: str) -> Path:
    from assay.plugin.session import launch

    if not suites.is_dir():
        _misuse(f"got no folder {suites}, wanted one with suites; name it with --suites")
    arguments = [str(suites), "--assay-target", target, "--assay-level", level]
    arguments += ["--assay-results-dir", str(results_dir.resolve())]
    if workers != "0":
        arguments += ["-n", workers]
    code, directory = launch(arguments)
    if directory is None:
        raise typer.Exit(code or ExitCode.CRASHED.value)
    return directory


def _deliver(qualification: Qualification, directory: Path) -> None:
    written = [
        records.write(directory, "qualification.json", to_json(qualification)),
        records.write(directory, "qualification.md", vendor_page(qualification).encode()),
    ]
    console = Console()
    console.print(Markdown(vendor_summary(qualification)))
    for path in written:
        console.print(f"written: {path}", soft_wrap=True)


def _misuse(message: str) -> None:
    typer.echo(f"assay: {message}", err=True)
    raise typer.Exit(ExitCode.MISUSE.value)


def main() -> None:
    """Run the command; end with the fixed exit codes, a crash of Assay itself with 3."""
    try:
        app()
    except (
        *(TargetError, WrongValue, CannotMake, UnreadableToolchain, records.RecordsError),
    ) as error:
        typer.echo(f"assay: {error}", err=True)
        sys.exit(ExitCode.MISUSE.value)
    # Whatever else is raised is a fault of Assay, and must end as one.
    except Exception:  # noqa: BLE001 -- reported, and turned into the exit code.
        traceback.print_exc()
        sys.exit(ExitCode.CRASHED.value)


if __name__ == "__main__":
    main()
