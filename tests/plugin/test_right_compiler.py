"""One function gives the same numbers through every door, by the compiler of its target."""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugin.project import PREAMBLE, Project

TARGET = "tpu-v5e:2x4"
STEP = """
import jax, jax.numpy as jnp

def step(x):
    return jax.lax.scan(lambda c, _: (jnp.tanh(c @ c), c.sum()), x, None, length=8)

def example_args():
    return (jax.ShapeDtypeStruct((256, 256), jnp.float32),)
"""
CHECKED = (
    PREAMBLE
    + """
from functools import partial
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from train import example_args, step

SHAPE = example_args()[0]

def program(devices):
    on_one = jax.sharding.SingleDeviceSharding(devices[0])
    return Program(function=step, arguments=(SHAPE,), in_shardings=on_one)

test_checked = Check(
    claim=claims.BaselineTempBytes(),
    workloads=[workload(variant("step", program), suite="checked")],
)

def test_required(assay):
    seen = assay.compile(step, SHAPE, target="tpu-v5e:2x4")
    assert seen.memory.host_temp_bytes == 0
    assert seen.memory.temp_bytes <= assay.baseline("temp_bytes")

def test_jitted(assay):
    @partial(jax.jit, donate_argnums=0, static_argnums=1)
    def plus(x, n):
        return x + n

    for shardings in (None, lambda devices: jax.sharding.SingleDeviceSharding(devices[0])):
        seen = assay.compile(plus, X, 3, target="tpu-v5e:2x4", in_shardings=shardings)
        (donation,) = seen.donations
        assert donation.honoured

def on_cpu(devices):
    rows = NamedSharding(Mesh(np.array(jax.devices("cpu")[:2]), ("x",)), PartitionSpec("x"))
    return Program(function=jax.jit(lambda x: x * 2, in_shardings=rows), arguments=(X,))

test_misplaced = Check(
    claim=claims.Compiles(), workloads=[workload(variant("on-cpu", on_cpu), suite="misplaced")]
)
"""
)


def test_every_door_leads_to_the_compiler_of_the_target(tmp_path: Path) -> None:
    project = Project(tmp_path, {"train.py": STEP, "test_step.py": CHECKED})
    run = project.pytest("--assay-update-baselines=new", target=TARGET)
    assert run.exit_code == 1, run.output
    assert run.outcomes == {"passed": 3, "failed": 1}
    assert "which is no device of the target" in run.record("on-cpu").reason
    measured = {
        record.measured for record in run.records if record.claim in ("temp-bytes", "temp_bytes")
    }
    shown = json.loads(
        project.assay("inspect", "train.py:step", "--target", TARGET, "--json").output
    )
    assert [record.claim for record in run.records].count("temp_bytes") == 1
    assert measured == {shown["memory"]["temp_bytes"]}
    # The compiler of the CPU takes one matrix more.
    assert shown["memory"]["temp_bytes"] < 256 * 256 * 4
