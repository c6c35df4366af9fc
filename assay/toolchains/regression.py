"""A regression between two releases of a component: the question, and what was found."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from packaging.version import Version

from assay.model.blame import WrongValue
from assay.targets import Target
from assay.toolchains.bisect import Bisection, Point, bisect
from assay.toolchains.metrics import METRICS, NAMES, Metric, values_against
from assay.toolchains.probes import Probed, Prober, Subject, Wanted, search_path
from assay.toolchains.releases import COMPONENTS, Release, versions

Watch = Callable[[Point, int, int], None]
"""Called with each measured point, its number and how many releases there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which release of ``component`` between ``good`` and ``bad`` changed ``metric``.

    ``jax`` is the jax that another component is installed with, ``also`` are the packages that the
    program imports. A ``threshold`` separates good from bad numbers; without one, the largest step
    is sought. ``scan`` measures every release.
    """

    subject: Subject
    target: Target
    metric: str
    good: str
    bad: str
    component: str = "jax"
    jax: str = ""
    also: tuple[str, ...] = ()
    python: str = ""
    threshold: float | None = None
    scan: bool = False
    timeout_seconds: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """The answer: a bisection, and what each measured release made of the program."""

    question: Question
    metric: Metric
    versions: tuple[str, ...]
    bisection: Bisection
    probed: dict[str, Probed] = field(default_factory=dict)


def find(question: Question, watch: Watch = lambda *_: None) -> Regression:
    """Measure releases until the step is found.

    Raises:
        WrongValue: the question names no metric, component or runnable target.
        CannotMake: the releases cannot be listed, or a named one does not exist.
    """
    metric = _metric(question)
    is_forwards = Version(question.good) <= Version(question.bad)
    first, last = sorted((question.good, question.bad), key=Version)
    known = versions(question.component, first, last)
    if len(known) < 2:  # noqa: PLR2004  (two ends)
        raise WrongValue(f"got {first} as good and as bad, wanted two releases")
    prober = Prober(
        subject=question.subject,
        target=question.target,
        wanted=metric.wanted,
        timeout_seconds=question.timeout_seconds,
        python=question.python,
    )
    probed: dict[str, Probed] = {}

    def seen(version: str) -> Probed:
        if version not in probed:
            release = Release(
                component=question.component,
                version=version,
                platform=question.target.platform,
                jax=question.jax,
                also=question.also,
            )
            probed[version] = prober.probe(release)
        return probed[version]

    if question.metric == "value":
        metric = values_against(seen(known[0] if is_forwards else known[-1]))

    def measure(version: str) -> Point:
        point = metric.point(seen(version))
        watch(point, len(probed), len(known))
        return point

    found = bisect(
        known, measure, same=metric.same, threshold=question.threshold, scan=question.scan
    )
    return Regression(
        question=question, metric=metric, versions=known, bisection=found, probed=probed
    )


def _metric(question: Question) -> Metric:
    if question.component not in COMPONENTS:
        raise WrongValue(
            f"got component {question.component!r}, wanted one of {', '.join(COMPONENTS)}"
        )
    if question.metric not in NAMES:
        raise WrongValue(f"got metric {question.metric!r}, wanted one of {', '.join(NAMES)}")
    metric = METRICS.get(question.metric) or replace(METRICS["runs"], name=question.metric)
    if metric.wanted is Wanted.RUN and not question.target.executes:
        raise WrongValue(
            f"got metric {question.metric!r} on {question.target.name}, which runs nothing, wanted "
            "a live target; use --target cpu, or a metric of the compiled program"
        )
    return metric


def subject(text: str) -> Subject:
    """``FILE.py:FUNCTION``, or ``MODULE:WORKLOAD/VARIANT``.

    Raises:
        WrongValue: the text is neither, or there is no such file.
    """
    place, _, name = text.rpartition(":")
    if place.endswith(".py") and name:
        file = Path(place).resolve()
        if not file.is_file():
            raise WrongValue(f"got no file {place}, wanted FILE.py:FUNCTION; check the path")
        return Subject(text=text, file=file, function=name)
    workload, _, variant = name.partition("/")
    if not (place and workload and variant):
        raise WrongValue(f"got {text!r}, wanted FILE.py:FUNCTION or MODULE:WORKLOAD/VARIANT")
    return Subject(text=text, workload=(place, workload, variant), search_path=search_path())
