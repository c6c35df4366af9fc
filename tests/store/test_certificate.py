"""A certificate next to its evidence: each kind of tampering is found, and what is not is known."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from assay.judge.qualification import dropped
from assay.model.blame import WrongValue
from assay.model.installation import install_command
from assay.model.qualification import Certificate, Check, Decision, Mismatch, RulesUsed
from assay.model.verdict import ExitCode, Outcome
from assay.store import certificate, records, rules, signature
from assay.store.certificate import CertificateError, verify
from tests.qualified import PASSING, RULES_TEXT, TARGET, qualification, record

KEY = Ed25519PrivateKey.generate()
OTHER_KEY = Ed25519PrivateKey.generate()
PUBLIC = KEY.public_key().public_bytes_raw().hex()
PAGES = {"certificate.html": b"<p>passed</p>", "qualification.html": b"<p>all</p>"}
EVIDENCE = "evidence/stack-input-0123456789abcdef.json"


@pytest.fixture(autouse=True)
def packaged(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged rules are those of the tests."""
    path = tmp_path_factory.mktemp("packaged") / "rules.toml"
    path.write_text(RULES_TEXT)
    monkeypatch.setattr(rules, "PACKAGED", path)


def issue(folder: Path, key: Ed25519PrivateKey | None, text: str = RULES_TEXT) -> Certificate:
    """A run's folder with its certificate."""
    for each in PASSING:
        records.append(folder, each)
    (folder / EVIDENCE).parent.mkdir()
    (folder / EVIDENCE).write_text("{}")
    (folder / "rules.toml").write_text(text)
    used = rules.load(folder / "rules.toml")
    base = rules.load(rules.PACKAGED)
    evidence = certificate.keep_evidence(folder, used, folder / "none", TARGET, ())
    gone = dropped(base.features, used.features, target=TARGET, level=1)
    made = qualification(
        rules=used.features,
        evidence=evidence,
        used=RulesUsed(sha256=used.sha256, packaged_sha256=base.sha256, dropped=gone),
        public_key=PUBLIC if key else "",
    )
    sealed = certificate.seal(made, PAGES, key)
    certificate.write(folder, sealed, PAGES)
    return sealed


@pytest.fixture(params=[None, KEY], ids=["unsigned", "signed"])
def issued(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    issue(tmp_path, request.param)
    return tmp_path


def found(folder: Path, public_key: str = "") -> list[Check]:
    return [each.check for each in verify(folder, public_key).mismatches]


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit the certificate's JSON."""
    path = folder / certificate.NAME
    raw = msgspec.json.decode(path.read_bytes())
    edit(raw)
    path.write_bytes(msgspec.json.encode(raw))


def hash_again(folder: Path, key: Ed25519PrivateKey | None = None) -> None:
    """What an attacker does who knows the format: all hashes fit the changed files."""
    path = folder / certificate.NAME
    known = msgspec.json.decode(path.read_bytes(), type=Certificate)
    used = rules.load(folder / certificate.RULES)
    evidence = certificate.keep_evidence(folder, used, folder / "none", TARGET, ())
    seen = qualification(records.load(folder), used.features, evidence=evidence)
    public = key.public_key().public_bytes_raw().hex() if key else known.qualification.public_key
    changed = replace(
        known.qualification,
        evidence=evidence,
        features=seen.features,
        exit_code=seen.exit_code,
        public_key=public,
    )
    pages = {name: (folder / name).read_bytes() for name in PAGES}
    sealed = certificate.seal(changed, pages, key)
    if key is None:
        sealed = replace(sealed, signature=known.signature)
    certificate.write(folder, sealed, pages)


def test_what_was_issued_matches(issued: Path) -> None:
    seen = verify(issued)
    assert seen.mismatches == []
    assert seen.certificate.qualification.exit_code is ExitCode.PASSED
    assert verify(issued / certificate.NAME).mismatches == []


def test_another_spelling_of_the_json_matches(issued: Path) -> None:
    change(issued, len)
    assert found(issued) == []


def test_the_number_is_that_of_the_face(issued: Path) -> None:
    seen = verify(issued)
    assert seen.number == certificate.number(seen.certificate.qualification)


def test_a_field_of_another_version_matches(tmp_path: Path) -> None:
    """Newer versions add fields; this one hashes them, and cannot know what they mean."""
    issue(tmp_path, None)

    def newer(raw: dict[str, Any]) -> None:
        raw["qualification"]["weather"] = "fair"
        unsealed = {**raw, "sha256": "", "signature": ""}
        data = msgspec.json.encode(unsealed, order="sorted")
        raw["sha256"] = hashlib.sha256(data).hexdigest()

    change(tmp_path, newer)
    seen = verify(tmp_path)
    assert seen.mismatches == []
    assert seen.number != certificate.number(seen.certificate.qualification)


def test_every_file_of_the_run_is_hashed(issued: Path) -> None:
    evidence = verify(issued).certificate.qualification.evidence
    assert set(evidence) == {"records.jsonl", certificate.RULES, EVIDENCE}


CERTIFICATE_CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "date": lambda raw: raw["qualification"]["environment"].update(date="2027-01-01"),
    "toolchain": lambda raw: raw["qualification"]["environment"]["toolchain"].update(jax="9"),
    "commit": lambda raw: raw["qualification"]["producer"].update(commit="0" * 40),
    "number": lambda raw: raw["qualification"]["features"][0]["cells"][0].update(measured=1),
    "added field": lambda raw: raw["qualification"].update(endorsed_by="NVIDIA"),
    "added field on top": lambda raw: raw.update(endorsed_by="NVIDIA"),
    "hash": lambda raw: raw.update(sha256="0" * 64),
}


