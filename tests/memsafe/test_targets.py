"""The target of the next plan, by the memory that earlier plans needed."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from memsafe.measure import Measured
from memsafe.targets import Targets, narrowed


def needing(nbytes: float, *, is_refused: bool = False) -> Measured:
    """A substitute for a compiled program without arguments."""
    lowered = None if is_refused else jax.jit(jnp.sin).lower(1.0)
    return Measured(nbytes=nbytes, argument_bytes=0, temp_bytes=nbytes, lowered=lowered)


@pytest.mark.parametrize(
    ("needed", "targets"),
    [
        ([800.0], [40 / 8]),
        ([800.0, 790.0], [40 / 8, 5 * (100 / 790) ** 2]),
        ([104.0], [40 * 0.9]),
        ([float("inf")], [40 * 0.5]),
    ],
)
def test_the_next_target_is_smaller(needed: list[float], targets: list[float]) -> None:
    tried, target = Targets(arguments=0, room=100), 40.0
    for each, wanted in zip(needed, targets, strict=True):
        following = tried.after(target, 400.0, needing(each, is_refused=each == float("inf")))
        assert following == pytest.approx(wanted)
        target = wanted


@pytest.mark.parametrize(("held", "share"), [(700, 0.5), (300, 0.9)])
def test_the_next_target_is_far_smaller_where_libraries_hold_most_of_what_is_no_improvement(
    held: int, share: float
) -> None:
    tried = Targets(arguments=0, room=1000)
    more, no_less = (replace(needing(each), library_bytes=held) for each in (1100, 1099))
    target = tried.after(40.0, 30.0, more)
    assert target == pytest.approx(0.9 * 30)
    assert tried.after(20.0, 15.0, no_less) == pytest.approx(share * 15)


@pytest.mark.parametrize(
    ("predicted", "needed", "ends"),
    [
        (400.0, [800.0, 790.0, 795.0], True),
        (400.0, [800.0, 790.0, 500.0, 490.0], False),
        (400.0, [800.0, float("inf"), float("inf"), float("inf")], False),
        pytest.param(40.0, [800.0] * 4, False, id="the compiler keeps what seemed fused"),
    ],
)
def test_no_target_follows_two_plans_without_an_improvement(
    predicted: float, needed: list[float], *, ends: bool
) -> None:
    tried = Targets(arguments=0, room=100)
    aims = [40.0 / 2**at for at in range(len(needed))]
    followed = [
        tried.after(aim, predicted, needing(each)) for aim, each in zip(aims, needed, strict=True)
    ]
    assert (followed[-1] is None) == ends
    assert None not in followed[:-1]


@pytest.mark.parametrize(
    ("compiled", "room", "share"),
    [
        ([(40.0, 800.0, 0)], 200.0, 1 / 4),
        ([(40.0, 800.0, 500)], 200.0, 1 / 2),
        ([(40.0, 800.0, 500), (20.0, 400.0, 0)], 200.0, 1 / 2),
        ([(40.0, 800.0, 0), (20.0, 200.0, 0)], 50.0, 1 / 2),
        ([(40.0, 800.0, 0), (20.0, 1000.0, 0)], 200.0, 1 / 5),
        ([(40.0, float("inf"), 0)], 200.0, 1.0),
    ],
)
def test_the_next_plan_aims_at_the_room_there_is(
    compiled: list[tuple[float, float, int]], room: float, share: float
) -> None:
    needs = [
        (
            target,
            Measured(
                nbytes=needed + 7,
                argument_bytes=7,
                temp_bytes=needed,
                lowered=None,
                library_bytes=libraries,
            ),
        )
        for target, needed, libraries in compiled
    ]
    assert narrowed(needs, own=7, room=room) == pytest.approx(share)
