"""A reader sees the old file or the new one, never half of one."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from assay.store.files import (
    commit_of,
    decode_json,
    decode_msgpack,
    read_file,
    readable,
    write_whole,
)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_commit_is_known_and_says_what_is_not_committed(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    (tmp_path / "a").write_text("1")
    for command in (["init", "-q"], ["add", "a"], ["commit", "-qm", "a"], ["tag", "v1"]):
        subprocess.run([*git, *command], check=True)
    commit = commit_of(tmp_path)
    assert re.fullmatch("[0-9a-f]{40}", commit)
    (tmp_path / "a").write_text("2")
    assert commit_of(tmp_path) == f"{commit}-dirty"


def test_a_file_is_written_with_its_folders(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.json"
    write_whole(path, b"one")
    write_whole(path, b"two")
    assert path.read_bytes() == b"two"
    assert names_in(path.parent) == ["b.json"]


def test_others_may_read_what_was_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"")
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o644


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, f"no space for {self} in place of {target}")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert names_in(tmp_path) == ["file"]


def test_an_interrupted_write_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Path, mode: int) -> None:
        raise KeyboardInterrupt(f"{self} {mode}")

    monkeypatch.setattr(Path, "chmod", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"new")
    assert names_in(tmp_path) == []


def test_a_folder_that_is_removed_meanwhile_does_not_hide_why_writing_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(self: Path, target: Path) -> Path:
        self.unlink()
        raise OSError(28, f"no space for {target}")

    monkeypatch.setattr(Path, "replace", removed)
    with pytest.raises(OSError, match="no space"):
        write_whole(tmp_path / "file", b"new")


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (("norm", "rows"), "norm-rows"),
        (("a/b", "../c"), "a-b-..-c"),
        ((".hidden",), "hidden"),
        (("-option",), "option"),
        (("a" * 119, "bc"), "a" * 119 + "-"),
        (("naïve [x=1]",), "na-ve-x-1-"),
    ],
)
def test_names_become_one_part_of_a_files_name(names: tuple[str, ...], part: str) -> None:
    assert readable(names) == part


def test_a_pipe_or_a_large_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    assert read_file(tmp_path / "large", 5) == b"12345"
    for name, why in (("pipe", "not a regular file"), ("large", "larger than 4 B")):
        with pytest.raises(OSError, match=why):
            read_file(tmp_path / name, 4)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'"\xff"', b'"\\ud800"', b"1e999", b"{"])
def test_any_broken_json_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_json(data, Any)


@pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\xa1\xff", b"\xc1"])
def test_any_broken_messagepack_is_one_kind_of_error(data: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode_msgpack(data, Any)
