"""Live targets are what this process can run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.target import TargetUnavailable
from assay.targets import check, presence, resolve


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without device nodes."""
    monkeypatch.setattr(presence, "_DEVICES", tmp_path)


@pytest.mark.parametrize(("name", "count"), [("cpu", 1), ("cpu:8", 8)])
def test_the_cpu_is_as_many_devices_as_the_name_says(name: str, count: int) -> None:
    assert len(resolve(name).devices()) == count
    assert check(resolve(name)) is None


def test_more_cpu_devices_than_jax_started_with_are_refused() -> None:
    assert len(resolve("cpu:8").devices()) == 8  # now it has started, whichever test came first
    with pytest.raises(TargetUnavailable, match="asks for 4096; do this: before jax starts"):
        resolve("cpu:4096").devices()


@pytest.mark.usefixtures("no_accelerator")
@pytest.mark.parametrize("name", ["gpu", "tpu"])
def test_an_accelerator_that_is_not_there_is_unavailable(name: str) -> None:
    target = resolve(name)
    missing = target.unavailable()
    assert missing is not None
    assert missing == check(target)
    assert "this machine shows no" in missing.reason
    with pytest.raises(TargetUnavailable, match="take a compile-only target"):
        target.devices()


def test_a_node_of_the_driver_makes_a_gpu_live(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(presence, "_DEVICES", tmp_path)
    assert resolve("gpu").unavailable() is None
