"""Evidence is observed once a run, whichever thread or process asks first."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from assay.model.evidence import (
    Counters,
    Evidence,
    Failure,
    FailureKind,
    Memory,
    Residual,
    Seconds,
    Step,
    StepsSeen,
    Tensor,
    Toolchain,
    Traced,
)
from assay.model.module import Direction, Shape, Transfer, TripSource, WhileLoop
from assay.model.summary import ModuleSummary
from assay.model.target import Unavailable
from assay.store import evidence
from assay.store.evidence import Key, MeasurementCacheError, load_all, once

KEY = ("scan", "stack/full", "offload", "gpu-h100:8")
PLAIN = Evidence(
    suite="scan",
    workload="stack/full",
    variant="offload",
    target="gpu-h100:8",
    toolchain=Toolchain(versions={}),
)
FULL = Evidence(
    suite="scan",
    workload="stack/full",
    variant="offload",
    target="gpu-h100:8",
    toolchain=Toolchain(versions={"jaxlib": "0.10.2"}, flags="XLA_FLAGS=--a"),
    separate_host_memory=False,
    device_count=8,
    device_memory_bytes=2**40,
    unavailable=Unavailable(reason="why", remedy="fix"),
    failure=Failure(kind=FailureKind.OUT_OF_MEMORY, message="≥", needed_bytes=2, capacity_bytes=1),
    traced=Traced(
        names=("a",),
        host_placements_traced=1,
        placements_lowered=0,
        residuals=(Residual(dtype="bfloat16", shape=(2, 3), on_host=True, origin="a"),),
    ),
    memory=Memory(
        temp_bytes=1,
        argument_bytes=2,
        output_bytes=3,
        alias_bytes=4,
        host_temp_bytes=5,
        reported_peak_bytes=6,
    ),
    module=ModuleSummary(
        name="jit_step",
        instructions=1,
        computations=2,
        loops=(
            WhileLoop(
                instruction="while.1",
                computation="main",
                body="body",
                condition="condition",
                trips=None,
                trips_from=TripSource.UNKNOWN,
                reason="dynamic",
                executions=1,
                at_most=True,
                carries=(
                    Shape(
                        element_type="tuple",
                        elements=(Shape(element_type="f32", dimensions=(2,), memory_space=5),),
                    ),
                ),
                source=None,
            ),
        ),
        transfers=(
            Transfer(
                direction=Direction.TO_HOST,
                nbytes_per_execution=8,
                executions=None,
                at_most=False,
                opcode="copy",
                computation="body",
                instruction="copy.1",
                source="step.py:3",
            ),
        ),
    ),
    values=(Tensor(path="loss", dtype="float32", shape=(2,), data=bytes(range(8))),),
    not_executed=Unavailable(reason="no"),
    seconds=Seconds(trace=0.1, execute=0.2),
)


def of(key: Key) -> Evidence:
    suite, workload, variant, target = key
    return replace(FULL, suite=suite, workload=workload, variant=variant, target=target)


def never() -> Evidence:
    raise AssertionError("observed again")


@pytest.mark.parametrize("seen", [PLAIN, FULL], ids=["plain", "full"])
def test_evidence_comes_back_as_it_was_observed(tmp_path: Path, seen: Evidence) -> None:
    assert once(tmp_path, KEY, lambda: seen) == seen
    assert once(tmp_path, KEY, never) == seen
    assert load_all(tmp_path) == (replace(seen, values=seen.values and ()),)


def test_the_graphs_of_steps_are_files_beside_the_evidence(tmp_path: Path) -> None:
    seen = StepsSeen(steps=(Step(counters=Counters(compiles=2)),), modules=(b"one", b"two"))
    kept = once(tmp_path, KEY, lambda: replace(PLAIN, steps=seen))
    assert kept.steps == replace(seen, modules=())
    assert load_all(tmp_path) == (kept,)
    files = sorted((tmp_path / "evidence").glob("*.hlo.pb"))
    assert [file.read_bytes() for file in files] == [b"one", b"two"]
    assert [file.name.split(".graph")[1] for file in files] == ["0.hlo.pb", "1.hlo.pb"]


def test_a_program_whose_values_were_deleted_is_observed_again(tmp_path: Path) -> None:
    once(tmp_path, KEY, lambda: FULL)
    evidence.drop_large(tmp_path)
    assert once(tmp_path, KEY, lambda: FULL) == FULL


def test_a_program_without_values_is_not_observed_again(tmp_path: Path) -> None:
    once(tmp_path, KEY, lambda: PLAIN)
    evidence.drop_large(tmp_path)
    assert once(tmp_path, KEY, never) == PLAIN


def test_damaged_values_are_named(tmp_path: Path) -> None:
    once(tmp_path, KEY, lambda: FULL)
    (path,) = (tmp_path / "evidence").glob("*.values.msgpack")
    path.write_bytes(b"torn")
    with pytest.raises(MeasurementCacheError, match=f"{path.name}.*delete it and run again"):
        once(tmp_path, KEY, never)


@pytest.mark.parametrize("part", range(4))
def test_another_suite_workload_variant_or_target_is_observed_by_itself(
    tmp_path: Path, part: int
) -> None:
    once(tmp_path, KEY, lambda: PLAIN)
    suite, workload, variant, target = (
        "other" if index == part else word for index, word in enumerate(KEY)
    )
    other = (suite, workload, variant, target)
    assert once(tmp_path, other, lambda: of(other)) == of(other)
    assert len(load_all(tmp_path)) == 2


@pytest.mark.parametrize(
    "other",
    [
        ("scan", "stack-full", "offload", "gpu-h100:8"),
        ("scan", "stack/full", "offload", "gpu-h100-8"),
    ],
)
def test_names_that_read_alike_in_a_path_are_kept_apart(
    tmp_path: Path, other: tuple[str, str, str, str]
) -> None:
    once(tmp_path, KEY, lambda: PLAIN)
    assert once(tmp_path, other, lambda: of(other)) == of(other)


def test_a_file_name_says_what_it_is_of(tmp_path: Path) -> None:
    once(tmp_path, KEY, lambda: PLAIN)
    (path,) = (tmp_path / evidence.PROGRAMS.folder).glob("*.json")
    assert path.name.startswith("stack-full-offload-gpu-h100-8-")


def test_the_evidence_of_another_program_is_refused(tmp_path: Path) -> None:
    for _ in ("observed", "read"):
        with pytest.raises(MeasurementCacheError, match=r"another.*wanted that of .*offload"):
            once(tmp_path, KEY, lambda: replace(PLAIN, variant="another"))


@pytest.mark.parametrize("torn", [b"", b'{"workload"'])
def test_a_damaged_file_of_evidence_is_named(tmp_path: Path, torn: bytes) -> None:
    once(tmp_path, KEY, lambda: PLAIN)
    (path,) = (tmp_path / "evidence").glob("*.json")
    path.write_bytes(torn)
    with pytest.raises(MeasurementCacheError, match=path.name):
        once(tmp_path, KEY, lambda: PLAIN)


def test_threads_that_ask_together_observe_once(tmp_path: Path) -> None:
    observed: list[int] = []
    together = threading.Barrier(8)

    def slow() -> Evidence:
        observed.append(1)
        time.sleep(0.1)
        return FULL

    def ask(_: int) -> Evidence:
        together.wait(timeout=30)
        return once(tmp_path, KEY, slow)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, range(8)))
    assert observed == [1]
    assert answers == [FULL] * 8


_CHILD = """
import sys, time
from pathlib import Path
from assay.model.evidence import Evidence, Toolchain
from assay.store.evidence import once

