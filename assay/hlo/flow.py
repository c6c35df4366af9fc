"""The flow of values through a computation, and Weisfeiler-Lehman refinement of its graph.

An element taken from a tuple is the value that was put in. A coalesced collective is a node with
its operands as unordered members, and one node for each element of its result, which reads its own
operand and the collective. `assay.hlo.canonical` makes constants of one label one node and leaves
out unused values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Final

from assay.hlo.fingerprint import Callee, has_effect, misordered, own_bytes
from assay.hlo.module import Computation
from assay.hlo.opcodes import COMMUTATIVE
from assay.hlo.schema import ANONYMOUS, RESULT, Message, decode, decode_all
from assay.hlo.structure import LOCAL_ID

Edge = tuple[int, bytes]
"""What a node reads: the node, and the place in which it is read, in a fixed number of bytes."""

COLOUR_SIZE: Final = 16
PLACE_SIZE: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Colours:
    """Colours of each node: ``values`` by what it is computed from, ``whole`` also by its users."""

    values: Sequence[bytes]
    whole: Sequence[bytes]


def colours(labels: Sequence[bytes], operands: Sequence[Sequence[Edge]]) -> Colours:
    """Colours that two graphs share wherever a renumbering of nodes maps one to the other.

    Nodes come after their operands. The opposite does not hold: nodes of one colour need not be
    interchangeable, where a graph is so regular that no neighbourhood tells them apart.
    """
    users: list[list[Edge]] = [[] for _ in labels]
    for node, read in enumerate(operands):
        for operand, place in read:
            users[operand].append((node, place))
    values = whole = _swept(labels, operands, range(len(labels)))
    told_apart = -1
    while (number := len(set(whole))) > told_apart:
        told_apart = number
        whole = _swept(whole, users, range(len(labels) - 1, -1, -1))
        whole = _swept(whole, operands, range(len(labels)))
    return Colours(values=values, whole=whole)


def digest(data: bytes) -> bytes:
    """A colour for some bytes."""
    return blake2b(data, digest_size=COLOUR_SIZE).digest()


@lru_cache(1024)
def place(*what: object) -> bytes:
    """The bytes of an edge's place; equal for equal words and numbers."""
    return blake2b(repr(what).encode(), digest_size=PLACE_SIZE).digest()


def _swept(
    before: Sequence[bytes], neighbours: Sequence[Sequence[Edge]], order: range
) -> list[bytes]:
    """Each node's colour with its neighbours' new ones taken in; their order means nothing."""
    after = list(before)
    for node in order:
        parts = [after[other] + where for other, where in neighbours[node]]
        parts.sort()
        after[node] = blake2b(after[node] + b"".join(parts), digest_size=COLOUR_SIZE).digest()
    return after


COALESCED: Final = frozenset({"all-gather", "all-reduce", "reduce-scatter"})
"""Collectives that treat each of several operands by itself."""

ANYWHERE: Final = place("anywhere")
CONTROL: Final = place("control")
MEMBER: Final = place("member")
_PLACED: Final = COALESCED | {"get-tuple-element", "parameter"}


@dataclass(slots=True, kw_only=True)
class Node:
    """A value. ``position`` is its instruction's in the computation, None if it has none."""

    opcode: str
    label: bytes
    inputs: list[Edge]
    position: int | None = None


@dataclass(slots=True, kw_only=True)
class Flow:
    """The nodes of a computation, operands before users; outputs are nodes that read a value.

    ``elements`` of a node are those of the tuple that it is; of a coalesced collective, the nodes
    of its results. ``kept`` has effects, and is alive even without users.
    """

    nodes: list[Node] = field(default_factory=list)
    elements: dict[int, Sequence[int]] = field(default_factory=dict)
    parameters: dict[int, int] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    kept: set[int] = field(default_factory=set)

    def add(self, node: Node) -> int:
        """The number of a new node."""
        self.nodes.append(node)
        return len(self.nodes) - 1

    def is_group(self, number: int) -> bool:
        """Whether the node is a coalesced collective."""
        return self.nodes[number].opcode in COALESCED and number in self.elements


