"""Accepted times: none is replaced, the file is sorted and stable, and each machine has its own."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from assay.model.history import AcceptedTimes
from assay.model.timing import Machine
from assay.store import accepted_times, baselines
from assay.store.accepted_times import Histories, Place
from assay.store.baselines import BaselineError
from tests.claims.sessions import MACHINE, point

KEY = ("stack", "offload", "accepted-time")
OTHER = ("stack", "another", "accepted-time")
PLACE = Place(MACHINE.fingerprint, "mine", "cpu:8")


def accept(root: Path, *points: AcceptedTimes, key: baselines.Key = KEY) -> Path:
    histories = accepted_times.load(root, PLACE, MACHINE.identity)
    for each in points:
        histories = histories.accepting(key, each)
    return accepted_times.save(root, histories)


def read(root: Path, machine: Machine = MACHINE, target: str = "cpu:8") -> tuple[bool, list[str]]:
    found = accepted_times.history(root, machine, "mine", target, KEY)
    return found.seen, [each.why for each in found.accepted]


def test_what_was_accepted_is_read_back_whole(tmp_path: Path) -> None:
    first, second = point(0.01, 1, day=1), point(0.01, 2, day=2, anew=True)
    accept(tmp_path, first, second)
    found = accepted_times.history(tmp_path, MACHINE, "mine", "cpu:8", KEY)
    assert found.accepted == (first, second)
    assert (found.seen, found.unit.value, found.better) == (True, "seconds", "less")


def test_points_are_appended_and_stand_in_the_order_of_their_days(tmp_path: Path) -> None:
    for day in (3, 1, 2):
        accept(tmp_path, point(0.01, day, day=day))
    assert read(tmp_path) == (True, ["day 1", "day 2", "day 3"])


def test_writing_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    points = [point(0.01, day, day=day) for day in (1, 2)]
    path = accept(tmp_path, *points)
    accept(tmp_path, *points, key=OTHER)
    before = path.read_bytes()
    accept(tmp_path, *points[::-1])
    assert path.read_bytes() == before
    again = tmp_path / "again"
    accept(again, *points, key=OTHER)
    assert accept(again, *points).read_bytes() == before


def test_the_file_is_sorted_and_keeps_samples_on_one_line(tmp_path: Path) -> None:
    path = accept(tmp_path, replace(point(0.01, 1), why="[\n 1,\n 2\n] is no list of samples"))
    accept(tmp_path, point(0.01, 1), key=OTHER)
    text = path.read_text()
    file = json.loads(text)
    assert list(file["accepted"]) == sorted(file["accepted"])
    assert file["machine"] == MACHINE.identity
    assert file["accepted"]["stack/offload/accepted-time"]["points"][0]["why"].startswith("[\n 1,")
    sessions = sum(len(each["points"][0]["sessions"]) for each in file["accepted"].values())
    assert sum('"samples": [' in line for line in text.splitlines()) == sessions == 16
    assert len(text.splitlines()) < 20 * sessions
    assert str(path.relative_to(tmp_path)) == f"times/{MACHINE.fingerprint}/cpu-8/mine.json"


@pytest.mark.parametrize(
    "other",
    [
        {"cpu": "Slow CPU"},
        {"cores": 4},
        {"device": "NVIDIA H200"},
        {"driver": "580.1"},
        {"governor": "powersave"},
    ],
)
def test_a_machine_that_differs_was_never_seen(tmp_path: Path, other: dict[str, object]) -> None:
    accept(tmp_path, point(0.01, 1))
    machine = replace(MACHINE, **other)  # type: ignore[arg-type]
    assert machine.fingerprint != MACHINE.fingerprint
    assert read(tmp_path, machine) == (False, [])


def test_load_and_heat_make_no_other_machine(tmp_path: Path) -> None:
    accept(tmp_path, point(0.01, 1))
    assert read(tmp_path, replace(MACHINE, load=9.0, throttles=3)) == (True, ["day 1"])


def test_a_machine_is_seen_where_another_arm_or_suite_of_the_target_is(tmp_path: Path) -> None:
    accept(tmp_path, point(0.01, 1), key=OTHER)
    assert read(tmp_path) == (True, [])
    assert read(tmp_path, target="cpu") == (False, [])


def test_what_goes_is_gone_and_the_last_takes_the_file_along(tmp_path: Path) -> None:
    accept(tmp_path, point(0.01, 1))
    path = accept(tmp_path, point(0.01, 1), key=OTHER)
    for gone, left in ((KEY, [OTHER]), (OTHER, [])):
        (histories,) = accepted_times.on_every_machine(tmp_path, "mine", "cpu:8")
        accepted_times.save(tmp_path, histories.without([gone]))
        found = list(accepted_times.on_every_machine(tmp_path, "mine", "cpu:8"))
        assert [list(each.entries) for each in found] == ([left] if left else [])
    assert not path.exists()


def test_numbers_and_times_of_a_suite_are_two_files(tmp_path: Path) -> None:
    accept(tmp_path, point(0.01, 1))
    baselines.check_all(tmp_path)
    assert baselines.load(tmp_path, "mine", "cpu:8").accepted == {}


@pytest.mark.parametrize("damage", ["", "{}", '{"schema": 1}'])
def test_a_damaged_file_is_told_with_its_name(tmp_path: Path, damage: str) -> None:
    path = accept(tmp_path, point(0.01, 1))
    path.write_text(damage)
    with pytest.raises(BaselineError, match=r"mine\.json: got a file that holds no accepted times"):
        accepted_times.check_all(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (r'"schema": 1', '"schema": 2', "got schema 2 .* move the file"),
        (r'"cores": "\d+"', '"cores": "99"', "move the file to its own place"),
        (r'"suite": "mine"', '"suite": "yours"', "move the file to its own place"),
        (r'"samples": \[[^]]*\]', '"samples": []', "got a session without samples, or one"),
        (r'"samples": \[[^]]*\]', '"samples": [0.0]', "got a session without samples, or one"),
        (r'"at": "[^"]*"', '"at": "yesterday"', "got the time 'yesterday'"),
        (r'"accepted": {.*}', '"accepted": {"nonsense": 1}', "no accepted times"),
    ],
)
def test_a_file_that_no_run_wrote_is_refused_before_anything_is_timed(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path = accept(tmp_path, point(0.01, 1))
    text, changes = re.subn(old, new, path.read_text(), count=1, flags=re.DOTALL)
    assert changes == 1
    path.write_text(text)
    with pytest.raises(BaselineError, match=words):
        accepted_times.check_all(tmp_path)


def test_a_file_of_another_machine_is_not_taken_for_this_ones(tmp_path: Path) -> None:
    path = accept(tmp_path, point(0.01, 1))
    twin = replace(MACHINE, cores=4)
    place = Place(twin.fingerprint, "mine", "cpu:8").path(tmp_path)
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes())
    with pytest.raises(BaselineError, match="move the file to its own place"):
        read(tmp_path, twin)


def test_a_name_with_a_slash_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="wanted names without '/'"):
        accept(tmp_path, point(0.01, 1), key=("a/b", "c", "d"))


def test_what_a_run_put_aside_is_written_once_however_often_it_is_asked(tmp_path: Path) -> None:
    root, run = tmp_path / "baselines", tmp_path / "run"
    for key in (KEY, OTHER):
        accepted_times.put_aside(run, "mine", "cpu:8", key, MACHINE, point(0.01, 1))
    (path,) = accepted_times.write_accepted(root, run)
    before = path.read_bytes()
    assert accepted_times.write_accepted(root, run) == (path,)
    assert path.read_bytes() == before
    assert read(root) == (True, ["day 1"])
    assert accepted_times.write_accepted(root, tmp_path / "elsewhere") == ()


def test_nothing_accepted_is_no_file(tmp_path: Path) -> None:
    assert not accepted_times.save(tmp_path, Histories(PLACE, MACHINE.identity)).exists()
    assert read(tmp_path) == (False, [])
