"""GitHub's Markdown: text that stays text, code, tables."""

import re
from collections.abc import Iterable, Sequence

from assay.report.labels import plain

_ACTIVE = re.compile(r"([\\`*_{}\[\]<>#|~&$])")
"""Characters GitHub reads as markup; a backslash makes each of them itself (CommonMark 2.4)."""


def escape(text: str) -> str:
    """The text on one line, with no character left that Markdown would act on."""
    return _ACTIVE.sub(r"\\\1", " ".join(plain(text).split()))


def code(text: str) -> str:
    """The text as a code span, to be copied; outside tables only."""
    line = " ".join(plain(text).split())
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{space}{line}{space}{ticks}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already."""
    rule = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
