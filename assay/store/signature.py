"""Ed25519 signatures, with keys in PEM files."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from assay.model.blame import WrongValue
from assay.model.installation import install_command
from assay.store.files import read_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def private_key(path: Path) -> "Ed25519PrivateKey":
    """The key that signs. Raises WrongValue if the file holds none."""
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(read_file(path), password=None)
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:
        # TypeError: the key has a password.
        raise _wrong(path, "private", str(error)) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _wrong(path, "private", "another kind of key")
    found: Ed25519PrivateKey = key
    return found


def public_key(path: Path) -> str:
    """The key that checks a signature, hexadecimal. Raises WrongValue if the file holds none."""
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(read_file(path))
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise _wrong(path, "public", str(error)) from None
    if not isinstance(key, Ed25519PublicKey):
        raise _wrong(path, "public", "another kind of key")
    text: str = key.public_bytes_raw().hex()
    return text


def is_signed(data: bytes, signature: str, public: str) -> bool:
    """Whether the signature of the data was made with the private key of ``public``.

    Raises:
        WrongValue: the package cryptography is not installed.
    """
    _require_cryptography()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
        key.verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):  # ValueError: no hexadecimal number, or no key.
        return False
    return True


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise WrongValue(
            "got a signature or a key without the package cryptography, wanted it installed; "
            f"{install_command('sign')}"
        )


def _wrong(path: Path, kind: str, problem: str) -> WrongValue:
    return WrongValue(
        f"got {path} ({problem}), wanted an Ed25519 {kind} key in a PEM file without a password; "
        "make one with openssl genpkey -algorithm ed25519"
    )
