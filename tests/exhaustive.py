"""Cases of a test that are left to the exhaustive tests, which run each night."""

from typing import Any

import pytest


def nightly(*values: Any) -> Any:
    """One case with these values of its parameters, marked as exhaustive."""
    return pytest.param(*values, marks=pytest.mark.exhaustive)
