"""Windows: how a convolution slides over its operands, as a serialised module writes it."""

from dataclasses import dataclass
from math import gcd

from assay.hlo.schema import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowDimension:
    """One dimension of the window that a convolution or a reduce-window slides over its base."""

    size: int
    stride: int
    padding_low: int
    window_dilation: int
    base_dilation: int

    def valid_positions(self, base: int, outputs: int) -> int:
        """Pairs of an output and a tap of the window that meet an element of the base.

        The others meet padding or the holes of a dilated base, and cost no arithmetic.
        """
        return sum(self._outputs_that_meet(tap, base, outputs) for tap in range(self.size))

    def _outputs_that_meet(self, tap: int, base: int, outputs: int) -> int:
        """Outputs k for which ``k * stride + offset`` is an element of the dilated base."""
        offset = tap * self.window_dilation - self.padding_low
        last = (base - 1) * self.base_dilation
        first = max(0, -(offset // self.stride))
        end = min(outputs, (last - offset) // self.stride + 1)
        common = gcd(self.stride, self.base_dilation)
        if offset % common:
            return 0
        period = self.base_dilation // common
        congruent = -offset // common * pow(self.stride // common, -1, period) % period
        return max(0, (end - 1 - congruent) // period - (first - 1 - congruent) // period)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionDimensions:
    """Which dimension of a convolution's operands and of its result is which."""

    kernel_input_feature: int
    kernel_output_feature: int
    output_batch: int
    output_feature: int
    input_spatial: tuple[int, ...]
    output_spatial: tuple[int, ...]


def read_window(message: Message) -> tuple[WindowDimension, ...]:
    """The dimensions of a WindowProto; a field that is left out is 1, or no padding."""
    return tuple(
        WindowDimension(
            size=each.size,
            stride=each.stride or 1,
            padding_low=each.padding_low,
            window_dilation=each.window_dilation or 1,
            base_dilation=each.base_dilation or 1,
        )
        for each in message.dimensions
    )


def read_convolution(message: Message) -> ConvolutionDimensions:
    """The dimensions that a ConvolutionDimensionNumbers names."""
    return ConvolutionDimensions(
        kernel_input_feature=message.kernel_input_feature_dimension,
        kernel_output_feature=message.kernel_output_feature_dimension,
        output_batch=message.output_batch_dimension,
        output_feature=message.output_feature_dimension,
        input_spatial=tuple(message.input_spatial_dimensions),
        output_spatial=tuple(message.output_spatial_dimensions),
    )
