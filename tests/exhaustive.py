"""Cases of a test that are left to the exhaustive tests, which run each night."""

from typing import Any

import pytest


def each_night(*values: Any) -> list[Any]:
    """These values of a parameter, marked as exhaustive."""
    return [pytest.param(value, marks=pytest.mark.exhaustive) for value in values]
