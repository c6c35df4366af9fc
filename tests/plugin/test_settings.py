"""Every option is read once, and what cannot be used is named with the option it was given to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.isolate.memory import MemoryLimit, usual_limit
from assay.model.process import Process
from assay.model.workload import Level
from assay.plugin import pytest_addoption
from assay.plugin.settings import Settings, SettingsError
from assay.run import BaselineUpdate


def usual() -> dict[str, Any]:
    """The options of a run that names none, as the plugin declares them."""
    parser = pytest.Parser(_ispytest=True)
    pytest_addoption(parser)
    return vars(parser.parse([]))


def parsed(root: Path, **options: Any) -> Settings:
    given = {f"assay_{name}": value for name, value in ({"target": ["cpu:8"]} | options).items()}
    return Settings.parse(root, root / "here", {**usual(), **given})


def test_without_options_a_run_is_quick_and_stores_nothing(tmp_path: Path) -> None:
    assert parsed(tmp_path) == Settings(
        root=tmp_path,
        targets=("cpu:8",),
        level=Level.QUICK,
        update=BaselineUpdate.NOTHING,
        results=tmp_path / "results",
        baselines=tmp_path / "baselines",
        compile_timeout_seconds=900,
        memory_limit=usual_limit(),
        timing_seconds=30,
        against="",
        against_seconds=300,
        cached=True,
        named=True,
        required=(),
        history="",
        resume=None,
        process=None,
    )


def test_each_option_is_read(tmp_path: Path) -> None:
    options = {
        "target": ["cpu:8, cpu:4", "", "cpu:8"],
        "level": "full",
        "update_baselines": "all",
        "results_dir": "r",
        "baselines_dir": "b",
        "compile_timeout": "1.5",
        "memory_limit": "1.5 GiB",
        "timing_seconds": "2",
        "against": "0.10.2",
        "against_seconds": "3",
        "require_framework": ["jax"],
        "history": "h.db",
    }
    assert parsed(tmp_path, **options) == Settings(
        root=tmp_path,
        targets=("cpu:8", "cpu:4"),
        level=Level.FULL,
        update=BaselineUpdate.ALL,
        results=tmp_path / "r",
        baselines=tmp_path / "b",
        compile_timeout_seconds=1.5,
        memory_limit=MemoryLimit(nbytes=3 * 2**29),
        timing_seconds=2,
        against="0.10.2",
        against_seconds=3,
        cached=True,
        named=True,
        required=("jax",),
        history=str(tmp_path / "here" / "h.db"),
        resume=None,
        process=None,
    )


def test_a_process_of_several_is_read_with_live_targets_only(tmp_path: Path) -> None:
    settings = parsed(tmp_path, distributed="host:1234,4,1", target=[])
    assert settings.process == Process(host="host", port=1234, count=4, index=1)
    assert "cpu:8" in settings.targets
    assert {name.partition(":")[0] for name in settings.targets} <= {"cpu", "gpu", "tpu"}


def test_a_resumed_run_stays_in_its_folder(tmp_path: Path) -> None:
    settings = parsed(tmp_path, resume="elsewhere/run")
    assert settings.resume == tmp_path / "here" / "elsewhere" / "run"
    assert settings.results == tmp_path / "here" / "elsewhere"


@pytest.mark.parametrize(
    ("text", "update"), [("new", BaselineUpdate.NEW), ("nothing", BaselineUpdate.NOTHING)]
)
def test_what_is_stored_is_one_of_three_words(
    tmp_path: Path, text: str, update: BaselineUpdate
) -> None:
    assert parsed(tmp_path, update_baselines=text).update is update


def test_the_toolchain_of_baselines_can_be_compared_with(tmp_path: Path) -> None:
    assert parsed(tmp_path, against="baseline").against == "baseline"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"level": "slow"}, "got --assay-level=slow, wanted quick, full, device or soak"),
        ({"target": [" , "]}, "got --assay-target without a name"),
        ({"update_baselines": "yes"}, "got --assay-update-baselines=yes, wanted new or all"),
        ({"compile_timeout": "0"}, "got --assay-compile-timeout=0, wanted a positive .*; try 900"),
        ({"memory_limit": "much"}, "got --assay-memory-limit=much, wanted a size such as 4GiB"),
        ({"memory_limit": "0"}, "got --assay-memory-limit=0, wanted a size such as 4GiB"),
        ({"timing_seconds": "inf"}, "got --assay-timing-seconds=inf, wanted a positive .*; try 30"),
        ({"timing_seconds": "nan"}, "got --assay-timing-seconds=nan"),
        ({"timing_seconds": "soon"}, "got --assay-timing-seconds=soon"),
        ({"against": "0.10.2", "against_seconds": "-1"}, "--assay-against-seconds=-1, .*; try 300"),
        ({"against_seconds": "9"}, "got --assay-against-seconds=9 with nothing to compare"),
        ({"against": "newest"}, "--assay-against: .*newest"),
        ({"results_dir": "file"}, "got --assay-results-dir=.*file, where .* is a file"),
        ({"results_dir": "file/below"}, "got --assay-results-dir=.*below, where .*file is a file"),
        ({"resume": "results/run", "results_dir": "r"}, "got --assay-results-dir=r with .*resume"),
        ({"baselines_dir": "file"}, "got --assay-baselines-dir=.*file, where .* is a file"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=words):
        parsed(tmp_path, **options)


def test_only_folders_that_are_written_must_be_writable(tmp_path: Path) -> None:
    """Nobody can make a folder in /proc, root neither, although its permissions say so."""
    assert parsed(tmp_path, baselines_dir="/proc/b").baselines == Path("/proc/b")
    with pytest.raises(
        SettingsError, match="got --assay-baselines-dir=/proc/b, where /proc cannot be written to"
    ):
        parsed(tmp_path, baselines_dir="/proc/b", update_baselines="new")
    with pytest.raises(
        SettingsError,
        match=r"got --assay-results-dir=/proc/r, where /proc cannot be written to \(.*\), wanted a "
        "folder that can; name another",
    ):
        parsed(tmp_path, results_dir="/proc/r")


def test_a_folder_that_can_be_written_stays_as_it_is(tmp_path: Path) -> None:
    parsed(tmp_path, results_dir="r/s")
    assert list(tmp_path.iterdir()) == []
