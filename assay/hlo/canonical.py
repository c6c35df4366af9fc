"""The canonical form of a step: equal for two graphs that a tracer wrote differently by chance.

Tokens that only order side effects are untied first.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from assay.hlo.fingerprint import fingerprint
from assay.hlo.flow import (
    ANYWHERE,
    COALESCED,
    MEMBER,
    Callee,
    Colours,
    Edge,
    Flow,
    Node,
    colours,
    digest,
    flow_of,
    place,
)
from assay.hlo.instruction import read_shape
from assay.hlo.module import Computation, Module
from assay.hlo.schema import LABEL, SHAPE, decode, decode_all
from assay.model.evidence import (
    StepCollective,
    StepGraph,
    StepOperation,
    StepOutput,
    StepParameter,
)
from assay.model.module import Shape

_SPREADS: Final = frozenset({"broadcast", "convert"})
_PICKS: Final = frozenset({"convert", "gather", "reshape", "slice"})
_OPERANDS: Final = 2
_TOKENS: Final = frozenset({"multiply", "parameter"})
_TOKEN: Final = place("token")


def untie_tokens(flow: Flow, computation: Computation) -> None:
    """Make every coalesced collective read its token as a whole, and so the token's next value.

    A token is a scalar, a parameter or such a product, that is known by both of its uses alone: an
    addend of one operand that is also multiplied by an element of that operand's result. That it
    is zero cannot be seen in the graph. Which operand it is must not matter here, nor which of
    several products of one token is met first.
    """
    groups = {
        element: (group, at)
        for group, elements in flow.elements.items()
        if flow.is_group(group)
        for at, element in enumerate(elements)
    }
    ties: dict[tuple[int, int], dict[int, list[Node]]] = {}
    for node in flow.nodes:
        if node.opcode == "multiply" and len(node.inputs) >= _OPERANDS:
            for token, factor in _both_ways(node.inputs):
                tied = groups.get(_through(flow, factor, _PICKS))
                if tied and _may_be_token(flow, computation, token):
                    ties.setdefault(tied, {}).setdefault(token, []).append(node)
    for (group, at), products in ties.items():
        untied = _untied(flow, group, at, frozenset(products))
        if untied is not None:
            for node in products[untied]:
                node.inputs = [(untied, ANYWHERE), (group, _TOKEN)]


def _untied(flow: Flow, group: int, at: int, tokens: frozenset[int]) -> int | None:
    """The one token that was an addend of the operand; it is the collective's own now."""
    members = flow.nodes[group].inputs
    operand, where = members[at]
    added = flow.nodes[operand]
    if added.opcode != "add" or len(added.inputs) < _OPERANDS:
        return None
    found = [
        (token, value)
        for value, addend in _both_ways(added.inputs)
        if (token := _through(flow, addend, _SPREADS)) in tokens
    ]
    if len(found) != 1:
        return None
    ((token, value),) = found
    members[at] = (value, where)
    members.append((token, _TOKEN))
    result = flow.nodes[flow.elements[group][at]]
    result.inputs[0] = (value, result.inputs[0][1])
    return token


def _may_be_token(flow: Flow, computation: Computation, number: int) -> bool:
    node = flow.nodes[number]
    if node.opcode not in _TOKENS or node.position is None:
        return False
    return _is_scalar(computation.at(node.position).shape)


def _is_scalar(shape: Shape) -> bool:
    return not shape.dimensions and not shape.elements


def _both_ways(inputs: list[Edge]) -> Iterator[tuple[int, int]]:
    """The two operands of what commutes, either first."""
    (one, _), (other, _) = inputs[:2]
    yield one, other
    yield other, one


def _through(flow: Flow, number: int, opcodes: frozenset[str]) -> int:
    """The node that a chain of such operations begins at."""
    while flow.nodes[number].opcode in opcodes:
        number = flow.nodes[number].inputs[0][0]
    return number


_HEX_DIGITS = 16


def canonical(module: Module) -> StepGraph:
    """The module's entry as a graph of values, and a fingerprint of it.

    The fingerprint is equal for modules that differ only in names, ids and source lines; the
    order of instructions, also of a schedule; the numbers of parameters and the order of outputs;
    constants written several times; dead code; values packed into a tuple and taken out again;
    the order of operands of a coalesced all-gather, all-reduce or reduce-scatter, and which of
    them carries PyTorch/XLA's token. Called computations keep the order of their parameters.

    Different fingerprints are different graphs. Equal fingerprints are the same graph, except in
    parts so regular that refinement cannot separate their nodes. Nodes with equal neighbours at
    every distance may be connected differently (for two equal copies of a value: which copy each
    of two equal users reads). A parameter without users counts, as the caller passes it.

    Raises:
        MalformedModule: a user comes before its operand, or a caller before its callee.
    """
    callees: dict[int, Callee] = {}
    configs: dict[bytes, bytes] = {}
    for computation in module.computations:
        if computation is not module.entry:
            flow = flow_of(computation, callees, configs, is_step=False)
            thread = computation.execution_thread.encode()
            callees[computation.id] = Callee(
                digest=_whole(_Alive.of(flow).colours, thread), has_effect=bool(flow.kept)
            )
    flow = flow_of(module.entry, callees, configs, is_step=True)
    untie_tokens(flow, module.entry)
    return _step_graph(module, flow, _Alive.of(flow))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alive:
    """What is alive of a flow: the numbers of its nodes, and where each is among the colours."""

    places: dict[int, int]
    duplicates: int
    colours: Colours

    @classmethod
    def of(cls, flow: Flow) -> "_Alive":
        places: dict[int, int] = {}
        constants: dict[bytes, int] = {}
        labels: list[bytes] = []
        operands: list[Sequence[Edge]] = []
        duplicates = 0
        for number in _needed(flow):
            node = flow.nodes[number]
            if node.opcode == "constant" and not node.inputs:
                first = constants.setdefault(node.label, len(labels))
                if first < len(labels):
                    places[number] = first
                    duplicates += 1
                    continue
            places[number] = len(labels)
            labels.append(node.label)
            operands.append([(places[operand], place) for operand, place in node.inputs])
        return cls(places=places, duplicates=duplicates, colours=colours(labels, operands))

    def colour(self, number: int) -> str:
        """The colour of a node, as a step graph keeps it."""
        return _hex(self.colours.whole[self.places[number]])

    def value(self, number: int) -> str:
        """The colour of what a node is computed from."""
        return _hex(self.colours.values[self.places[number]])


