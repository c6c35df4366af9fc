"""The tables of the reference are those of the code."""

from __future__ import annotations

import json
import re
from dataclasses import fields

import pytest

import assay
import memsafe
from assay import claims
from assay.model.units import Unit
from assay.model.verdict import RECORD_SCHEMA, ExitCode, Outcome, Record
from assay.model.workload import Level, Role
from tests.docs.pages import ROOT

ROW = re.compile(r"^\| `?([^`|]+?)`? \| (.*) \|$", re.MULTILINE)


def section(page: str, title: str) -> str:
    """The text of a page under a heading."""
    text = (ROOT / "docs" / page).read_text()
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(page: str, title: str) -> dict[str, str]:
    """The rows of a section's table: the first cell, and the others."""
    return dict(ROW.findall(section(page, title))[1:])


def test_the_fields_of_a_record_are_those_of_the_class() -> None:
    assert list(table("records.md", "Fields")) != []
    assert set(table("records.md", "Fields")) == {field.name for field in fields(Record)}
    assert table("records.md", "Fields")["schema"].endswith(f": {RECORD_SCHEMA}")


def test_the_units_of_a_record_are_all_named() -> None:
    (units,) = re.findall(r"`baseline.value`: (.*) \|", section("records.md", "Fields"))
    assert re.findall(r"`(\w+)`", units) == [unit.value for unit in Unit]


def test_each_verdict_says_whether_it_fails_the_run() -> None:
    rows = table("records.md", "Verdicts")
    said = {name: cells.endswith("| yes") for name, cells in rows.items()}
    assert said == {verdict.value: verdict.fails for verdict in Outcome}


def test_the_exit_codes_are_those_of_the_code() -> None:
    assert list(table("records.md", "Exit codes")) == [str(code.value) for code in ExitCode]


def test_levels_and_roles_are_those_of_the_code() -> None:
    assert list(table("options.md", "Levels")) == [level.name.lower() for level in Level]
    roles = table("add-a-suite.md", "1. Write the program and its variants")
    assert list(roles) == [role.name.lower().replace("_", " ") for role in Role]


def test_the_numbers_on_offloads_are_the_stored_ones() -> None:
    stored = json.loads((ROOT / "baselines/gpu-h100-8/scan_offload.json").read_text())["baselines"]
    rows = dict(ROW.findall((ROOT / "docs/offload.md").read_text())[1:7])
    said = {name.partition("`")[0]: cells.partition(" GiB")[0] for name, cells in rows.items()}
    assert len(said) == 6
    for variant, gib in said.items():
        numbers = {
            f"{number['value'] / 2**30:.2f}"
            for number in stored[f"block-full/{variant}/temp-bytes"]
            if number["toolchain"]["jax"] == "0.12.0.1"
        }
        assert numbers == {gib}, variant


def test_every_public_name_has_a_place_in_the_reference() -> None:
    page = (ROOT / "docs/api.md").read_text()
    found = {*re.findall(r"^::: assay\.(\w+)$|^ +- (\w+)$", page, re.MULTILINE)}
    names = {name for pair in found for name in pair if name}
    assert names >= set(assay.__all__) - {"claims"}
    page = (ROOT / "docs/memsafe-api.md").read_text()
    shown = re.findall(r"^::: memsafe\.(?:\w+\.)?(\w+)$", page, re.MULTILINE)
    assert set(shown) == set(memsafe.__all__)


def test_every_claim_has_a_place_in_the_reference() -> None:
    page = (ROOT / "docs/claims.md").read_text()
    shown = set(re.findall(r"^::: (assay\.claims\.\w+)$", page, re.MULTILINE))
    assert shown == {getattr(claims, name).__module__ for name in claims.__all__}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("| a | b |\n|---|---|\n| `x` | y |\n| `z` | u | yes |\n", {"x": "y", "z": "u | yes"}),
        ("no table\n", {}),
    ],
)
def test_a_table_is_read_row_by_row(text: str, rows: dict[str, str]) -> None:
    assert dict(ROW.findall(text)[1:]) == rows
