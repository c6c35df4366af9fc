"""Every program is compiled, run and timed on the devices of its target, or nothing is measured."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import checkpoint_name
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from assay.frameworks import hlo, jax_placement
from assay.frameworks.framework import Misplaced, check_placement
from assay.frameworks.hlo import Form, HloFile
from assay.frameworks.installed import framework
from assay.frameworks.jax import JaxFramework
from assay.hlo.assignment import memory_stats
from assay.hlo.schema import split
from assay.model.evidence import Evidence, FailureKind, Loop, Steps
from assay.model.inspection import Inspection, Means
from assay.model.workload import Growth, Program, Role, Variant, Workload
from assay.observe import observe
from assay.report.inspection_json import to_json
from assay.targets import prepare, resolve

TPU, GPU = "tpu-v5e:2x4", "gpu-h100"
MIB = 2**20
X = jax.ShapeDtypeStruct((8, 8), jnp.float32)
prepare([resolve("cpu:8").name])


def seen(target: str, program: Callable[[Any], Program]) -> Evidence:
    variant = Variant(name="variant", role=Role.CONTROL, program=program)
    return observe(Workload(suite="tests", name="placement", variants=(variant,)), variant, target)


def temp_bytes(target: str, **named: Any) -> int:
    evidence = seen(target, lambda _: Program(**named))
    assert evidence.memory is not None, evidence.failure
    return evidence.memory.temp_bytes


def product(x: jax.Array) -> jax.Array:
    return jnp.sin(x) @ x


def offloaded(x: jax.Array) -> jax.Array:
    """Eight saved values of 0.5 MiB go to the host and come back."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["saved"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    @partial(jax.checkpoint, policy=policy)
    def layer(x: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.sin(checkpoint_name(jnp.sin(x), "saved")), None

    return jax.grad(lambda x: jax.lax.scan(layer, x, None, length=8)[0].sum())(x)


def test_a_program_without_shardings_is_for_the_first_device() -> None:
    shape = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    plain = temp_bytes(TPU, function=product, arguments=(shape,))
    here = SingleDeviceSharding(resolve(TPU).devices()[0])
    assert plain == temp_bytes(TPU, function=product, arguments=(shape,), in_shardings=here)
    assert plain < MIB == temp_bytes("cpu", function=product, arguments=(shape,))


@pytest.mark.parametrize("target", [TPU, GPU])
def test_an_offload_without_shardings_is_on_the_host(target: str) -> None:
    evidence = seen(
        target,
        lambda _: Program(
            function=offloaded, arguments=(jax.ShapeDtypeStruct((256, 512), "float32"),)
        ),
    )
    assert evidence.memory
    assert evidence.memory.host_temp_bytes == 4 * MIB
    assert evidence.module
    assert evidence.module.to_host_bytes_per_run == 4 * MIB
    assert evidence.module.to_device_bytes_per_run == 4 * MIB


def test_what_the_tpu_compiler_refuses_does_not_compile() -> None:
    huge = jax.ShapeDtypeStruct((2**33,), jnp.float32)
    evidence = seen(TPU, lambda _: Program(function=jnp.sin, arguments=(huge,)))
    assert evidence.failure
    assert evidence.failure.kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize("target", [TPU, GPU])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_program_without_arguments_is_for_the_target(target: str, *, jitted: bool) -> None:
    function: Any = partial(jnp.ones, (8, 8))
    compiled = seen(target, lambda _: Program(function=jax.jit(function) if jitted else function))
    assert compiled.failure is None


def on_cpu_mesh(_: Any) -> Program:
    mesh = Mesh(np.array(jax.local_devices(0, "cpu")[:2]), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    return Program(function=jax.jit(jnp.sin, in_shardings=rows), arguments=(X,))


def on_cpu_inside(_: Any) -> Program:
    mesh = Mesh(np.array(jax.local_devices(0, "cpu")[:2]), ("x",))
    rows = NamedSharding(mesh, PartitionSpec("x"))
    function = partial(jax.lax.with_sharding_constraint, shardings=rows)
    return Program(function=function, arguments=(X,))


def on_cpu_argument(_: Any) -> Program:
    return Program(
        function=jnp.sin, arguments=(jax.device_put(jnp.ones(8), jax.local_devices(0, "cpu")[1]),)
    )


@pytest.mark.parametrize("target", [TPU, GPU, "cpu"])
@pytest.mark.parametrize("program", [on_cpu_mesh, on_cpu_inside, on_cpu_argument])
def test_a_program_for_other_devices_does_not_lower(target: str, program: Any) -> None:
    failure = seen(target, program).failure
    assert failure
    assert failure.kind is FailureKind.LOWERING
    assert "which is no device of the target" in failure.message


def test_a_jitted_function_keeps_what_it_was_jitted_with() -> None:
    function = jax.jit(lambda x, n: x + n, donate_argnums=0, static_argnums=1)
    for shardings in (
        None,
        SingleDeviceSharding(resolve(TPU).devices()[0]),
        (SingleDeviceSharding(resolve(TPU).devices()[0]), None),
    ):
        program = Program(function=function, arguments=(X, 3), in_shardings=shardings)
        evidence = seen(TPU, lambda _, program=program: program)
        assert evidence.module, evidence.failure
        (donation,) = evidence.module.donations
        assert donation.honoured


@pytest.mark.parametrize("option", [{"donate_argnums": (0,)}, {"out_shardings": 1}])
def test_a_jitted_function_is_not_jitted_again(option: Mapping[str, Any]) -> None:
    program = Program(function=jax.jit(jnp.sin), arguments=(X,), **option)
    failure = seen("cpu", lambda _: program).failure
    assert failure
    assert f"got Program({next(iter(option))}=…)" in failure.message


class Unplaced:
    """Negative controls: the harness with its placement taken away."""

    @pytest.fixture(autouse=True)
    def _without_placement(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def unplaced(traced: Any, platform: str, _: Any) -> Any:
            return traced.lower(lowering_platforms=(platform,))

        monkeypatch.setattr("assay.frameworks.jax.lowered_for", unplaced)


class TestCompiling(Unplaced):
    """What ends up with another compiler is an error of Assay, not evidence."""

    @pytest.mark.parametrize("target", [TPU, GPU])
    @pytest.mark.parametrize("arguments", [(), (X,)])
    def test_another_compiler_is_an_error(self, target: str, arguments: Any) -> None:
        function: Any = jnp.sin if arguments else partial(jnp.ones, (8, 8))
        with pytest.raises(Misplaced, match="a verdict on another compiler"):
            seen(target, lambda _: Program(function=function, arguments=arguments))

    def test_a_result_of_nothing_is_an_error_too(self) -> None:
        with pytest.raises(Misplaced, match="a verdict on another compiler"):
            seen(TPU, lambda _: Program(function=lambda: None))

    def test_timing_another_device_is_an_error(self) -> None:
        program = Program(
            function=jnp.sin,
            arguments=(jax.device_put(jnp.ones(8), jax.devices()[1]),),
            values=lambda: (jnp.ones(8),),
        )
        with pytest.raises(Misplaced):
            JaxFramework(jax.devices()[:1], "cpu").ready(program)


def elsewhere() -> jax.Array:
    return jax.device_put(jnp.ones(8), jax.devices()[1])


def make_loop() -> Loop:
    return Loop(step=lambda: {"x": elsewhere() + 1})


def run(tools: JaxFramework) -> None:
    program = Program(values=lambda: (elsewhere(),), observe=jnp.sin)
    tools.execute(program)


def steps(tools: JaxFramework) -> None:
    tools.run_steps(Steps(count=1, build=make_loop))


def timed_steps(tools: JaxFramework) -> None:
    tools.ready(Program(steps=Steps(count=1, build=make_loop))).run(1)


@pytest.mark.parametrize("measure", [run, steps, timed_steps])
def test_a_result_on_another_device_is_an_error(measure: Any) -> None:
    with pytest.raises(Misplaced, match="a verdict on another compiler"):
        measure(JaxFramework(jax.devices()[:1], "cpu"))
    measure(JaxFramework(jax.devices()[:2], "cpu"))


def test_a_growing_loop_on_another_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    grows = Growth(lengths=(8, 16), build=lambda length: (jnp.sin, lambda: (jnp.ones(length),)))
    devices = jax.devices()
    tools = JaxFramework(devices[:1], "cpu")
    assert tools.time_growth(grows, 0.1).seconds
    put = jax.device_put
    monkeypatch.setattr(jax, "device_put", lambda x, *_, **__: put(x, devices[1]))
    with pytest.raises(Misplaced, match="a verdict on another compiler"):
        tools.time_growth(grows, 0.1)


def test_a_module_for_another_compiler_is_an_error() -> None:
    text = b"module { func.func public @main() { return } }"
    cpu, tpu = resolve("cpu").devices(), resolve(TPU).devices()
    parsed = hlo.parse(HloFile(form=Form.STABLEHLO, module=text), cpu)
    with pytest.raises(Misplaced, match="a verdict on another compiler"):
        hlo.compile_parsed(parsed, tpu)
    assert hlo.compile_parsed(parsed, cpu)


def test_values_go_where_the_shardings_are() -> None:
    rows = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("x",)), PartitionSpec("x"))
    for observed in (jnp.sin, jax.jit(jnp.sin)):
        program = Program(values=lambda: (jnp.ones(8),), observe=observed, in_shardings=(rows,))
        (result,) = JaxFramework(jax.devices()[:2], "cpu").execute(program)
        assert result.shape == (8,)


def test_no_more_than_two_devices_are_named() -> None:
    with pytest.raises(Misplaced, match=r"got a measurement on c, d and 1 more, .* devices, a, b;"):
        check_placement({"a", "c", "d", "e"}, ["a", "b"])


def test_a_sharding_may_stand_for_a_subtree() -> None:
    here = SingleDeviceSharding(jax.devices()[0])
    one, (two, scalar) = jax_placement.placed((X, (jnp.ones(3), 2.0)), (None, here))
    assert one.sharding is None
    assert two.sharding == here
    assert scalar == 2.0


def hosted(devices: Any) -> Program:
    """An argument on the host that comes back from the device, and one that stays there."""
    host = SingleDeviceSharding(devices[0], memory_kind="pinned_host")
    device = host.with_memory_kind("device")

    def step(given: jax.Array, kept: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.device_put(given, device) + 1, kept

    shape = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    return Program(
        function=step,
        arguments=(shape, shape),
        in_shardings=(host, host),
        out_shardings=(device, host),
        donate_argnums=(1,),
    )


@pytest.mark.parametrize("target", [TPU, GPU])
def test_a_dump_tells_of_the_host_what_the_compiler_tells(target: str) -> None:
    tools = framework("jax", resolve(target))
    compiled = tools.compile(tools.lower(tools.trace(hosted(tools.devices))))
    told, dumped = compiled.memory(), memory_stats(split(compiled.hlo_proto())[1])
    for name in ("host_argument_bytes", "host_output_bytes", "host_alias_bytes", "host_bytes"):
        assert getattr(dumped, name) == getattr(told, name), name


@pytest.mark.parametrize("target", [TPU, GPU])
def test_arguments_and_results_on_the_host_are_told(target: str) -> None:
    evidence = seen(target, hosted)
    assert evidence.memory, evidence.failure
    assert evidence.memory.host_argument_bytes == 8 * MIB
    assert evidence.memory.host_output_bytes == evidence.memory.host_alias_bytes == 4 * MIB
    assert evidence.memory.host_bytes == 8 * MIB
    assert 4 * MIB <= evidence.memory.device_bytes - evidence.memory.temp_bytes < 5 * MIB
    inspection = Inspection(subject="s", means=Means.COMPILED, evidence=evidence)
    page = json.loads(to_json(inspection))
    assert [each["memory"] for each in page["arguments"]] == ["host", "host"]
    assert [each["argument"] for each in page["arguments"]] == ["given", "kept"]
    assert [each["memory"] for each in page["outputs"]] == ["device", "host"]
    assert page["transfers"]["to_device_bytes_per_step"] == 4 * MIB
    assert page["transfers"]["to_host_bytes_per_step"] == 0
    assert [each["honoured"] for each in page["donations"]] == [True]


def copied_by_hand(x_ref: Any, y_ref: Any, scratch: Any, semaphore: Any) -> None:
    lanes = pltpu.get_tpu_info().num_lanes
    for source, to in ((x_ref, scratch), (scratch, y_ref)):
        pltpu.make_async_copy(source, to, semaphore).start()
        pltpu.make_async_copy(source, to, semaphore).wait()
    assert lanes == 128


def test_a_pallas_kernel_is_traced_and_lowered_for_the_target() -> None:
    shape = jax.ShapeDtypeStruct((256, 256), jnp.float32)
    anywhere = pl.BlockSpec(memory_space=pl.ANY)
    kernel = pl.pallas_call(
        copied_by_hand,
        out_shape=shape,
        in_specs=[anywhere],
        out_specs=anywhere,
        scratch_shapes=[pltpu.VMEM(shape.shape, shape.dtype), pltpu.SemaphoreType.DMA],
    )
    evidence = seen(TPU, lambda _: Program(function=kernel, arguments=(shape,)))
    assert evidence.failure is None
    assert evidence.memory
    assert evidence.memory.output_bytes == 256 * 256 * 4
