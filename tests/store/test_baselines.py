"""Baselines: the same numbers give the same bytes, and a damaged file is never empty."""

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.judge.baseline import age
from assay.model.verdict import BaselineNumber
from assay.store import baselines
from assay.store.baselines import Baseline, BaselineError, Key, load, load_all, path_of, save

KEY: Key = ("stack", "offload", "temp-bytes")
NUMBER = BaselineNumber(value=1000, toolchain={"jaxlib": "0.10.2", "jax": "0.10.2"})
OLDER = BaselineNumber(value=1100, toolchain={"jaxlib": "0.9"})


def one_number(number: BaselineNumber = NUMBER, key: Key = KEY) -> Baseline:
    return Baseline("scan", "gpu-h100:8").storing(key, number)


def test_a_colon_in_a_target_is_a_dash_in_the_path(tmp_path: Path) -> None:
    path = save(tmp_path, one_number())
    assert path == tmp_path / "gpu-h100-8" / "scan.json" == path_of(tmp_path, "scan", "gpu-h100:8")
    assert path.exists()


def test_numbers_come_back_under_their_own_key(tmp_path: Path) -> None:
    save(tmp_path, one_number())
    loaded = load(tmp_path, "scan", "gpu-h100:8")
    assert loaded == one_number()
    assert loaded.numbers(KEY) == (NUMBER,)
    assert loaded.numbers(("stack", "other", "temp-bytes")) == ()


def test_a_variants_numbers_are_those_of_all_its_claims_and_of_no_other_variant() -> None:
    both = one_number().storing(("stack", "offload", "copied-bytes"), OLDER)
    others = both.storing(("stack", "save", "temp-bytes"), NUMBER)
    assert others.of_variant("stack", "offload") == (NUMBER, OLDER)
    assert others.of_variant("stack", "remat") == others.of_variant("other", "offload") == ()


def test_no_file_is_no_number(tmp_path: Path) -> None:
    assert load(tmp_path, "scan", "cpu") == Baseline("scan", "cpu")


def test_an_entry_holds_its_value_and_toolchain_and_no_time(tmp_path: Path) -> None:
    written = json.loads(save(tmp_path, one_number()).read_bytes())
    assert written == {
        "schema": 1,
        "suite": "scan",
        "target": "gpu-h100:8",
        "baselines": {
            "stack/offload/temp-bytes": [{"toolchain": dict(NUMBER.toolchain), "value": 1000}]
        },
    }


def test_the_order_of_storing_does_not_show_in_the_bytes(tmp_path: Path) -> None:
    baselines = [
        (KEY, NUMBER),
        (KEY, OLDER),
        (("stack", "a", "z"), NUMBER),
        (("another", "z", "a"), OLDER),
    ]
    seen = set()
    for turn, order in enumerate(itertools.permutations(baselines)):
        baseline = Baseline("scan", "cpu")
        for key, number in order:
            items = list(number.toolchain.items())
            reordered = dict(reversed(items) if turn % 2 else items)
            baseline = baseline.storing(key, replace(number, toolchain=reordered))
        seen.add(save(tmp_path, baseline).read_bytes())
    (data,) = seen
    entries = json.loads(data)["baselines"]
    assert list(entries) == sorted(entries)
    assert [entry["value"] for entry in entries["/".join(KEY)]] == [1100, 1000]
    assert list(entries["/".join(KEY)][1]["toolchain"]) == ["jax", "jaxlib"]
    assert data.endswith(b"}\n")


def test_a_new_number_replaces_that_of_its_own_toolchain_alone() -> None:
    better = BaselineNumber(value=1, toolchain=dict(reversed(NUMBER.toolchain.items())))
    baseline = one_number(OLDER).storing(KEY, NUMBER).storing(KEY, better)
    assert baseline.numbers(KEY) == (OLDER, better)


def test_storing_changes_no_other_baseline() -> None:
    before = one_number()
    before.storing(KEY, OLDER)
    assert before == one_number()


def test_a_file_without_entries_is_removed(tmp_path: Path) -> None:
    path = save(tmp_path, one_number())
    assert save(tmp_path, one_number().without(KEY)) == path
    assert not path.exists()
    save(tmp_path, Baseline("scan", "gpu-h100:8"))


