"""The valid names nearest to one that is not valid, as every error message suggests them."""

from collections.abc import Iterable
from difflib import get_close_matches

_MOST = 3


def nearest(given: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names that resemble the given one, the nearest first; case does not count."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(given.lower(), names, n=_MOST)
    return tuple(names[match] for match in close)


def suggestion(given: str, known: Iterable[str], prefix: str = "") -> str:
    """``; write a or b``, the end of a message; empty if no known name is near."""
    close = [prefix + name for name in nearest(given.removeprefix(prefix), known)]
    return f"; write {' or '.join(close)}" if close else ""


def wanted_one_of(given: str, known: Iterable[str], prefix: str = "") -> str:
    """``wanted one of a, b, c; write b``: the known names, and those nearest to the given one.

    All names are shown with the prefix, and compared without it.
    """
    names = tuple(known)
    listed = ", ".join(prefix + name for name in names)
    return f"wanted one of {listed}{suggestion(given, names, prefix)}"
