"""Compilations of earlier runs: found again, marked in the record, and never a stale number."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import pytest

from assay.model.evidence import Memory
from assay.store.compile_cache import (
    MOST_PROGRAM_BYTES,
    CompileCache,
    CompiledProgram,
    key_of,
    usual_folder,
)
from assay.toolchains.cache import MOST_BYTES
from tests.plugin.project import Ended, Project

FILE = """
import jax, jax.numpy as jnp

X = jax.ShapeDtypeStruct((SIZE, 64), jnp.float32)

def step(x):
    return jnp.sort(x * 2)[::-1] @ x.T

def test_step(assay, assay_target):
    step_ = assay.compile(step, X, target=assay_target)
    assert "sort" in step_.hlo
    assert step_.memory.output_bytes >= OUTPUT
"""


def project(root: Path, size: int = 16) -> Project:
    text = FILE.replace("SIZE", str(size)).replace("OUTPUT", str(4 * size * size))
    return Project(root, {"test_step.py": text})


def cached(ended: Ended) -> list[bool]:
    assert ended.exit_code == 0, ended.output
    return [record.cached for record in ended.records]


@pytest.mark.parametrize("target", ["cpu:8", "gpu-h100", "tpu-v5e:2x4"])
def test_a_second_run_compiles_nothing_and_says_so(tmp_path: Path, target: str) -> None:
    first, second = (project(tmp_path).pytest(target=target) for _ in range(2))
    assert (cached(first), cached(second)) == ([False], [True])
    assert "1 verdict, 1 on programs from the cache" in second.output
    assert "s of work" not in second.output
    assert "cache" not in first.output
    assert first.records[0].seconds > 0


def test_another_program_is_compiled(tmp_path: Path) -> None:
    assert cached(project(tmp_path).pytest()) == [False]
    assert cached(project(tmp_path, size=32).pytest()) == [False]


def test_the_command_shows_and_clears_the_programs(tmp_path: Path) -> None:
    made = project(tmp_path)
    made.pytest()
    shown = made.assay("cache").output.splitlines()
    assert ["compiled", "1"] in [line.split()[:2] for line in shown], shown
    assert ["baselines", "0"] in [line.split()[:2] for line in shown], shown
    assert made.assay("cache", "--clear").exit_code == 0
    assert cached(made.pytest()) == [False]


def test_other_flags_are_another_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.plugin.project._OUTER", ("PYTEST_", "ASSAY_", "CI"))
    assert cached(project(tmp_path).pytest()) == [False]
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    assert cached(project(tmp_path).pytest()) == [False]


def test_the_option_and_ci_compile_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project(tmp_path).pytest()
    assert cached(project(tmp_path).pytest("--assay-no-cache")) == [False]
    monkeypatch.setattr("tests.plugin.project._OUTER", ("PYTEST_", "ASSAY_"))
    monkeypatch.setenv("CI", "true")
    assert cached(project(tmp_path).pytest()) == [False]


@pytest.mark.parametrize("data", [b"", b"x" * 4096])
def test_a_damaged_file_is_no_program(tmp_path: Path, data: bytes) -> None:
    project(tmp_path).pytest()
    (stored,) = (tmp_path / ".cache/assay/compiled").iterdir()
    whole = stored.read_bytes()
    stored.write_bytes(whole[: len(whole) // 2] + data)
    assert cached(project(tmp_path).pytest()) == [False]
    assert cached(project(tmp_path).pytest()) == [True]


def test_a_refused_program_is_refused_again(tmp_path: Path) -> None:
    text = FILE.replace("SIZE", "2_000_000").replace("OUTPUT", "0")
    for _ in range(2):
        ended = Project(tmp_path, {"test_step.py": text}).pytest(target="tpu-v5e:2x4")
        assert ended.exit_code == 1
        assert "runs out of memory" in ended.output
        assert [record.cached for record in ended.records] == [False]


MEMORY = Memory(temp_bytes=1, argument_bytes=2, output_bytes=3, alias_bytes=4, host_temp_bytes=5)


def test_those_unused_longest_go_first(tmp_path: Path) -> None:
    program = CompiledProgram(memory=MEMORY, module=None, hlo_gz=bytes(1000))  # type: ignore[arg-type]
    cache = CompileCache(tmp_path, most_bytes=3500)
    for age, key in ((300, "00-oldest"), (200, "01-older"), (100, "02-old")):
        cache.save(key, program)
        past = time.time() - age
        os.utime(tmp_path / key, (past, past))
    assert {each.name for each in tmp_path.iterdir()} == {"01-older", "02-old"}
    cache.save("03-new", program)
    assert {each.name for each in tmp_path.iterdir()} == {"02-old", "03-new"}


def test_random_keys_keep_the_folder_within_its_bound(tmp_path: Path) -> None:
    program = CompiledProgram(memory=MEMORY, module=None, hlo_gz=bytes(1000))  # type: ignore[arg-type]
    cache = CompileCache(tmp_path, most_bytes=2**20)
    largest = 0
    for number in range(1200):
        cache.save(hashlib.sha256(str(number).encode()).hexdigest(), program)
        largest = max(largest, sum(each.stat().st_size for each in tmp_path.iterdir()))
    assert 0.8 * 2**20 < largest <= 2**20


def test_a_folder_that_cannot_be_written_to_stores_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = CompileCache(tmp_path / "file" / "folder")
    cache.save("key", CompiledProgram(memory=MEMORY, module=None, hlo_gz=b""))  # type: ignore[arg-type]
    assert cache.load("key") is None


def test_all_that_decides_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(program: str = "p", target: str = "t", jax: str = "0.10.2") -> str:
        return key_of(program, target, {"jax": jax})

    keys = [key(), key(program="q"), key(target="u"), key(jax="0.12")]
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_enable_all=1")
    keys.append(key())
    monkeypatch.setattr("assay.store.compile_cache._own_digest", lambda: "changed")
    keys.append(key())
    monkeypatch.setattr("os.cpu_count", lambda: 4096)
    keys.append(key())
    assert len(set(keys)) == len(keys)
    assert key() == key()


def test_the_command_shows_the_limit_that_is_kept() -> None:
    assert MOST_BYTES["compiled"] == MOST_BYTES["baselines"] == MOST_PROGRAM_BYTES


def test_the_folder_is_the_user_s() -> None:
    assert usual_folder({"XDG_CACHE_HOME": "/c"}) == Path("/c/assay/compiled")
    assert usual_folder({}) == Path.home() / ".cache/assay/compiled"
    assert usual_folder({"CI": "false"}) is not None
    assert usual_folder({"CI": "true"}) is None
    assert usual_folder({"ASSAY_NO_CACHE": "1"}) is None