@pytest.mark.parametrize("what", CERTIFICATE_CHANGES)
def test_a_changed_certificate_is_found(issued: Path, what: str) -> None:
    change(issued, CERTIFICATE_CHANGES[what])
    assert Check.CERTIFICATE in found(issued)


def test_a_changed_decision_is_found_twice(issued: Path) -> None:
    (issued / "records.jsonl").unlink()
    for each in (record(verdict=Outcome.FAILED), *PASSING[1:]):
        records.append(issued, each)
    assert found(issued) == [Check.RECORDS, Check.DECISIONS]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("records.jsonl", Check.RECORDS),
        (certificate.RULES, Check.RULES),
        (EVIDENCE, Check.EVIDENCE),
        ("certificate.html", Check.PAGES),
        ("qualification.html", Check.PAGES),
    ],
)
def test_each_changed_or_missing_file_is_named(issued: Path, name: str, check: Check) -> None:
    path = issued / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert Mismatch(check=check, subjects=(name,)) in verify(issued).mismatches
    path.unlink()
    assert Mismatch(check=check, subjects=(name,), is_missing=True) in verify(issued).mismatches


def test_a_file_outside_of_the_folder_is_no_evidence(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    made = issue(run, None).qualification
    (tmp_path / "outside.json").write_text("{}")
    (run / "link.json").symlink_to(tmp_path / "outside.json")
    for name in ("../outside.json", "link.json", str(tmp_path / "outside.json"), "evidence"):
        other = replace(made, evidence={**made.evidence, name: made.evidence[EVIDENCE]})
        certificate.write(run, certificate.seal(other, PAGES), PAGES)
        missing = Mismatch(check=Check.EVIDENCE, subjects=(name,), is_missing=True)
        assert verify(run).mismatches == [missing]


def test_looser_rules_put_in_place_are_found(issued: Path) -> None:
    path = issued / certificate.RULES
    path.write_text(
        RULES_TEXT.replace('variants = ["input", "output"]', 'variants = ["input"]').replace(
            'known_defects.output = "input"\n', ""
        )
    )
    assert found(issued) == [Check.RULES, Check.DECISIONS, Check.STRICTNESS]


def test_records_that_cannot_be_read_are_named(issued: Path) -> None:
    (issued / "records.jsonl").write_text("{}\n")
    changed, unread = verify(issued).mismatches
    assert changed.check is Check.RECORDS
    assert unread == Mismatch(check=Check.DECISIONS, subjects=(), is_missing=True)


def test_a_decision_that_was_never_reached_is_found(issued: Path) -> None:
    """A certificate whose hashes all fit says passed, and the records say failed."""
    (issued / "records.jsonl").unlink()
    for each in (record(verdict=Outcome.FAILED), *PASSING[1:]):
        records.append(issued, each)
    hash_again(issued, KEY)

    def pretend(raw: dict[str, Any]) -> None:
        raw["qualification"]["features"][0]["decision"] = Decision.PASSED.value

    change(issued, pretend)
    known = msgspec.json.decode((issued / certificate.NAME).read_bytes(), type=Certificate)
    certificate.write(issued, certificate.seal(known.qualification, PAGES, KEY), PAGES)
    assert verify(issued).mismatches == [
        Mismatch(check=Check.DECISIONS, subjects=("offload.rows",))
    ]


def test_an_exit_code_that_was_never_reached_is_found(issued: Path) -> None:
    known = verify(issued).certificate.qualification
    changed = replace(known, exit_code=ExitCode.FAILED, public_key="")
    certificate.write(issued, certificate.seal(changed, PAGES), PAGES)
    assert verify(issued).mismatches == [Mismatch(check=Check.DECISIONS, subjects=("exit code 1",))]


def test_rules_that_were_looser_from_the_start_are_found(tmp_path: Path) -> None:
    """Whoever signs can use looser rules; the check compares them with the packaged ones."""
    looser = RULES_TEXT.replace('"save"', '"other"', 1)
    issue(tmp_path, KEY, looser)
    said = verify(tmp_path)
    assert said.certificate.qualification.rules.dropped
    assert said.mismatches == []
    silent = replace(
        said.certificate.qualification,
        rules=replace(said.certificate.qualification.rules, dropped=()),
    )
    certificate.write(tmp_path, certificate.seal(silent, PAGES, KEY), PAGES)
    assert found(tmp_path, PUBLIC) == [Check.STRICTNESS]


def tamper(folder: Path) -> None:
    """A record becomes better than it was."""
    path = folder / "records.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"measured":512', b'"measured":256'))


def test_hashing_again_is_not_found_without_a_signature(tmp_path: Path) -> None:
    """The known limit of hashes alone: ``--verify`` says so for every unsigned certificate."""
    issue(tmp_path, None)
    tamper(tmp_path)
    hash_again(tmp_path)
    assert found(tmp_path) == []


def test_hashing_again_is_found_by_the_signature(tmp_path: Path) -> None:
    issue(tmp_path, KEY)
    tamper(tmp_path)
    hash_again(tmp_path)
    assert verify(tmp_path).mismatches == [Mismatch(check=Check.SIGNATURE, subjects=(PUBLIC,))]


def test_signing_again_with_another_key_is_found_by_the_key(tmp_path: Path) -> None:
    issue(tmp_path, KEY)
    tamper(tmp_path)
    hash_again(tmp_path, OTHER_KEY)
    assert found(tmp_path) == [], "without the key nobody knows who signs"
    assert found(tmp_path, PUBLIC) == [Check.SIGNATURE]


def test_a_signature_that_was_removed_is_found(tmp_path: Path) -> None:
    issue(tmp_path, KEY)
    change(tmp_path, lambda raw: raw.update(signature=""))
    missing = Mismatch(check=Check.SIGNATURE, subjects=(PUBLIC,), is_missing=True)
    assert verify(tmp_path).mismatches == [missing]


def test_an_unsigned_certificate_does_not_satisfy_a_key(tmp_path: Path) -> None:
    issue(tmp_path, None)
    expected = Mismatch(check=Check.SIGNATURE, subjects=(), is_missing=True)
    assert verify(tmp_path, PUBLIC).mismatches == [expected]
    assert not verify(tmp_path, PUBLIC).is_authentic


def test_only_the_given_key_makes_it_authentic(tmp_path: Path) -> None:
    issue(tmp_path, KEY)
    assert verify(tmp_path, PUBLIC).is_authentic
    assert not verify(tmp_path).is_authentic
    assert not verify(tmp_path, "00" * 32).is_authentic


def test_a_signature_that_is_no_number_does_not_fit(tmp_path: Path) -> None:
    issue(tmp_path, KEY)
    change(tmp_path, lambda raw: raw.update(signature="no number"))
    assert found(tmp_path) == [Check.SIGNATURE]


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"schema": 2}', "[" * 10**5, b"\xff"])
def test_what_is_no_certificate_is_unreadable(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / certificate.NAME
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CertificateError, match=r"wanted a qualification\.json"):
        verify(path)


