"""Tokens: the zero that PyTorch/XLA threads through its collectives to keep them in order.

It is a parameter that the framework always sets to zero: added to the first operand of a
collective, and multiplied by an element of the first result to become the next collective's token
(``token_handler.cpp`` of torch_xla 2.9; the last product is dead code). Which operand comes first
is chance where a collective is coalesced, so the token is read by the whole of it here.
"""

from collections.abc import Iterator
from typing import Final

from assay.hlo.flow import ANYWHERE, Flow, Node
from assay.hlo.module import Computation
from assay.hlo.weisfeiler_lehman import Edge, place
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
