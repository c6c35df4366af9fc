"""Cost analysis: operations and bytes read and written by one execution.

Bytes are logical and as emitted: operands read and results written, of a fusion its own and not
those inside it. A slice reads what it takes, an update in place writes the update.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from assay.hlo.flops import ARITHMETIC, flops
from assay.hlo.host_transfers import HOST_THREAD, MOVES_NOTHING
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.hlo.trip_count import TripCounter
from assay.model.module import Cost

STARTS: Final = frozenset(
    {
        "all-gather-start",
        "all-reduce-start",
        "async-start",
        "collective-permute-start",
        "copy-start",
        "recv",
        "send",
    }
)
"""Opcodes that begin an operation and do not wait for it."""

RUNS: Final = frozenset({"call", "conditional", "while"})
"""Opcodes whose work is that of the computations that they run."""

FREE: Final = (MOVES_NOTHING | STARTS) - RUNS
"""Opcodes without work: they pass values on, or start or await an asynchronous operation."""

_NOTHING: Final = Cost()
_VIEWS: Final = frozenset({"bitcast", "opt-barrier", "reshape"})
_SLICES: Final = frozenset({"dynamic-slice", "gather", "slice"})
_UPDATES: Final = frozenset({"dynamic-update-slice", "scatter"})
_OPENED: Final = _SLICES | _UPDATES | {"fusion"}

Path = tuple[int, ...]


class CostAnalysis:
    """The work of one module's instructions, each computation's counted once.

    An operation that an asynchronous start begins costs nothing, because it overlaps other work.
    The instructions of ``beside`` cost nothing either: they start or await such an operation, but
    their opcodes do not show it. A conditional counts its most expensive branch. A loop counts its
    body and condition times their trips.
    """

    def __init__(self, trips: TripCounter, beside: frozenset[Instruction] = frozenset()) -> None:
        self._trips = trips
        self._beside = beside
        self._computations: dict[Computation, Cost | None] = {}
        self._fused: dict[Computation, int] = {}

    def cost(self, instruction: Instruction) -> Cost | None:
        """The work of one execution; None if a trip count in it is unknown."""
        opcode = instruction.opcode
        if opcode in FREE or instruction in self._beside or _is_on_host(instruction):
            return _NOTHING
        if opcode == "while":
            return self._of_loop(instruction)
        if opcode in RUNS:
            return _dearest([self.of_computation(each) for each in instruction.called])
        if opcode == "fusion":
            (computation,) = instruction.called
            return Cost(flops=self._flops_inside(computation), nbytes=fusion_nbytes(instruction))
        return Cost(flops=flops(instruction), nbytes=_nbytes(instruction))

    def of_computation(self, computation: Computation) -> Cost | None:
        """The work of one execution of a computation that is run as a whole."""
        if computation not in self._computations:
            self._computations[computation] = _sum(map(self.cost, computation.but(FREE)))
        return self._computations[computation]

    def _of_loop(self, loop: Instruction) -> Cost | None:
        trips = self._trips.count(loop).trips
        body, condition = map(self.of_computation, loop.called)
        if trips is None or body is None or condition is None:
            return None
        return Cost(
            flops=trips * body.flops + (trips + 1) * condition.flops,
            nbytes=trips * body.nbytes + (trips + 1) * condition.nbytes,
        )

    def _flops_inside(self, computation: Computation) -> int:
        """Operations of everything in a fusion, fusions in it included."""
        if computation not in self._fused:
            own = sum(map(flops, computation.of(ARITHMETIC)))
            inner = (callee for each in computation.calls for callee in each.called)
            self._fused[computation] = own + sum(map(self._flops_inside, inner))
        return self._fused[computation]


def _is_on_host(instruction: Instruction) -> bool:
    return instruction.execution_thread == HOST_THREAD


def fusion_nbytes(carrier: Instruction) -> int:
    """Bytes of device or host memory that a fusion, or what a start begins, reads and writes."""
    (computation,) = carrier.called
    fused = Fused(computation, frozenset(carrier.overwrites))
    return sum(fused.reads().values()) + fused.written()


class Fused:
    """The parameters and results of a fused computation, as its instructions touch them."""

    def __init__(self, computation: Computation, shared: frozenset[Path] = frozenset()) -> None:
        self._computation = computation
        self._shared = shared
        self._in_place: set[Instruction] = set()
        self._inner: dict[Instruction, Mapping[int, int]] = {}
        self._results = list(self._leaves(computation.root, ()))
        self._written = [self._bytes_of(leaf) for leaf, _ in self._results]

    def written(self) -> int:
        """Bytes of the results, of an update in place the update."""
        return sum(self._written)

    def reads(self) -> Mapping[int, int]:
        """Bytes that are read of each parameter, by its number; each at most once as a whole."""
        parameters = self._computation.of(frozenset({"parameter"}))
        if not self._computation.of(_OPENED):
            passed_on = {leaf for leaf, path in self._results if path in self._shared}
            return {
                each.parameter_number: 0 if each in passed_on else each.shape.nbytes
                for each in parameters
            }
        found = dict.fromkeys((each.parameter_number for each in parameters), 0)
        for parameter, nbytes in self._uses():
            number = parameter.parameter_number
            found[number] = min(found[number] + nbytes, parameter.shape.nbytes)
        return found

    def _uses(self) -> Iterator[tuple[Instruction, int]]:
        """Each use of a parameter, also through views and elements, and the bytes it reads."""
        behind: dict[Instruction, Instruction] = {}
        for instruction in self._computation.instructions:
            if instruction.opcode == "parameter":
                behind[instruction] = instruction
            elif instruction.opcode in _VIEWS or instruction.opcode == "get-tuple-element":
                if instruction.operands[0] in behind:
                    behind[instruction] = behind[instruction.operands[0]]
            elif instruction.opcode != "tuple":
                for index, operand in enumerate(instruction.operands):
                    if operand in behind:
                        yield behind[operand], self._read(instruction, index)
        for leaf, path in self._results:
            if leaf in behind and path not in self._shared:
                yield behind[leaf], leaf.shape.nbytes

    def _read(self, instruction: Instruction, index: int) -> int:
        """Bytes that an instruction reads of its operand."""
        if instruction.opcode in _SLICES and index == 0:
            return instruction.shape.nbytes
        if instruction in self._in_place and index < _bases(instruction):
            return _base_nbytes(instruction)
        if instruction.opcode == "fusion":
            if instruction not in self._inner:
                self._inner[instruction] = Fused(instruction.called[0]).reads()
            return self._inner[instruction][index]
        return instruction.operands[index].shape.nbytes

    def _leaves(self, root: Instruction, path: Path) -> Iterator[tuple[Instruction, Path]]:
        """The instructions that make the results, behind tuples and views, and their places."""
        while root.opcode in _VIEWS:
            root = root.operands[0]
        if root.opcode == "tuple":
            for index, operand in enumerate(root.operands):
                yield from self._leaves(operand, (*path, index))
        else:
            yield root, path

    def _bytes_of(self, leaf: Instruction) -> int:
        """Bytes that making a result writes."""
        if leaf.opcode == "parameter":
            shared = any(each is leaf and path in self._shared for each, path in self._results)
            return 0 if shared else leaf.shape.nbytes
        if leaf.opcode == "fusion":
            return Fused(leaf.called[0], frozenset(leaf.overwrites)).written()
        chain = list(_updates_in_place(leaf))
        self._in_place.update(chain)
        return sum(map(_update_nbytes, chain)) if chain else leaf.shape.nbytes


def _updates_in_place(leaf: Instruction) -> Iterator[Instruction]:
    """Updates one on top of another, if the lowest is of a parameter; else none."""
    chain = []
    while leaf.opcode in _UPDATES or leaf.opcode in _VIEWS:
        if leaf.opcode in _UPDATES:
            chain.append(leaf)
        leaf = leaf.operands[0]
    if leaf.opcode in {"parameter", "get-tuple-element"}:
        yield from chain


def _nbytes(instruction: Instruction) -> int:
    """Bytes that an instruction outside of a fusion reads and writes."""
    opcode, operands, result = instruction.opcode, instruction.operands, instruction.shape
    if instruction.allocates:
        return 0
    if opcode in _SLICES:
        return 2 * result.nbytes + sum(operand.shape.nbytes for operand in operands[1:])
    if opcode in _UPDATES:
        rest = operands[_bases(instruction) :]
        bases = _bases(instruction) * _base_nbytes(instruction)
        return sum(each.shape.nbytes for each in rest) + bases + _update_nbytes(instruction)
    return sum(each.shape.nbytes for each in dict.fromkeys(operands)) + result.nbytes


def _update_nbytes(instruction: Instruction) -> int:
    """Bytes that an update in place writes."""
    if instruction.opcode == "dynamic-update-slice":
        return instruction.operands[1].shape.nbytes
    updates = instruction.operands[_bases(instruction) + 1 :]
    return sum(each.shape.nbytes for each in updates)


def _base_nbytes(instruction: Instruction) -> int:
    """Bytes that an update in place reads of a base: a scatter combines them with its updates."""
    return instruction.operands[-1].shape.nbytes if instruction.opcode == "scatter" else 0


def _bases(instruction: Instruction) -> int:
    """How many of the first operands are updated: a scatter has n, the indices, n updates."""
    return (len(instruction.operands) - 1) // 2 if instruction.opcode == "scatter" else 1


def _sum(parts: Iterable[Cost | None]) -> Cost | None:
    """All together; None if one is unknown."""
    flops, nbytes = 0, 0
    for part in parts:
        if part is None:
            return None
        flops += part.flops
        nbytes += part.nbytes
    return Cost(flops=flops, nbytes=nbytes)


def _dearest(branches: list[Cost | None]) -> Cost | None:
    """The most operations and the most bytes of any branch."""
    known = [each for each in branches if each is not None]
    if len(known) < len(branches) or not known:
        return None
    return Cost(flops=max(each.flops for each in known), nbytes=max(each.nbytes for each in known))