def test_a_missing_certificate_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match=r"wanted a qualification\.json"):
        verify(tmp_path)


EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "qualification").iterdir())


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.name)
def test_the_examples_of_the_documents_are_whole(folder: Path) -> None:
    """The run's files are not kept with them; all that is there fits."""
    seen = verify(folder)
    assert seen.certificate.qualification.exit_code is ExitCode.PASSED
    changed = [each for each in seen.mismatches if not each.is_missing]
    assert changed == []
    assert "certificate.html" not in {name for each in seen.mismatches for name in each.subjects}


def test_the_baselines_that_were_used_are_kept(tmp_path: Path) -> None:
    (tmp_path / "stored" / "gpu-h100-8").mkdir(parents=True)
    (tmp_path / "stored" / "gpu-h100-8" / "scan_offload.json").write_text("{}")
    run = tmp_path / "run"
    run.mkdir()
    used = rules.load(rules.PACKAGED)
    suites = ("scan_offload", "dus_remat")
    kept = certificate.keep_evidence(run, used, tmp_path / "stored", TARGET, suites)
    assert set(kept) == {certificate.RULES, "baselines/gpu-h100-8/scan_offload.json"}


def test_the_producer_names_version_commit_and_sources(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("a = 1")
    found = certificate.producer(tmp_path)
    assert len(found.sha256) == len(found.suites_sha256) == 64
    assert len(found.commit) in (0, 40)
    (tmp_path / "test_a.py").write_text("a = 2")
    assert certificate.producer(tmp_path).suites_sha256 != found.suites_sha256
    assert certificate.producer(tmp_path / "absent").suites_sha256 == ""


def pem(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def private_pem(key: Any, password: bytes = b"") -> bytes:
    hidden = BestAvailableEncryption(password) if password else NoEncryption()
    data: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden)
    return data


def public_pem(key: Any) -> bytes:
    data: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return data


def test_keys_are_read_from_pem_files(tmp_path: Path) -> None:
    private = signature.private_key(pem(tmp_path / "key.pem", private_pem(KEY)))
    public = signature.public_key(pem(tmp_path / "public.pem", public_pem(KEY)))
    assert public == PUBLIC
    assert signature.is_signed(b"data", private.sign(b"data").hex(), public)
    assert not signature.is_signed(b"date", private.sign(b"data").hex(), public)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no key",
        private_pem(X25519PrivateKey.generate()),
        private_pem(KEY, b"secret"),
        public_pem(KEY),
    ],
    ids=["empty", "text", "kind", "password", "public"],
)
def test_what_is_no_private_key_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(WrongValue, match="wanted an Ed25519 private key"):
        signature.private_key(pem(tmp_path / "key.pem", data))


