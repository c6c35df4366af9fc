"""The file of expected verdicts: sorted, the same bytes twice, and damaged ones are refused."""

from pathlib import Path

import pytest

from assay.model.verdict import Count, Coverage, Slot
from assay.model.workload import Level
from assay.store.baselines import COVERAGE, BaselineError, load_coverage, save_coverage

SLOTS = {
    Slot("jax", suite, target, claim): Count(3, 3 if claim == "z" else 1)
    for suite in ("b", "a")
    for target in ("tpu-v4", "cpu:8")
    for claim in ("z", "y.negative-control")
}


def test_what_is_written_is_read_back_and_sorted(tmp_path: Path) -> None:
    before = Coverage(counts={Level.QUICK: SLOTS}, folders={"b": "suites/b", "a": "suites/a"})
    path = save_coverage(tmp_path, before)
    first = path.read_bytes()
    after = load_coverage(tmp_path)
    assert after == before
    save_coverage(tmp_path, Coverage(counts=after.counts, folders={**after.folders}))
    assert path.read_bytes() == first
    assert first.index(b'"a"') < first.index(b'"b"')
    assert b'"z": 3' in first


def test_without_a_file_nothing_is_expected(tmp_path: Path) -> None:
    assert load_coverage(tmp_path) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"schema":2,"suites":{}}',
        '{"schema":1,"suites":{"a":{"folder":"a","levels":{"slow":{}}}}}',
        '{"schema":1,"suites":{"a":{"folder":"a","levels":{"quick":{"jax":{"cpu":{"c":"1"}}}}}}}',
        '{"schema":1,"suites":{"a":{"folder":"a","levels":{"quick":{"jax":{"cpu":{"c":{}}}}}}}}',
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / COVERAGE).write_text(text)
    with pytest.raises(BaselineError):
        load_coverage(tmp_path)
