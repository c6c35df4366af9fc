"""The command ``assay bisect``: the release that changed a number of a program."""

import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from assay.cli import completion
from assay.cli.fleet_command import ProbesOn, probes_on
from assay.cli.outputs import check_outputs
from assay.judge.differences.inspections import compare
from assay.model.bisection import Point, Progress
from assay.model.blame import WrongValue
from assay.model.claim import Trial
from assay.model.units import parse_bytes
from assay.model.verdict import ExitCode
from assay.report.inspection_output import print_comparison
from assay.report.labels import plain, plain_json
from assay.report.regression import (
    issue,
    no_repro,
    point_line,
    print_bisection,
    progress_text,
    sentence,
    to_json,
)
from assay.store.files import write_whole
from assay.targets import resolve

if TYPE_CHECKING:
    from assay.toolchains.bisect import Question
    from assay.toolchains.probes import Subject

_Changed = Annotated[str, Argument(help="FILE.py:FUNCTION, or a suite's MODULE:WORKLOAD/VARIANT.")]
# Written out, because assay.toolchains is imported only where it is needed.
_Metric = Annotated[
    str,
    Option(
        help="One of temp_bytes, host_bytes, device_bytes, loop_copies, transfers, error, runs, "
        "compiles, value, time, claim, returned.",
        autocompletion=completion.metrics,
    ),
]
_Component = Annotated[
    str,
    Option(
        help="What varies: jax, jaxlib, libtpu, plugin, torch_xla.",
        autocompletion=completion.components,
    ),
]
_Target = Annotated[
    str, Option(help="The target to compile for.", autocompletion=completion.targets)
]
_Claim = Annotated[
    str,
    Option(help="claim: its name in a check of the variant.", autocompletion=completion.claims),
]
_Threshold = Annotated[str, Option(help="Numbers above are bad; default: the largest step.")]
_Scan = Annotated[bool, Option("--scan", help="Measure every release, to find each step.")]
_Attribute = Annotated[
    bool, Option("--attribute", help="Also measure which package of the jax release changed it.")
]
_With = Annotated[
    list[str] | None, Option("--with", help="A package that the program imports; repeatable.")
]
_Bundle = Annotated[Path | None, Option(help="Write a bundle for an upstream report here.")]
_Html = Annotated[Path | None, Option(help="Write the answer as one HTML page to this file.")]
_Json = Annotated[bool, Option("--json", help="Print one JSON object.")]
_TimingLimit = Annotated[float, Option(min=1, help="Limit of one comparison of times.")]


def bisect_releases(  # noqa: PLR0913 -- typer takes a parameter for each option.
    subject: _Changed,
    *,
    good: Annotated[str, Option(help="A release with the good number.")],
    bad: Annotated[str, Option(help="A release with the bad number.")],
    target: _Target = "cpu",
    metric: _Metric = "temp_bytes",
    threshold: _Threshold = "",
    claim: _Claim = "",
    above: Annotated[str, Option(help="loop_copies: ignore arrays up to this size.")] = "0",
    scan: _Scan = False,
    component: _Component = "jax",
    attribute: _Attribute = False,
    jax: Annotated[str, Option(help="The jax that another component is installed with.")] = "",
    also: _With = None,
    python: Annotated[str, Option(help="The Python to use; default: the first that works.")] = "",
    bundle: _Bundle = None,
    html: _Html = None,
    timeout: Annotated[float, Option(min=1, help="Limit of one measurement, in seconds.")] = 600.0,
    timing_seconds: _TimingLimit = 120.0,
    as_json: _Json = False,
    address: ProbesOn = "",
) -> None:
    """Find the release that changed a number of a program.

    Each release is installed by uv into a cached environment, and the program is compiled there,
    without the hardware. FUNCTION takes what its file's example_args() returns.
    """
    from assay.toolchains.bisect import Question, subject_of, threshold_of

    program, place = subject_of(subject), resolve(target)
    check_outputs(subject, html=html, bundle=bundle)
    question = Question(
        subject=program,
        target=place,
        metric=metric,
        good=good,
        bad=bad,
        component=component,
        jax=jax,
        also=tuple(also or ()),
        python=python,
        threshold=threshold_of(metric, threshold),
        trial=_trial(program, claim, str(place.name)) if claim else None,
        above=parse_bytes(above),
        scan=scan,
        attribute=attribute,
        timeout_seconds=timeout,
        timing_seconds=timing_seconds,
    )
    with probes_on(address) as (executor, _):
        asked = replace(question, executor=executor)
        code = _bisect(asked, bundle, html, as_json=as_json)
    raise typer.Exit(code.value)


def _trial(program: "Subject", claim: str, target: str) -> Trial:
    from assay.plugin.collection import trial_of

    if program.workload is None:
        raise WrongValue(
            f"got --claim for {program.text}, wanted a suite's MODULE:WORKLOAD/VARIANT"
        )
    return trial_of(program.workload, claim, target)


def _bisect(
    question: "Question", bundle: Path | None, html: Path | None, *, as_json: bool
) -> ExitCode:
    from assay.toolchains.bisect import find
    from assay.toolchains.bundle import write

    component = question.component
    with Console(stderr=True).status("") as status:

        def watch(version: str, point: Point | None, progress: Progress | None) -> None:
            if point is None:
                known = progress_text(progress)
                status.update(f"{component} {version}: installing and measuring. {known}")
            else:
                typer.echo(plain(point_line(point, progress)), err=True)

        found = find(question, watch)
    bisection, sides = found.bisection, found.inspections
    comparison = compare(*sides) if sides else None
    differences = [str(each) for each in (comparison and comparison.differences) or ()]
    if as_json:
        typer.echo(plain_json(to_json(bisection)))
    else:
        print_bisection(Console(), bisection)
        if comparison is not None and comparison.differences is not None:
            print_comparison(Console(), comparison)

    written: tuple[Path, ...] = ()
    if bundle is not None and sides:
        text = partial(issue, bisection, differences)
        written, why = write(bundle, found.sides, found.prober, sentence(bisection), text)
        if why:
            typer.echo(plain(no_repro(why)), err=True)
    if html is not None:
        from assay.report.program_pages import bisection_page

        page = bisection_page(
            bisection,
            sides,
            differences,
            command=shlex.join(["assay", *sys.argv[1:]]),
            issue=issue(bisection, differences) if bisection.steps else "",
        )
        write_whole(html, page.encode())
        written += (html,)
    for path in written:
        typer.echo(plain(f"written: {path}"), err=True)
    return bisection.exit_code
