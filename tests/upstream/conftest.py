"""Readies the process for every compiler, before the first test makes jax start."""

from __future__ import annotations

import pytest

from assay.model.target import TargetName
from assay.targets import known, prepare


@pytest.fixture(scope="session", autouse=True)
def _ready_for_every_compiler() -> None:
    import jax

    prepare(map(TargetName.parse, known()))
    # As in the process that Assay compiles in: the frames tell whose code raised an error.
    jax.config.update("jax_traceback_filtering", "off")
