"""Collectives: what a device sends in each, by hand and as compilers write them."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from assay.frameworks.framework import Compiled
from assay.hlo.module import Module
from assay.hlo.schema import MODULE, split
from assay.hlo.summary import read
from assay.model.summary import ModuleSummary
from assay.model.target import TargetName
from assay.targets import known, prepare, resolve
from assay.targets.jax_internals import compile_with_dump

from .conftest import proto_of
from .programs import with_computations

Summary = Callable[[str], ModuleSummary]

SUM = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
"""
FOUR = "channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true"
PAIRS = "channel_id=1, source_target_pairs"
X = 128
"""Bytes of ``x``, an f32[8,4]."""

OPERATIONS = {
    "all-gather": (f"f32[32,4] all-gather(x), {FOUR}, dimensions={{0}}", 3 * X),
    "all-reduce": (f"f32[8,4] all-reduce(x), {FOUR}, to_apply=sum", 2 * X * 3 // 4),
    "all-reduce of two": (
        f"(f32[8,4], f32[]) all-reduce(x, y), {FOUR}, to_apply=sum",
        2 * (X + 4) * 3 // 4,
    ),
    "rounded up": (f"f32[] all-reduce(y), {FOUR.replace(',3', '')}, to_apply=sum", 6),
    "reduce-scatter": (
        f"f32[2,4] reduce-scatter(x), {FOUR}, dimensions={{0}}, to_apply=sum",
        X * 3 // 4,
    ),
    "all-to-all": (
        "f32[8,4] all-to-all(x), replica_groups={{0,1},{2,3}}, dimensions={0}, channel_id=1",
        X // 2,
    ),
    "permute": (f"f32[8,4] collective-permute(x), {PAIRS}={{{{0,1}},{{1,1}}}}", X),
    "permute to itself": (f"f32[8,4] collective-permute(x), {PAIRS}={{{{0,0}},{{1,1}}}}", 0),
    "broadcast": ("f32[8,4] collective-broadcast(x), replica_groups={{0,1,2}}", X),
    "a group of one": ("f32[8,4] all-reduce(x), replica_groups={{0},{1}}, to_apply=sum", 0),
    "groups that are counted": (
        (
            "f32[8,4] all-reduce(x), channel_id=1, replica_groups=[4,2]<=[2,4]T(1,0), "
            "use_global_device_ids=true, to_apply=sum"
        ),
        X,
    ),
    "groups of replicas, each of 2 partitions": (
        "f32[8,4] all-reduce(x), channel_id=1, replica_groups={{0,1}}, to_apply=sum",
        2 * X * 3 // 4,
    ),
    "everyone, by device": (
        (
            "f32[8,4] all-reduce(x), channel_id=1, replica_groups={}, use_global_device_ids=true, "
            "to_apply=sum"
        ),
        2 * X * 7 // 8,
    ),
    "all replicas": ("f32[8,4] all-reduce(x), replica_groups={}, to_apply=sum", 2 * X * 3 // 4),
}


def of_four_replicas(text: str) -> bytes:
    """The module, compiled for 4 replicas of 2 partitions."""
    message = MODULE.FromString(proto_of(text))
    message.device_assignment.replica_count = 4
    message.device_assignment.computation_count = 2
    return bytes(message.SerializeToString())


def one(operation: str) -> str:
    return with_computations(
        SUM, "x = f32[8,4] parameter(0)", "y = f32[] parameter(1)", f"ROOT r = {operation}"
    )


@pytest.mark.parametrize(("operation", "sent"), OPERATIONS.values(), ids=OPERATIONS)
def test_a_device_sends_what_the_formula_says(operation: str, sent: int) -> None:
    assert read(of_four_replicas(one(operation))).collective_bytes_per_run == sent


def test_groups_that_nothing_names_are_unknown(summary: Summary) -> None:
    found = summary(one("f32[8,4] all-reduce(x), replica_groups={}, to_apply=sum"))
    assert [each.devices for each in found.collectives] == [None]
    assert found.collective_bytes_per_run is None


def test_groups_along_the_axes_of_a_mesh_are_read() -> None:
    """As XLA writes them from jaxlib 0.12 on; an older parser does not read the text."""
    message = MODULE.FromString(proto_of(one(OPERATIONS["all-reduce"][0])))
    instruction = Module(message).entry.root._message
    assert instruction.opcode == "all-reduce"
    instruction.ClearField("collective_device_list")
    instruction.ClearField("replica_groups")
    groups = instruction.mesh_axes_replica_groups
    for size in (2, 4):
        groups.mesh.axes.add(size=size)
    groups.axes.add(mesh_axis_index=1)
    entry = next(each for each in message.computations if each.id == message.entry_computation_id)
    entry.instructions[-1] = instruction.SerializeToString()
    assert read(message.SerializeToString()).collective_bytes_per_run == 2 * X * 3 // 4
    groups.axes[0].sub_axis_info.size = 2
    entry.instructions[-1] = instruction.SerializeToString()
    assert read(message.SerializeToString()).collective_bytes_per_run == X


def in_a_fusion(kept: str, users: str = "") -> str:
    return with_computations(
        f"""{SUM}
scatter {{ x = f32[8,4] parameter(0)
  r = f32[8,4] all-reduce(x), {FOUR}, to_apply=sum
  zero = s32[] constant(0)
  {users}
  ROOT kept = {kept} }}
""",
        "x = f32[8,4] parameter(0)",
        f"ROOT f = {kept.partition(' ')[0]} fusion(x), kind=kCustom, calls=scatter",
    )


PART = "f32[2,4] dynamic-slice(r, zero, zero), dynamic_slice_sizes={2,4}"


def test_an_all_reduce_of_which_a_part_is_kept_scatters(summary: Summary) -> None:
    (found,) = summary(in_a_fusion(PART)).collectives
    assert (found.opcode, found.nbytes_per_run) == ("reduce-scatter", X * 3 // 4)


@pytest.mark.parametrize(
    ("kept", "users"),
    [
        ("f32[4,4] dynamic-slice(r, zero, zero), dynamic_slice_sizes={4,4}", ""),
        ("f32[8,4] negate(r)", ""),
        (
            "f32[2,4] add(part, row)",
            f"part = {PART}\n row = f32[2,4] slice(r), slice={{[0:2],[0:4]}}",
        ),
    ],
)
def test_an_all_reduce_that_is_kept_whole_is_one(summary: Summary, kept: str, users: str) -> None:
    (found,) = summary(in_a_fusion(kept, users)).collectives
    assert found.opcode == "all-reduce"


def test_a_loop_counts_its_trips(summary: Summary) -> None:
    text = f"""HloModule loop
{SUM}
condition {{ state = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  bound = s32[] constant(5)
  ROOT go = pred[] compare(i, bound), direction=LT }}
body {{ state = (s32[], f32[8,4]) parameter(0)
  i = s32[] get-tuple-element(state), index=0
  x = f32[8,4] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  r = f32[8,4] all-reduce(x), {FOUR}, to_apply=sum
  ROOT after = (s32[], f32[8,4]) tuple(next, r) }}
ENTRY main {{ x = f32[8,4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8,4]) tuple(zero, x)
  ROOT loop = (s32[], f32[8,4]) while(start), condition=condition, body=body }}
"""
    (found,) = summary(text).collectives
    assert (found.executions, found.nbytes_per_run) == (5, 5 * 2 * X * 3 // 4)


def test_a_collective_that_a_backends_call_runs_is_counted(summary: Summary) -> None:
    """As a TPU 7x writes what its SparseCores do, in a loop and started asynchronously."""
    text = with_computations(
        f"""{SUM}
gathers {{ x = f32[8,4] parameter(0)
  ROOT g = f32[32,4] all-gather(x), {FOUR}, dimensions={{0}} }}
runs {{ x = f32[8,4] parameter(0)
  ROOT c = f32[32,4] custom-call(x), custom_call_target="run", called_computations={{gathers}} }}
""",
        "x = f32[8,4] parameter(0)",
        "start = ((f32[8,4]), f32[32,4], s32[]) async-start(x), calls=runs",
        "ROOT done = f32[32,4] async-done(start), calls=runs",
    )
    (found,) = summary(text).collectives
    assert (found.opcode, found.computation, found.nbytes_per_run) == ("all-gather", "runs", 3 * X)


def test_what_goes_to_the_host_is_no_collective(summary: Summary) -> None:
    text = with_computations(
        "",
        "x = f32[8,4] parameter(0)",
        "t = token[] after-all()",
        "s = (f32[8,4], u32[], token[]) send(x, t), channel_id=1, is_host_transfer=true",
        "ROOT d = token[] send-done(s), channel_id=1, is_host_transfer=true",
    )
    assert summary(text).collectives == ()
    device = text.replace(", is_host_transfer=true", "")
    assert summary(device).collective_bytes_per_run == X


TARGETS = [
    pytest.param(
        name, marks=pytest.mark.skipif(bool(resolve(name).unavailable()), reason="not installed")
    )
    for name in ("cpu:8", "gpu-h100:8", "tpu-v5e:2x4")
]
EACH = 3 * 256 * 128 * 4
"""Bytes of each device's block, f32[256,128], in 3 iterations; a TPU does not scatter 32 KiB."""
COMPILED = {
    "all-gather": (lambda x: jax.lax.all_gather(x, "d", tiled=True)[:256] + x, 7 * EACH),
    "all-reduce": (lambda x: jax.lax.psum(x, "d"), 2 * EACH * 7 // 8),
    "reduce-scatter": (
        lambda x: x + jax.lax.psum_scatter(x, "d", tiled=True)[:1],
        EACH * 7 // 8,
    ),
    "all-to-all": (lambda x: jax.lax.all_to_all(x, "d", 0, 0, tiled=True), EACH * 7 // 8),
    "collective-permute": (
        lambda x: jax.lax.ppermute(x, "d", [(i, (i + 1) % 8) for i in range(8)]),
        EACH,
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("opcode", COMPILED)
def test_compiled_collectives_send_what_is_written(opcode: str, target: str) -> None:
    prepare(map(TargetName.parse, known()))
    exchange, sent = COMPILED[opcode]
    platform, devices = resolve(target).platform, resolve(target).devices()

    def local(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (jax.numpy.tanh(exchange(x)), None), x, None, length=3)[0]

    mesh, spec = Mesh(np.array(devices), ("d",)), PartitionSpec("d")
    mapped = partial(jax.shard_map, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    x = jax.ShapeDtypeStruct((2048, 128), np.float32, sharding=NamedSharding(mesh, spec))
    lowered = jax.jit(mapped(local)).trace(x).lower(lowering_platforms=(platform,))
    compiled, dumped = compile_with_dump(lambda some: lowered.compile(compiler_options=some))
    proto = Compiled(compiled.runtime_executable(), dumped).hlo_proto()
    found = read(*split(proto), platform=platform)
    assert {each.opcode for each in found.collectives} == {opcode}
    assert found.collective_bytes_per_run == sent
