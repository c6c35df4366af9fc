"""Names lead to targets, and wrong names to the right ones."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assay.model.target import TargetError, TargetName
from assay.targets import Target, known, models_of, resolve, survey


def test_every_known_name_resolves_to_itself() -> None:
    targets = [resolve(name) for name in known()]
    assert tuple(str(target.name) for target in targets) == known()
    assert all(isinstance(target, Target) for target in targets)


def test_the_fixed_defaults_are_known() -> None:
    fixed = (
        "cpu:8 gpu tpu gpu-h100:8 gpu-h200:8 gpu-a100:8 gpu-b200:8 gpu-l4:8 tpu-v4:2x2x2 "
        "tpu-v5e:2x4 tpu-v5p:2x2x2 tpu-v6e:2x4 tpu7x:2x2x1"
    )
    assert set(fixed.split()) <= set(known())


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("tpu-v5litepod-8", "tpu-v5e:2x4"),
        ("gpu-h101:8", "gpu-h100:8"),
        ("tpu-v7x:2x2x1", "tpu7x:2x2x1"),
        ("TPU-V6E:2x4", "tpu-v6e:2x4"),
        ("tpu-v5p:2x2", "tpu-v5p:2x2x2"),
        ("tpu-v5e", "tpu-v5e:2x4"),
        ("gpu-h100:0", "gpu-h100:8"),
        ("gpu-h100:2x4", "gpu-h100:8"),
        ("cpu:2x4", "cpu:8"),
        ("quantum", "cpu:8"),
    ],
)
def test_a_wrong_name_leads_to_a_right_one(wrong: str, right: str) -> None:
    with pytest.raises(TargetError) as caught:
        resolve(wrong)
    assert right in str(caught.value).partition("do this: ")[2]
    assert repr(wrong) in str(caught.value)


def test_a_single_device_has_one_spelling() -> None:
    assert resolve("gpu-h100:1").name == resolve("gpu-h100").name == TargetName(model="gpu-h100")
    assert resolve("cpu:1").name == TargetName(model="cpu")


def test_a_name_without_a_device_model_is_left_out() -> None:
    found = models_of(["cpu:8", "gpu-h100:8", "gpu-unheard-of", "not a name"])
    assert {name: model.name for name, model in found.items()} == {"gpu-h100:8": "gpu-h100"}


def test_the_survey_tells_what_each_target_can_do() -> None:
    found = {str(target.name): (target.executes, missing) for target, missing in survey()}
    assert found["cpu:8"] == (True, None)
    assert found["gpu-h100:8"] == found["tpu-v5e:2x4"] == (False, None)


def test_the_survey_loads_no_jax() -> None:
    script = "import sys, assay.targets; assay.targets.survey(); sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
