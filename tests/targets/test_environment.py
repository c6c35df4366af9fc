"""The environment asks jax for what is there, and leaves what the user has set."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from assay.model.target import TargetName, Unavailable
from assay.targets import environment, presence

COUNT = """
from assay.model.target import TargetName
from assay.targets.devices import prepare
prepare([TargetName.parse('cpu:12')])
import jax
print(len(jax.devices('cpu')))
"""


def named(*names: str) -> list[TargetName]:
    return [TargetName.parse(name) for name in names]


@pytest.fixture
def plugged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of device nodes; empty at first."""
    monkeypatch.setattr(presence, "_DEVICES", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("plugged_in")
def test_without_an_accelerator_jax_runs_on_the_cpu_and_libtpu_alone() -> None:
    found = environment(named("cpu:8", "gpu", "tpu", "tpu-v5e:2x4"), {})
    assert found["JAX_PLATFORMS"] == "cpu"
    assert found["TPU_SKIP_MDS_QUERY"] == found["ALLOW_MULTIPLE_LIBTPU_LOAD"] == "1"
    assert found["TPU_WORKER_HOSTNAMES"] == "localhost"


def test_a_live_gpu_is_asked_for_beside_the_cpu(plugged_in: Path) -> None:
    (plugged_in / "nvidiactl").touch()
    assert environment(named("gpu"), {})["JAX_PLATFORMS"] == "cuda,cpu"
    assert environment(named("gpu-h100:8"), {})["JAX_PLATFORMS"] == "cpu"


def test_a_live_tpu_keeps_its_metadata_and_its_lock(plugged_in: Path) -> None:
    (plugged_in / "accel0").touch()
    found = environment(named("tpu"), {})
    assert found["JAX_PLATFORMS"] == "tpu,cpu"
    assert not any("TPU" in key for key in found)


def test_what_the_user_has_set_stays() -> None:
    base = {"JAX_PLATFORMS": "cuda", "TPU_ACCELERATOR_TYPE": "v4-8", "HOME": "/h"}
    assert base.items() <= environment(named("cpu:8"), base).items()


@pytest.mark.usefixtures("plugged_in")
def test_an_empty_jax_platforms_counts_as_unset() -> None:
    assert environment(named("cpu:8"), {"JAX_PLATFORMS": ""})["JAX_PLATFORMS"] == "cpu"


@pytest.mark.parametrize("platforms", ["cuda", "gpu", "tpu"])
def test_a_platform_without_a_device_is_named_as_the_cause(platforms: str) -> None:
    program = (
        "from assay.targets import prepare, resolve\n"
        "from assay.model.target import TargetUnavailable\n"
        "target = resolve('cpu')\n"
        "prepare([target.name])\n"
        "try:\n"
        "    target.devices()\n"
        "except TargetUnavailable as absent:\n"
        "    print(absent.why.reason, '/', absent.why.remedy)\n"
    )
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env |= {"PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": platforms}
    command = [sys.executable, "-c", program]
    said = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
    assert said.startswith(f"JAX_PLATFORMS={platforms} names ")
    assert "unset JAX_PLATFORMS" in said


def test_with_its_device_a_platform_is_not_the_cause(plugged_in: Path) -> None:
    assert presence.missing_platform("cuda,cpu")
    (plugged_in / "nvidiactl").touch()
    assert presence.missing_platform("cuda,cpu") is None
    assert presence.missing_platform("cpu") is None


@pytest.mark.parametrize(
    ("names", "count"),
    [([], 8), (["gpu-h100:32"], 8), (["cpu"], 8), (["cpu:2", "cpu:12", "tpu"], 12)],
)
def test_the_cpu_gets_the_most_devices_that_a_name_asks_for(names: list[str], count: int) -> None:
    assert presence.cpu_device_count(named(*names)) == count


@pytest.mark.parametrize(
    ("flags", "count"), [("", 12), ("--xla_force_host_platform_device_count=3", 3)]
)
@pytest.mark.parametrize("first", ["", "import jax"], ids=["jax-later", "jax-first"])
def test_a_process_gets_the_cpu_devices_asked_for(first: str, flags: str, count: int) -> None:
    env = {key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ}
    env |= {"PYTHONPATH": ":".join(sys.path), "XLA_FLAGS": flags}
    script = [sys.executable, "-c", first + COUNT]
    assert (
        subprocess.run(script, env=env, check=True, capture_output=True).stdout == b"%d\n" % count
    )


@pytest.mark.parametrize(
    ("plugin", "fault"),
    [("json", presence.GPU_PLUGIN_FAILED), ("no_such_plugin", presence.NO_GPU_PLUGIN)],
)
def test_a_gpu_plugin_that_did_not_start_is_not_called_missing(
    monkeypatch: pytest.MonkeyPatch, plugin: str, fault: Unavailable
) -> None:
    monkeypatch.setattr(presence, "_GPU_PLUGINS", (plugin,))
    found = presence.diagnose(NotImplementedError("topology not implemented for cuda"))
    assert found.remedy == fault.remedy
    assert found.reason.startswith(fault.reason)
