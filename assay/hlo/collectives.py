"""Collectives: the bytes that a device sends to other devices, by a bandwidth-optimal algorithm.

Of ``S`` bytes of operands on each of ``n`` devices of a group, a device sends (Thakur, Rabenseifner
and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005, section 4; NCCL's
tests count bus bandwidth by the same factors):

- all-gather: ``S * (n - 1)``
- all-reduce: ``2 * S * (n - 1) / n``
- reduce-scatter, all-to-all, ragged-all-to-all: ``S * (n - 1) / n``
- collective-permute, collective-broadcast, send: ``S``; nothing to itself

A ragged-all-to-all may send less. No backend pads in this count, or chooses another algorithm.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from assay.hlo.host_transfers import HOST_THREAD
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.hlo.opcodes import COLLECTIVES, opcodes
from assay.hlo.overlap import chains_of_fusions
from assay.hlo.trip_count import Executions
from assay.model.module import Collective

_START: Final = "-start"
_FOUND: Final = (COLLECTIVES - {"recv"}) | opcodes(
    "all-gather-start all-reduce-start collective-permute-start"
)
_CALLS: Final = opcodes("custom-call")
_POINT_TO_POINT: Final = opcodes("collective-permute send")
_BY_GLOBAL_IDS: Final = opcodes("all-gather all-reduce reduce-scatter")
_UPPER_BOUND: Final = "ragged-all-to-all"


def collectives(module: Module, counts: Mapping[Computation, Executions]) -> tuple[Collective, ...]:
    """Every collective of the computations in ``counts``, also those inside of fusions."""
    return tuple(
        Collective(
            opcode=opcode,
            devices=devices,
            nbytes_per_execution=_nbytes_sent(opcode, instruction, devices),
            executions=counts[computation].count,
            at_most=counts[computation].at_most or opcode == _UPPER_BOUND,
            computation=computation.name,
            instruction=instruction.name,
            source=instruction.source,
        )
        for computation, instruction in _found(module, counts)
        for devices in (_group_size(instruction),)
        for opcode in (_opcode(instruction, devices),)
    )


def _found(
    module: Module, counts: Mapping[Computation, Executions]
) -> Iterator[tuple[Computation, Instruction]]:
    """The collectives, each with its computation.

    One that a TPU writes as a chain of fusions stands in each of them, and counts once.
    """
    again = {
        (fusion.called[0], collective.channel_id)
        for computation in counts
        if not computation.is_inlined
        for fusions, collective in chains_of_fusions(computation)
        for fusion in fusions[1:]
    }
    for computation in module.computations:
        if computation in counts and computation.execution_thread != HOST_THREAD:
            for instruction in _written(computation):
                is_first = (computation, instruction.channel_id) not in again
                if is_first and not instruction.is_host_transfer:
                    yield computation, instruction


def _written(computation: Computation) -> Iterator[Instruction]:
    """The collectives of a computation, also those that a backend's call stands for.

    A TPU with SparseCores writes a call of the computation that they run.
    """
    yield from computation.of(_FOUND)
    for call in computation.of(_CALLS):
        for callee in call.called:
            yield from _written(callee)


def _opcode(instruction: Instruction, devices: int | None) -> str:
    """The operation; an all-reduce of which each device keeps its own part is a reduce-scatter.

    A TPU writes a reduce-scatter as a fusion of an all-reduce and a slice of its result.
    """
    opcode = instruction.opcode.removesuffix(_START)
    computation = instruction.computation
    if opcode != "all-reduce" or not computation.is_inlined:
        return opcode
    users = [computation.at(at) for at in computation.readers.get(instruction.id, ())]
    kept = [user for user in users if user.opcode == "dynamic-slice"]
    parts = [user.shape.nbytes * (devices or 0) for user in kept]
    scatters = len(kept) == len(users) and parts == [instruction.shape.nbytes]
    return "reduce-scatter" if scatters else opcode


def _group_size(instruction: Instruction) -> int | None:
    """The devices of a group, as XLA's ``GetCollectiveOpGroupMode`` reads it; None if unknown."""
    opcode = instruction.opcode.removesuffix(_START)
    if opcode in _POINT_TO_POINT:
        return 2
    replicas, partitions = instruction.computation.module.device_counts
    named, of_replicas = instruction.group_size, instruction.channel_id == 0
    if of_replicas or instruction.use_global_device_ids or opcode not in _BY_GLOBAL_IDS:
        everyone = replicas if of_replicas else partitions
        if instruction.use_global_device_ids:
            everyone = replicas * partitions
        return named or everyone or None
    return (named or replicas) * partitions or None


def _nbytes_sent(opcode: str, instruction: Instruction, devices: int | None) -> int | None:
    """The bytes that a device sends in one execution, rounded up."""
    operands = instruction.operands[: 1 if opcode in _POINT_TO_POINT else None]
    nbytes = sum(each.shape.nbytes for each in operands)
    if opcode == "collective-permute":
        return nbytes if instruction.sends_to_another else 0
    if devices is None:
        return None
    if opcode in {"send", "collective-broadcast"}:
        return nbytes if devices > 1 else 0
    if opcode == "all-gather":
        return nbytes * (devices - 1)
    times = 2 if opcode == "all-reduce" else 1
    return -(-times * nbytes * (devices - 1) // devices)
