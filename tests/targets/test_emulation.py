"""In ``emulated(devices)`` jax names these devices as the machine's own; all else stays."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax.experimental import mesh_utils

from assay.targets import jax_internals, resolve
from assay.targets.emulation import emulated, mesh_settable
from assay.targets.jax_internals import InternalsMoved

AUTO = (jax.sharding.AxisType.Auto,)


def cpu() -> list[jax.Device]:
    """This machine's own devices."""
    return jax.local_devices(0, "cpu")


@pytest.mark.parametrize(
    ("target", "platform"), [("tpu-v5e:2x4", "tpu"), ("gpu-h100:4", "gpu"), ("cpu:3", "cpu")]
)
def test_every_question_is_answered_for_the_target(target: str, platform: str) -> None:
    devices = resolve(target).devices()
    with emulated(devices):
        assert jax.devices() == jax.local_devices() == list(devices)
        assert jax.device_count() == jax.local_device_count() == len(devices)
        assert jax.default_backend() == platform
        assert jax.devices(platform) == list(devices)
        mesh = jax.make_mesh((len(devices),), ("x",), axis_types=AUTO)
        assert set(mesh.devices.flat) == set(devices)
        assert set(mesh_utils.create_device_mesh((len(devices),)).flat) == set(devices)
    assert jax.devices() == cpu()
    assert jax.default_backend() == "cpu"


def test_a_gpu_is_asked_for_by_both_its_names() -> None:
    devices = resolve("gpu-h100:2").devices()
    with emulated(devices):
        assert jax.devices("cuda") == jax.devices("gpu") == list(devices)
        assert jax.device_count("cuda") == 2


def test_another_platform_is_answered_for_as_usual() -> None:
    with emulated(resolve("tpu-v5e:2x4").devices()):
        assert jax.devices("cpu") == jax.local_devices(0, "cpu") == cpu()
        assert jax.device_count("cpu") == len(cpu())
        assert jax.local_devices(backend="cpu") == cpu()


def test_arrays_stay_where_they_were() -> None:
    with emulated(resolve("gpu-h100:8").devices()):
        assert jnp.arange(3).devices() == {cpu()[0]}


def test_all_is_as_before_after_an_exception() -> None:
    with pytest.raises(ZeroDivisionError), emulated(resolve("tpu-v5e:2x4").devices()):
        _ = 1 / 0
    assert jax.devices() == cpu()


def test_a_mesh_may_be_set_while_something_is_traced() -> None:
    mesh = jax.make_mesh((2,), ("x",), axis_types=AUTO, devices=cpu()[:2])

    def made() -> jax.Array:
        with jax.set_mesh(mesh):
            return jax.lax.with_sharding_constraint(jnp.zeros(8), jax.sharding.PartitionSpec("x"))

    with pytest.raises(ValueError, match="outside of"):
        jax.jit(made).trace()
    with mesh_settable():
        assert jax.jit(made).trace().out_info.shape == (8,)


def test_a_jax_that_asks_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    devices = resolve("cpu").devices()
    monkeypatch.setattr(jax_internals, "importlib", SimpleNamespace(import_module=lambda _: None))
    with pytest.raises(InternalsMoved, match=r"xb\.devices"), emulated(devices):
        pass
    with pytest.raises(InternalsMoved, match=r"core\.trace_state_clean"), mesh_settable():
        pass
