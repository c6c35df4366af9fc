"""Arithmetic: how many operations one instruction computes, as XLA's own cost analysis counts.

Elementwise operations count one per element of the result, for every element type. Transcendental
operations count too; XLA counts them separately. An operation whose algorithm the module does not
name (a sort, an FFT, a backend's kernel) counts none.
"""

import json
from collections.abc import Sequence
from math import prod
from typing import Final

from assay.hlo.instruction import Instruction
from assay.hlo.module import Computation
from assay.model.module import Shape

_ELEMENTWISE: Final = frozenset(
    {
        "abs",
        "add",
        "and",
        "atan2",
        "cbrt",
        "ceil",
        "clamp",
        "compare",
        "convert",
        "cosine",
        "count-leading-zeros",
        "divide",
        "erf",
        "exponential",
        "exponential-minus-one",
        "floor",
        "is-finite",
        "log",
        "log-plus-one",
        "logistic",
        "maximum",
        "minimum",
        "multiply",
        "negate",
        "not",
        "or",
        "popcnt",
        "power",
        "reduce-precision",
        "remainder",
        "round-nearest-afz",
        "round-nearest-even",
        "rsqrt",
        "select",
        "shift-left",
        "shift-right-arithmetic",
        "shift-right-logical",
        "sign",
        "sine",
        "sqrt",
        "stochastic-convert",
        "subtract",
        "tan",
        "tanh",
        "xor",
    }
)
_APPLIES: Final = frozenset(
    {"all-reduce", "map", "reduce", "reduce-scatter", "reduce-window", "scatter"}
)

ARITHMETIC: Final = _ELEMENTWISE | _APPLIES | {"convolution", "custom-call", "dot"}
"""Opcodes that may compute; what they run as a whole is not among it."""

# Of a backend's call for a convolution, where the output-sized and the kernel-sized arrays are:
# None is the result, a number an operand.
_CONVOLUTIONS: Final[dict[str, tuple[int | None, int | None]]] = {
    "__cudnn$convForward": (None, 1),
    "__cudnn$convForwardGraph": (None, 1),
    "__cudnn$convBiasActivationForward": (None, 1),
    "__cudnn$convBackwardInput": (0, 1),
    "__cudnn$convBackwardFilter": (1, None),
}


def flops(instruction: Instruction) -> int:
    """Operations of one execution, without those of a computation that it runs as a whole.

    A multiply-add is two operations.
    """
    opcode = instruction.opcode
    if opcode in _ELEMENTWISE:
        return _elements(instruction.shape)
    if opcode == "dot":
        return _of_dot(instruction, instruction.contracting_dimensions)
    if opcode == "convolution":
        return _of_convolution(instruction)
    if opcode in _APPLIES:
        return _applications(instruction) * sum(map(_of_function, instruction.called))
    if opcode == "custom-call":
        return _of_library_call(instruction)
    return 0


def _of_function(computation: Computation) -> int:
    """Operations of a function that is applied to single elements."""
    return sum(map(flops, computation.of(ARITHMETIC)))


def _applications(instruction: Instruction) -> int:
    """How often an instruction applies its function."""
    operand, result = instruction.operands[0].shape, _first(instruction.shape)
    if instruction.opcode == "reduce":
        return max(0, _elements(operand) - _elements(result))
    if instruction.opcode == "reduce-window":
        window = prod(dimension.size for dimension in instruction.window)
        return (window - 1) * _elements(result)
    if instruction.opcode == "scatter":
        return _elements(instruction.operands[-1].shape)
    return sum(_elements(each) for each in instruction.shape.leaves())


def _of_dot(instruction: Instruction, contracting: Sequence[int]) -> int:
    left = instruction.operands[0].shape.dimensions
    return 2 * _elements(_first(instruction.shape)) * prod(left[each] for each in contracting)


def _of_convolution(instruction: Instruction) -> int:
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


def _of_library_call(instruction: Instruction) -> int:
    """What a call for a matrix product or a convolution computes; nothing of other kernels."""
    if instruction.convolution is not None:
        return _of_library_convolution(instruction)
    numbers = _gemm_dimensions(instruction.backend_config)
    return 0 if numbers is None else _of_dot(instruction, numbers)


def _of_library_convolution(instruction: Instruction) -> int:
    """Every element of the output meets every tap of its features, padding or not."""
    dimensions, roles = instruction.convolution, _CONVOLUTIONS.get(instruction.custom_call_target)
    if dimensions is None or roles is None:
        return 0
    outputs, kernel = (
        _first(instruction.shape) if role is None else instruction.operands[role].shape
        for role in roles
    )
    features: int = kernel.dimensions[dimensions.kernel_output_feature_dimension]
    return 2 * _elements(outputs) * _elements(kernel) // features


def _gemm_dimensions(backend_config: bytes) -> tuple[int, ...] | None:
    """The contracting dimensions of the first operand, where a backend's words name them."""
    if b"dot_dimension_numbers" not in backend_config:
        return None
    try:
        numbers = json.loads(backend_config)["gemm_backend_config"]["dot_dimension_numbers"]
        return tuple(map(int, numbers["lhs_contracting_dimensions"]))
    except (ValueError, KeyError, TypeError):  # another backend's words, by chance with this name
        return None


def _first(shape: Shape) -> Shape:
    """The result itself where the backend adds a workspace to it."""
    return next(shape.leaves(), shape)


def _elements(shape: Shape) -> int:
    return prod(shape.dimensions)