directory, mine, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def observe():
    with (directory / "counter").open("a") as counter:
        counter.write("x")
    time.sleep(0.3)
    seen_by = Toolchain(versions={}, flags=mine)
    return Evidence(suite="s", workload="w", variant="a", target="t", toolchain=seen_by)

(directory / mine).touch()
end = time.monotonic() + 60
while not (directory / other).exists():
    assert time.monotonic() < end
    time.sleep(0.001)
print(once(directory, ("s", "w", "a", "t"), observe).toolchain.flags)
"""


def test_processes_that_ask_together_observe_once(tmp_path: Path) -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(tmp_path), mine, other],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
        )
        for mine, other in (("one", "two"), ("two", "one"))
    ]
    answers = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert (tmp_path / "counter").read_text() == "x"
    assert answers[0] == answers[1] != ""


@pytest.mark.parametrize("error", [RuntimeError("it died"), KeyboardInterrupt()])
def test_an_observation_that_fails_leaves_no_evidence_and_no_lock_held(
    tmp_path: Path, error: BaseException
) -> None:
    def fail() -> Evidence:
        raise error

    with pytest.raises(type(error)):
        once(tmp_path, KEY, fail)
    assert load_all(tmp_path) == ()
    assert [
        path for path in (tmp_path / evidence.PROGRAMS.folder).iterdir() if path.suffix != ".lock"
    ] == []
    assert once(tmp_path, KEY, lambda: FULL) == FULL


def test_a_run_without_evidence_has_none(tmp_path: Path) -> None:
    assert load_all(tmp_path) == ()


def test_hlo_stays_only_where_it_is_to_be_compared(tmp_path: Path) -> None:
    for variant in ("mine", "theirs", "other"):
        key = ("s", "w", variant, "cpu")
        observed = partial(replace, of(key), hlo_gz=variant.encode())
        assert once(tmp_path, key, observed).hlo_gz == b""
    keys = [("s", "w", name, "cpu") for name in ("mine", "theirs")]
    both = evidence.keep_to_compare(tmp_path, keys)
    alone = evidence.keep_to_compare(tmp_path, keys[:1])
    evidence.drop_large(tmp_path)
    assert not list(tmp_path.rglob("*.values.msgpack"))
    kept = {path.read_bytes(): str(path) for path in tmp_path.rglob("*.hlo.pb.gz")}
    assert set(kept) == {b"mine", b"theirs"}
    assert both.endswith(f": assay inspect {kept[b'mine']} --diff {kept[b'theirs']}")
    assert alone == f"look at the program: assay inspect {kept[b'mine']}"
    assert evidence.keep_to_compare(tmp_path, [("s", "w", "none", "cpu")]) == ""
