"""Cost analysis: operations, and bytes read and written, of one execution of an instruction.

Operations are counted as XLA's ``HloCostAnalysis`` counts them. Elementwise operations count one
per element of the result, for every element type. Transcendental operations count too; XLA counts
them separately. An operation whose algorithm the module does not name (a sort, an FFT, a backend's
kernel) counts none.

Bytes are logical and as emitted: operands read and results written, of a fusion its own and not
those inside it. A slice reads what it takes, an update in place writes the update.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from assay.hlo.host_transfers import HOST_THREAD
from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.hlo.opcodes import COLLECTIVES, ELEMENTWISE, FREE, RUNS, SLICES, UPDATES, opcodes
from assay.hlo.trip_count import TripCounter
from assay.model.module import Cost, Shape

_APPLIES: Final = opcodes("all-reduce map reduce reduce-scatter reduce-window scatter")
_ARITHMETIC: Final = ELEMENTWISE | _APPLIES | opcodes("convolution custom-call dot")
_VIEWS: Final = opcodes("bitcast opt-barrier reshape")
_PARTS: Final = _VIEWS | opcodes("get-tuple-element")

# Of a backend's call for a convolution, where the output-sized and the kernel-sized arrays are:
# None is the result, a number an operand.
_CONVOLUTIONS: Final[dict[str, tuple[int | None, int | None]]] = {
    "__cudnn$convForward": (None, 1),
    "__cudnn$convForwardGraph": (None, 1),
    "__cudnn$convBiasActivationForward": (None, 1),
    "__cudnn$convBackwardInput": (0, 1),
    "__cudnn$convBackwardFilter": (1, None),
}

Path = tuple[int, ...]


class CostAnalysis:
    """The costs of one module's instructions; each computation is analysed once.

    An operation that an asynchronous start begins costs nothing, because it overlaps other work.
    The instructions of ``asynchronous`` cost nothing either: they start or await such an operation,
    but their opcodes do not show it. A conditional counts the most operations and the most bytes of
    any of its branches. A loop counts its body and condition times their trips.
    """

    def __init__(
        self, trips: TripCounter, asynchronous: frozenset[Instruction] = frozenset()
    ) -> None:
        self._trips = trips
        self._asynchronous = asynchronous
        self._computations: dict[Computation, Cost | None] = {}
        self._fused_flops: dict[Computation, int] = {}

    def cost(self, instruction: Instruction) -> Cost | None:
        """The cost of one execution; None if a trip count in it is unknown."""
        opcode = instruction.opcode
        on_host = instruction.execution_thread == HOST_THREAD
        if opcode in FREE or on_host or instruction in self._asynchronous:
            return Cost()
        if opcode in RUNS:
            return self._cost_of_called(instruction)
        if opcode == "fusion":
            inside = self._flops_inside(instruction.called[0])
            return Cost(flops=inside, nbytes=traffic_inside(instruction).nbytes)
        return Cost(flops=_flops(instruction), nbytes=_nbytes(instruction))

    def of_computation(self, computation: Computation) -> Cost | None:
        """The cost of one execution of a computation that is run as a whole."""
        if computation not in self._computations:
            self._computations[computation] = total(map(self.cost, computation.but(FREE)))
        return self._computations[computation]

    def _cost_of_called(self, instruction: Instruction) -> Cost | None:
        costs = map(self.of_computation, instruction.called)
        known = [each for each in costs if each is not None]
        if len(known) < len(instruction.called):
            return None
        if instruction.opcode == "while":
            trips = self._trips.count(instruction).trips
            body, condition = known
            return None if trips is None else body * trips + condition * (trips + 1)
        return Cost(
            flops=max(each.flops for each in known), nbytes=max(each.nbytes for each in known)
        )

    def _flops_inside(self, computation: Computation) -> int:
        if computation not in self._fused_flops:
            own = sum(map(_flops, computation.of(_ARITHMETIC)))
            inner = (callee for each in computation.calls for callee in each.called)
            self._fused_flops[computation] = own + sum(map(self._flops_inside, inner))
        return self._fused_flops[computation]


def total(costs: Iterable[Cost | None]) -> Cost | None:
    """The sum; None if one is unknown."""
    result = Cost()
    for cost in costs:
        if cost is None:
            return None
        result += cost
    return result


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that a computation reads of each parameter, by its number, and bytes it writes."""

    reads: Mapping[int, int]
    written: int

    @property
    def nbytes(self) -> int:
        """Bytes read and written."""
        return sum(self.reads.values()) + self.written


