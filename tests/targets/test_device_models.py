"""A device model is data: complete, and every number with its source."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import pytest

from assay.model.target import DeviceModel, TargetError
from assay.targets.catalog import device_model, device_models

MODELS = tuple(device_models().values())
WHOLE = """
name = "npu-x"
kind = "gpu"
title = "A device"
default_topology = "4"
memory_bytes = { value = 1024, source = "measured" }
nominal_memory_bytes = { value = 2048, source = "printed on it" }
memory_bandwidth_bytes_per_second = { value = 10, source = "data sheet" }
compiler = { source = "the vendor", fields = { cores = 2 } }
"""


def numbers(table: object, path: str = "") -> set[str]:
    """The paths of all numbers in a TOML table."""
    if isinstance(table, dict):
        return {at for key, value in table.items() for at in numbers(value, f"{path}/{key}")}
    return {path} if isinstance(table, int | float) else set()


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_number_has_a_source(model: DeviceModel) -> None:
    text = files("assay.targets").joinpath("models", f"{model.name}.toml").read_text("utf-8")
    tables = {path.split("/")[1] for path in numbers(tomllib.loads(text))}
    assert tables - {"compiler"} >= {"memory_bytes", "memory_bandwidth_bytes_per_second"}
    assert all(model.sources[table].strip() for table in tables)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_compiler_is_told_the_memory_that_programs_are_judged_by(model: DeviceModel) -> None:
    told = model.compiler.get("gpu_device_info", {"device_memory_size": model.memory_bytes})
    assert isinstance(told, dict)
    assert told["device_memory_size"] == model.memory_bytes
    assert 0.9 < model.memory_bytes / model.nominal_memory_bytes < 1.01


def test_a_whole_file_is_read() -> None:
    model = device_model(WHOLE, "whole.toml")
    assert (model.name, model.memory_bytes, model.default_topology) == ("npu-x", 1024, (4,))
    assert model.host_link_bandwidth_bytes_per_second is None
    assert model.sources["memory_bytes"] == "measured"


@pytest.mark.parametrize(
    ("whole", "spoilt", "complaint"),
    [
        (', source = "measured"', "", r"missing required field `source` - at `\$.memory_bytes`"),
        ('source = "the vendor", ', "", r"missing required field `source` - at `\$.compiler`"),
        ('"measured"', '" "', "`str` matching .* - at `.*memory_bytes.source`"),
        ("value = 1024", "value = 0", "`int` >= 1 - at `.*memory_bytes.value`"),
        ("value = 1024", "value = true", "Expected `int`, got `bool`"),
        ("value = 1024", "value = 10.5", "Expected `int`, got `float`"),
        ('kind = "gpu"', 'kind = "npu"', "Invalid enum value 'npu' - at .*of kind gpu or tpu"),
        ('default_topology = "4"', 'default_topology = "0"', "positive sizes"),
        ("nominal_memory_bytes", "memory_byte", "whole.toml: .* unknown field `memory_byte`"),
        ("memory_bytes = { value = 1024", "memory_bytes = { amount = 1024", "unknown .*`amount`"),
        ('title = "A device"', "", "missing required field `title`"),
        ("kind =", "kind", "Expected '=' .*wanted a device model in TOML"),
    ],
)
def test_a_spoilt_file_is_refused(whole: str, spoilt: str, complaint: str) -> None:
    assert whole in WHOLE
    with pytest.raises(TargetError, match=complaint):
        device_model(WHOLE.replace(whole, spoilt, 1), "whole.toml")
