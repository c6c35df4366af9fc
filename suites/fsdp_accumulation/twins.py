"""Programs that must break a claim: each is run beside the arms that keep it."""

from dataclasses import replace
from functools import partial
from math import inf

from assay import Role
from suites.fsdp_accumulation.arms import SGD, programs_of_a_step
from suites.fsdp_accumulation.callbacks import bucketed
from suites.fsdp_accumulation.formulas import LoopArm
from suites.fsdp_accumulation.programs import (
    fsdp_program,
    jax_program,
    lazy_program,
    spmd_program,
    steps_twice,
)
from suites.fsdp_accumulation.sizes import BertSizes, Nesting, Sharding, SpmdSharding

_ENOUGH_STEPS = 3
"""With a tail for each of the wrapped modules, every one of the first steps is another graph."""

_OTHER_RATE = replace(SGD, rate=SGD.rate * 1.01)

_twin = partial(LoopArm, role=Role.TWIN)


def fsdp_twins(sizes: BertSizes) -> tuple[LoopArm, ...]:
    """Tails that wait for a later step, nested and un-nested; and a rate off by a hundredth."""
    few = replace(sizes, steps=_ENOUGH_STEPS)
    nested = Sharding(bucket_mb=1, flushes_tail=False)
    outer = replace(nested, nesting=Nesting.OUTER)
    return (
        _twin(
            name="twin-tail-waits",
            reference="bucket-0",
            program=partial(fsdp_program, few, nested, SGD),
        ),
        _twin(
            name="twin-un-nested-tail-waits",
            reference="un-nested-bucket-0",
            program=partial(fsdp_program, sizes, outer, SGD),
        ),
        _twin(
            name="twin-steps-twice",
            reference="bucket-0",
            program=partial(steps_twice, partial(fsdp_program, sizes, Sharding(bucket_mb=20), SGD)),
        ),
        _twin(
            name="twin-other-rate",
            reference="bucket-0",
            program=partial(fsdp_program, sizes, Sharding(), _OTHER_RATE),
        ),
    )


def spmd_twins(sizes: BertSizes) -> tuple[LoopArm, ...]:
    """Gradients gathered over three steps; and a rate off by a hundredth."""
    twin = partial(_twin, reference="replicated")
    gathers = SpmdSharding(steps_an_update=3)
    return (
        twin(name="twin-gathers", program=partial(spmd_program, sizes, gathers, SGD)),
        twin(
            name="twin-other-rate",
            program=partial(spmd_program, sizes, SpmdSharding(), _OTHER_RATE),
        ),
    )


def lazy_twins(steps: int) -> tuple[LoopArm, ...]:
    """A bucket above what one step brings, whose tail waits."""
    plans = bucketed(3000, steps, flushes_tail=False)
    immediate = partial(lazy_program, bucketed(0, steps))
    twin = partial(_twin, reference="immediate")
    return (
        twin(name="twin-carried", program=partial(lazy_program, plans)),
        twin(name="twin-steps-twice", program=partial(steps_twice, immediate)),
    )


def jax_twins(steps: int) -> tuple[LoopArm, ...]:
    """The same tail in JAX; and callbacks in another order, in a list."""
    carried = bucketed(3000, steps, flushes_tail=False)
    shuffled = bucketed(inf, steps, shuffled=True)
    immediate = partial(jax_program, bucketed(0, steps), False)  # noqa: FBT003 - bound for a partial
    slow = _twin(
        name="twin-steps-twice", reference="immediate", program=partial(steps_twice, immediate)
    )
    others = tuple(
        _twin(
            name=name,
            reference="immediate",
            graphs=programs_of_a_step(shuffled),
            program=partial(jax_program, plans, False),  # noqa: FBT003 - bound for a partial
        )
        for name, plans in (("twin-carried", carried), ("twin-end-shuffled", shuffled))
    )
    return (*others, slow)
