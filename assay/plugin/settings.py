"""The options of a run, parsed once."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from assay.frameworks.installed import KNOWN as KNOWN_FRAMEWORKS
from assay.isolate.memory import MemoryLimit, machine_bytes, usual_limit
from assay.measure import BASELINE
from assay.model.blame import WrongValue
from assay.model.process import Process
from assay.model.suggestion import suggestion
from assay.model.target import LIVE_MODELS, TargetName
from assay.model.units import parse_bytes
from assay.model.workload import Level
from assay.plugin import RESULTS
from assay.run import BaselineUpdate
from assay.store.files import folder_obstacle
from assay.targets import resolve, survey
from assay.targets.jax_internals import detected_process
from assay.toolchains.recipe import UnreadableToolchain, recipe

_Value = TypeVar("_Value")


class SettingsError(ValueError):
    """An option that cannot be used. Says what was given, what is accepted and what to do."""


@dataclass(frozen=True, slots=True)
class _Parsed:
    """The options as pytest gives them, each parsed by a call."""

    options: Mapping[str, Any]

    def __call__(
        self, option: str, parse: Callable[[Any], _Value], wanted: str, known: Iterable[str] = ()
    ) -> _Value:
        """The value of an option. Raises SettingsError with the nearest known word."""
        given = self.options[option.removeprefix("--").replace("-", "_")]
        try:
            return parse(given)
        except ValueError:
            words = f"got {option}={given}, wanted {wanted}"
            raise SettingsError(words + suggestion(str(given), known)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a run. ``targets`` are canonical names, in the order given.

    ``named`` says that the command line names targets; ``cached``, that compilations of earlier
    runs are used. ``memory_limit`` is that of a program, None where there is none. ``required`` are
    frameworks that must be installed. ``history`` is a database, empty for none. ``resume`` is the
    folder of an interrupted run, or None. ``process`` is this one of several that judge the same
    items, or None.
    """

    root: Path
    targets: tuple[str, ...]
    level: Level
    update: BaselineUpdate
    results: Path
    baselines: Path
    compile_timeout_seconds: float
    memory_limit: MemoryLimit | None
    timing_seconds: float
    against: str
    against_seconds: float
    cached: bool
    named: bool
    required: tuple[str, ...]
    history: str
    resume: Path | None
    process: Process | None

    @classmethod
    def parse(cls, root: Path, here: Path, options: Mapping[str, Any]) -> "Settings":
        """Settings from pytest's options; ``here`` is the folder of the command.

        Raises:
            SettingsError: a value is not accepted.
            TargetError: an unknown target.
        """
        parsed = _Parsed(options)

        def seconds(option: str, usual: int) -> float:
            wanted = f"a positive number of seconds; try {usual}"
            return parsed(option, lambda given: _seconds(usual if given is None else given), wanted)

        update = parsed(
            "--assay-update-baselines",
            BaselineUpdate,
            "new or all; new stores what has no baseline yet, all replaces every number",
            ("new", "all"),
        )
        _check_together(options)
        resume = options["assay_resume"] and (here / options["assay_resume"]).resolve()
        results = resume.parent if resume else root / options["assay_results_dir"]
        baselines = root / options["assay_baselines_dir"]
        check_folder("--assay-results-dir", results, written=True)
        writes_baselines = update is not BaselineUpdate.NOTHING
        check_folder("--assay-baselines-dir", baselines, written=writes_baselines)
        process = _process(options["assay_distributed"])
        targets = _targets(options["assay_target"], live=process is not None)
        if process:
            _check_shares(process, targets, options["assay_against"] or "")
        return cls(
            root=root,
            targets=targets,
            level=parsed(
                "--assay-level",
                Level.parse,
                "quick, full, device or soak",
                [level.name.lower() for level in Level],
            ),
            update=update,
            results=results,
            baselines=baselines,
            compile_timeout_seconds=seconds("--assay-compile-timeout", 900),
            memory_limit=parsed("--assay-memory-limit", _memory, "a size such as 4GiB"),
            timing_seconds=seconds("--assay-timing-seconds", 30),
            against=_against(options["assay_against"]),
            against_seconds=seconds("--assay-against-seconds", 300),
            cached=not options["assay_no_cache"],
            named=bool(options["assay_target"]),
            required=parsed(
                "--assay-require-framework",
                _frameworks,
                f"one of {', '.join(KNOWN_FRAMEWORKS)}",
                KNOWN_FRAMEWORKS,
            ),
            history=_database(here, options["assay_history"]),
            resume=resume,
            process=process,
        )