def traffic_inside(carrier: Instruction) -> Traffic:
    """What a fusion, or the computation that a start begins, reads and writes.

    Each parameter is read at most once as a whole. A parameter that is itself a result, in the
    operand's own buffer, does not count as read, neither as that result nor by a collective. This
    is how a TPU passes on the arrays of an asynchronous collective.
    """
    (computation,) = carrier.called
    results = list(_results(computation.root))
    shared = {leaf for leaf, path in results if path in carrier.overwrites}
    in_place = {each for leaf, _ in results for each in _updates_in_place(leaf)}
    inner = {each: traffic_inside(each) for each in computation.of(opcodes("fusion"))}
    reads = dict.fromkeys(computation.parameters.values(), 0)
    for parameter, instruction, index in _uses(computation):
        if instruction in inner:
            reads[parameter] += inner[instruction].reads[index]
        elif parameter not in shared or instruction.opcode not in COLLECTIVES:
            is_update = instruction in in_place
            reads[parameter] += _nbytes_read(instruction, index, in_place=is_update)
    written = 0
    for leaf, _ in results:
        if leaf in inner:
            written += inner[leaf].written
        elif leaf.opcode != "parameter":
            updates = list(_updates_in_place(leaf))
            written += sum(map(_nbytes_updated, updates)) if updates else leaf.shape.nbytes
        elif leaf not in shared:
            written += leaf.shape.nbytes
            reads[leaf] += leaf.shape.nbytes
    return Traffic(
        reads={each.parameter_number: min(n, each.shape.nbytes) for each, n in reads.items()},
        written=written,
    )


def _uses(computation: Computation) -> Iterator[tuple[Instruction, Instruction, int]]:
    """Parameters, what reads each of them or a part of it, and as which operand."""
    parameter_of: dict[Instruction, Instruction] = {}
    for instruction in computation.instructions:
        if instruction.opcode == "parameter":
            parameter_of[instruction] = instruction
        elif instruction.opcode in _PARTS:
            if instruction.operands[0] in parameter_of:
                parameter_of[instruction] = parameter_of[instruction.operands[0]]
        elif instruction.opcode != "tuple":
            for index, operand in enumerate(instruction.operands):
                if operand in parameter_of:
                    yield parameter_of[operand], instruction, index


def _results(root: Instruction, path: Path = ()) -> Iterator[tuple[Instruction, Path]]:
    """The instructions that compute the results, behind tuples and views, and their paths."""
    while root.opcode in _VIEWS:
        root = root.operands[0]
    if root.opcode == "tuple":
        for index, operand in enumerate(root.operands):
            yield from _results(operand, (*path, index))
    else:
        yield root, path


def _updates_in_place(leaf: Instruction) -> Iterator[Instruction]:
    """Updates one on top of another, if the lowest is of a parameter; else none."""
    chain = []
    while leaf.opcode in UPDATES or leaf.opcode in _VIEWS:
        if leaf.opcode in UPDATES:
            chain.append(leaf)
        leaf = leaf.operands[0]
    if leaf.opcode in {"parameter", "get-tuple-element"}:
        yield from chain


def _nbytes(instruction: Instruction) -> int:
    """Bytes that an instruction outside of a fusion reads and writes."""
    operands, result = instruction.operands, instruction.shape.nbytes
    if instruction.allocates:
        return 0
    if instruction.opcode in SLICES | UPDATES:
        read = sum(_nbytes_read(instruction, k, in_place=True) for k in range(len(operands)))
        return read + (_nbytes_updated(instruction) if instruction.opcode in UPDATES else result)
    return sum(each.shape.nbytes for each in dict.fromkeys(operands)) + result


def _nbytes_read(instruction: Instruction, index: int, *, in_place: bool) -> int:
    """Bytes that an instruction reads of one operand.

    An update in place reads nothing of its base, except that a scatter combines its updates with
    the elements that they replace.
    """
    if instruction.opcode in SLICES and index == 0:
        return instruction.shape.nbytes
    if in_place and index < _bases(instruction):
        return instruction.operands[-1].shape.nbytes if instruction.opcode == "scatter" else 0
    return instruction.operands[index].shape.nbytes


