"""``benchmarks.memsafe_programs``: programs that end their process, and options of XLA."""

import os
from collections.abc import Callable

import jax
import pytest

from benchmarks import memsafe_programs
from benchmarks.memsafe_programs import Found, is_known, outcomes

UNFUSED = "--xla_cpu_max_isa=AVX"
QUICK = "--xla_backend_optimization_level=0"

pytestmark = pytest.mark.exhaustive  # Each process imports jax.

ENDS = 2


def counted(seed: int) -> Found:
    if seed == ENDS:
        os.abort()
    return [], ["programs"]


def ends(_: int) -> None:
    os.abort()


def goes_on(_: int) -> None:
    pass


@pytest.mark.parametrize(
    ("written", "kind"), [(ends, "XLA ends the process as written"), (goes_on, "crashes")]
)
def test_who_ends_a_process_is_told_and_the_others_run(
    written: Callable[[int], None], kind: str
) -> None:
    found = [kinds for _, kinds in outcomes(range(4), counted, written)]
    assert found == [["programs"], ["programs"], ["programs", kind], ["programs"]]


def refuses(_: object) -> None:
    raise jax.errors.JaxRuntimeError("no such fusion")


def wrong_if_quick(seed: int) -> Found:
    return (["wrong"], ["wrong values"]) if QUICK in os.environ["XLA_FLAGS"] else ([], [str(seed)])


def ends_if_quick(seed: int) -> Found:
    if QUICK in os.environ["XLA_FLAGS"]:
        os.abort()
    return [], [str(seed)]


def always_wrong(_: int) -> Found:
    return ["wrong"], ["wrong values"]


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (wrong_if_quick, ([], ["7", "tried again"])),
        (ends_if_quick, ([], ["7", "tried again"])),
        (always_wrong, (["wrong"], ["wrong values", "tried again"])),
    ],
)
def test_what_is_found_with_other_options_is_tried_again_without(
    found: Callable[[int], Found], told: Found
) -> None:
    assert list(outcomes(range(7, 8), found, goes_on, [QUICK])) == [told]


def wrong_if_fused(_: int) -> Found:
    is_right = UNFUSED in os.environ["XLA_FLAGS"]
    return ([], ["programs"]) if is_right else (["off"], ["programs", "wrong values"])


def test_what_xla_rounds_in_two_ways_is_counted_apart() -> None:
    if not is_known(UNFUSED):
        pytest.skip("XLA for this processor has no such option")
    apart = "right without fused multiply-adds"
    assert list(outcomes(range(1), wrong_if_fused, goes_on)) == [
        ([f"{apart}: off"], ["programs", apart])
    ]


def test_an_option_that_xla_lacks_is_left_out() -> None:
    assert is_known(QUICK)
    assert not is_known("--xla_no_such_option=1")


@pytest.mark.parametrize(
    ("compiled_as_written", "kind"),
    [(refuses, "XLA refuses it as written"), (lambda _: None, "crashes")],
)
def test_what_xla_refuses_without_memsafe_too_is_no_crash_of_memsafe(
    monkeypatch: pytest.MonkeyPatch, compiled_as_written: Callable[[object], None], kind: str
) -> None:
    monkeypatch.setattr(memsafe_programs, "outcome_of", refuses)
    monkeypatch.setattr(memsafe_programs, "compiled_as_written", compiled_as_written)
    (told,), kinds = memsafe_programs.found_of(0)
    assert kinds == ["programs", kind]
    assert "JaxRuntimeError: no such fusion" in told