def _database(here: Path, text: str) -> str:
    """The database's URL, or its path from the folder of the command, as ``assay history`` has."""
    is_path = text not in ("", "default") and "://" not in text
    return str(here / Path(text).expanduser()) if is_path else text


def _names(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(name.strip() for text in texts for name in text.split(",") if name.strip())


def _process(text: str | None) -> Process | None:
    """This process of several; None without the option."""
    if text is None:
        return None
    try:
        process = detected_process() if text == "auto" else Process.parse(text)
    except WrongValue as error:
        raise SettingsError(f"--assay-distributed: {error}") from None
    if process is None:
        raise SettingsError(
            "got --assay-distributed where jax.distributed detects no cluster, wanted Slurm, Open "
            "MPI, Kubernetes or Cloud TPU; give --assay-distributed=HOST:PORT,COUNT,INDEX"
        )
    return process


def _check_shares(process: Process, targets: Iterable[str], against: str) -> None:
    """Check that several processes can run the targets together."""
    if against:
        raise SettingsError(
            f"got --assay-against={against} with --assay-distributed, wanted one of the two: times "
            "are measured in one process"
        )
    for name in map(TargetName.parse, targets):
        if name.model not in LIVE_MODELS:
            raise SettingsError(
                f"got --assay-target={name} with --assay-distributed, wanted a live target, such "
                f"as cpu:{4 * process.count}; compile-only targets need one process"
            )
        (devices,) = name.topology or (1 if name.model == "cpu" else process.count,)
        if devices % process.count:
            raise SettingsError(
                f"got --assay-target={name} for {process.count} processes, wanted a number of "
                f"devices that all processes share equally; try {name.model}:{4 * process.count}"
            )


def _targets(texts: Sequence[str], *, live: bool) -> tuple[str, ...]:
    if names := _names(texts):
        return tuple(dict.fromkeys(str(resolve(name).name) for name in names))
    if texts:
        raise SettingsError("got --assay-target without a name, wanted one; see `assay targets`")
    return tuple(
        str(target.name)
        for target, missing in survey()
        if not missing and (target.executes or not live)
    )


def _frameworks(texts: Iterable[str]) -> tuple[str, ...]:
    names = _names(texts)
    if not set(names) <= set(KNOWN_FRAMEWORKS):
        raise ValueError(names)
    return names


def _seconds(text: str | float) -> float:
    seconds = float(text)
    if not 0 < seconds < math.inf:
        raise ValueError(text)
    return seconds


def _check_together(options: Mapping[str, Any]) -> None:
    """Raise SettingsError for options that contradict one another."""
    against, seconds = options["assay_against"], options["assay_against_seconds"]
    if against is None and seconds is not None:
        raise SettingsError(
            f"got --assay-against-seconds={seconds} with nothing to compare, wanted "
            "--assay-against VERSION too; leave one out, or give both"
        )
    if options["assay_resume"] and options["assay_results_dir"] != RESULTS:
        raise SettingsError(
            f"got --assay-results-dir={options['assay_results_dir']} with --assay-resume, "
            "whose run goes on in its own folder; leave it out"
        )
    if options["assay_memory_limit"] is not None and machine_bytes() is None:
        raise SettingsError(
            f"got --assay-memory-limit={options['assay_memory_limit']} on a system that does not "
            "tell the memory of a process, wanted Linux; leave it out"
        )


def _memory(text: str | None) -> MemoryLimit | None:
    if text is None:
        return usual_limit()
    nbytes = parse_bytes(text)
    if not nbytes:
        raise ValueError(text)
    return MemoryLimit(nbytes=nbytes)


def check_folder(option: str, path: Path, *, written: bool) -> None:
    """Check that the folder exists or can be made, before any result could be lost."""
    if why := folder_obstacle(path, written=written):
        raise SettingsError(f"got {option}={path}, {why}")


def _against(text: str | None) -> str:
    if text is None or text == BASELINE:
        return text or ""
    try:
        recipe(text)
    except UnreadableToolchain as error:
        raise SettingsError(
            f"--assay-against: {error}; --assay-against={BASELINE} takes that of the nearest "
            "baseline"
        ) from None
    return text
