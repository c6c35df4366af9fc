"""Whether the real uv and an index that answers are here, for tests on released wheels."""

from __future__ import annotations

import subprocess
import sys

import jax
import pytest

from assay.toolchains.environments import CannotMake, find_uv

OTHER = "0.10.2" if jax.__version__ != "0.10.2" else "0.11.0"
"""A released version of jax that is not the present one."""


def skip_without_index() -> str:
    """Skip unless uv finds the other version; returns the uv command."""
    try:
        uv = find_uv().command
    except CannotMake as missing:
        pytest.skip(str(missing))
    dry = ["pip", "install", "--dry-run", "--no-deps", "--reinstall", "--python", sys.executable]
    asked = subprocess.run([uv, *dry, f"jax=={OTHER}"], capture_output=True, text=True, check=False)
    if asked.returncode:
        pytest.skip(f"no index gives jax {OTHER}: {asked.stderr[:200]}")
    return uv
