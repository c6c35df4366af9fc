"""Outputs of two releases differ where the one has another number, infinity or NaN."""

from __future__ import annotations

from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from assay.toolchains.metrics import METRICS


def probed(folder: Path, values: list[float]) -> Any:
    folder.mkdir()
    np.savez(folder / "outputs.npz", values)
    return SimpleNamespace(folder=folder)


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0),
        ([1.0, 2.0], [1.0, 1.0], 0.5),
        ([1.0, inf], [1.0, inf], 0.0),
        ([1.0, nan], [1.0, nan], 0.0),
        ([1.0, inf], [1.0, 2.0], 1.0),
        ([1.0, inf], [1.0, nan], 1.0),
        ([1.0, inf], [1.0, -inf], 1.0),
    ],
)
def test_infinities_and_nans_must_be_the_same(
    tmp_path: Path, old: list[float], new: list[float], difference: float
) -> None:
    good, bad = probed(tmp_path / "good", old), probed(tmp_path / "bad", new)
    assert cast("Any", METRICS["value"]).of(bad, lambda: good) == difference
