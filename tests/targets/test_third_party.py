"""A target of another package comes in through its entry point; a broken one says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from assay.model.target import TargetError, TargetUnavailable
from assay.targets import check, known, resolve, survey

PACKAGE = """
from assay.model.target import TargetName
from assay.targets import Target

def npu(text):
    return Target(
        name=TargetName.parse(text),
        platform="npu",
        executes=False,
        unavailable=lambda: None,
        devices=lambda: ("a device",),
    )

one = npu("npu-910b:4")
def two(): return [npu("npu-a"), npu("npu-b")]
def impostor(): return npu("gpu-h100:8")
def raises(): raise OSError("no licence")
nothing = 3
"""

Installer = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """Installs a package `acme_npu` whose one entry point is given."""

    def install_with(entry_point: str) -> None:
        info = tmp_path / "acme_npu-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-npu\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[assay.targets]\n{entry_point}\n")
        (tmp_path / "acme_npu.py").write_text(PACKAGE)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "acme_npu", raising=False)

    return install_with


@pytest.mark.parametrize(
    ("entry_point", "names"),
    [("x = acme_npu:one", ["npu-910b:4"]), ("x = acme_npu:two", ["npu-a", "npu-b"])],
)
def test_another_packages_targets_are_known(
    install: Installer, entry_point: str, names: list[str]
) -> None:
    before = known()
    install(entry_point)
    assert known() == (*before, *names)
    assert [resolve(name).devices() for name in names] == [("a device",)] * len(names)


@pytest.mark.parametrize(
    ("entry_point", "reason"),
    [
        ("npu2 = acme_npu:raises", "no licence"),
        ("npu2 = acme_npu:absent", "absent"),
        ("npu2 = acme_missing:one", "acme_missing"),
        ("npu2 = acme_npu:nothing", "got 3"),
        ("npu2 = acme_npu:impostor", "Assay's own"),
    ],
)
def test_a_broken_entry_point_is_an_unavailable_target(
    install: Installer, entry_point: str, reason: str
) -> None:
    install(entry_point)
    target, found = survey()[-1]
    assert found is not None
    assert reason in found.reason
    assert found.remedy == "fix, upgrade or uninstall acme-npu"
    assert check(resolve("broken-npu")) == found
    with pytest.raises(TargetUnavailable, match=reason):
        target.devices()


def test_a_package_that_is_not_installed_brings_nothing() -> None:
    with pytest.raises(TargetError, match="a known device model"):
        resolve("npu-910b:4")
