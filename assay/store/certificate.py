"""The certificate of a qualification: its hashes and signature, and their check."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from assay.judge.qualification import dropped, exit_code, later, qualify
from assay.model.blame import UsersFault
from assay.model.qualification import (
    CERTIFICATE_SCHEMA,
    Certificate,
    Check,
    Mismatch,
    Producer,
    Qualification,
    own_version,
)
from assay.store import baselines, records, rules
from assay.store.evidence import GROWTH, KEPT_HLO, PROGRAMS, RERUNS, TIMES
from assay.store.files import (
    commit_of,
    decode_json,
    digest_of,
    read_file,
    write_json,
    write_whole,
)
from assay.store.signature import is_signed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAME: Final = "qualification.json"
RULES: Final = "qualification-rules.toml"
_BASELINES: Final = "baselines"
_PACKAGE: Final = Path(__file__).parents[1]
_OWN: Final = {records.FILE_NAME: Check.RECORDS, RULES: Check.RULES}
"""The files that decide, and the check that each has of its own."""


class CertificateError(ValueError):
    """A certificate that cannot be read."""


class Verification(NamedTuple):
    """A certificate, its number, what does not match, and whether the key given signed it."""

    certificate: Certificate
    number: str
    mismatches: Sequence[Mismatch]
    is_authentic: bool


def producer(suites: Path) -> Producer:
    """What decides here; outside a git checkout the commit is empty."""
    return Producer(
        version=own_version(),
        commit=commit_of(_PACKAGE).removesuffix("-dirty"),  # the digests tell what differs
        sha256=digest_of(_PACKAGE),
        suites_sha256=digest_of(suites) if suites.is_dir() else "",
    )


def keep_evidence(
    folder: Path, used: rules.Rules, numbers: Path, target: str, suites: Iterable[str]
) -> dict[str, str]:
    """Copy rules and baselines to the run's folder. Returns the SHA-256 of each file of evidence.

    ``numbers`` is the folder of baselines, of which the ``suites`` use some.
    """
    write_whole(folder / RULES, used.text)
    for suite in suites:
        path = baselines.path_of(numbers, suite, target)
        if path.is_file():
            write_whole(baselines.path_of(folder / _BASELINES, suite, target), path.read_bytes())
    files = [folder / name for name in (records.FILE_NAME, records.INVOCATION, RULES)]
    kinds = (PROGRAMS.folder, GROWTH.folder, TIMES.folder, RERUNS.folder, KEPT_HLO, _BASELINES)
    for kind in kinds:
        files += (path for path in (folder / kind).rglob("*.*") if path.suffix != ".lock")
    found = ((path.relative_to(folder).as_posix(), path) for path in files if path.is_file())
    return {name: _sha256(path.read_bytes()) for name, path in sorted(found)}


def seal(
    qualification: Qualification,
    pages: Mapping[str, bytes],
    key: "Ed25519PrivateKey | None" = None,
) -> Certificate:
    """The certificate, signed if there is a key."""
    certificate = Certificate(
        schema=CERTIFICATE_SCHEMA,
        qualification=qualification,
        pages={name: _sha256(page) for name, page in pages.items()},
        sha256="",
    )
    data = _sealed_bytes(msgspec.to_builtins(certificate))
    signature = key.sign(data).hex() if key else ""
    return replace(certificate, sha256=_sha256(data), signature=signature)


def write(folder: Path, certificate: Certificate, pages: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Write the certificate and its pages. Returns the paths."""
    for name, page in pages.items():
        write_whole(folder / name, page)
    return (write_json(folder / NAME, certificate), *(folder / name for name in pages))


def number(qualification: Any) -> str:
    """The number on the certificate's face: the SHA-256 of what it certifies, in any version."""
    return _sha256(_canonical(qualification))


