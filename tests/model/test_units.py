"""A number is printed in its unit, and meets only numbers of that unit."""

import pytest

from assay.model.units import Quantity, Unit, format_bytes, format_quantity


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (1023, "1,023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (-2048, "-2.0 KiB"),
        (16 * 2**30, "16.0 GiB"),
        (2**40, "1.0 TiB"),
        (2**50, "1.0 PiB"),
        (2**61, "2048.0 PiB"),
    ],
)
def test_bytes_are_read_in_the_largest_binary_step(value: int, text: str) -> None:
    assert format_bytes(value) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4096, Unit.BYTES, "4.0 KiB"),
        (4096, Unit.COUNT, "4,096"),
        (4096.0, Unit.COUNT, "4,096"),
        (0.5, Unit.COUNT, "0.5"),
        (0.12345, Unit.SECONDS, "0.123 s"),
        (0.0009765625, Unit.RATIO, "0.000977"),
        (float("inf"), Unit.RATIO, "inf"),
        (1500, Unit.SECONDS, "1,500 s"),
        (123456, Unit.RATIO, "123,000"),
        (float("inf"), Unit.BYTES, "inf PiB"),
    ],
)
def test_a_quantity_reads_in_its_own_unit(value: float, unit: Unit, text: str) -> None:
    assert format_quantity(value, unit) == text == str(Quantity(value, unit))


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0 B"), (20 * 2**30, "20.0 GiB"), (20166222648, "18.8 GiB")]
)
def test_bytes_are_rounded_on_request(value: int, text: str) -> None:
    assert format_quantity(value, Unit.BYTES, decimals=1) == text
