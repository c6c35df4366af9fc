"""One feature's rule, and the records that pass it, of which a test changes what matters to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from assay.judge.qualification import exit_code, later, qualify
from assay.model.qualification import (
    Environment,
    FeatureRule,
    Producer,
    Qualification,
    Requirement,
    RulesUsed,
)
from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, USUAL, Ending, Outcome, Record

TARGET = "gpu-h100:8"
LINK = "https://github.com/openxla/xla/issues/17541"
RULES_TEXT = """
schema = 1

[[feature]]
id = "offload.rows"
name = "Host offload of rows"
promise = "Rows are stored in host memory."
suite = "scan_offload"
elsewhere = "one memory"

[[feature.requirements]]
level = 1
targets = ["gpu*"]
workloads = ["stack"]
variants = ["input", "output"]
claims.host-bytes = ["save"]
known_defects.output = "input"

[[feature.requirements]]
level = 2
targets = ["gpu*"]
workloads = ["stack"]
variants = ["input"]
claims.temp-bytes = ["save"]
at_most.temp-bytes = 1024
"""


def requirement(**fields: Any) -> Requirement:
    """What ``RULES_TEXT`` requires at level 1, with other fields."""
    kept: dict[str, Any] = {
        "level": 1,
        "targets": ("gpu*",),
        "workloads": ("stack",),
        "variants": ("input", "output"),
        "claims": {"host-bytes": ("save",)},
        "known_defects": {"output": "input"},
    }
    return Requirement(**kept | fields)


def rule(*requirements: Requirement, **fields: Any) -> FeatureRule:
    """The feature of ``RULES_TEXT``, with other requirements and fields."""
    kept: dict[str, Any] = {
        "id": "offload.rows",
        "name": "Host offload of rows",
        "promise": "Rows are stored in host memory.",
        "suite": "scan_offload",
        "elsewhere": "one memory",
    }
    return FeatureRule(requirements=requirements or (requirement(),), **kept | fields)


def record(variant: str = "input", claim: str = "host-bytes", **fields: Any) -> Record:
    """A passed record of a variant, or that of a negative control that failed as it must."""
    kept = Record(
        schema=RECORD_SCHEMA,
        run="20261125T000000-0000",
        suite="scan_offload",
        workload="stack",
        variant=variant,
        claim=claim,
        target=TARGET,
        toolchain={"jax": "0.12.0"},
        verdict=Outcome.PASSED,
        measured=512,
        limit=512,
        unit=Unit.BYTES,
        baseline=None,
        reason="host memory: 512 B",
        advice="",
        upstream="",
        seconds=0.25,
    )
    return replace(kept, **fields)


def control(variant: str = "save", claim: str = "host-bytes", **fields: Any) -> Record:
    """The record of a negative control that failed the claim, as it must."""
    return record(variant, f"{claim}.negative-control", **fields)


def known_defect(**fields: Any) -> Record:
    """The record of the variant whose known defect the rule accepts."""
    kept: dict[str, Any] = {
        "variant": "output",
        "verdict": Outcome.KNOWN_DEFECT,
        "measured": 0,
        "reason": "the name is ignored; seen: host memory: 0 B",
        "upstream": LINK,
    }
    return record(**kept | fields)


PASSING = (record(), known_defect(), control())
"""What passes the rule."""


def qualification(
    records: Sequence[Record] = PASSING,
    rules: Sequence[FeatureRule] = (),
    *,
    level: int = 1,
    ending: Ending = USUAL.ending,
    evidence: Mapping[str, str] | None = None,
    used: RulesUsed | None = None,
    public_key: str = "",
) -> Qualification:
    """The qualification of the records."""
    rules = rules or (rule(),)
    features = qualify(records, rules, target=TARGET, level=level)
    return Qualification(
        target=TARGET,
        executes=False,
        level=level,
        run="20261125T000000-0000",
        command=("assay", "qualify", "--target", TARGET, "--level", str(level)),
        exit_code=exit_code(features, ending),
        environment=Environment(
            toolchain={"jax": "0.12.0"}, platform="Linux", python="3.12.1", date="2026-11-25"
        ),
        producer=Producer(version="0.1.0", commit="", sha256="a" * 64, suites_sha256=""),
        rules=used or RulesUsed(sha256="b" * 64, packaged_sha256="c" * 64),
        features=features,
        later=later(rules, target=TARGET, level=level),
        verdicts=len(records),
        cached=0,
        evidence=dict(evidence or {}),
        public_key=public_key,
    )
