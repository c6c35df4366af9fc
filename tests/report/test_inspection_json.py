"""The object of ``assay inspect --json``: its fixed names, and null for what is not known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from assay.model.evidence import Failure, FailureKind, Toolchain
from assay.model.inspection import Inspection
from assay.report.inspection_json import to_json
from tests.report.inspections import FULL_BUFFER_WRITE, GIB, INSPECTION, MIB, TRANSFER, module, seen


def decoded(inspection: Inspection) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(to_json(inspection))
    return page


def test_every_fixed_name_holds_what_was_seen() -> None:
    page = decoded(INSPECTION)
    assert (page["target"], page["toolchain"]) == ("gpu-made-up", {"jaxlib": "0.12.0"})
    assert page["memory"] == {
        "temp_bytes": 3 * GIB,
        "library_bytes": 0,
        "argument_bytes": 2 * GIB,
        "output_bytes": 2 * GIB,
        "alias_bytes": GIB,
        "host_temp_bytes": 60 * MIB,
        "host_argument_bytes": 0,
        "host_output_bytes": 0,
        "host_alias_bytes": 0,
        "peak_bytes": 5 * GIB,
        "fits": True,
        "device_bytes": 6 * GIB,
        "capacity_bytes": 16 * GIB,
        "headroom_bytes": 10 * GIB,
    }
    assert page["transfers"]["to_host_bytes_per_step"] == 60 * MIB
    assert page["transfers"]["to_device_bytes_per_step"] == 0
    (copy,) = page["copies"]
    wanted = {
        "computation": "body",
        "instruction": "copy.1",
        "bytes": 4 * MIB,
        "trips_per_step": 15,
        "source": "train.py:14",
    }
    assert wanted.items() <= copy.items()
    (overlap,) = page["overlap"]
    assert (overlap["needed_seconds"], overlap["hidden_seconds"]) == (1.0, 0.25)
    wanted_peak = {"buffer": "params['w']", "bytes": 4 * MIB, "source": None}
    assert wanted_peak.items() <= page["peak"][0].items()
    assert page["warnings"] == [
        "donation lost: state (4.0 MiB) is given away, but no output takes its buffer"
    ]
    assert page["fingerprint"] == "abc"
    assert "error" not in page


def test_what_is_not_known_is_null_and_what_is_not_there_is_empty() -> None:
    page = decoded(
        module(transfers=(replace(TRANSFER, executions=None),), full_buffer_writes=(), peak=None)
    )
    assert page["transfers"]["to_host_bytes_per_step"] is None
    assert page["transfers"]["ops"][0]["trips_per_step"] is None
    assert (page["copies"], page["peak"]) == ([], None)
    assert page["memory"]["peak_bytes"] is None


def test_a_failed_compile_has_an_error_and_nulls() -> None:
    failure = Failure(kind=FailureKind.COMPILER, message="no such pass")
    page = decoded(seen(failure=failure, memory=None, module=None))
    assert page["error"] == "it does not compile: no such pass"
    assert page["failure"]["kind"] == "compiler"
    assert set(page["memory"].values()) == {None, 16 * GIB}
    assert page["copies"] is page["overlap"] is page["peak"] is None
    assert set(page["transfers"].values()) == {None}


def test_a_dump_without_a_target_names_none() -> None:
    page = decoded(seen(target="", toolchain=Toolchain(versions={}), device_memory_bytes=None))
    assert (page["target"], page["toolchain"], page["memory"]["fits"]) == (None, None, None)


def test_every_copy_is_listed_however_many() -> None:
    assert len(decoded(module(full_buffer_writes=(FULL_BUFFER_WRITE,) * 50))["copies"]) == 50
