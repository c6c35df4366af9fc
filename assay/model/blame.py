"""Blame: whose code raised an exception, read from its traceback; and which names are accepted.

Every frame belongs to Assay, to a toolchain or another installed package, to the user, or to no
one: the standard library and the packages that Assay itself calls raise on behalf of their caller.
"""

import hashlib
import os
import re
from collections.abc import Callable
from enum import Enum, auto
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, Final

_INSTALLED_IN: Final = Path(__file__).parents[2]
_STANDARD_LIBRARY: Final = str(Path(os.__file__).parent)
_INSTALLED: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_TOOLCHAINS: Final = frozenset({"jax", "jaxlib", "torch", "torch_xla", "flax"})
# The packages that Assay calls, apart from toolchains.
_CALLED: Final = frozenset({"cloudpickle", "google", "ml_dtypes", "msgspec", "numpy", "scipy"})


class UsersFault(Exception):
    """The user's code gave something that Assay cannot use. Says what was given and wanted."""


class WrongType(UsersFault, TypeError):
    """A value of the user's has a type that Assay cannot use."""


class WrongValue(UsersFault, ValueError):
    """A value of the user's has the right type, but Assay cannot use it."""


class FaultElsewhere(Exception):
    """Assay itself failed in another process. Its message says where."""


class _Owner(Enum):
    ASSAY = auto()
    INSTALLED = auto()
    USER = auto()
    CALLER = auto()


def is_ours(error: BaseException) -> bool:
    """Whether Assay's own code raised the error, not a program, a compiler or the user's check.

    Needs JAX_TRACEBACK_FILTERING=off: JAX otherwise removes the frames that tell.
    """
    if isinstance(error, UsersFault):
        return False
    owners = [owner for frame in _frames(error) if (owner := _owner(frame)) is not _Owner.CALLER]
    if _Owner.USER in owners:
        return False
    if owners and owners[-1] is not _Owner.ASSAY:
        return False
    # A compiler's C++ has no frames; its exceptions have a type of their own.
    return _package(type(error).__module__) not in _TOOLCHAINS


def users_line(error: BaseException) -> str:
    """``file:line`` of the innermost frame of the user's code, empty if there is none."""
    return _innermost(error, _Owner.USER)


def line_of(function: Callable[..., Any]) -> str:
    """``file:line`` where a function is defined, empty if it does not tell."""
    code = getattr(getattr(function, "func", function), "__code__", None)
    return _place(code.co_filename, code.co_firstlineno) if code else ""


def in_words(error: BaseException) -> str:
    """``file:line: Type: message``; the line is the user's, or Assay's where Assay is at fault."""
    line, words = users_line(error), message_of(error)
    # A fault of another process says itself where it is.
    if is_ours(error) and not isinstance(error, FaultElsewhere):
        line = _innermost(error, _Owner.ASSAY)
    return f"{line}: {words}" if line else words


def message_of(error: BaseException) -> str:
    """``Type: message``, in text that UTF-8 can hold."""
    words = str(error) or repr(error)
    # What Assay says of the user's values, or of another process, names the line itself.
    if str(error) and not isinstance(error, UsersFault | FaultElsewhere):
        words = f"{type(error).__name__}: {error}"
    return encodable(words)


def encodable(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot hold, written as escapes."""
    return text.encode(errors="backslashreplace").decode()


def _innermost(error: BaseException, owner: _Owner) -> str:
    lines = [
        _place(frame.f_code.co_filename, line)
        for frame, line in walk_tb(error.__traceback__)
        if _owner(frame) is owner
    ]
    return lines[-1] if lines else ""


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in walk_tb(error.__traceback__)]


def _owner(frame: FrameType) -> _Owner:
    package = _package(frame.f_globals.get("__name__", ""))
    path = frame.f_code.co_filename
    if package == "assay":
        return _Owner.ASSAY
    if package in _TOOLCHAINS:
        return _Owner.INSTALLED
    if package in _CALLED:
        return _Owner.CALLER
    if any(folder in path for folder in _INSTALLED):
        return _Owner.INSTALLED
    if path.startswith(("<frozen", _STANDARD_LIBRARY)):
        return _Owner.CALLER
    return _Owner.USER


def _package(module: str) -> str:
    return module.partition(".")[0]


def _place(path: str, line: int) -> str:
    file = Path(path)
    near = (root for root in (Path.cwd(), _INSTALLED_IN) if file.is_relative_to(root))
    return f"{file.relative_to(next(near, file.root))}:{line}"


_MOST = 150
"""Characters: a file name has at most 255 bytes on Linux, and holds more than this name."""

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
