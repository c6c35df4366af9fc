"""Faults of the installation: a compiler, a plugin or an assembler that is not there."""

from __future__ import annotations

from tests.faults.fault import FAILED, SUITE, Fault

_COMPILES = ("-k", "compiles")


def _hidden(name: str, hides: tuple[str, ...], target: str, *says: str) -> tuple[Fault, Fault]:
    """Asked for by itself, and beside a target that can be judged."""
    beside = (*SUITE, "--assay-target", target, *_COMPILES)
    alone = ("-m", "pytest", "mysuites", "--assay-target", target, *_COMPILES)
    return (
        Fault(
            name=f"{name} is missing", hides=hides, command=alone, ends=FAILED, says=(target, *says)
        ),
        Fault(
            name=f"{name} is missing for one of two targets",
            hides=hides,
            command=beside,
            ends=FAILED,
            says=(target, *says),
        ),
    )


MISSING = (
    *_hidden("libtpu", ("libtpu",), "tpu-v5e:2x4", "libtpu", "(exit 1)"),
    *_hidden("the GPU plugin", ("jax_plugins",), "gpu-h100", "CUDA plugin", "(exit 1)"),
)