def _needed(flow: Flow) -> list[int]:
    """What the outputs, the effects and the signature need, operands before users."""
    pending = [*flow.outputs, *flow.kept, *flow.parameters.values()]
    found = set(pending)
    while pending:
        for operand, _ in flow.nodes[pending.pop()].inputs:
            if operand not in found:
                found.add(operand)
                pending.append(operand)
    return sorted(found)


def _step_graph(module: Module, flow: Flow, alive: _Alive) -> StepGraph:
    instructions = [each for each in alive.places if flow.nodes[each].position is not None]
    return StepGraph(
        canonical=_whole(alive.colours, module.entry.execution_thread.encode()).hex(),
        raw=fingerprint(module),
        instructions=len(instructions),
        duplicate_constants=alive.duplicates,
        parameters=_parameters(module, flow, alive),
        outputs=_outputs(module.entry.root.shape, flow, alive),
        collectives=tuple(
            _collective(module.entry, flow, alive, each)
            for each in instructions
            if flow.nodes[each].opcode in COALESCED
        ),
        operations=_operations(module.entry, flow, alive),
    )


def _parameters(module: Module, flow: Flow, alive: _Alive) -> tuple[StepParameter, ...]:
    donated = {number for number, _ in module.donors}
    donated |= {alias.parameter_number for alias in module.aliases}
    return tuple(
        StepParameter(
            number=number,
            shape=module.entry.parameter(number).shape,
            colour=alive.colour(node),
            donated=number in donated,
        )
        for number, node in sorted(flow.parameters.items())
    )


def _outputs(root: Shape, flow: Flow, alive: _Alive) -> tuple[StepOutput, ...]:
    shapes = root.elements if len(root.elements) == len(flow.outputs) else (root,)
    return tuple(
        StepOutput(index=index, shape=shape, value=alive.value(node), colour=alive.colour(node))
        for index, (shape, node) in enumerate(zip(shapes, flow.outputs, strict=True))
    )


def _collective(entry: Computation, flow: Flow, alive: _Alive, number: int) -> StepCollective:
    node = flow.nodes[number]
    assert node.position is not None
    instruction = entry.at(node.position)
    gathers = node.opcode == "all-gather"
    taken = tuple(operand.shape for operand in instruction.operands)
    coalesced = flow.is_group(number)
    given = instruction.shape.elements if coalesced else (instruction.shape,)
    members = [each for each, place in node.inputs if place == MEMBER or not coalesced]
    return StepCollective(
        opcode=node.opcode,
        shapes=given if gathers else taken,
        operands=tuple(map(alive.colour, members)),
        attributes=_hex(node.label),
        colour=alive.colour(number),
    )


def _operations(entry: Computation, flow: Flow, alive: _Alive) -> tuple[StepOperation, ...]:
    """The histogram; a constant that was written several times counts once."""
    once = {place: number for number, place in reversed(alive.places.items())}
    counts: Counter[tuple[str, bytes, bytes]] = Counter()
    nodes = [flow.nodes[number] for number in once.values()]
    told = [
        (each, each.position)
        for each in nodes
        if each.position is not None and each.opcode not in COALESCED | {"parameter"}
    ]
    labels = decode_all(LABEL, (entry.encoded[position] for _, position in told))
    for (node, _), label in zip(told, labels, strict=True):
        target = f" {label.custom_call_target}" if label.custom_call_target else ""
        counts[node.opcode + target, label.shape, node.label] += 1
    shapes = {encoded: read_shape(decode(SHAPE, encoded)) for _, encoded, _ in counts}
    found = (
        StepOperation(opcode=opcode, shape=shapes[shape], attributes=_hex(label), count=count)
        for (opcode, shape, label), count in counts.items()
    )
    return tuple(sorted(found, key=lambda each: (each.opcode, str(each.shape), each.attributes)))


def _whole(found: Colours, thread: bytes) -> bytes:
    """A digest of a graph: of all of its colours, in no order."""
    return digest(thread + b"".join(sorted(found.whole)))


def _hex(colour: bytes) -> str:
    return colour.hex()[:_HEX_DIGITS]
