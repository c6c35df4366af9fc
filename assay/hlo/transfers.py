"""Transfers: what a module moves between host and device memory, per run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assay.hlo.executions import Executions
from assay.hlo.module import Computation, Instruction, Module
from assay.hlo.moves import HOST_LINKS, HOST_THREAD, Direction, Move, moves


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Bytes that one instruction moves, in plain values.

    ``opcode`` is the operation that moves them, inside whatever fusion or asynchronous pair
    ``instruction`` is. ``executions`` counts per run of the module: None if a trip count is
    unknown, an upper bound if ``at_most``.
    """

    direction: Direction
    nbytes_per_execution: int
    executions: int | None
    at_most: bool
    opcode: str
    computation: str
    instruction: str
    source: str | None

    @property
    def nbytes_per_run(self) -> int | None:
        """Bytes per run of the module; None if the executions are unknown."""
        return None if self.executions is None else self.nbytes_per_execution * self.executions


def transfers(module: Module, counts: Mapping[Computation, Executions]) -> tuple[Transfer, ...]:
    """Every transfer of the computations in ``counts``."""
    return tuple(
        _transfer(instruction, move, counts[computation])
        for computation in module.computations
        if computation in counts and not _is_looked_at_by_its_caller(computation)
        for instruction in _that_may_move(computation)
        for move in moves(instruction)
    )


def nbytes_per_run(found: Iterable[Transfer], direction: Direction) -> int | None:
    """Bytes that all transfers of one direction move per run; None if any is unknown."""
    total = 0
    for transfer in found:
        if transfer.direction is direction:
            if transfer.nbytes_per_run is None:
                return None
            total += transfer.nbytes_per_run
    return total


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
    return dict.fromkeys((*computation.around_host(), *unplaced))


def _transfer(instruction: Instruction, move: Move, runs: Executions) -> Transfer:
    return Transfer(
        direction=move.direction,
        nbytes_per_execution=move.nbytes,
        executions=runs.count,
        at_most=runs.at_most,
        opcode=move.by.opcode,
        computation=instruction.computation.name,
        instruction=instruction.name,
        source=instruction.source or move.by.source or _source_of_operands(instruction),
    )


def _source_of_operands(instruction: Instruction) -> str | None:
    """A compiler that makes a transfer may leave its source on the value that moves."""
    return next((each.source for each in instruction.operands if each.source), None)
