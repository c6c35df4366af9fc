"""The file of rules: what it holds, and that each mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.blame import WrongValue
from assay.store import rules
from tests.qualified import RULES_TEXT, requirement, rule


def test_a_file_gives_its_features(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES_TEXT)
    found = rules.load(path)
    second = requirement(
        level=2,
        variants=("input",),
        claims={"temp-bytes": ("save",)},
        known_defects={},
        at_most={"temp-bytes": 1024.0},
    )
    assert found.features == (rule(requirement(), second),)
    assert found.text == RULES_TEXT.encode()


def test_the_packaged_rules_are_read() -> None:
    found = rules.load(rules.PACKAGED)
    assert len(found.features) >= 6
    assert all(each.promise.endswith(".") for each in found.features)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("schema = 1", "schema = 2", "schema 2"),
        ("schema = 1", "schema = one", "Invalid"),
        ("level = 1", "level = 5", "level"),
        ('suite = "scan_offload"\n', "", "suite"),
        ("at_most.", "at_mots.", "at_mots"),
        ("at_most.temp-bytes", "at_most.host-bytes", "at_most of 'host-bytes'"),
        ("= 1024", "= nan", "is nan"),
        ("= 1024", "= inf", "is inf"),
        ('claims.host-bytes = ["save"]', "claims.host-bytes = []", "length"),
        ('output = "input"', 'other = "input"', "known defect of 'other'"),
        ('output = "input"', 'output = "gone"', "remedy 'gone'"),
        ('output = "input"', 'output = "output"', "remedy 'output'"),
        ('"offload.rows"', '"Offload"', "regex"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, before: str, after: str, words: str) -> None:
    path = tmp_path / "rules.toml"
    assert before in RULES_TEXT
    path.write_text(RULES_TEXT.replace(before, after, 1))
    with pytest.raises(WrongValue, match=r"wanted rules as those in .*qualification\.toml") as told:
        rules.load(path)
    assert words in str(told.value)


def test_an_id_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(RULES_TEXT + RULES_TEXT.replace("schema = 1", ""))
    with pytest.raises(WrongValue, match=r"'offload.rows' is there 2 times"):
        rules.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WrongValue, match=r"absent\.toml"):
        rules.load(tmp_path / "absent.toml")
