"""A suite in one file, for a folder of its own, and releases on which its programs differ."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assay.model.evidence import Evidence, Memory, Toolchain
from assay.model.target import Unavailable
from assay.toolchains.environments import Environment
from assay.toolchains.probes import Probed, Prober
from assay.toolchains.releases import Release

STACK_BYTES = 15 * 4096 * 4
RELEASES = ("0.4.0", "0.5.0", "0.6.0")
SUITE = """
import jax
import jax.numpy as jnp
from assay import Check, Formula, KnownDefect, Measures, Program, Quantity, Role
from assay import Unit, Upstream, UpstreamState, Variant, Workload, claims

STACK = jax.ShapeDtypeStruct((15, 4096), jnp.float32)
ROW = jax.ShapeDtypeStruct((4096,), jnp.float32)


def in_place(stack, x):
    def body(i, carry):
        stack, x = carry
        return jax.lax.dynamic_update_index_in_dim(stack, x[None], i, 0), jnp.tanh(x)

    return jax.lax.fori_loop(0, 15, body, (stack, x))


def keeps_the_old(stack, x):
    def body(i, carry):
        old, stack = carry
        return stack, jax.lax.dynamic_update_index_in_dim(stack, x[None] + old[0], i, 0)

    return jax.lax.fori_loop(0, 15, body, (stack, stack * 2))


def variant(name, function, role=Role.DEFECT):
    program = Program(function=function, arguments=(STACK, ROW), donate_argnums=(0,))
    return Variant(name=name, role=role, program=lambda _devices: program)


DEFECT = KnownDefect(
    variants=("slow",),
    expects={"temp-bytes-at-most": Measures(least=200_000)},
    targets=("*",),
    toolchain={"jaxlib": "<0.5"},
    remedies={"slow": "fast"},
    reason="it keeps the old stack",
    upstream=Upstream(link="https://example.org/1", state=UpstreamState.CLOSED),
    last_seen="2026-11-25",
)
LOOP = Workload(
    suite="small",
    name="loop",
    variants=(
        variant("fast", in_place, Role.CONTROL),
        variant("slow", keeps_the_old),
        variant("copied", keeps_the_old, Role.NEGATIVE_CONTROL),
        variant("wrong", keeps_the_old, Role.NEGATIVE_CONTROL),
    ),
    known_defects=(DEFECT,),
)
TWO_ROWS = Formula("two rows", lambda _case: Quantity(2 * 4096 * 4, Unit.BYTES))
test_no_copy = Check(
    claim=claims.TempBytesAtMost(limit=TWO_ROWS), workloads=(LOOP,), negative_control="copied"
)
test_compiles = Check(claim=claims.Compiles(), workloads=(LOOP,), variants=("fast",))
test_runs = Check(
    claim=claims.Runs(), workloads=(LOOP,), variants=("s*",), negative_control="wrong"
)
"""


def write_suite(folder: Path) -> Path:
    """The file of the suite; a module of that name is imported anew."""
    file = folder / "test_small.py"
    file.write_text(SUITE)
    sys.modules.pop("test_small", None)
    return file


@dataclass(slots=True)
class FakeReleases:
    """What each variant gives on each release: temporaries of a stack by default, none of fast.

    ``gives`` is keyed by variant and release; ``calls`` are the programs probed, in any order.
    """

    gives: Mapping[tuple[str, str], Any] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    _running: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Put them in the place of the released ones."""
        here = Environment(folder=Path(sys.prefix), versions={})
        for module in ("matrix", "bisect"):
            monkeypatch.setattr(f"assay.toolchains.{module}.versions", self._versions)
        monkeypatch.setattr(Release, "environment", lambda *_: here)

        def probe(
            prober: Prober, release: Release, made: Environment | Unavailable | None = None
        ) -> Probed:
            return self._probe(prober, release, made or here)

        monkeypatch.setattr(Prober, "probe", probe)

    @staticmethod
    def _versions(_: str, first: str, last: str) -> tuple[str, ...]:
        return tuple(each for each in RELEASES if first <= each <= last)

    def _probe(self, prober: Prober, release: Release, made: Environment | Unavailable) -> Probed:
        assert prober.subject.workload
        variant = prober.subject.workload[2]
        with self._lock:
            self.calls.append((variant, release.version))
            self._running += 1
            self.most_at_once = max(self.most_at_once, self._running)
        time.sleep(0.01)
        with self._lock:
            self._running -= 1
        found = self.gives.get((variant, release.version), {})
        if isinstance(found, Exception):
            raise found
        needed = 0 if variant == "fast" else STACK_BYTES
        fields: dict[str, Any] = {"memory": memory(needed), **found}
        drops = fields.pop("drops_placement", False)
        if isinstance(made, Unavailable):
            fields["unavailable"] = made
        evidence = Evidence(
            workload="w",
            variant="v",
            target=str(prober.target.name),
            toolchain=Toolchain(versions={"jax": release.version, "jaxlib": release.version}),
            **fields,
        )
        return Probed(release=release, evidence=evidence, drops_placement=drops)


def memory(temp_bytes: int) -> Memory:
    """A memory analysis with these temporaries."""
    return Memory(
        temp_bytes=temp_bytes, argument_bytes=0, output_bytes=0, alias_bytes=0, host_temp_bytes=0
    )


AS_LISTED: Mapping[tuple[str, str], Any] = {
    ("slow", "0.5.0"): {"memory": memory(0)},
    ("slow", "0.6.0"): {"memory": memory(0)},
}
"""The known defect is there before jaxlib 0.5, as its entry says."""