class _Reader:
    """Reads the instructions of one computation, operands before their users."""

    def __init__(
        self,
        computation: Computation,
        callees: Mapping[int, Callee],
        configs: dict[bytes, bytes],
        *,
        numbered: bool,
    ) -> None:
        self.flow = Flow()
        self.values: dict[int, int] = {}
        self._encoded = computation.encoded
        self._callees = callees
        self._configs = configs
        self._numbered = numbered
        self._packed: dict[int, int] = {}
        for position, message in enumerate(decode_all(ANONYMOUS, computation.encoded)):
            identifier = message.id & LOCAL_ID
            self.values[identifier] = self._read(position, message)

    def whole(self, number: int) -> int:
        """The node of a value that is read as a whole: a collective's results, packed in order."""
        flow = self.flow
        if not flow.is_group(number):
            return number
        if number not in self._packed:
            elements = [(each, place(k)) for k, each in enumerate(flow.elements[number])]
            packed = Node(opcode="tuple", label=digest(b"tuple"), inputs=elements)
            self._packed[number] = flow.add(packed)
        return self._packed[number]

    def _read(self, position: int, message: Message) -> int:
        """The node of an instruction's value."""
        flow, opcode = self.flow, message.opcode
        operands = [self.values[each & LOCAL_ID] for each in message.operand_ids]
        ordered_after = [self.values[each & LOCAL_ID] for each in message.control_predecessor_ids]
        result: Message = decode(RESULT, self._encoded[position]) if opcode in _PLACED else None
        if opcode == "get-tuple-element" and operands[0] in flow.elements and not ordered_after:
            index: int = result.tuple_index
            return flow.elements[operands[0]][index]
        shapes = result.shape.tuple_shapes if opcode in COALESCED else ()
        coalesced = len(shapes) == len(operands) > 1
        inputs = [
            (self.whole(each), _place_of(k, opcode, coalesced=coalesced))
            for k, each in enumerate(operands)
        ]
        controls = [(self.whole(each), CONTROL) for each in ordered_after]
        called = [self._callees[each] for each in message.called_computation_ids]
        number = len(flow.nodes)
        if has_effect(message, called):
            flow.kept.add(number)
        if coalesced:
            message = _without(result, "shape")
        elif opcode == "parameter":
            flow.parameters[result.parameter_number] = number
            message = message if self._numbered else _without(result, "parameter_number")
        elif opcode == "tuple":
            flow.elements[number] = operands
        own = own_bytes(message, self._configs)
        label = digest(b"".join((own, *(callee.digest for callee in called))))
        flow.add(Node(opcode=opcode, label=label, inputs=inputs + controls, position=position))
        if coalesced:  # each result is its own operand's, in that group
            labels = [digest(shape.SerializeToString()) for shape in shapes]
            edges = [[(operand, place(0)), (number, MEMBER)] for operand, _ in inputs]
            flow.elements[number] = [
                flow.add(Node(opcode="element", label=element, inputs=read))
                for element, read in zip(labels, edges, strict=True)
            ]
        return number


def _place_of(number: int, opcode: str, *, coalesced: bool) -> bytes:
    """The place in which an instruction reads an operand."""
    if coalesced:
        return MEMBER
    return ANYWHERE if opcode in COMMUTATIVE else place(number)


def _without(result: Message, field: str) -> Message:
    """An instruction without one of the fields of its result."""
    reduced = type(result).FromString(result.SerializeToString())
    reduced.ClearField(field)
    return decode(ANONYMOUS, reduced.SerializeToString())


def flow_of(
    computation: Computation,
    callees: Mapping[int, Callee],
    configs: dict[bytes, bytes],
    *,
    is_step: bool,
) -> Flow:
    """The flow of a computation; of a step, its parameters unnumbered and its outputs apart.

    Raises:
        MalformedModule: a user comes before its operand, or refers to what is not there.
    """
    try:
        reader = _Reader(computation, callees, configs, numbered=not is_step)
        _end(reader, computation, is_step=is_step)
    except (KeyError, IndexError) as error:
        raise misordered(computation, error) from None
    return reader.flow


def _end(reader: _Reader, computation: Computation, *, is_step: bool) -> None:
    """The outputs, and which of them share the buffers of which parameters."""
    flow, module, root = reader.flow, computation.module, reader.values[computation.root_id]
    unpacks = is_step and root in flow.elements
    for each in flow.elements[root] if unpacks else [root]:
        inputs = [(reader.whole(each), place(0))]
        flow.outputs.append(flow.add(Node(opcode="output", label=b"output", inputs=inputs)))
    for alias in module.aliases if is_step else ():
        path = alias.output_index
        first, rest = (path[0], path[1:]) if unpacks else (0, path)
        where = place("alias", rest, alias.parameter_index, alias.must)
        output = flow.nodes[flow.outputs[first]]
        output.inputs.append((flow.parameters[alias.parameter_number], where))
    for number, path in sorted(module.donors) if is_step else ():
        parameter = flow.nodes[flow.parameters[number]]
        parameter.label = digest(parameter.label + repr(("donated", path)).encode())
