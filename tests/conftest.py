"""What holds for all tests of the library."""

import os

import pytest
from hypothesis import settings

# Compilers and other runs share the machine: how long an example takes says nothing.
settings.register_profile("assay", deadline=None)
settings.load_profile("assay")

# Tests of compiling compile. Those of the cache run pytest in a project with a cache folder of its
# own (``tests/plugin/project.py``).
os.environ["ASSAY_NO_CACHE"] = "1"


@pytest.fixture
def in_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command runs in no worker of xdist, in which pytest-benchmark would warn of its timings."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
