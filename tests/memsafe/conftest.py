"""What several of the tests of memsafe ask for."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture
def doubles() -> Iterator[None]:
    """Numbers are doubles while a test runs."""
    with jax.enable_x64(new_val=True):
        yield
