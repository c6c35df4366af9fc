"""Small random training steps, written down in many ways that a tracer may choose by chance."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies

UNARY = ("negate", "exponential", "tanh", "copy")
BINARY = ("add", "subtract", "multiply", "divide")
COALESCED = ("all-gather", "all-reduce", "reduce-scatter")
LITERALS = ("{1,1,1,1}", "{2,2,2,2}")

Value = tuple[int, int]
"""Which node, and which element of its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A parameter, a constant (``literal``), an operation, or a collective of several operands."""

    opcode: str
    operands: tuple[Value, ...] = ()
    literal: str = ""

    @property
    def results(self) -> int:
        return len(self.operands) if self.opcode in COALESCED else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Nodes after some parameters; each alias gives an output the buffer of a parameter."""

    parameters: int
    nodes: tuple[Node, ...]
    outputs: tuple[Value, ...]
    aliases: tuple[tuple[int, int], ...] = ()

    def node(self, number: int) -> Node:
        if number < self.parameters:
            return Node(opcode="parameter")
        return self.nodes[number - self.parameters]

    def values(self) -> list[Value]:
        numbers = range(self.parameters + len(self.nodes))
        return [(number, k) for number in numbers for k in range(self.node(number).results)]

    def alive(self) -> list[int]:
        pending, found = [number for number, _ in self.outputs], set[int]()
        while pending:
            number = pending.pop()
            if number not in found:
                found.add(number)
                pending += [operand for operand, _ in self.node(number).operands]
        return sorted(found)

    def changed(self, number: int, node: Node) -> "Step":
        nodes = list(self.nodes)
        nodes[number - self.parameters] = node
        return replace(self, nodes=tuple(nodes))


@strategies.composite
def steps(draw: strategies.DrawFn, *, collectives: bool = True) -> Step:
    parameters = draw(strategies.integers(1, 4))
    values = [(number, 0) for number in range(parameters)]
    nodes = []
    opcodes = (*UNARY, *BINARY, *BINARY, "constant", *(COALESCED if collectives else ()))
    for number in range(parameters, parameters + draw(strategies.integers(1, 10))):
        opcode = draw(strategies.sampled_from(opcodes))
        few = 0 if opcode == "constant" else 1 if opcode in UNARY else 2
        many = 4 if opcode in COALESCED else few
        operand = strategies.sampled_from(values)
        operands = tuple(draw(strategies.lists(operand, min_size=few, max_size=many)))
        literal = draw(strategies.sampled_from(LITERALS)) if opcode == "constant" else ""
        nodes.append(Node(opcode=opcode, operands=operands, literal=literal))
        values += [(number, k) for k in range(nodes[-1].results)]
    outputs = tuple(draw(strategies.lists(strategies.sampled_from(values), min_size=1, max_size=4)))
    aliased = draw(strategies.integers(0, min(parameters, len(outputs))))
    return Step(
        parameters=parameters,
        nodes=tuple(nodes),
        outputs=outputs,
        aliases=tuple((k, k) for k in range(aliased)),
    )


