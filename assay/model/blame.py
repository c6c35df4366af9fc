"""Blame: whose code raised an exception, read from its traceback; and which names are valid."""

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final, Literal

_INSTALLED_IN: Final = Path(__file__).parents[2]
_STANDARD_LIBRARY: Final = str(Path(os.__file__).parent)
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TOOLCHAINS: Final = frozenset({"jax", "jaxlib", "torch", "torch_xla", "flax"})
# The packages that Assay calls, apart from toolchains.
_CALLED: Final = frozenset({"cloudpickle", "google", "ml_dtypes", "msgspec", "numpy", "scipy"})

_Owner = Literal["assay", "installed", "user"]


class UsersFault(Exception):
    """The user's code gave something that Assay cannot use. Says what was given and wanted."""


class WrongType(UsersFault, TypeError):
    """A value of the user's has a type that Assay cannot use."""


class WrongValue(UsersFault, ValueError):
    """A value of the user's has the right type, but Assay cannot use it."""


class FaultElsewhere(Exception):
    """Assay itself failed in another process. Its message says where."""


def is_ours(error: BaseException) -> bool:
    """Whether Assay's own code raised the error, not a program, a compiler or the user's check.

    Needs JAX_TRACEBACK_FILTERING=off: JAX otherwise removes frames from the traceback.
    """
    if isinstance(error, UsersFault):
        return False
    owners = [owner for owner, _ in _owned(error)]
    if "user" in owners or (owners and owners[-1] != "assay"):
        return False
    # A compiler's C++ has no frames; its exceptions have a type of their own.
    return type(error).__module__.partition(".")[0] not in _TOOLCHAINS


def users_line(error: BaseException, owner: _Owner = "user") -> str:
    """``file:line`` of the innermost frame of that owner's code, empty if there is none."""
    return next((line for whose, line in reversed(tuple(_owned(error))) if whose == owner), "")


def line_of(function: Callable[..., Any]) -> str:
    """``file:line`` of a function's definition, empty if it is unknown."""
    code = getattr(getattr(function, "func", function), "__code__", None)
    return _place(code.co_filename, code.co_firstlineno) if code else ""


def in_words(error: BaseException) -> str:
    """``file:line: Type: message``; the line is the user's, or Assay's if Assay is at fault."""
    # The message of a fault in another process says where it is.
    assays = is_ours(error) and not isinstance(error, FaultElsewhere)
    line, words = users_line(error, "assay" if assays else "user"), message_of(error)
    return f"{line}: {words}" if line else words


def message_of(error: BaseException) -> str:
    """``Type: message``, in text that UTF-8 can hold.

    For ``UsersFault`` and ``FaultElsewhere`` it is the message alone, and for an exception without
    a message its ``repr``.
    """
    words = str(error) or repr(error)
    # These messages are complete sentences of Assay's.
    if str(error) and not isinstance(error, UsersFault | FaultElsewhere):
        words = f"{type(error).__name__}: {error}"
    return encodable(words)


def encodable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _owned(error: BaseException) -> Iterator[tuple[_Owner, str]]:
    """Whose code each frame is, and its ``file:line``, outermost first.

    The standard library and the packages that Assay calls raise on behalf of their caller. Their
    frames are left out.
    """
    for frame, number in walk_tb(error.__traceback__):
        package = frame.f_globals.get("__name__", "").partition(".")[0]
        path = frame.f_code.co_filename
        line = _place(path, number)
        if package == "assay":
            yield "assay", line
        elif package in _TOOLCHAINS:
            yield "installed", line
        elif package in _CALLED:
            continue
        elif any(folder in path for folder in _INSTALLED):
            yield "installed", line
        elif not path.startswith(("<frozen", _STANDARD_LIBRARY)):
            yield "user", line


def _place(path: str, line: int) -> str:
    file = Path(path)
    near = (root for root in (Path.cwd(), _INSTALLED_IN) if file.is_relative_to(root))
    return f"{file.relative_to(next(near, file.root))}:{line}"


_MOST = 150
"""Characters: a file name has at most 255 bytes on Linux, and holds more than this name."""

_SUITE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def check_name(what: str, name: object) -> None:
    """Raise WrongType or WrongValue for a name that cannot be part of an id and a path."""
    if not isinstance(name, str):
        raise WrongType(f"got {name!r}, {type(name).__name__}, for the name of {what}, wanted text")
    if what == "a suite":
        legal, wanted = bool(_SUITE.fullmatch(name)), "letters, digits, '_', '.', '+' and '-'"
    else:
        legal = name.isprintable() and not set(name) & set("/\\@")
        wanted = "printable text without '/', '\\' and '@'"
    if not legal or not 0 < len(name) <= _MOST or name.startswith((".", " ")):
        raise WrongValue(
            f"got {name[:_MOST]!r} for the name of {what}, wanted {wanted}, at most {_MOST} "
            "characters, with no '.' at its start; rename it"
        )


def suite_of(file: str) -> str:
    """The suite of a test file, unique: its path from the root, with dots for slashes.

    A path that holds a dot, is too long or is no legal name is abridged, and ends with a digest.
    """
    stem = file.removesuffix(".py")
    dotted = stem.replace("/", ".")
    is_unique = "." not in stem and _SUITE.fullmatch(dotted) and len(dotted) < _MOST
    return dotted if is_unique else _abridged(stem, "+").lstrip("+-")


def legible(text: str) -> str:
    """The text if it can be part of a name, else its letters and a digest of the whole."""
    is_legible = re.fullmatch(r"[\w.+\-<>\[\]]+", text, re.ASCII) and len(text) < _MOST - 20
    return text if is_legible else _abridged(text, r"+\[\]")


def _abridged(text: str, kept: str) -> str:
    """The letters, digits and ``kept`` characters (of a class of a regex), and a digest."""
    digest = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:8]
    letters = re.sub(rf"[^\w{kept}]+", "-", text, flags=re.ASCII).strip("-")
    return f"{letters[:80]}-{digest}"
