"""The benchmark of the judge: real runs, the other tools' own rules, and honest rates."""

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest

from assay.judge.changes import Change
from benchmarks.timing_judgement.__main__ import main, misses, too_noisy
from benchmarks.timing_judgement.comparisons import Cell, Comparison, cells
from benchmarks.timing_judgement.rules import RULES
from benchmarks.timing_judgement.runs import (
    AGAINST_RERUN,
    AGAINST_STORED,
    IN_ONE_RUN,
    Run,
    in_turns,
    read,
)
from benchmarks.timing_judgement.table import Rate, lines, ours
from tests.judge.noisy import level, turns

MIN, MEDIAN, MEAN, ASV = RULES.values()


def test_a_quick_run_measures_every_comparison_and_goes_on_after_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results" / "runs.jsonl"
    main(["--quick", "--file", str(file)])
    runs = read(file)
    assert {(run.kind, run.added) for run in runs} == {
        (kind, added)
        for kind in (IN_ONE_RUN, AGAINST_RERUN, AGAINST_STORED)
        for added in (0, 2, 5, 10)
    }
    assert all(seconds > 0 for run in runs for seconds in (*run.first, *run.second))
    assert "arms in one run | small | Assay" in capsys.readouterr().out
    file.write_text(file.read_text() + '{"kind": "arms in o')  # cut short by Ctrl-C
    assert read(file) == runs


def test_turns_are_taken_one_way_and_then_the_other() -> None:
    whole = list(in_turns(4))
    assert whole == [False, True, True, False, False, True, True, False]
    assert [*in_turns(1), *in_turns(3, 1)] == whole


@pytest.mark.parametrize(
    ("rule", "at_rest", "slower"),
    [(MIN, 1.049, 1.051), (MEDIAN, 1.049, 1.051), (MEAN, 1.049, 1.051), (ASV, 1.099, 1.101)],
    ids=RULES.keys(),
)
def test_the_other_rules_answer_as_their_tools_do(
    rule: object, at_rest: float, slower: float
) -> None:
    assert callable(rule)
    first = [1.0 + k / 1e6 for k in range(30)]
    assert not rule(first, [at_rest * each for each in first])
    assert rule(first, [slower * each for each in first])


def test_asv_asks_for_significance_beside_the_factor() -> None:
    chance = random.Random(0)
    first = [chance.lognormvariate(0, 1) for _ in range(8)]
    assert not ASV(first, [1.2 * each for each in first])


def test_a_rates_bounds_are_clopper_and_pearsons() -> None:
    """The rule of three, and the bounds of 8 in 10 that every table has."""
    assert Rate(count=0, of=200, independent=200).bounds == pytest.approx((0, 0.0183), abs=1e-4)
    assert Rate(count=8, of=10, independent=10).bounds == pytest.approx((0.444, 0.975), abs=1e-3)
    assert Rate(count=10, of=10, independent=10).bounds[1] == 1


def test_comparisons_that_share_runs_are_not_counted_as_independent() -> None:
    shared = Rate(count=0, of=200, independent=10)
    assert shared.bounds[1] > 10 * Rate(count=0, of=200, independent=200).bounds[1]


def cell(added: int, *changes: Change) -> Cell:
    comparisons = [
        Comparison(
            row=IN_ONE_RUN,
            program="small",
            added=added,
            first=[1.0, 1.0],
            second=[1.0, 1.0],
            change=change,
            seconds=1.0,
        )
        for change in changes
    ]
    return Cell(
        row=IN_ONE_RUN,
        program="small",
        added=added,
        comparisons=comparisons,
        independent=len(comparisons),
    )


def test_a_false_alarm_either_way_is_counted_and_missed_targets_are_named() -> None:
    alarmed = cell(0, *[Change.SAME] * 48, Change.SLOWER, Change.FASTER)
    assert ours(alarmed).share == 2 / 50
    assert "wanted at most 1% false alarms" in misses(alarmed)[0]
    assert misses(cell(0, *[Change.SAME] * 50)) == []


def test_what_was_too_noisy_is_not_found_and_not_missed_but_counted() -> None:
    noisy = cell(5, *[Change.SLOWER] * 9, Change.SAME, *[Change.TOO_NOISY] * 10)
    assert str(ours(noisy)).startswith("9/10")
    assert misses(noisy) == []
    assert too_noisy([noisy]) == ["arms in one run, small: 10/20 too noisy, wanted at most 20%"]
    assert too_noisy([cell(5, *[Change.SLOWER] * 8, *[Change.TOO_NOISY] * 2)]) == []


def test_a_slowdown_that_is_missed_too_often_is_named() -> None:
    assert misses(cell(5, *[Change.SLOWER] * 9, Change.SAME)) == []
    assert "wanted at least 90% found" in misses(cell(5, Change.SLOWER, Change.SAME))[0]
    assert "wanted at least 99% found" in misses(cell(10, *[Change.SLOWER] * 9, Change.SAME))[0]


def synthetic(kind: str, added: int, visit: int) -> Run:
    first, second = turns(1 + added / 100, 100 * visit + added, busy=0.2)
    calibration = {name: level(1e-3, visit, count=20).tolist() for name in ("matmul", "copy")}
    if kind == AGAINST_STORED:
        first, second = [], level(0.01 * (1 + added / 100), 100 * visit + added).tolist()
    return Run(
        kind=kind,
        program="small",
        added=added,
        visit=visit,
        at=float(visit),
        first=first,
        second=second,
        calibration=calibration,
        start=1.0,
        load=1.0,
        bursts=False,
        jax="none",
    )


def test_the_table_tells_rules_apart_on_the_same_runs(tmp_path: Path) -> None:
    runs = [
        synthetic(kind, added, visit)
        for kind in (IN_ONE_RUN, AGAINST_RERUN, AGAINST_STORED)
        for added in (0, 5, 10)
        for visit in range(30)
    ]
    file = tmp_path / "runs.jsonl"
    file.write_text("".join(json.dumps(asdict(run)) + "\n" for run in runs))
    made = list(cells(read(file)))
    by_place = {(each.row, each.added): each for each in made}
    assert len(made) == 12
    for row in (IN_ONE_RUN, AGAINST_RERUN, AGAINST_STORED):
        assert ours(by_place[row, 0]).share == 0
        assert ours(by_place[row, 5]).share > 0.9
    # Thirty visits hold but a few comparisons that share no pair of processes, no session.
    assert by_place[AGAINST_RERUN, 0].independent < 10
    assert by_place[AGAINST_STORED, 0].independent < 5
    table = lines(made)
    assert len(table) == 2 + 3 * 5 + 4
    assert len({line.count(" | ") for line in table}) == 1
