"""The structure of a module: what XLA guarantees of its graph, and every analysis relies on.

A file may hold any graph. One that breaks these rules has no right answer: a cycle of operands, for
example, has no first value. The rules are those of XLA's ``HloModule::CreateFromProto`` and
``HloVerifier``, of which the parser checks only a part.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from assay.hlo.opcodes import DONES, ELEMENTWISE, opcodes
from assay.hlo.schema import OUTLINE, MalformedModule, decode_all

if TYPE_CHECKING:
    from assay.hlo.module import Computation, Module

LOCAL_ID: Final = 0xFFFF_FFFF
"""Newer XLA numbers an instruction (computation id << 32 | local id), older XLA (unique id); the
low half is unique within a computation in both."""

_ONE: Final = DONES | opcodes(
    "add-dependency async-update bitcast bitcast-convert broadcast copy copy-start dynamic-slice "
    "gather get-tuple-element outfeed reshape reverse slice transpose while conditional send "
    "all-gather all-reduce collective-permute reduce-scatter all-gather-start all-reduce-start "
    "collective-permute-start"
)
_TWO: Final = opcodes(
    "add and atan2 compare convolution divide dot dynamic-update-slice maximum minimum multiply or "
    "pad power reduce reduce-window remainder shift-left shift-right-arithmetic "
    "shift-right-logical subtract xor"
)
_LEAST_OPERANDS: Final[Mapping[str, int]] = {
    **dict.fromkeys(ELEMENTWISE | _ONE, 1),
    **dict.fromkeys(_TWO, 2),
    **dict.fromkeys(opcodes("scatter select"), 3),
}
_CALLED: Final[Mapping[str, int]] = {"async-start": 1, "call": 1, "fusion": 1, "while": 2}
"""How many computations an instruction runs. A conditional runs one for each branch."""
_CALLERS: Final = _CALLED.keys() | {"conditional"}

_INLINED: Final = opcodes("async-start fusion")
_MOST_INLINED: Final = 4
"""An analysis of a fusion looks into the fusions inside of it, each time that one is called. XLA
gives each of them a computation of its own, so that this adds up to the module's instructions. At
more than 4 times as many, and `_INLINED_FREE` more, a module is refused: a chain of computations of
which each calls the next one twice, for example."""
_INLINED_FREE: Final = 100_000
_Callee = tuple[int, int]
"""How many parameters a computation has, and its instructions with those that it inlines."""


def check(module: "Module") -> None:
    """Raise InconsistentModule unless the module's graph is one that XLA could have written.

    Operands come before their users, called computations before their callers, so that there is no
    cycle. (`fingerprint` and `flow` check the control predecessors.) Ids are unique, and what they
    refer to is there. Every instruction has the operands and computations
    that its opcode needs, every computation its root and parameters numbered from 0. A schedule
    names instructions of its computation, each once.
    """
    callees: dict[int, _Callee] = {}
    total = 0
    for computation in module.computations:
        if computation.id in callees:
            raise _wrong(computation, f"the id {computation.id} of another computation")
        reader = _Check(computation, callees)
        computation.know_opcodes(reader.opcodes)
        callees[computation.id] = (reader.parameters, reader.inlined)
        total += len(computation)
        if reader.inlined > _MOST_INLINED * total + _INLINED_FREE:
            raise _wrong(computation, f"{reader.inlined} instructions in fusions of fusions")
        _check_order(computation)


class InconsistentModule(MalformedModule):
    """A module that protobuf reads, and whose parts contradict one another."""


class _Check:
    """Reads the outlines of one computation, operands before their users."""

    def __init__(self, computation: "Computation", callees: Mapping[int, _Callee]) -> None:
        self.opcodes: dict[int, str] = {}
        self.inlined = len(computation)
        self._computation = computation
        numbers: list[int] = []
        seen, known = self.opcodes, set[int]()  # by the low half of the id, and by the whole
        for each in decode_all(OUTLINE, computation.encoded):
            opcode = sys.intern(each.opcode)
            operands = each.operand_ids
            if not known.issuperset(operands):
                self._check_known(operands)
            if len(operands) < _LEAST_OPERANDS.get(opcode, 0):
                raise _wrong(computation, f"{opcode} with {len(operands)} operands")
            if opcode == "parameter":
                numbers.append(each.parameter_number)
            elif opcode == "get-tuple-element":
                nonnegative((each.tuple_index,))
            elif opcode not in ELEMENTWISE and (each.called_computation_ids or opcode in _CALLERS):
                self._call(each, callees)
            identifier = each.id
            known.add(identifier)
            seen[identifier & LOCAL_ID] = opcode
        self.parameters = len(numbers)
        self._check_whole(sorted(numbers))

    def _check_whole(self, numbers: Sequence[int]) -> None:
        computation = self._computation
        if len(self.opcodes) < len(computation):
            raise _wrong(computation, "two instructions of one id")
        if computation.root_id not in self.opcodes:
            raise _wrong(computation, f"root {computation.root_id}, which is not there")
        if numbers != list(range(len(numbers))):
            raise _wrong(computation, f"parameters numbered {numbers[:9]}")

    def _check_known(self, operands: Sequence[int]) -> None:
        for each in operands:
            if each & LOCAL_ID not in self.opcodes:
                what = f"operand {each}, which does not come before it"
                raise _wrong(self._computation, what)

    def _call(self, outline: Any, callees: Mapping[int, _Callee]) -> None:
        opcode, given = outline.opcode, len(outline.operand_ids)
        called = []
        for each in outline.called_computation_ids:
            if each not in callees:
                what = f"{opcode} of computation {each}, which does not come before it"
                raise _wrong(self._computation, what)
            called.append(callees[each])
        if len(called) != _CALLED.get(opcode, len(called)) or (
            opcode == "conditional" and given != 1 + len(called)
        ):
            what = f"{opcode} of {len(called)} computations with {given} operands"
            raise _wrong(self._computation, what)
        for parameters, inlined in called:
            if not _takes(opcode, parameters, given):
                what = f"{opcode} with {given} operands for {parameters} parameters"
                raise _wrong(self._computation, what)
            if opcode in _INLINED:
                self.inlined += inlined


def _takes(opcode: str, parameters: int, given: int) -> bool:
    """Whether a computation with so many parameters can be run by an instruction of the opcode."""
    if opcode in {"conditional", "while"}:
        return parameters <= 1
    if opcode == "async-start":  # a TPU may start a kernel whose operands the start does not name
        return given in {0, parameters}
    return opcode not in {"call", "fusion"} or parameters == given


def _check_order(computation: "Computation") -> None:
    order = computation.order
    if order is None:
        return
    unique = set(order)
    if len(unique) != len(order) or not all(map(computation.has, unique)):
        raise _wrong(computation, "a schedule of instructions that are not there, or there twice")


def _wrong(computation: "Computation", what: str) -> MalformedModule:
    return InconsistentModule(
        f"got {what} in computation {computation.name!r}, wanted operands before users and callees "
        "before callers, as XLA writes them; serialize the module again"
    )


def nonnegative(path: Sequence[int]) -> tuple[int, ...]:
    """The path into a tuple. Raises InconsistentModule if it counts from the end."""
    if any(index < 0 for index in path):
        raise InconsistentModule(f"got index {min(path)} into a tuple, wanted 0 or more")
    return tuple(path)
