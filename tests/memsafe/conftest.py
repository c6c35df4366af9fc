"""What several of the tests of memsafe ask for."""

from collections.abc import Iterator

import jax
import pytest

from assay.model.target import TargetName
from assay.targets import known, prepare

prepare(map(TargetName.parse, known()))  # Others' tests in this process want more than one CPU.


@pytest.fixture
def doubles() -> Iterator[None]:
    """Numbers are doubles while a test runs."""
    with jax.enable_x64(new_val=True):
        yield
