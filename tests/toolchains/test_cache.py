"""The caches stay within their limits, and what may be in use stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from assay.toolchains.cache import entries, root, shrink


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "assay" / "toolchains"


def entry(folder: Path, name: str, hours_ago: float) -> Path:
    place = folder / name / "lib"
    place.mkdir(parents=True)
    (place / "module.py").write_bytes(b"x" * 1000)
    last_used = time.time() - 3600 * hours_ago
    os.utime(folder / name, (last_used, last_used))
    return folder / name


def test_the_least_recently_used_go_until_the_rest_fits(folder: Path) -> None:
    oldest, older, newer = (entry(folder, *each) for each in (("a", 9), ("b", 8), ("c", 7)))
    assert [each.folder for each in shrink("toolchains", 2000)] == [oldest]
    assert not oldest.exists()
    assert older.exists()
    assert newer.exists()
    assert sum(each.nbytes for each in entries("toolchains")) == 2000


def test_what_was_used_in_the_last_hour_stays(folder: Path) -> None:
    entry(folder, "a", 0.5)
    assert shrink("toolchains", 10) == ()
    assert len(shrink("toolchains", 0)) == 1, "an explicit --clear removes everything"


def test_locks_and_builds_are_no_entries(folder: Path) -> None:
    entry(folder, ".a.building-1", 9)
    (folder / ".a.lock").touch()
    assert entries("toolchains") == ()


def test_a_cache_home_that_is_not_absolute_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "somewhere")
    assert root() == Path.home() / ".cache" / "assay"
