"""Transfers: what a module moves between host and device memory, per run."""

from collections.abc import Iterable, Mapping

from assay.hlo.executions import Executions
from assay.hlo.host_transfers import (
    HOST_LINKS,
    HOST_THREAD,
    MOVES_NOTHING,
    HostTransfer,
    host_transfers,
)
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation, Module
from assay.model.module import Transfer


def transfers(module: Module, counts: Mapping[Computation, Executions]) -> tuple[Transfer, ...]:
    """Every transfer of the computations in ``counts``."""
    return tuple(
        _transfer(instruction, host_transfer, counts[computation])
        for computation in module.computations
        if computation in counts and not _is_looked_at_by_its_caller(computation)
        for instruction in _that_may_move(computation)
        for host_transfer in host_transfers(instruction)
    )


def _is_looked_at_by_its_caller(computation: Computation) -> bool:
    callers = computation.module.callers.get(computation, ())
    return computation.execution_thread == HOST_THREAD or any(
        caller.opcode in {"fusion", "async-start"} for caller in callers
    )


def _that_may_move(computation: Computation) -> Iterable[Instruction]:
    """The few instructions that touch the host."""
    unplaced = computation.of(HOST_LINKS) + tuple(
        each for each in computation.calls if each.execution_thread == HOST_THREAD
    )
    return dict.fromkeys((*computation.around_host(but=MOVES_NOTHING), *unplaced))


def _transfer(instruction: Instruction, host_transfer: HostTransfer, runs: Executions) -> Transfer:
    return Transfer(
        direction=host_transfer.direction,
        nbytes_per_execution=host_transfer.nbytes,
        executions=runs.count,
        at_most=runs.at_most,
        opcode=host_transfer.by.opcode,
        computation=instruction.computation.name,
        instruction=instruction.name,
        source=instruction.source or host_transfer.by.source or _source_of_operands(instruction),
    )


def _source_of_operands(instruction: Instruction) -> str | None:
    """A compiler that makes a transfer may leave its source on the value that moves."""
    return next((each.source for each in instruction.operands if each.source), None)
