"""Names of suites, workloads, variants and claims: what they may contain."""

import hashlib
import re

from assay.model.blame import WrongType, WrongValue

_MOST = 150
"""Characters: a file name has at most 255 bytes on Linux, and other words stand beside a name."""

_SUITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
_SEPARATORS = "/\\@"
"""What stands between names in ids, in a baseline's entries and in paths."""


def check_name(what: str, name: object) -> None:
    """Refuse a name that cannot stand in an id, a record and a path.

    Raises:
        WrongType: it is no text.
        WrongValue: it is empty, too long, or holds what no name may hold.
    """
    if not isinstance(name, str):
        raise WrongType(f"got {name!r}, {type(name).__name__}, for the name of {what}, wanted text")
    if what == "a suite":
        legal, wanted = bool(_SUITE.fullmatch(name)), "letters, digits, '_', '.', '+' and '-'"
    else:
        legal = name.isprintable() and not set(name) & set(_SEPARATORS)
        wanted = "printable text without '/', '\\' and '@'"
    if not legal or not 0 < len(name) <= _MOST or name.startswith((".", " ")):
        raise WrongValue(
            f"got {name[:_MOST]!r} for the name of {what}, wanted {wanted}, at most {_MOST} "
            "characters, with no '.' at its start; rename it"
        )


def suite_of(file: str) -> str:
    """The suite of a test file, of its path from the root: dots for slashes. No two share one."""
    stem = file.removesuffix(".py")
    dotted = stem.replace("/", ".")
    if "." not in stem and _SUITE.fullmatch(dotted) and len(dotted) < _MOST:
        return dotted
    return _abridged(stem)


def legible(text: str) -> str:
    """The text if it can be part of a name, else its letters and a digest of the whole."""
    if re.fullmatch(r"[\w.+\-<>\[\]]+", text, re.ASCII) and len(text) < _MOST - 20:
        return text
    return _abridged(text)


def _abridged(text: str) -> str:
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    kept = re.sub(r"[^\w+\[\]]+", "-", text, flags=re.ASCII).strip("-")
    return f"{kept[:80]}-{digest}"