@pytest.mark.parametrize(
    "data",
    [b"", public_pem(X25519PrivateKey.generate()), private_pem(KEY)],
    ids=["empty", "kind", "private"],
)
def test_what_is_no_public_key_is_named(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(WrongValue, match="wanted an Ed25519 public key"):
        signature.public_key(pem(tmp_path / "key.pem", data))


def test_without_cryptography_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signature, "find_spec", lambda _: None)
    with pytest.raises(WrongValue, match=re.escape(install_command("sign"))):
        signature.private_key(tmp_path / "key.pem")


@pytest.mark.parametrize("name", ["a\0b", "../outside", "x" * 5_000, "pipe", "/etc/passwd"])
def test_a_name_that_leads_elsewhere_is_missing_evidence(tmp_path: Path, name: str) -> None:
    issue(tmp_path, None)
    (tmp_path.parent / "outside").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe")
    change(tmp_path, lambda raw: raw["pages"].update({name: ""}))
    missing = [each for each in verify(tmp_path).mismatches if each.is_missing]
    assert [each.subjects for each in missing] == [(name,)]


def test_assay_that_is_not_installed_decides_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert certificate.producer(tmp_path).version

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("assay.model.qualification.version", missing)
    made = certificate.producer(tmp_path)
    assert (made.version, len(made.sha256)) == ("", 64)
