"""``--assay-against``: the checks that it adds to those of the suites, and their reruns."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from assay.claims import TimeAgainst
from assay.judge.changes import Sensitivity
from assay.model.claim import Check, RerunClaim, TimingClaim
from assay.model.rerun import KeepRerun, Rerun, RerunRequest
from assay.plugin.settings import Settings, SettingsError
from assay.reruns.environments import Environments
from assay.reruns.recipe import UnreadableToolchain, recipe
from assay.reruns.side_by_side import Against, rerun
from assay.store import baselines

_ADDED = "-against"
"""Suffix of a test's name in the ids of the items that are added for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(Check):
    """A check that no suite wrote: of what a timing claim is put to."""


def checks(name: str, check: Check, *, against: str) -> Iterator[tuple[str, Check]]:
    """A module's check under its name, and what ``--assay-against`` adds; without it no reruns.

    Raises:
        CollectError: a check of a rerun names a negative control.
    """
    if isinstance(check.claim, RerunClaim):
        if check.negative_controls:
            raise pytest.Collector.CollectError(
                f"got {name} with negative control {check.negative_control!r}, wanted none: the "
                f"first variant done twice is the negative control of {check.claim.name!r}; leave "
                "it out"
            )
        if against:
            yield name, check
        return
    yield name, check
    if against and isinstance(check.claim, TimingClaim):
        yield (
            name + _ADDED,
            Added(claim=TimeAgainst(), workloads=check.workloads, variants=check.variants),
        )


def check_toolchains(root: Path) -> None:
    """Read every toolchain that ``--assay-against baseline`` may install, before it installs any.

    Raises:
        SettingsError: one names anything else than released versions of known packages.
    """
    for path, stored in baselines.load_all(root):
        for key, numbers in stored.baselines.items():
            for number in numbers:
                try:
                    recipe(number.toolchain)
                except UnreadableToolchain as error:
                    raise SettingsError(
                        f"--assay-against baseline: {path}, {'/'.join(key)}: {error}"
                    ) from None


def rerun_as_set(
    settings: Settings, request: RerunRequest, keep: KeepRerun, environments: Environments
) -> Rerun:
    """The rerun, within the seconds of the settings."""
    against = Against(
        baseline=request.baseline,
        most_seconds=settings.against_seconds,
        timeout_seconds=settings.compile_timeout_seconds,
        environments=environments,
    )
    sought = request.sought
    return rerun(
        request.workload,
        request.variant,
        request.target,
        against,
        sensitivity=Sensitivity(least=sought.least, seen=sought.seen),
        keep=keep,
        negative_control=request.negative_control,
    )
