"""The options of a run, parsed once at the border."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.frameworks.installed import KNOWN as KNOWN_FRAMEWORKS
from assay.measure import BASELINE
from assay.model.target import State
from assay.model.workload import Level
from assay.run import BaselineUpdate
from assay.targets import resolve, survey
from assay.toolchains.recipe import UnreadableToolchain, recipe


class SettingsError(ValueError):
    """An option that cannot be used: got, wanted, do this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a run. ``targets`` are canonical names, in the order given.

    ``named`` says that they were asked for; ``cached``, that compilations of earlier runs are used;
    ``required`` are frameworks that must be installed.
    """

    root: Path
    targets: tuple[str, ...]
    level: Level
    update: BaselineUpdate
    results: Path
    baselines: Path
    compile_timeout_seconds: float
    timing_seconds: float
    against: str
    against_seconds: float
    cached: bool
    named: bool
    required: tuple[str, ...]

    @classmethod
    def parse(cls, root: Path, options: Mapping[str, Any]) -> "Settings":
        """Settings from pytest's parsed options.

        Raises:
            SettingsError: a value that is none of those wanted.
            TargetError: an unknown target.
        """
        try:
            level = Level.parse(options["assay_level"])
        except ValueError as error:
            raise SettingsError(
                f"{error}; give --assay-level quick, full, device or soak"
            ) from None
        update = _update(options["assay_update_baselines"])
        results = _folder("--assay-results-dir", root / options["assay_results_dir"], written=True)
        baselines = _folder(
            "--assay-baselines-dir",
            root / options["assay_baselines_dir"],
            written=update is not BaselineUpdate.NOTHING,
        )
        return cls(
            root=root,
            targets=_targets(options["assay_target"]),
            level=level,
            update=update,
            results=results,
            baselines=baselines,
            compile_timeout_seconds=_seconds(
                "--assay-compile-timeout", options["assay_compile_timeout"], 900
            ),
            timing_seconds=_seconds("--assay-timing-seconds", options["assay_timing_seconds"], 30),
            against=_against(options["assay_against"]),
            against_seconds=_against_seconds(
                options["assay_against_seconds"], options["assay_against"]
            ),
            cached=not options["assay_no_cache"],
            named=bool(options["assay_target"]),
            required=_frameworks(options["assay_require_framework"]),
        )


def _targets(asked: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in asked for name in text.split(",") if name.strip()]
    if asked and not names:
        raise SettingsError("got --assay-target without a name, wanted one; see `assay targets`")
    if names:
        return tuple(dict.fromkeys(str(resolve(name).name) for name in names))
    return tuple(
        str(target.name)
        for target, availability in survey()
        if availability.state is not State.UNAVAILABLE
    )


def _frameworks(asked: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for text in asked for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KNOWN_FRAMEWORKS:
            known = ", ".join(KNOWN_FRAMEWORKS)
            raise SettingsError(f"got --assay-require-framework={name}, wanted one of {known}")
    return tuple(names)


def _folder(option: str, path: Path, *, written: bool) -> Path:
    """A folder that exists or can be made, checked before measuring so that no result is lost."""
    there = next(each for each in (path, *path.parents) if each.exists())
    if not there.is_dir():
        raise SettingsError(f"got {option}={path}, where {there} is a file, wanted a folder")
    if written and not os.access(there, os.W_OK | os.X_OK):
        raise SettingsError(
            f"got {option}={path}, where {there} cannot be written to, wanted a folder that can; "
            "name another"
        )
    return path


def _update(text: str) -> BaselineUpdate:
    try:
        return BaselineUpdate(text)
    except ValueError:
        raise SettingsError(
            f"got --assay-update-baselines={text}, wanted new or all; "
            "new stores what has no baseline yet, all replaces every number"
        ) from None


def _against(text: str | None) -> str:
    """What ``--assay-against`` names, empty without it."""
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


def _against_seconds(text: str | None, against: str | None) -> float:
    if text is not None and against is None:
        raise SettingsError(
            f"got --assay-against-seconds={text} with nothing to compare, wanted "
            "--assay-against VERSION too; leave one out, or give both"
        )
    return _seconds("--assay-against-seconds", "300" if text is None else text, 300)


def _seconds(option: str, text: str, usual: int) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise SettingsError(
            f"got {option}={text}, wanted a positive number of seconds; try {usual}"
        )
    return seconds
