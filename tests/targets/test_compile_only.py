"""Every compile-only target really compiles, on the devices that its name says."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from importlib.machinery import ModuleSpec

import jax
import pytest
from jax.sharding import SingleDeviceSharding

from assay.model.target import TargetUnavailable
from assay.targets import check, known, presence, resolve
from assay.targets.presence import environment

COMPILE_ONLY = tuple(name for name in known() if not resolve(name).executes)
HIDE_LIBTPU = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition('.')[0] == 'libtpu':
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
from assay.targets import check, resolve
for found in (resolve('tpu-v5e:2x4').unavailable(), check(resolve('tpu-v5e:2x4'))):
    print(found.remedy)
"""
COMPILE_FOR_TPU = """
from assay.targets import check, prepare, resolve
prepare([])
print(check(resolve('tpu-v5e:2x4')))
input()
"""


@pytest.mark.parametrize("name", COMPILE_ONLY)
def test_a_program_compiles_for_eight_devices(name: str) -> None:
    target = resolve(name)
    assert check(target) is None
    assert len(target.devices()) == 8


@pytest.mark.parametrize("name", COMPILE_ONLY)
def test_jax_makes_a_mesh_of_the_devices(name: str) -> None:
    """JAX makes none of single TensorCores of a TPU v4: there, a chip has to be one device."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), devices=resolve(name).devices())
    assert mesh.size == 8


@pytest.mark.parametrize("name", ["gpu-h100:8", "tpu-v5e:2x4"])
def test_a_target_gives_the_same_devices_each_time(name: str) -> None:
    assert resolve(name).devices() is resolve(name).devices()


@pytest.mark.parametrize("name", ["gpu-h100", "tpu-v5e:1x1"])
def test_a_move_to_host_memory_is_kept(name: str) -> None:
    target = resolve(name)
    here = SingleDeviceSharding(target.devices()[0])
    program = jax.jit(lambda x: jax.device_put(x, jax.memory.Space.Host), in_shardings=here)
    argument = jax.ShapeDtypeStruct((8, 128), "float32")  # type: ignore[no-untyped-call]
    lowered = program.trace(argument).lower(lowering_platforms=(target.platform,))
    assert "annotate_device_placement" in lowered.as_text()


def test_a_topology_that_the_compiler_refuses_is_unavailable() -> None:
    target = resolve("tpu-v5e:3x5")
    with pytest.raises(TargetUnavailable, match=r"hosts .*not divisible.*; do this: "):
        target.devices()
    assert check(target) is not None


@pytest.mark.parametrize(
    ("module", "name", "remedy"),
    [
        ("libtpu", "tpu-v5e:2x4", "pip install libtpu"),
        ("jax_plugins", "gpu-h100:8", "pip install jax-cuda13-plugin"),
        ("jaxlib", "gpu-h100:8", "pip install jax"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, module: str, name: str, remedy: str
) -> None:
    find = importlib.util.find_spec

    def hidden(wanted: str, package: str | None = None) -> ModuleSpec | None:
        return None if wanted.startswith(module) else find(wanted, package)

    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    missing = resolve(name).unavailable()
    assert missing is not None
    assert remedy in missing.remedy


@pytest.mark.parametrize("lacking", ["ptxas", "libdevice.10.bc"])
def test_a_gpu_target_without_its_tools_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    monkeypatch.setattr(presence, "_in_cuda", lambda file: not file.endswith(lacking))
    monkeypatch.setattr(shutil, "which", lambda _: None)
    missing = resolve("gpu-h100:8").unavailable()
    assert missing is not None
    assert "pip install nvidia-" in missing.remedy


def test_without_libtpu_a_tpu_target_says_how_to_get_it() -> None:
    found = python(HIDE_LIBTPU).communicate()[0].splitlines()
    assert found == ["pip install libtpu"] * 2


def test_two_processes_use_libtpu_at_once() -> None:
    both = [python(COMPILE_FOR_TPU) for _ in range(2)]
    first_lines = [process.stdout.readline() for process in both if process.stdout]
    for process in both:  # each has held libtpu until both had compiled
        process.communicate("done\n")
    assert first_lines == ["None\n"] * 2


def python(script: str) -> subprocess.Popen[str]:
    """A new process that runs `script`, with nothing of this one's environment for libtpu."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment([], {"PYTHONPATH": ":".join(sys.path)}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
