"""A new toolchain is compared with its own number, else with the nearest older one's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.baseline import age, in_range, no_newer
from assay.model.verdict import BaselineNumber


def baseline(value: int, **versions: str) -> BaselineNumber:
    return BaselineNumber(value=value, toolchain=versions)


def nearest(numbers: list[BaselineNumber], versions: dict[str, str]) -> BaselineNumber | None:
    return next(reversed(no_newer(numbers, versions)), None)


def value_for(numbers: list[BaselineNumber], **versions: str) -> int | float | None:
    found = nearest(numbers, versions)
    return found.value if found else None


NUMBERS = [
    baseline(10, jaxlib="0.10.2"),
    baseline(9, jaxlib="0.9.2"),
    baseline(12, jaxlib="0.12.0.1"),
]


@pytest.mark.parametrize(
    ("jaxlib", "value"),
    [("0.10.2", 10), ("0.11", 10), ("0.9.2", 9), ("0.10.1", 9), ("0.12.0", 10), ("1.0", 12)],
)
def test_the_exact_number_is_preferred_else_the_nearest_older(jaxlib: str, value: int) -> None:
    assert value_for(NUMBERS, jaxlib=jaxlib) == value


@pytest.mark.parametrize(
    ("jaxlib", "values"), [("0.10.2", [9, 10]), ("0.9", []), ("1.0", [9, 10, 12])]
)
def test_numbers_of_no_newer_toolchain_come_oldest_first(jaxlib: str, values: list[int]) -> None:
    assert [each.value for each in no_newer(NUMBERS, {"jaxlib": jaxlib})] == values


def test_an_older_toolchain_is_never_held_against_a_newer_number() -> None:
    assert value_for(NUMBERS, jaxlib="0.9.1") is None


def test_no_numbers_give_none() -> None:
    assert value_for([], jaxlib="0.10") is None


def test_versions_are_ordered_as_versions_not_as_text() -> None:
    assert value_for([baseline(9, jaxlib="0.9")], jaxlib="0.10") == 9
    assert value_for([baseline(10, jaxlib="0.10")], jaxlib="0.9") is None


def test_a_package_outside_the_leading_order_is_ordered_as_a_version_too() -> None:
    older = baseline(1, **{"jaxlib": "0.10", "nvidia-cuda-nvcc": "13.9.1"})
    newer = {"jaxlib": "0.10", "nvidia-cuda-nvcc": "13.10.0"}
    assert value_for([older], **newer) == 1


def test_the_compilers_own_package_decides_first() -> None:
    numbers = [
        baseline(1, jaxlib="0.10", libtpu="0.0.60"),
        baseline(2, jaxlib="0.11", libtpu="0.0.50"),
    ]
    assert value_for(numbers, jaxlib="0.12", libtpu="0.0.55") == 2


def test_the_accelerators_package_decides_between_equal_jaxlibs() -> None:
    numbers = [
        baseline(1, jaxlib="0.10", libtpu="0.0.9"),
        baseline(2, jaxlib="0.10", libtpu="0.0.50"),
    ]
    assert value_for(numbers, jaxlib="0.10", libtpu="0.0.51") == 2
    assert value_for(numbers, jaxlib="0.10", libtpu="0.0.10") == 1


@pytest.mark.parametrize(
    "package", ["jax", "torch_xla", "torch", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"]
)
def test_each_package_of_a_compiler_can_make_a_toolchain_newer(package: str) -> None:
    newer = baseline(1, **{"jaxlib": "0.10", package: "2.0"})
    assert value_for([newer], **{"jaxlib": "0.10", package: "1.0"}) is None


def test_an_exact_toolchain_has_the_same_packages_too() -> None:
    numbers = [baseline(1, jaxlib="0.10"), baseline(2, jaxlib="0.10", libtpu="0.0.51")]
    assert value_for(numbers, jaxlib="0.10", libtpu="0.0.51") == 2
    assert value_for(numbers, jaxlib="0.10") == 1


def test_a_local_build_without_a_proper_version_counts_as_the_oldest() -> None:
    assert age({"jaxlib": "my-branch"}) < age({"jaxlib": "0.0.1"})


versions = st.dictionaries(
    st.sampled_from(["jaxlib", "jax", "libtpu", "other"]),
    st.sampled_from(["0.9", "0.10", "0.10.1", "1.0", "odd"]),
)


@given(versions, versions)
def test_two_toolchains_are_of_one_age_only_if_they_are_one(
    left: dict[str, str], right: dict[str, str]
) -> None:
    assert (age(left) == age(right)) is (left == right)


@given(st.lists(versions), versions)
def test_the_nearest_number_is_never_newer_and_none_older_lies_between(
    known: list[dict[str, str]], mine: dict[str, str]
) -> None:
    numbers = [BaselineNumber(value=0, toolchain=toolchain) for toolchain in known]
    older = [age(toolchain) for toolchain in known if age(toolchain)[0] <= age(mine)[0]]
    found = nearest(numbers, mine)
    best = age(mine) if mine in known else max(older, default=None)
    assert (age(found.toolchain) if found else None) == best


def test_another_machine_with_the_same_compiler_is_compared_with() -> None:
    baseline = BaselineNumber(value=1, toolchain={"jaxlib": "0.12.0", "host-isa": "x86_64-avx512f"})
    mine = {"jaxlib": "0.12.0", "host-isa": "x86_64-avx2"}
    assert nearest([baseline], mine) == baseline


@pytest.mark.parametrize(
    ("specifiers", "inside"),
    [
        ({}, True),
        ({"jaxlib": ">=0.10"}, True),
        ({"jaxlib": ">=0.10,<0.10.2"}, False),
        ({"jaxlib": ">=0.10", "libtpu": "<0.0.51"}, False),
        ({"jaxlib": ">=0.10", "libtpu": "==0.0.51"}, True),
        ({"torch": ">=1"}, False),
    ],
)
def test_a_range_admits_a_toolchain_that_every_specifier_admits(
    *, specifiers: dict[str, str], inside: bool
) -> None:
    assert in_range(specifiers, {"jaxlib": "0.10.2", "libtpu": "0.0.51"}) is inside


def test_a_nightly_is_in_the_range_of_its_release() -> None:
    assert in_range({"jaxlib": ">=0.10"}, {"jaxlib": "0.12.0.dev20260701"})