def test_without_takes_only_the_keys_given() -> None:
    other: Key = ("stack", "save", "temp-bytes")
    both = one_number().storing(other, OLDER)
    assert both.without(KEY).baselines == {other: (OLDER,)}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"<<<<<<< HEAD",
        b'{"schema": 1, "suite": "scan", "target": "cpu", "baselines": {}, "when": "now"}',
        (
            b'{"schema": 1, "suite": "scan", "target": "cpu", "baselines": {"a/b/c": [{"value": '
            b'"1"}]}}'
        ),
    ],
)
def test_a_damaged_file_is_an_error_not_no_number(tmp_path: Path, content: bytes) -> None:
    path = path_of(tmp_path, "scan", "cpu")
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(BaselineError, match=f"^{path}: .*restore it"):
        load(tmp_path, "scan", "cpu")
    with pytest.raises(BaselineError, match=f"^{path}: "):
        load_all(tmp_path)


def test_a_truncated_file_is_an_error_at_every_length(tmp_path: Path) -> None:
    path = save(tmp_path, one_number())
    data = path.read_bytes().rstrip()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(BaselineError):
            load(tmp_path, "scan", "gpu-h100:8")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"schema": 1', b'"schema": 2'), (b'"scan"', b'"other"'), (b'"gpu-h100:8"', b'"cpu"')],
)
def test_a_file_of_another_schema_suite_or_target_is_refused(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    path = save(tmp_path, one_number())
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))
    with pytest.raises(BaselineError, match=r"move the file|use the Assay"):
        load(tmp_path, "scan", "gpu-h100:8")
    with pytest.raises(BaselineError, match=r"move the file|use the Assay"):
        load_all(tmp_path)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: path.symlink_to("nowhere")])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / "cpu-8" / "mine.json"
    path.parent.mkdir()
    make(path)
    with pytest.raises(BaselineError, match="restore it from version control"):
        load_all(tmp_path)


def test_an_entry_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, one_number())
    path.write_bytes(path.read_bytes().replace(b"stack/offload/", b"stack-offload/"))
    with pytest.raises(BaselineError, match="wanted workload/variant/claim"):
        load(tmp_path, "scan", "gpu-h100:8")


def test_every_file_of_a_folder_is_read(tmp_path: Path) -> None:
    save(tmp_path, one_number())
    assert [baseline for _, baseline in load_all(tmp_path)] == [one_number()]
    assert not list(load_all(tmp_path / "absent"))


names = st.text(st.characters(codec="utf-8", exclude_characters="/"), min_size=1)
numbers = st.builds(
    BaselineNumber,
    value=st.one_of(st.integers(0, 2**63 - 1), st.floats(0, 1e300)),
    toolchain=st.dictionaries(st.sampled_from(["jaxlib", "jax", "x"]), names, max_size=3),
)


@given(st.dictionaries(st.tuples(names, names, names), st.lists(numbers, min_size=1, max_size=3)))
def test_any_baseline_comes_back_and_writes_the_same_bytes_again(
    baselines: dict[Key, list[BaselineNumber]],
) -> None:
    baseline = Baseline("scan", "cpu:8")
    for key, several in baselines.items():
        for number in several:
            baseline = baseline.storing(key, number)
    with TemporaryDirectory() as folder:
        root = Path(folder)
        path = save(root, baseline)
        first = path.read_bytes() if baselines else b""
        loaded = load(root, "scan", "cpu:8")
        assert {key: sorted_by_age(loaded.numbers(key)) for key in loaded.baselines} == {
            key: sorted_by_age(baseline.numbers(key)) for key in baseline.baselines
        }
        save(root, loaded)
        assert (path.read_bytes() if baselines else b"") == first


def sorted_by_age(several: tuple[BaselineNumber, ...]) -> list[BaselineNumber]:
    return sorted(several, key=lambda number: age(number.toolchain))


def test_the_module_says_which_schema_it_writes() -> None:
    assert baselines.SCHEMA == 1
