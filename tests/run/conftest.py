"""A harness in a folder of its own."""

from pathlib import Path

import pytest

from .fakes import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)
