"""Readies the process for every compiler, before the first test makes jax start."""

from __future__ import annotations

import pytest

from assay.model.target import TargetName
from assay.targets.catalog import known
from assay.targets.devices import prepare


@pytest.fixture(scope="session", autouse=True)
def _ready_for_every_compiler() -> None:
    prepare(map(TargetName.parse, known()))
