"""The canonical form of a step: equal for two graphs that a tracer wrote differently by chance.

Tokens that only order side effects are untied first.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from assay.hlo.fingerprint import Callee, fingerprint
from assay.hlo.flow import (
    ANYWHERE,
    COALESCED,
    MEMBER,
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
from assay.hlo.opcodes import opcodes
from assay.hlo.schema import LABEL, SHAPE, decode, decode_all
from assay.model.evidence import (
    StepCollective,
    StepGraph,
    StepOperation,
    StepOutput,
    StepParameter,
)
from assay.model.module import Shape

_SPREADS: Final = opcodes("broadcast convert")
_PICKS: Final = opcodes("convert gather reshape slice")
_TOKENS: Final = opcodes("multiply parameter")
_TOKEN: Final = place("token")
_HEX_DIGITS: Final = 16


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
            whole = _whole(_alive(flow), computation)
            callees[computation.id] = Callee(digest=whole, has_effect=bool(flow.kept))
    flow = flow_of(module.entry, callees, configs, is_step=True)
    untie_tokens(flow, module.entry)
    return _step_graph(module, flow, _alive(flow))


def untie_tokens(flow: Flow, computation: Computation) -> None:
    """Let each coalesced collective itself read the token, and the next token the collective.

    PyTorch/XLA's token is a scalar: a parameter or a product. It is known only by both of its
    uses: it is an addend of one operand, and a factor of an element of that operand's result. (That
    it is zero cannot be seen in the graph.) Which operand it is must not matter here, nor which of
    several products of one token is met first.
    """
    groups = {
        element: (group, at)
        for group, elements in flow.elements.items()
        if flow.is_group(group)
        for at, element in enumerate(elements)
    }
    ties = defaultdict[tuple[int, int], dict[int, list[Node]]](dict)
    for node in flow.nodes:
        if node.opcode == "multiply":
            for (token, _), (factor, _) in permutations(node.inputs[:2]):
                tied = groups.get(_through(flow, factor, _PICKS))
                if tied and _may_be_token(flow, computation, token):
                    ties[tied].setdefault(token, []).append(node)
    for (group, at), products in ties.items():
        untied = _untied(flow, group, at, products)
        if untied is not None:
            for node in products[untied]:
                node.inputs = [(untied, ANYWHERE), (group, _TOKEN)]


def _untied(flow: Flow, group: int, at: int, tokens: Container[int]) -> int | None:
    """The one token that was an addend of the operand, which the collective itself reads now.

    None if there is not exactly one.
    """
    members = flow.nodes[group].inputs
    operand, where = members[at]
    added = flow.nodes[operand]
    if added.opcode != "add":
        return None
    found = [
        (token, value)
        for (value, _), (addend, _) in permutations(added.inputs[:2])
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


def _through(flow: Flow, number: int, passed: Container[str]) -> int:
    """The node before a chain of operations with the opcodes in ``passed``."""
    while flow.nodes[number].opcode in passed:
        number = flow.nodes[number].inputs[0][0]
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alive:
    """The nodes of a flow that are alive: the place of each among the colours.

    Constants that are written several times share a place.
    """

    places: dict[int, int]
    colours: Colours

    def colour(self, number: int) -> str:
        """The colour of a node, as a step graph stores it."""
        return _hex(self.colours.whole[self.places[number]])

    def value(self, number: int) -> str:
        """The colour of what a node is computed from."""
        return _hex(self.colours.values[self.places[number]])


def _alive(flow: Flow) -> _Alive:
    places: dict[int, int] = {}
    constants: dict[bytes, int] = {}
    labels: list[bytes] = []
    operands: list[Sequence[Edge]] = []
    for number in _needed(flow):
        node = flow.nodes[number]
        places[number] = len(labels)
        if node.opcode == "constant" and not node.inputs:
            places[number] = constants.setdefault(node.label, len(labels))
        if places[number] == len(labels):
            labels.append(node.label)
            operands.append([(places[operand], where) for operand, where in node.inputs])
    return _Alive(places=places, colours=colours(labels, operands))


def _needed(flow: Flow) -> Sequence[int]:
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
    entry = module.entry
    instructions = [each for each in alive.places if flow.nodes[each].position is not None]
    donated = {number for number, _ in module.donors}
    donated |= {alias.parameter_number for alias in module.aliases}
    root = entry.root.shape
    outputs = root.elements if len(root.elements) == len(flow.outputs) else (root,)
    return StepGraph(
        canonical=_whole(alive, entry).hex(),
        raw=fingerprint(module),
        instructions=len(instructions),
        duplicate_constants=len(alive.places) - len(set(alive.places.values())),
        parameters=tuple(
            StepParameter(
                number=number,
                shape=entry.parameter(number).shape,
                colour=alive.colour(node),
                donated=number in donated,
            )
            for number, node in sorted(flow.parameters.items())
        ),
        outputs=tuple(
            StepOutput(index=index, shape=shape, value=alive.value(node), colour=alive.colour(node))
            for index, (shape, node) in enumerate(zip(outputs, flow.outputs, strict=True))
        ),
        collectives=tuple(
            _collective(entry, flow, alive, each)
            for each in instructions
            if flow.nodes[each].opcode in COALESCED
        ),
        operations=_operations(entry, flow, alive),
    )


def _collective(entry: Computation, flow: Flow, alive: _Alive, number: int) -> StepCollective:
    node = flow.nodes[number]
    assert node.position is not None
    instruction = entry.at(node.position)
    coalesced = flow.is_group(number)
    if node.opcode != "all-gather":
        shapes = tuple(operand.shape for operand in instruction.operands)
    else:
        shapes = instruction.shape.elements if coalesced else (instruction.shape,)
    members = [each for each, place in node.inputs if place == MEMBER or not coalesced]
    return StepCollective(
        opcode=node.opcode,
        shapes=shapes,
        operands=tuple(map(alive.colour, members)),
        attributes=_hex(node.label),
        colour=alive.colour(number),
    )


def _operations(entry: Computation, flow: Flow, alive: _Alive) -> tuple[StepOperation, ...]:
    """The histogram; a constant that was written several times counts once."""
    distinct = {place: number for number, place in reversed(alive.places.items())}
    nodes = [
        (node, node.position)
        for node in (flow.nodes[number] for number in distinct.values())
        if node.position is not None and node.opcode not in COALESCED | {"parameter"}
    ]
    labels = decode_all(LABEL, (entry.encoded[position] for _, position in nodes))
    counts = Counter[tuple[str, bytes, bytes]]()
    for (node, _), label in zip(nodes, labels, strict=True):
        target = f" {label.custom_call_target}" if label.custom_call_target else ""
        counts[node.opcode + target, label.shape, node.label] += 1
    shapes = {encoded: read_shape(decode(SHAPE, encoded)) for _, encoded, _ in counts}
    found = (
        StepOperation(opcode=opcode, shape=shapes[shape], attributes=_hex(label), count=count)
        for (opcode, shape, label), count in counts.items()
    )
    return tuple(sorted(found, key=lambda each: (each.opcode, str(each.shape), each.attributes)))


def _whole(alive: _Alive, computation: Computation) -> bytes:
    """A digest of a graph: of all of its colours, in no order."""
    thread = computation.execution_thread.encode()
    return digest(thread + b"".join(sorted(alive.colours.whole)))


def _hex(colour: bytes) -> str:
    return colour.hex()[:_HEX_DIGITS]
