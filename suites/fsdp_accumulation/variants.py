"""The variants: ways to wrap and train the BERT-like model, and to call back in the minimal."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

from assay import Role
from suites.fsdp_accumulation.callbacks import Plan, bucketed, groups
from suites.fsdp_accumulation.formulas import LoopVariant
from suites.fsdp_accumulation.programs import (
    fsdp_program,
    jax_program,
    lazy_program,
    replicas_program,
    spmd_program,
)
from suites.fsdp_accumulation.sizes import BertSizes, Nesting, Sharding, SpmdSharding, Training

CONTROL, POLICY, DEFECT, REMEDY = Role.CONTROL, Role.POLICY, Role.DEFECT, Role.REMEDY

SGD, ADAM, ZEROES = Training(), Training(adam=True, rate=1e-3), Training(zeroes=True)

_UNWRAPPED: tuple[tuple[str, Training], ...] = (
    ("unwrapped", SGD),
    ("adamw-unwrapped", ADAM),
    ("zeroed-unwrapped", ZEROES),
)

# (what is changed from the report's program, how, trained how, bucket sizes in MB, its unwrapped).
_FAMILIES: tuple[tuple[str, Sharding, Training, tuple[int, ...], str], ...] = (
    ("", Sharding(), SGD, (0, 1, 20), "unwrapped"),
    ("un-nested-", Sharding(nesting=Nesting.OUTER), SGD, (0, 1, 20), "unwrapped"),
    ("twice-nested-", Sharding(nesting=Nesting.TWICE), SGD, (0, 1, 20), "unwrapped"),
    ("flattened-", Sharding(flatten=True), SGD, (0, 20), "unwrapped"),
    ("unresharded-", Sharding(reshard=False), SGD, (0, 20), "unwrapped"),
    ("coalesced-", Sharding(coalesce=True), SGD, (0, 20), "unwrapped"),
    ("adamw-", Sharding(), ADAM, (0, 1, 20), "adamw-unwrapped"),
    ("zeroed-", Sharding(), ZEROES, (0, 20), "zeroed-unwrapped"),
    (
        "un-nested-flattened-adamw-",
        Sharding(nesting=Nesting.OUTER, flatten=True),
        ADAM,
        (0, 1),
        "adamw-unwrapped",
    ),
    (
        "twice-nested-unresharded-zeroed-",
        Sharding(nesting=Nesting.TWICE, reshard=False),
        ZEROES,
        (0, 20),
        "zeroed-unwrapped",
    ),
    (
        "everything-",
        Sharding(nesting=Nesting.TWICE, flatten=True, reshard=False, coalesce=True),
        ADAM,
        (0, 20),
        "adamw-unwrapped",
    ),
)


def fsdp_variants(sizes: BertSizes) -> tuple[LoopVariant, ...]:
    """The model as it is, and wrapped; each bucket is held against the bucket of size 0."""
    unwrapped = (
        LoopVariant(
            name=name,
            role=CONTROL,
            reference=name.removesuffix("unwrapped") + "bucket-0",
            graphs=training.graphs,
            program=partial(fsdp_program, sizes, Sharding(nesting=Nesting.NONE), training),
        )
        for name, training in _UNWRAPPED
    )
    wrapped = (
        LoopVariant(
            name=f"{changed}bucket-{megabytes}",
            role=DEFECT if megabytes else REMEDY,
            reference=f"{changed}bucket-0" if megabytes else reference,
            graphs=training.graphs,
            program=partial(fsdp_program, sizes, replace(sharding, bucket_mb=megabytes), training),
        )
        for changed, sharding, training, buckets, reference in _FAMILIES
        for megabytes in buckets
    )
    replicas = LoopVariant(
        name="replicas-bucket-20",
        role=DEFECT,
        reference="bucket-20",
        program=partial(replicas_program, sizes, Sharding(bucket_mb=20), SGD),
    )
    return (*unwrapped, *wrapped, replicas)


def spmd_variants(sizes: BertSizes) -> tuple[LoopVariant, ...]:
    """The model on virtual devices, sharded and not."""
    whole = SpmdSharding(shards=False)
    named = (
        ("replicated", CONTROL, "sharded", whole, SGD),
        ("sharded", POLICY, "replicated", SpmdSharding(), SGD),
        ("replicated-adamw", CONTROL, "sharded-adamw", whole, ADAM),
        ("sharded-adamw", POLICY, "replicated-adamw", SpmdSharding(), ADAM),
    )
    return tuple(
        LoopVariant(
            name=name,
            role=role,
            reference=reference,
            graphs=training.graphs,
            program=partial(spmd_program, sizes, sharding, training),
        )
        for name, role, reference, sharding, training in named
    )


def lazy_variants(steps: int) -> tuple[LoopVariant, ...]:
    """The minimal model, its callbacks called at once, in buckets, and all at the end."""
    named = (
        ("immediate", CONTROL, "end", bucketed(0, steps)),
        ("bucket", CONTROL, "immediate", bucketed(600, steps)),
        ("end", REMEDY, "immediate", bucketed(inf, steps)),
        ("immediate-shuffled", DEFECT, "immediate", bucketed(0, steps, shuffled=True)),
        ("end-shuffled", DEFECT, "immediate", bucketed(inf, steps, shuffled=True)),
    )
    return tuple(
        LoopVariant(name=name, role=role, reference=reference, program=partial(lazy_program, plans))
        for name, role, reference, plans in named
    )


def jax_variants(steps: int) -> tuple[LoopVariant, ...]:
    """The same in JAX, and the shuffled order made harmless by names."""
    shuffled = bucketed(inf, steps, shuffled=True)
    named = (
        ("immediate", CONTROL, "end", bucketed(0, steps), False),
        ("bucket", CONTROL, "immediate", bucketed(600, steps), False),
        ("end", CONTROL, "immediate", bucketed(inf, steps), False),
        ("end-shuffled-by-name", REMEDY, "immediate", shuffled, True),
    )
    return tuple(
        LoopVariant(
            name=name,
            role=role,
            reference=reference,
            graphs=programs_of_a_step(plans),
            program=partial(jax_program, plans, by_name),
        )
        for name, role, reference, plans, by_name in named
    )


def programs_of_a_step(plans: Sequence[Plan]) -> int:
    """The gradient's program, and one for each group of shapes that the first step updates."""
    return 1 + len(set(groups(plans[0])))
