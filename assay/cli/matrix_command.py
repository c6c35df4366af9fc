"""The command ``assay matrix``: suites over chosen releases as a table of verdicts."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Argument, Option

from assay.cli import completion
from assay.cli.fleet_command import ProbesOn, probes_on
from assay.cli.outputs import check_outputs
from assay.model.blame import WrongValue
from assay.model.claim import Trial
from assay.model.matrix import MatrixProgress
from assay.model.suggestion import suggestion
from assay.model.workload import Level, matches_any
from assay.report.labels import plain, plain_json
from assay.store.files import write_whole
from assay.store.shipped import paths
from assay.targets import resolve

if TYPE_CHECKING:
    from assay.plugin.collection import Collected

_Patterns = list[str] | None
_Suites = Annotated[
    list[str],
    Argument(help="Suites: names, folders or test files.", autocompletion=completion.suites),
]
_Releases = Annotated[
    _Patterns, Option("--release", help="A release; repeatable, or comma-separated.")
]
_Targets = Annotated[
    _Patterns,
    Option(
        "--target",
        help="Target to compile for; repeatable, or comma-separated.",
        autocompletion=completion.targets,
    ),
]
_Component = Annotated[
    str,
    Option(help="What varies: jax, jaxlib, libtpu, plugin.", autocompletion=completion.components),
]
_Level = Annotated[
    str, Option(help="quick, full, device or soak.", autocompletion=completion.levels)
]
_Claim = Annotated[
    _Patterns, Option(help="Only claims of this pattern.", autocompletion=completion.claims)
]
_With = Annotated[_Patterns, Option("--with", help="A package that the suites import; repeatable.")]
_Keyword = Annotated[str, Option("-k", help="Select checks as pytest's -k does.")]
_Verbose = Annotated[bool, Option("-v", "--verbose", help="Show every row and known defect.")]


def matrix(  # noqa: PLR0913 -- typer takes a parameter for each option.
    suites: _Suites,
    *,
    release: _Releases = None,
    target: _Targets = None,
    component: _Component = "jax",
    jax: Annotated[str, Option(help="The jax that another component is installed with.")] = "",
    also: _With = None,
    python: Annotated[str, Option(help="The Python to use; default: the first that works.")] = "",
    level: _Level = "quick",
    keyword: _Keyword = "",
    workload: Annotated[_Patterns, Option(help="Only workloads of this pattern.")] = None,
    variant: Annotated[_Patterns, Option(help="Only variants of this pattern.")] = None,
    claim: _Claim = None,
    html: Annotated[Path | None, Option(help="Also write a page here.")] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    timeout: Annotated[float, Option(min=1, help="Limit of one compilation, in seconds.")] = 600.0,
    verbose: _Verbose = False,
    address: ProbesOn = "",
) -> None:
    """Judge suites on several releases, and check the ranges of their known defects.

    Each program is compiled once on each release, without the hardware. Claims that need more than
    a compiled program are not shown.
    """
    from assay.plugin.collection import collect
    from assay.report.matrix_output import matrix_html, matrix_json, print_matrix
    from assay.toolchains.matrix import MatrixQuestion, Source, measure

    check_outputs(html=html)
    releases, names = _required(release, target)
    targets = [str(resolve(name).name) for name in names]
    Level.parse(level)
    collected = collect(paths(suites, Path.cwd()), targets=targets, level=level, keyword=keyword)
    question = MatrixQuestion(
        trials=_selected(collected, workload, variant, claim),
        sources={
            (each.trial.workload.suite, each.trial.workload.name): Source(
                module=each.module, search_path=each.search_path
            )
            for each in collected
        },
        releases=releases,
        component=component,
        jax=jax,
        also=tuple(also or ()),
        python=python,
        timeout_seconds=timeout,
    )
    with probes_on(address) as (executor, capacity), Console(stderr=True).status("") as status:
        asked = replace(question, executor=executor, at_once=capacity or question.at_once)
        found = measure(asked, _shown(status.update))
    if html:
        write_whole(html, matrix_html(found).encode())
        typer.echo(plain(f"written: {html}"), err=True)
    if as_json:
        typer.echo(plain_json(matrix_json(found)))
    else:
        print_matrix(Console(), found, verbose=verbose)
    raise typer.Exit(found.exit_code.value)


def _required(release: _Patterns, target: _Patterns) -> tuple[list[str], list[str]]:
    """The releases and the targets. Raises WrongValue if one of the two options has none."""
    releases, targets = (
        [word.strip() for text in given or () for word in text.split(",") if word.strip()]
        for given in (release, target)
    )
    named = {"--release": releases, "--target": targets}
    if missing := [option for option, words in named.items() if not words]:
        raise WrongValue(
            f"got no {' and no '.join(missing)}, wanted one or more of each, such as "
            "--release 0.8.0,0.12.0.1 --target cpu:8"
        )
    return releases, targets


def _selected(
    collected: "Iterable[Collected]", workload: _Patterns, variant: _Patterns, claim: _Patterns
) -> list[Trial]:
    """The trials whose names match a pattern of each option; controls come with their claims."""
    trials = [each.trial for each in collected]
    if not trials:
        raise WrongValue("got suites and -k that select no check on these targets, wanted some")
    names: tuple[tuple[str, _Patterns, Callable[[Trial], str]], ...] = (
        ("--workload", workload, lambda trial: trial.workload.name),
        ("--variant", variant, lambda trial: trial.variant.name),
        ("--claim", claim, lambda trial: trial.check.claim.name),
    )
    for option, patterns, name in names:
        for pattern in patterns or ():
            if not any(matches_any(name(trial), (pattern,)) for trial in trials):
                known = sorted(set(map(name, trials)))
                near = suggestion(pattern, known)
                raise WrongValue(
                    f"got {option} {pattern!r}, which matches none of {', '.join(known)}{near}"
                )
        if patterns:
            trials = [trial for trial in trials if matches_any(name(trial), patterns)]
    return trials


def _shown(update: Callable[[str], None]) -> Callable[[MatrixProgress], None]:
    """A live line on a terminal; elsewhere a line for each tenth that is measured."""
    from assay.report.matrix_output import progress_line

    tenths = 0

    def watch(progress: MatrixProgress) -> None:
        nonlocal tenths
        if Console(stderr=True).is_terminal:
            update(progress_line(progress))
        elif not progress.total or 10 * progress.done // progress.total > tenths:
            tenths = 10 * progress.done // max(progress.total, 1)
            typer.echo(plain(progress_line(progress)), err=True)

    return watch
