"""One inspection with something in every section, and short ways to vary it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.inspection import Inspection, Means
from assay.model.module import (
    AsyncKind,
    AsyncPair,
    Collective,
    Cost,
    Direction,
    Shape,
    Transfer,
    TripSource,
    WhileLoop,
)
from assay.model.summary import (
    Content,
    Donation,
    FullBufferWrite,
    Holds,
    LiveBuffer,
    ModuleSummary,
    Peak,
)
from assay.model.target import DeviceModel

MIB = 2**20
GIB = 2**30
STACK = Shape(element_type="f32", dimensions=(1024, 1024))

DEVICE = DeviceModel(
    name="gpu-made-up",
    kind="gpu",
    title="Made up",
    default_topology=(1,),
    memory_bytes=16 * GIB,
    nominal_memory_bytes=16 * GIB,
    memory_bandwidth_bytes_per_second=GIB,
    host_link_bandwidth_bytes_per_second=MIB,
)
TRANSFER = Transfer(
    direction=Direction.TO_HOST,
    nbytes_per_execution=4 * MIB,
    executions=15,
    at_most=False,
    opcode="copy-start",
    computation="body",
    instruction="copy-start.1",
    source="train.py:12",
)
FULL_BUFFER_WRITE = FullBufferWrite(
    content=Content.COPY,
    shape=STACK,
    executions=15,
    at_most=False,
    loop="body",
    iterations=15,
    in_place=False,
    opcode="copy",
    computation="body",
    instruction="copy.1",
    source="train.py:14",
)
PAIR = AsyncPair(
    kind=AsyncKind.TO_HOST,
    opcode="copy-start",
    nbytes=MIB,
    between=Cost(nbytes=GIB // 4),
    executions=2,
    at_most=False,
    computation="body",
    start="copy-start.1",
    done="copy-done.1",
    source="train.py:12",
)
DONATION = Donation(
    parameter_number=0,
    parameter_index=(),
    argument="params['w']",
    shape=STACK,
    output_index=(0,),
    must=False,
    copied_by=(),
)
LOST = replace(DONATION, argument="state", output_index=None)
BUFFER = LiveBuffer(
    holds=Holds.ARGUMENT,
    name="params['w']",
    opcode="parameter",
    shape=STACK,
    nbytes=4 * MIB,
    line=None,
)
PEAK = Peak(nbytes=5 * GIB, at="fusion.3", line="train.py:20", buffers=(BUFFER,) * 3)
LOOP = WhileLoop(
    instruction="while.1",
    computation="main",
    body="body",
    condition="condition",
    trips=15,
    trips_from=TripSource.KNOWN,
    reason="",
    executions=1,
    at_most=False,
    carries=(STACK,),
    source="train.py:11",
)
COLLECTIVE = Collective(
    opcode="all-gather",
    devices=8,
    nbytes_per_execution=MIB,
    executions=15,
    at_most=False,
    computation="body",
    instruction="all-gather.1",
    source="train.py:13",
)
MODULE = ModuleSummary(
    name="jit_step",
    instructions=1234,
    computations=5,
    loops=(LOOP,),
    transfers=(TRANSFER,),
    full_buffer_writes=(FULL_BUFFER_WRITE,),
    donations=(DONATION, LOST),
    overlaps=(PAIR,),
    collectives=(COLLECTIVE,),
    peak=PEAK,
    buffers_assigned=True,
    fingerprint="abc",
)
MEMORY = Memory(
    temp_bytes=3 * GIB,
    argument_bytes=2 * GIB,
    output_bytes=2 * GIB,
    alias_bytes=GIB,
    host_temp_bytes=60 * MIB,
)
EVIDENCE = Evidence(
    workload="train.py",
    variant="step",
    target="gpu-made-up",
    toolchain=Toolchain(versions={"jaxlib": "0.12.0"}),
    device_memory_bytes=16 * GIB,
    memory=MEMORY,
    module=MODULE,
)
INSPECTION = Inspection(
    subject="train.py:step", means=Means.COMPILED, evidence=EVIDENCE, device=DEVICE
)


def seen(**fields: Any) -> Inspection:
    """The inspection with these fields of its evidence in place of its own."""
    return replace(INSPECTION, evidence=replace(EVIDENCE, **fields))


def module(**fields: Any) -> Inspection:
    """The inspection with these fields of its module in place of its own."""
    return seen(module=replace(MODULE, **fields))