def verify(path: Path, public_key: str = "") -> Verification:
    """Check a certificate, by its file or folder, and the evidence next to it.

    Decides every feature again, and compares the rules with those packaged here. ``public_key`` is
    the key that must have signed (hexadecimal).

    Raises:
        CertificateError: the certificate cannot be read.
        WrongValue: it is signed, and the package cryptography is not installed.
    """
    file = path / NAME if path.is_dir() else path
    try:
        raw: dict[str, Any] = decode_json(read_file(file), dict[str, Any])
        certificate = msgspec.convert(raw, Certificate)
    except (OSError, msgspec.MsgspecError) as error:
        raise CertificateError(
            f"got {file}: {error}; wanted a {NAME} that assay qualify wrote, with the run's files "
            "next to it"
        ) from None
    found = [
        *_of_certificate(certificate, raw, public_key),
        *_of_files(certificate, file.parent),
        *_of_decisions(certificate.qualification, file.parent),
    ]
    is_authentic = bool(public_key) and not any(
        each.check in (Check.CERTIFICATE, Check.SIGNATURE) for each in found
    )
    return Verification(certificate, number(raw["qualification"]), found, is_authentic)


def _of_certificate(
    certificate: Certificate, raw: dict[str, Any], public_key: str
) -> Iterator[Mismatch]:
    data, signer = _sealed_bytes(raw), certificate.qualification.public_key
    # What the file holds is hashed, with fields of other versions of Assay.
    if certificate.sha256 != _sha256(data):
        yield Mismatch(check=Check.CERTIFICATE, subjects=(NAME,))
    if not signer and (certificate.signature or public_key):
        yield Mismatch(check=Check.SIGNATURE, subjects=(), is_missing=True)
    elif signer and not certificate.signature:
        yield Mismatch(check=Check.SIGNATURE, subjects=(signer,), is_missing=True)
    elif signer and not is_signed(data, certificate.signature, signer):
        yield Mismatch(check=Check.SIGNATURE, subjects=(signer,))
    elif signer and public_key and signer != public_key:
        yield Mismatch(check=Check.SIGNATURE, subjects=(signer, public_key))


def _of_files(certificate: Certificate, folder: Path) -> Iterator[Mismatch]:
    expected = certificate.pages | dict.fromkeys(_OWN, "") | certificate.qualification.evidence
    for name, sha256 in expected.items():
        usual = Check.PAGES if name in certificate.pages else Check.EVIDENCE
        data = _inside(folder, name)
        if data is None or _sha256(data) != sha256:
            yield Mismatch(check=_OWN.get(name, usual), subjects=(name,), is_missing=data is None)


def _inside(folder: Path, name: str) -> bytes | None:
    """The file of that name, if it is evidence of this run: no ``../a``, and no link elsewhere."""
    try:
        path = (folder / name).resolve()
        return read_file(path) if path.is_relative_to(folder.resolve()) else None
    except (OSError, ValueError):  # ValueError: the name holds a zero byte.
        return None


def _of_decisions(said: Qualification, folder: Path) -> Iterator[Mismatch]:
    """Decisions that do not follow from records and rules; rules less strict than packaged."""
    try:
        seen, used = records.load(folder), rules.load(folder / RULES)
        ending = records.invocation_of(folder).ending
    except (records.RecordsError, UsersFault):
        yield Mismatch(check=Check.DECISIONS, subjects=(), is_missing=True)
        return
    place: dict[str, Any] = {"target": said.target, "level": said.level}
    features = qualify(seen, used.features, **place)
    claimed = {each.id: each for each in said.features}
    differing = [each.id for each in features if claimed.pop(each.id, None) != each]
    if differing or claimed:
        yield Mismatch(check=Check.DECISIONS, subjects=(*differing, *claimed))
    elif (said.exit_code, said.later) != (
        exit_code(features, ending),
        later(used.features, **place),
    ):
        yield Mismatch(check=Check.DECISIONS, subjects=(f"exit code {said.exit_code.value}",))
    gone = set(dropped(rules.load(rules.PACKAGED).features, used.features, **place))
    if unsaid := sorted({each.feature for each in gone.difference(said.rules.dropped)}):
        yield Mismatch(check=Check.STRICTNESS, subjects=tuple(unsaid))


def _sealed_bytes(certificate: dict[str, Any]) -> bytes:
    """What is hashed and signed: all but the hash and the signature."""
    return _canonical({**certificate, "sha256": "", "signature": ""})


def _canonical(value: Any) -> bytes:
    """JSON in one spelling: sorted keys, no spaces."""
    return msgspec.json.encode(value, order="sorted")


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