def _nbytes_updated(instruction: Instruction) -> int:
    """Bytes that an update in place writes."""
    if instruction.opcode == "dynamic-update-slice":
        return instruction.operands[1].shape.nbytes
    return sum(each.shape.nbytes for each in instruction.operands[_bases(instruction) + 1 :])


def _bases(instruction: Instruction) -> int:
    """How many of the first operands are updated: a scatter has n, the indices, n updates."""
    return (len(instruction.operands) - 1) // 2 if instruction.opcode == "scatter" else 1


def _flops(instruction: Instruction) -> int:
    """Operations of one execution, without those of a computation that it runs as a whole.

    A multiply-add is two operations.
    """
    opcode = instruction.opcode
    if opcode in ELEMENTWISE:
        return _elements(instruction.shape)
    if opcode == "dot":
        return _flops_of_dot(instruction, instruction.contracting_dimensions)
    if opcode == "convolution":
        return _flops_of_convolution(instruction)
    if opcode in _APPLIES:
        per_application = sum(
            _flops(each) for callee in instruction.called for each in callee.of(_ARITHMETIC)
        )
        return _applications(instruction) * per_application
    if opcode == "custom-call":
        return _flops_of_library_call(instruction)
    return 0


def _applications(instruction: Instruction) -> int:
    """How often an instruction applies its function to single elements."""
    operand, result = instruction.operands[0].shape, _first(instruction.shape)
    if instruction.opcode == "reduce":
        return max(0, _elements(operand) - _elements(result))
    if instruction.opcode == "reduce-window":
        window = prod(dimension.size for dimension in instruction.window)
        return (window - 1) * _elements(result)
    if instruction.opcode == "scatter":
        return _elements(instruction.operands[-1].shape)
    return sum(_elements(each) for each in instruction.shape.leaves())


def _flops_of_dot(instruction: Instruction, contracting: Sequence[int]) -> int:
    left = instruction.operands[0].shape.dimensions
    return 2 * _elements(_first(instruction.shape)) * prod(left[each] for each in contracting)


def _flops_of_convolution(instruction: Instruction) -> int:
    """As `HloCostAnalysis::GetConvolutionFlops` counts: padding is not multiplied."""
    dimensions = instruction.convolution
    if dimensions is None:
        return 0
    base, kernel = (operand.shape.dimensions for operand in instruction.operands[:2])
    result = instruction.shape.dimensions
    positions = prod(
        window.valid_positions(base[into], result[out])
        for window, into, out in zip(
            instruction.window,
            dimensions.input_spatial_dimensions,
            dimensions.output_spatial_dimensions,
            strict=True,
        )
    )
    taps: int = kernel[dimensions.kernel_input_feature_dimension]
    channels: int = taps * result[dimensions.output_feature_dimension]
    batches: int = result[dimensions.output_batch_dimension]
    return 2 * batches * channels * positions


def _flops_of_library_call(instruction: Instruction) -> int:
    """Operations of a backend's matrix product or convolution; 0 for other kernels.

    In such a convolution every element of the output meets every tap of its features, padding or
    not.
    """
    dimensions, roles = instruction.convolution, _CONVOLUTIONS.get(instruction.custom_call_target)
    if dimensions is None:
        contracting = _contracting_dimensions(instruction.backend_config)
        return 0 if contracting is None else _flops_of_dot(instruction, contracting)
    if roles is None:
        return 0
    outputs, kernel = (
        _first(instruction.shape) if role is None else instruction.operands[role].shape
        for role in roles
    )
    features: int = kernel.dimensions[dimensions.kernel_output_feature_dimension]
    return 2 * _elements(outputs) * _elements(kernel) // features


def _contracting_dimensions(backend_config: bytes) -> tuple[int, ...] | None:
    """The contracting dimensions of the first operand that a backend's configuration names."""
    if b"dot_dimension_numbers" not in backend_config:
        return None
    try:
        numbers = json.loads(backend_config)["gemm_backend_config"]["dot_dimension_numbers"]
        return tuple(map(int, numbers["lhs_contracting_dimensions"]))
    except (ValueError, KeyError, TypeError):  # another backend's, with this key by chance
        return None


def _first(shape: Shape) -> Shape:
    """The result itself where the backend adds a workspace to it."""
    return next(shape.leaves(), shape)


def _elements(shape: Shape) -> int:
    return prod(shape.dimensions)
