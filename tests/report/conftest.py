"""One whole record, of which a test says only what matters to it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, Outcome, Record

_KEPT = Record(
    schema=RECORD_SCHEMA,
    run="2026-11-20",
    suite="scan_offload",
    workload="scan_stack",
    variant="offload-hidden",
    claim="host-bytes",
    target="gpu-h100:8",
    toolchain={"jax": "0.12.0", "jaxlib": "0.12.0"},
    verdict=Outcome.PASSED,
    measured=16 * 2**30,
    limit=16 * 2**30,
    unit=Unit.BYTES,
    baseline=None,
    reason="host memory: 16.0 GiB, expected = 16.0 GiB (the stack)",
    advice="",
    upstream="",
    seconds=0.25,
)


@pytest.fixture(scope="session")
def record_of() -> Callable[..., Record]:
    """A passed record with the fields given in place of its own."""

    def make(**fields: Any) -> Record:
        return replace(_KEPT, **fields)

    return make
