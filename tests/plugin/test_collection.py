"""The checks of suites, as a command collects them."""

from __future__ import annotations

from pathlib import Path

from assay.plugin.collection import collect

SUITES = Path(__file__).parents[2] / "suites"


def test_a_workload_is_imported_from_where_it_is_defined_whatever_is_selected() -> None:
    for keyword in ("compiles", "copied"):
        found = collect(
            [SUITES / "dus_remat"], targets=["gpu-h100"], level="quick", keyword=keyword
        )
        assert found
        assert {each.module for each in found} == {"suites.dus_remat.workloads"}
        assert {str(SUITES.parent)} <= set(found[0].search_path)


def test_controls_that_are_deselected_come_with_their_trials() -> None:
    found = collect([SUITES / "dus_remat"], targets=["cpu"], level="quick", keyword="reshape-read")
    assert {each.trial.variant.name for each in found} == {"reshape-read"}
    assert all(each.trial.controls for each in found)
