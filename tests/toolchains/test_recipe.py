"""A toolchain, however it is named, becomes exact requirements, or is refused with advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assay.toolchains.recipe import UnreadableToolchain, checked, recipe
from assay.toolchains.releases import Release

BASELINE = {"host-isa": "x86_64-avx512f", "jax": "0.10.2", "jaxlib": "0.10.2"}


def test_a_baseline_toolchain_is_pinned_package_by_package() -> None:
    made = recipe(BASELINE)
    assert made.pins == {"jax": "0.10.2", "jaxlib": "0.10.2"}
    assert {"jax==0.10.2", "jaxlib==0.10.2"} <= set(made.requirements)


def test_what_assay_needs_comes_along_but_not_the_jax_it_asks_for() -> None:
    names = [each for each in recipe("0.8.3").requirements if each.startswith("jax")]
    assert names == ["jax==0.8.3"]
    assert any(each.startswith("msgspec") for each in recipe("0.8.3").requirements)
    assert not any(each.startswith("hypothesis") for each in recipe("0.8.3").requirements)


@pytest.mark.parametrize(
    ("text", "pins"),
    [
        ("0.10.2", {"jax": "0.10.2"}),
        ("jax==0.11.0", {"jax": "0.11.0"}),
        ("jax==0.11.0, jaxlib==0.11.1", {"jax": "0.11.0", "jaxlib": "0.11.1"}),
        ("torch==2.9.1,torch_xla==2.9.0", {"torch": "2.9.1", "torch-xla": "2.9.0"}),
    ],
)
def test_a_version_may_be_bare_or_named(text: str, pins: dict[str, str]) -> None:
    assert recipe(text).pins == pins


@pytest.mark.parametrize("text", ["", "banana", "jax>=0.10", "jax==", "==1", "numpy==2.0"])
def test_what_names_no_toolchain_is_refused_with_what_would(text: str) -> None:
    with pytest.raises(UnreadableToolchain, match="wanted a version of jax"):
        recipe(text)


def test_a_toolchain_without_a_package_is_refused() -> None:
    with pytest.raises(UnreadableToolchain, match="host-isa"):
        recipe({"host-isa": "x86_64"})


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("evil", "1.0"),
        ("jax @ https://example.com/evil.whl ; x", "1.0"),
        ("jaxlib", "0.10.2 @ https://example.com/evil.whl"),
        ("jaxlib", "0.10.2+local"),
        ("jaxlib", "0.11.0.dev20260101"),
        ("jaxlib", "0.10.2 --index-url=https://example.com"),
        ("jaxlib", "0.10.2\nevil"),
        ("jaxlib", ""),
    ],
)
def test_a_baseline_toolchain_names_known_packages_only(package: str, version: str) -> None:
    with pytest.raises(UnreadableToolchain, match=r"got .*accepted .*correct the baseline file"):
        recipe({**BASELINE, package: version})


def test_flags_of_a_baseline_toolchain_name_no_file() -> None:
    with pytest.raises(UnreadableToolchain, match="accepted are flags that name no file"):
        recipe({**BASELINE, "flags": "XLA_FLAGS=--xla_gpu_cuda_data_dir=/tmp/evil"})


def test_a_place_in_place_of_a_release_is_refused() -> None:
    with pytest.raises(UnreadableToolchain, match="wanted a released package"):
        checked("flax @ https://example.org/flax-1-py3-none-any.whl")


def test_a_requirement_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(UnreadableToolchain, match="wanted a released package"):
        checked("flax >")


def test_the_flags_of_a_toolchain_come_back_and_a_version_keeps_the_present_ones() -> None:
    flags = "XLA_FLAGS=--xla_a=1 --xla_b LIBTPU_INIT_ARGS=--c=d"
    assert recipe({**BASELINE, "flags": flags}).flags == {
        "XLA_FLAGS": "--xla_a=1 --xla_b",
        "LIBTPU_INIT_ARGS": "--c=d",
    }
    assert recipe(BASELINE).flags == {"XLA_FLAGS": "", "LIBTPU_INIT_ARGS": ""}
    assert recipe("0.10.2").flags is None


def test_a_live_gpu_takes_the_cuda_libraries_of_the_toolchain() -> None:
    pins = {"jax": "0.10.2", "jax-cuda12-plugin": "0.10.2"}
    assert "jax[cuda12]==0.10.2" in recipe(pins, platform="cuda").requirements
    assert (
        "jax[cuda13]==0.10.2"
        in recipe({"jax": "0.10.2", "jax-cuda13-plugin": "0.10.2"}, platform="cuda").requirements
    )
    assert "jax==0.10.2" in recipe("0.10.2").requirements


def test_recipes_share_a_folder_only_if_they_are_the_same() -> None:
    keys = {
        recipe("0.10.2").key,
        recipe("0.10.3").key,
        replace(recipe("0.10.2"), python="3.10").key,
        replace(recipe("0.10.2"), python="/opt/a b/python").key,
        recipe("0.10.2,flax==0.12.0").key,
        recipe(BASELINE).key,
    }
    assert len(keys) == 6
    assert not any("/" in key or " " in key for key in keys)
    assert recipe("jax == 0.10.2").key == recipe("0.10.2").key
    assert recipe({**BASELINE, "flags": "XLA_FLAGS=--a"}).key == recipe(BASELINE).key


def test_torch_xla_patch_releases_get_their_minor_releases_torch() -> None:
    made = Release(component="torch_xla", version="2.8.1", platform="cpu").recipe("")
    assert made.pins == {"torch-xla": "2.8.1"}
    assert made.requirements == ("torch-xla==2.8.1", "torch==2.8.*")


@pytest.mark.parametrize(
    ("version", "wanted"), [("0.4.24", "jax[cpu]==0.4.24"), ("0.4.30", "jax==0.4.30")]
)
def test_a_release_that_does_not_require_jaxlib_gets_its_own(version: str, wanted: str) -> None:
    release = Release(component="jax", version=version, platform="cpu")
    assert wanted in release.recipe("").requirements