@dataclass(slots=True, kw_only=True)
class _Writer:
    """One way to write a step down; ``random`` takes every choice that means nothing."""

    step: Step
    random: Random
    lines: list[str]
    names: dict[Value, str]
    constants: dict[str, str]
    plainly: bool = False
    made: int = 0

    def chance(self, probability: float) -> bool:
        return not self.plainly and self.random.random() < probability

    def line(self, kind: str, text: str) -> str:
        self.made += 1
        name = f"v{self.made}_{self.random.randint(0, 999)}"
        source = f'metadata={{op_name="op{self.random.randint(0, 99)}"}}'
        self.lines.append(f"{name} = {kind} {text}, {source}")
        return name

    def name(self, value: Value) -> str:
        node = self.step.node(value[0])
        if node.opcode != "constant":
            return self.names[value]
        if node.literal not in self.constants or self.chance(0.5):
            self.constants[node.literal] = self.line("f32[4]", f"constant({node.literal})")
        return self.constants[node.literal]

    def write(self, number: int) -> None:
        node = self.step.node(number)
        if node.opcode == "constant":
            return
        if self.chance(0.2):
            self.line("f32[4]", "constant({7,7,7,7})")
        if self.chance(0.2):
            self.line("f32[4]", f"sine({self.name(self.random.choice(list(self.names)))})")
        if node.opcode in COALESCED:
            self._collective(number, node)
            return
        operands = [self.name(each) for each in node.operands]
        if node.opcode in {"add", "multiply"}:
            self.random.shuffle(operands)
        self.names[number, 0] = self.line("f32[4]", f"{node.opcode}({', '.join(operands)})")

    def _collective(self, number: int, node: Node) -> None:
        order = shuffled(range(node.results), self.random)
        operands = [self.name(node.operands[k]) for k in order]
        kind = f"({', '.join(['f32[4]'] * len(order))})"
        if self.chance(0.5):
            packed = self.line(kind, f"tuple({', '.join(operands)})")
            operands = [self._element(packed, place) for place in range(len(order))]
        applied = "" if node.opcode == "all-gather" else ", to_apply=sum"
        along = "" if node.opcode == "all-reduce" else ", dimensions={0}"
        text = f"{node.opcode}({', '.join(operands)}), replica_groups={{}}{along}{applied}"
        whole = self.line(kind, text)
        for place, k in enumerate(order):
            self.names[number, k] = self._element(whole, place)

    def _element(self, packed: str, index: int) -> str:
        return self.line("f32[4]", f"get-tuple-element({packed}), index={index}")


def shuffled(numbers: Sequence[int], random: Random) -> list[int]:
    return random.sample(list(numbers), len(numbers))


def as_text(step: Step, seed: int) -> str:
    """HLO text; the seed chooses names, numbers, copies of constants and every order."""
    random = Random(seed)
    numbers = shuffled(range(step.parameters), random)
    places = shuffled(range(len(step.outputs)), random)
    return written(step, random, numbers, places)


def as_plain_text(step: Step, numbers: Sequence[int], places: Sequence[int]) -> str:
    """HLO text without copies and dead code, for given numbers of parameters and outputs."""
    return written(step, Random(0), numbers, places, plainly=True)


def written(
    step: Step,
    random: Random,
    numbers: Sequence[int],
    places: Sequence[int],
    *,
    plainly: bool = False,
) -> str:
    """HLO text with the given number for each parameter, and place for each output."""
    writer = _Writer(step=step, random=random, lines=[], names={}, constants={}, plainly=plainly)
    for number in shuffled(range(step.parameters), random):
        writer.names[number, 0] = writer.line("f32[4]", f"parameter({numbers[number]})")
    for number in _any_order(step, random):
        writer.write(number)
    results = [""] * len(places)
    for output, place in enumerate(places):
        results[place] = writer.name(step.outputs[output])
    kind = ", ".join(["f32[4]"] * len(places))
    aliases = ", ".join(
        f"{{{places[output]}}}: ({numbers[parameter]}, {{}}, may-alias)"
        for output, parameter in step.aliases
    )
    header = f", input_output_alias={{ {aliases} }}" if aliases else ""
    body = "\n  ".join([*writer.lines, f"ROOT out = ({kind}) tuple({', '.join(results)})"])
    return (
        f"HloModule step{header}\n"
        "sum { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b) }\n"
        f"ENTRY main {{\n  {body}\n}}\n"
    )


def _any_order(step: Step, random: Random) -> list[int]:
    """The nodes, operands before users, else in any order."""
    done = set(range(step.parameters))
    left = list(range(step.parameters, step.parameters + len(step.nodes)))
    order = []
    while left:
        ready = [
            each
            for each in left
            if done.issuperset(number for number, _ in step.node(each).operands)
        ]
        number = random.choice(ready)
        left.remove(number)
        done.add(number)
        order.append(number)
    return order
