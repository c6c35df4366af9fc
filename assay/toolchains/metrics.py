"""Metrics: one number of a program on one release, or the reason why there is none."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from assay.model.bisection import Point
from assay.model.module import Direction, nbytes_per_run
from assay.model.summary import copied_bytes_per_iteration
from assay.model.units import Unit
from assay.toolchains.probes import Probed, Wanted

SAME: Final = 0.01
"""Numbers within 1 % are no change: the tolerance of a stored baseline (``BaselineTempBytes``)."""
_SAME_TIMES: Final = 0.2
"""Time ratios this close are no change: two equally fast releases gave 307 and 345."""
_SAME_VALUES: Final = 1e-3
"""Outputs that differ by at most this share of the largest one are rounding of floats."""


Good = Callable[[], Probed]
"""Measures the good release, unless that was done."""


class NoNumber(Exception):
    """The metric cannot be measured on this release; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number of a probed release. ``same`` is the relative difference that is no change.

    ``of`` gets the release, and the good release if it asks for it. A flag is 0 or 1. No number is
    below the ``floor``. With a floor, the bad release is expected to have the larger number.
    """

    name: str
    of: Callable[[Probed, Good], float]
    wanted: Wanted = Wanted.COMPILE
    unit: Unit = Unit.BYTES
    same: float = SAME
    counts_failures: bool = False
    is_flag: bool = False
    floor: float | None = None

    def of_release(self, probed: Probed, good: Good) -> Point:
        """The release's point. A failure has a number only if the metric counts failures."""
        evidence, version = probed.evidence, probed.release.version
        if evidence.unavailable is not None:
            return Point(version=version, why=str(evidence.unavailable))
        if evidence.failure is not None and not self.counts_failures:
            failure = evidence.failure
            return Point(version=version, why=f"{failure.kind.phrase}: {failure.message}")
        try:
            return Point(version=version, number=self.of(probed, good))
        except NoNumber as missing:
            return Point(version=version, why=str(missing))


def _memory(field: str, probed: Probed, _good: Good) -> float:
    if field == "host_bytes":
        _check_host_memory(probed)
    if probed.evidence.memory is None:
        raise NoNumber("the compiler gives no memory analysis")
    return float(getattr(probed.evidence.memory, field))


def copied_bytes(above: int, probed: Probed, _good: Good) -> float:
    """Bytes of full-buffer writes per loop iteration, in arrays larger than ``above`` bytes."""
    module = probed.evidence.module
    if module is None or not module.buffers_assigned:
        raise NoNumber("the compiler gives no buffer assignment to tell a copy from an update")
    return copied_bytes_per_iteration(module.full_buffer_writes, above)


def _check_host_memory(probed: Probed) -> None:
    if not probed.evidence.separate_host_memory:
        raise NoNumber("this target and release keep no placement in host memory")


def _transfers(probed: Probed, _good: Good) -> float:
    _check_host_memory(probed)
    if probed.evidence.module is None:
        raise NoNumber("the compiler gives no HLO module")
    transfers = probed.evidence.module.transfers
    totals = [nbytes_per_run(transfers, direction) for direction in Direction]
    if None in totals:
        raise NoNumber("a transfer runs an unknown number of times")
    return float(sum(filter(None, totals)))


def _failures(probed: Probed, _good: Good) -> float:
    return float(probed.evidence.failure is not None)


def _compiles(probed: Probed, _good: Good) -> float:
    assert probed.compiles is not None
    return probed.compiles


def _returned(probed: Probed, _good: Good) -> float:
    if probed.returned is None:
        raise NoNumber("the function returns no single number")
    return probed.returned


def _difference(probed: Probed, given: Good) -> float:
    """The largest difference of any output element, as a share of that output's largest one.

    0 up to ``_SAME_VALUES``; 1 if other elements are finite, infinite or NaN than before.
    """
    assert probed.folder is not None
    good = given()
    if good.folder is None or not (good.folder / "outputs.npz").exists():
        raise NoNumber("the good release gives no outputs to compare with")
    with (
        np.load(good.folder / "outputs.npz") as old,
        np.load(probed.folder / "outputs.npz") as new,
    ):
        if [old[name].shape for name in old] != [new[name].shape for name in new]:
            raise NoNumber("the outputs have other shapes than those of the good release")
        shares = [_share(old[name], new[name]) for name in old]
    largest = max(shares, default=0.0)
    return largest if largest > _SAME_VALUES else 0.0


def _share(old: np.ndarray, new: np.ndarray) -> float:
    if not old.size:
        return 0.0
    finite = np.isfinite(old)
    if not np.array_equal(finite, np.isfinite(new)):
        return 1.0
    if not np.array_equal(old[~finite], new[~finite], equal_nan=True):
        return 1.0
    largest = float(np.max(np.abs(old[finite]), initial=0.0)) or 1.0
    return float(np.max(np.abs(new[finite] - old[finite]), initial=0.0)) / largest


def _not_probed(_probed: Probed, _good: Good) -> float:
    raise NoNumber("this metric needs more than one program")


TIME: Final = "time"
"""The time of a run over that on the good release, see ``assay.toolchains.pairs``."""

CLAIM: Final = "claim"
"""1 if a claim of a suite fails, 0 if it passes."""

_FAILS: Final = Metric(
    name="error", of=_failures, unit=Unit.COUNT, counts_failures=True, is_flag=True
)
_bytes: Final = partial(Metric, floor=0.0)
_METRICS: Final = (
    _bytes(name="temp_bytes", of=partial(_memory, "temp_bytes")),
    _bytes(name="host_bytes", of=partial(_memory, "host_bytes")),
    _bytes(name="device_bytes", of=partial(_memory, "device_bytes")),
    _bytes(name="loop_copies", of=partial(copied_bytes, 0)),
    _bytes(name="transfers", of=_transfers),
    _FAILS,
    replace(_FAILS, name="runs", wanted=Wanted.RUN),
    Metric(name="compiles", of=_compiles, wanted=Wanted.RUN, unit=Unit.COUNT, same=0.0, floor=0.0),
    Metric(name="value", of=_difference, wanted=Wanted.RUN, unit=Unit.RATIO),
    Metric(name=TIME, of=_not_probed, wanted=Wanted.TIME, unit=Unit.RATIO, same=_SAME_TIMES),
    Metric(name=CLAIM, of=_not_probed, unit=Unit.COUNT, is_flag=True),
    Metric(name="returned", of=_returned, wanted=Wanted.CALL, unit=Unit.COUNT),
)
METRICS: Final[Mapping[str, Metric]] = MappingProxyType({each.name: each for each in _METRICS})
