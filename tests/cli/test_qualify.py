"""The command ``assay qualify`` end to end: its files, its exit codes, and the check of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from assay.store import rules
from tests.plugin.project import PREAMBLE, Ended, Project

SUITE = (
    PREAMBLE
    + """
from assay import Fails, Upstream

KNOWN = KnownDefect(
    variants=("known",), targets=("*",), reason="shapes do not fit",
    expects={"compiles": Fails(kind=FailureKind.TRACE, message="incompatible shapes")},
    upstream=Upstream(link="https://example.org/1"), last_seen="2026-11-20",
)
W = workload(
    variant("double", double), variant("known", mismatched), variant("broken", mismatched),
    variant("unnamed", double),
    variant("negative_control", mismatched, Role.NEGATIVE_CONTROL, fails_with=FailureKind.TRACE),
    known_defects=(KNOWN,),
)
test_compiles = Check(claim=claims.Compiles(), workloads=(W,), negative_control="negative_control")
"""
)
FEATURE = """
[[feature]]
id = "mine.{name}"
name = "Doubling, {name}"
promise = "It compiles."
suite = "mine"
elsewhere = "nowhere else"

[[feature.requirements]]
level = {level}
targets = ["cpu*"]
workloads = ["small"]
variants = {variants}
claims.compiles = ["negative_control"]
"""
GOOD = FEATURE.format(name="good", level=1, variants='["double", "known"]') + (
    'known_defects.known = "double"\n'
)
BAD = FEATURE.format(name="bad", level=1, variants='["broken"]')
GONE = FEATURE.format(name="gone", level=1, variants='["double", "gone"]')
LATE = FEATURE.format(name="late", level=3, variants='["double"]')
OWN = ("--target", "cpu:8", "--suites", "mysuites", "--allow-looser-rules", "--rules")
KILLED_ONCE = """
import os, signal
def pytest_runtest_call(item):
    if "double" in item.name and "PYTEST_XDIST_WORKER" in os.environ:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    files = {
        "mysuites/test_small.py": SUITE,
        "good.toml": f"schema = 1\n{GOOD}{LATE}",
        "bad.toml": f"schema = 1\n{GOOD}{BAD}",
        "gone.toml": f"schema = 1\n{GONE}",
        "key.pem": private.decode(),
        "public.pem": public.decode(),
    }
    return Project(tmp_path_factory.mktemp("qualified"), files)


@pytest.fixture(scope="module")
def qualified(project: Project) -> Ended:
    return project.assay("qualify", *OWN, "good.toml", "--sign-key", "key.pem")


@pytest.fixture(scope="module")
def run(qualified: Ended) -> str:
    return f"results/{qualified.records[0].run}"


def decisions(project: Project, run: str) -> dict[str, str]:
    raw = msgspec.json.decode((project.root / run / "qualification.json").read_bytes())
    return {each["id"]: each["decision"] for each in raw["qualification"]["features"]}


def words(ended: Ended) -> str:
    return " ".join(ended.output.split())


def test_a_target_whose_features_pass_qualifies(
    project: Project, qualified: Ended, run: str
) -> None:
    assert qualified.exit_code == 0, qualified.output
    assert decisions(project, run) == {"mine.good": "passed"}
    assert "cpu:8: Qualified at level 1 (exit 0)" in qualified.output
    assert "1 known defect with a remedy: known (use double)" in words(qualified)
    assert "mine.late is decided from level 3 on" in words(qualified)


def test_only_what_the_rules_name_is_run(qualified: Ended) -> None:
    assert {each.variant for each in qualified.records} == {"double", "known", "negative_control"}


def test_the_certificate_is_next_to_the_records(qualified: Ended, run: str) -> None:
    names = ("qualification.json", "qualification.html", "certificate.html", "records.jsonl")
    assert {f"{run}/{name}" for name in (*names, "qualification-rules.toml")} <= qualified.changed


def test_looser_rules_need_consent_and_are_on_the_face(
    project: Project, qualified: Ended, run: str
) -> None:
    refused = project.assay("qualify", *OWN[:-2], "--rules", "good.toml")
    assert refused.exit_code == 2, refused.output
    assert "got rules that are less strict than those of Assay" in refused.output
    assert "in-place-update.loops: the feature is left out" in words(refused)
    assert not refused.records
    face = (project.root / run / "certificate.html").read_text().partition("Annex")[0]
    for text in (words(qualified), face):
        assert "LESS STRICT than the rules of Assay" in text
        assert "in-place-update.loops: the feature is left out" in text


