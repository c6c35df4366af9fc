"""Programs that must fail a claim: each is run beside the variants that pass it."""

from dataclasses import replace
from functools import partial
from math import inf

from assay import Role
from suites.fsdp_accumulation.callbacks import bucketed
from suites.fsdp_accumulation.formulas import LoopVariant
from suites.fsdp_accumulation.programs import (
    fsdp_program,
    jax_program,
    lazy_program,
    spmd_program,
    steps_twice,
)
from suites.fsdp_accumulation.sizes import BertSizes, Nesting, Sharding, SpmdSharding
from suites.fsdp_accumulation.variants import SGD, programs_of_a_step

_ENOUGH_STEPS = 3
"""With a tail for each of the wrapped modules, every one of the first steps is another graph."""

_OTHER_RATE = replace(SGD, rate=SGD.rate * 1.01)

_negative_control = partial(LoopVariant, role=Role.NEGATIVE_CONTROL)


def fsdp_negative_controls(sizes: BertSizes) -> tuple[LoopVariant, ...]:
    """Tails that wait for a later step, nested and un-nested; and a rate off by a hundredth."""
    few = replace(sizes, steps=_ENOUGH_STEPS)
    nested = Sharding(bucket_mb=1, flushes_tail=False)
    outer = replace(nested, nesting=Nesting.OUTER)
    return (
        _negative_control(
            name="negative-tail-waits",
            reference="bucket-0",
            program=partial(fsdp_program, few, nested, SGD),
        ),
        _negative_control(
            name="negative-un-nested-tail-waits",
            reference="un-nested-bucket-0",
            program=partial(fsdp_program, sizes, outer, SGD),
        ),
        _negative_control(
            name="negative-steps-twice",
            reference="bucket-0",
            program=partial(steps_twice, partial(fsdp_program, sizes, Sharding(bucket_mb=20), SGD)),
        ),
        _negative_control(
            name="negative-other-rate",
            reference="bucket-0",
            program=partial(fsdp_program, sizes, Sharding(), _OTHER_RATE),
        ),
    )


def spmd_negative_controls(sizes: BertSizes) -> tuple[LoopVariant, ...]:
    """Gradients gathered over three steps; and a rate off by a hundredth."""
    negative_control = partial(_negative_control, reference="replicated")
    gathers = SpmdSharding(steps_an_update=3)
    return (
        negative_control(
            name="negative-gathers", program=partial(spmd_program, sizes, gathers, SGD)
        ),
        negative_control(
            name="negative-other-rate",
            program=partial(spmd_program, sizes, SpmdSharding(), _OTHER_RATE),
        ),
    )


def lazy_negative_controls(steps: int) -> tuple[LoopVariant, ...]:
    """A bucket above what one step brings, whose tail waits."""
    plans = bucketed(3000, steps, flushes_tail=False)
    immediate = partial(lazy_program, bucketed(0, steps))
    negative_control = partial(_negative_control, reference="immediate")
    return (
        negative_control(name="negative-carried", program=partial(lazy_program, plans)),
        negative_control(name="negative-steps-twice", program=partial(steps_twice, immediate)),
    )


def jax_negative_controls(steps: int) -> tuple[LoopVariant, ...]:
    """The same tail in JAX; and callbacks in another order, in a list."""
    carried = bucketed(3000, steps, flushes_tail=False)
    shuffled = bucketed(inf, steps, shuffled=True)
    immediate = partial(jax_program, bucketed(0, steps), False)  # noqa: FBT003 - bound for a partial
    slow = _negative_control(
        name="negative-steps-twice", reference="immediate", program=partial(steps_twice, immediate)
    )
    others = tuple(
        _negative_control(
            name=name,
            reference="immediate",
            graphs=programs_of_a_step(shuffled),
            program=partial(jax_program, plans, False),  # noqa: FBT003 - bound for a partial
        )
        for name, plans in (("negative-carried", carried), ("negative-end-shuffled", shuffled))
    )
    return (*others, slow)
