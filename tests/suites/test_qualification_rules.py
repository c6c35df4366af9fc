"""Every verdict and negative control that the packaged rules name exists in the suites."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.judge.qualification import demanded
from assay.model.verdict import MUST_FAIL
from assay.model.workload import Level
from assay.plugin.collection import collect
from assay.store import rules
from tests.exhaustive import nightly

SUITES = Path(__file__).parents[2] / "suites"
TARGETS = ("cpu:8", "gpu-h100:8", "gpu-a100:8", "tpu-v5e:2x4", "tpu-v5p:2x2x2", "gpu", "tpu")


@pytest.mark.parametrize("level", [1, nightly(2), nightly(3)])
def test_the_rules_name_what_the_suites_have(level: int) -> None:
    collected = collect([SUITES], targets=TARGETS, level=Level(level).name.lower())
    known = {
        (trial.target, trial.workload.suite, trial.workload.name, trial.variant.name, claim)
        for trial in (each.trial for each in collected)
        for claim in [trial.claim_name]
    }
    named = {
        (target, rule.suite, cell.workload, variant, claim)
        for target in TARGETS
        for rule in rules.load(rules.PACKAGED).features
        for cell, needed in demanded(rule, target, level).items()
        for variant, claim in (
            (cell.variant, cell.claim),
            *((control, cell.claim + MUST_FAIL) for control in needed.claims[cell.claim]),
        )
    }
    assert named
    assert not named - known
