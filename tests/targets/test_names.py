"""A target's name is a value that is spelled in one way."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.target import (
    TargetError,
    TargetName,
    TargetUnavailable,
    Unavailable,
)

FIXED = (
    *("cpu", "cpu:8", "gpu", "tpu"),
    *("gpu-h100:8", "gpu-h200", "gpu-a100", "gpu-b200", "gpu-l4"),
    *("tpu-v5e:2x4", "tpu-v5p:2x2x2", "tpu-v6e:2x4", "tpu-v4:2x2x2", "tpu7x:2x2x1"),
)

words = st.from_regex(r"[a-z][a-z0-9_]{0,6}", fullmatch=True)
names = st.builds(
    TargetName,
    model=st.lists(words, min_size=1, max_size=3).map("-".join),
    topology=st.lists(st.integers(1, 10**4), max_size=4).map(tuple),
)


@pytest.mark.parametrize("text", FIXED)
def test_a_fixed_name_is_spelled_as_it_is_read(text: str) -> None:
    assert str(TargetName.parse(text)) == text


@given(names)
def test_every_name_is_read_back_as_it_was(name: TargetName) -> None:
    assert TargetName.parse(str(name)) == name


@given(st.text(max_size=20))
def test_any_text_is_a_name_or_a_target_error(text: str) -> None:
    try:
        name = TargetName.parse(text)
    except TargetError as error:
        assert "do this" in str(error)  # noqa: PT017 - either outcome is right
    else:
        assert str(name) == text


@pytest.mark.parametrize(
    "text",
    ["", ":", "gpu-h100:", "gpu-h100:0", "cpu:-1", "tpu-v5e:2x", "tpu-v5e:02x4", "GPU", "a b:1"],
)
def test_a_malformed_name_says_what_a_name_looks_like(text: str) -> None:
    with pytest.raises(TargetError, match=r"got .*; wanted .*tpu-v5e:2x4; do this: .*"):
        TargetName.parse(text)


def test_a_topology_is_not_part_of_a_model() -> None:
    with pytest.raises(TargetError):
        TargetName(model="tpu-v5litepod-8")


def test_an_unavailable_target_survives_the_way_between_processes() -> None:
    error = TargetUnavailable("tpu", Unavailable("no TPU", "plug one in"))
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "target tpu is unavailable: no TPU; do this: plug one in"
