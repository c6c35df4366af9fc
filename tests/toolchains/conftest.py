"""A uv that needs no index, and a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolchains.fake_uv import FakeUv


@pytest.fixture
def fake_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeUv:
    """The only uv on the search path."""
    return FakeUv(tmp_path, monkeypatch)
