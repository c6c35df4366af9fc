"""What holds for all tests of the library."""

import ctypes
import gc
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record

# Compilers and other runs share the machine: how long an example takes says nothing.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

# Tests of compiling compile. Those of the cache run pytest in a project with a cache folder of its
# own (``tests/plugin/project.py``).
os.environ["ASSAY_NO_CACHE"] = "1"
# A run that a test starts is in no worker of xdist. In the first worker, pytest-benchmark would
# warn of its timings, and pytest would end with 1 although every test passed.
os.environ.pop("PYTEST_XDIST_WORKER", None)


# jax keeps every program that it compiled in this process: without a bound, the exhaustive tests of
# memsafe take 4.5 GB (docs/nightly.md).
_MOST_BYTES = 5 * 2**28
_GROWN_BYTES = 2**28
_left = [0]  # What the process held after the last time.


def pytest_runtest_teardown() -> None:
    """Drop jax's compiled programs from a process that has grown."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    held = pages * os.sysconf("SC_PAGE_SIZE")
    jax: Any = sys.modules.get("jax")
    if jax is None or held < max(_MOST_BYTES, _left[0] + _GROWN_BYTES):
        return
    jax.clear_caches()
    gc.collect()
    # glibc keeps what is freed: 0.9 GB of 1.3 GB after two files of memsafe's tests.
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    _left[0] = pages * os.sysconf("SC_PAGE_SIZE")


_KEPT = Record(
    schema=RECORD_SCHEMA,
    run="2026-11-20",
    suite="scan_offload",
    workload="scan_stack",
    variant="offload-hidden",
    claim="host-bytes",
    target="gpu-h100:8",
    toolchain={"jax": "0.12.0", "jaxlib": "0.12.0"},
    verdict=Outcome.PASSED,
    measured=16 * 2**30,
    limit=16 * 2**30,
    unit=Unit.BYTES,
    baseline=None,
    reason="host memory: 16.0 GiB, expected = 16.0 GiB (the stack)",
    advice="",
    upstream="",
    seconds=0.25,
)


@pytest.fixture(scope="session")
def record_of() -> Callable[..., Record]:
    """A passed record with the fields given in place of its own."""

    def make(**fields: Any) -> Record:
        return replace(_KEPT, **fields)

    return make
