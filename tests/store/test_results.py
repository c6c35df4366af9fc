"""A run's folder, and the link that always leads to the newest."""

from pathlib import Path

import pytest

from assay.model.defect import Upstream, UpstreamIssue
from assay.model.verdict import USUAL, Ending, ExitCode, Invocation
from assay.store import records


def test_latest_leads_to_the_newest_run(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        records.point_latest(tmp_path / name)
    latest = tmp_path / "latest"
    assert latest.resolve() == tmp_path / "second"
    assert latest.readlink() == Path("second")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "latest", "second"]


def test_a_link_that_a_killed_run_left_half_made_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / ".latest-run").symlink_to("gone")
    records.point_latest(tmp_path / "run")
    assert (tmp_path / "latest").resolve() == tmp_path / "run"


def test_how_a_run_was_asked_for_is_read_back_from_its_folder(tmp_path: Path) -> None:
    issue = UpstreamIssue(problem="p", upstream=Upstream(link="l"), variants=("a",), claims=("c",))
    asked = Invocation(
        command=("pytest", "a.py"),
        ending=Ending(cut_short=ExitCode.MISUSE),
        upstream_issues={"suite": (issue,)},
    )
    path = records.write_invocation(tmp_path, asked)
    assert path == tmp_path / "invocation.json"
    assert records.invocation_of(tmp_path) == asked != USUAL


def test_without_an_invocation_it_is_the_usual_one(tmp_path: Path) -> None:
    assert records.invocation_of(tmp_path) == USUAL


@pytest.mark.parametrize("damage", [b"{", b"[]", b""], ids=["half", "another kind", "empty"])
def test_an_invocation_that_cannot_be_read_is_refused(tmp_path: Path, damage: bytes) -> None:
    records.write_invocation(tmp_path, USUAL).write_bytes(damage)
    with pytest.raises(records.RecordsError, match=r"invocation\.json that cannot be read \("):
        records.invocation_of(tmp_path)


def test_an_older_run_is_not_counted(tmp_path: Path) -> None:
    path = records.write_invocation(tmp_path, Invocation(ending=Ending(verdicts=3)))
    path.write_bytes(path.read_bytes().replace(b',"verdicts":3', b""))
    assert records.invocation_of(tmp_path) == Invocation()
    assert Ending().matches(())
