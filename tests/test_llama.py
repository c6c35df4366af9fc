"""``benchmarks.llama``: what passes, and what does not."""

import pytest

from benchmarks.llama import MEMSAFE, PLAIN, POLICIES, is_longest

POLICY = next(iter(POLICIES))


@pytest.mark.parametrize("other", [0, 4_096, 8_192])
def test_a_sequence_that_no_policy_exceeds_passes(other: int) -> None:
    assert is_longest({PLAIN: other, MEMSAFE: 8_192, POLICY: other})


@pytest.mark.parametrize(
    "longest",
    [
        pytest.param({MEMSAFE: 4_096, POLICY: 8_192}, id="shorter"),
        pytest.param({MEMSAFE: 0, POLICY: 0}, id="nothing fits"),
        pytest.param({PLAIN: 4_096, POLICY: 8_192}, id="memsafe not measured"),
        pytest.param({MEMSAFE: 8_192}, id="nothing compared"),
    ],
)
def test_a_shorter_sequence_or_no_comparison_fails(longest: dict[str, int]) -> None:
    assert not is_longest(longest)