def test_stricter_rules_need_no_consent_and_are_on_the_face(project: Project, run: str) -> None:
    project.write({"stricter.toml": rules.PACKAGED.read_text() + GOOD})
    copy = "results/stricter"
    shutil.copytree(project.root / run, project.root / copy)
    ended = project.assay(
        "qualify", "--target", "cpu:8", "--rules", "stricter.toml", "--from", copy
    )
    assert ended.exit_code == 1, "the run has no verdict of Assay's own features"
    assert decisions(project, copy)["mine.good"] == "passed"
    face = (project.root / copy / "certificate.html").read_text().partition("Annex")[0]
    for text in (words(ended), face):
        assert "stricter than the rules of Assay" in text
        assert "LESS STRICT" not in text
    assert "mine.good: the feature is added" in face


def test_a_certificate_is_checked(project: Project, run: str) -> None:
    checked = project.assay("qualify", "--verify", run, "--public-key", "public.pem")
    assert checked.exit_code == 0, checked.output
    assert "The certificate matches its evidence" in checked.output
    assert "The given key signed it" in checked.output
    assert not checked.changed


def test_a_run_is_qualified_from_its_records_and_tampering_ends_with_1(
    project: Project, run: str
) -> None:
    copy = "results/copy"
    shutil.copytree(project.root / run, project.root / copy)
    again = project.assay("qualify", *OWN, "bad.toml", "--from", copy)
    assert again.exit_code == 1, again.output
    assert again.records == ()
    assert decisions(project, copy) == {"mine.good": "passed", "mine.bad": "failed"}
    assert "coverage is missing" in words(again)
    unsigned = project.assay("qualify", "--verify", copy)
    assert unsigned.exit_code == 0, unsigned.output
    assert "The certificate is unsigned. Its hashes detect" in words(unsigned)
    records = project.root / copy / "records.jsonl"
    records.write_bytes(records.read_bytes().replace(b'"seconds":', b'"seconds":1'))
    tampered = project.assay("qualify", "--verify", copy)
    assert tampered.exit_code == 1, tampered.output
    assert "records.jsonl was changed" in words(tampered)


def test_a_failed_feature_and_missing_coverage_end_with_1(project: Project) -> None:
    failed = project.assay("qualify", *OWN, "bad.toml", "--level", "2")
    assert failed.exit_code == 1, failed.output
    found = decisions(project, f"results/{failed.records[0].run}")
    assert found == {"mine.good": "passed", "mine.bad": "failed"}
    gone = project.assay("qualify", *OWN, "gone.toml")
    assert gone.exit_code == 1, gone.output
    assert "1 of 2 verdicts not reached: small/gone, compiles" in words(gone)


def test_a_killed_worker_leaves_coverage_missing(tmp_path: Path) -> None:
    files = {"mysuites/test_small.py": SUITE, "good.toml": f"schema = 1\n{GOOD}"}
    project = Project(tmp_path, {**files, "conftest.py": KILLED_ONCE})
    ended = project.assay("qualify", *OWN, "good.toml", "-n", "1")
    assert ended.exit_code == 1, ended.output
    assert "1 of 2 verdicts not reached: small/double, compiles" in words(ended)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "got no --target"),
        (("--target", "cpi:8"), "write cpu:8"),
        (("--target", "cpu:8", "--level", "5"), "equal to 4"),
        (("--target", "gpu-h100:8", "--level", "3"), "levels 3 and 4 need a live target"),
        (("--target", "tpu-v5e:2x4", "--level", "4"), "levels 3 and 4 need a live target"),
        (("--target", "cpu:8", "--suites", "absent"), "got no folder absent"),
        (("--target", "cpu:8", "--suites", "mysuites"), "without any check that the rules name"),
        (("--target", "cpu:8", "--from", "results/absent"), "got no readable results/absent"),
        (("--target", "cpu:8", "--rules", "absent.toml"), "wanted rules as those in"),
        (("--target", "cpu:8", "--public-key", "public.pem"), "without --verify"),
        (("--target", "cpu:8", "--sign-key", "public.pem"), "wanted an Ed25519 private key"),
        (("--verify", "results/absent"), "wanted a qualification.json"),
        (("--verify", "good.toml"), "wanted a qualification.json"),
    ],
)
def test_misuse_ends_with_2_and_a_line(
    project: Project, arguments: tuple[str, ...], text: str
) -> None:
    ended = project.assay("qualify", *arguments)
    assert ended.exit_code == 2, ended.output
    assert text in words(ended)
    assert "Traceback" not in ended.output


def test_a_target_without_records_is_misuse(project: Project, run: str) -> None:
    ended = project.assay("qualify", "--target", "cpu:4", "--from", run)
    assert ended.exit_code == 2
    assert "without a record of cpu:4" in words(ended)
