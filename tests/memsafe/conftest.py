"""Fixtures that several tests of memsafe share."""

from collections.abc import Iterator

import jax
import pytest

from assay.model.target import TargetName
from assay.targets import known, prepare

prepare(map(TargetName.parse, known()))  # Other tests in this process need more than one CPU.


@pytest.fixture
def doubles() -> Iterator[None]:
    """Enables double precision while a test runs."""
    with jax.enable_x64(new_val=True):
        yield
