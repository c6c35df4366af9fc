"""The graph of one training step before optimization, without names and orders of chance."""

from dataclasses import dataclass

from assay.model.module import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParameter:
    """A parameter; its ``colour`` says how it is used, whatever its number.

    ``donated`` tells whether an output may take over its buffer.
    """

    number: int
    shape: Shape
    colour: str
    donated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """An output; its ``value`` says what it is computed from, its ``colour`` its place as well."""

    index: int
    shape: Shape
    value: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCollective:
    """A collective, coalesced if it has several operands; these in the order as written.

    ``shapes`` are those of the whole arrays: what an all-gather gives, what the others take.
    """

    opcode: str
    shapes: tuple[Shape, ...]
    operands: tuple[str, ...]
    attributes: str
    colour: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperation:
    """Equal operations; ``attributes`` tells apart what opcode and shape do not."""

    opcode: str
    shape: Shape
    attributes: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """What two steps share if they are the same but for names and orders that mean nothing.

    ``canonical`` is the fingerprint that they share; ``raw`` is `assay.hlo.fingerprint`'s, which
    differs where they were written differently. ``instructions`` are those that are alive and do
    more than pack or unpack a tuple; of these, ``duplicate_constants`` could be left out.
    ``operations`` holds all but parameters and collectives. Text and numbers only, so that it can
    be stored.
    """

    canonical: str
    raw: str
    instructions: int
    duplicate_constants: int
    parameters: tuple[StepParameter, ...]
    outputs: tuple[StepOutput, ...]
    collectives: tuple[StepCollective, ...]
    operations: tuple[StepOperation, ...]
