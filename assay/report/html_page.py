"""HTML pages: one self-contained file each, from the templates of this folder."""

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from assay.model.units import format_bytes
from assay.model.verdict import Outcome
from assay.report.labels import amount, expected, plain

TONES: Final = {
    Outcome.PASSED: "good",
    Outcome.IMPROVED: "good",
    Outcome.FAILED: "bad",
    Outcome.ERROR: "bad",
    Outcome.FIXED_UPSTREAM: "note",
    Outcome.KNOWN_DEFECT: "known",
    Outcome.INCONCLUSIVE: "note",
    Outcome.UNSUPPORTED: "faint",
}
"""The class of a verdict's style."""

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **values: Any) -> str:
    """The page of a template.

    Every value is escaped, and its control characters are replaced, unless it is
    ``markupsafe.Markup``.
    """
    return _environment().get_template(template).render(values)


@cache
def _environment() -> "Environment":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: object) -> object:
        is_text = isinstance(value, str) and not isinstance(value, Markup)
        return plain(str(value)) if is_text else value

    environment = Environment(
        loader=PackageLoader("assay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=shown,
    )
    environment.filters |= {"bytes": format_bytes, "amount": amount, "expected": expected}
    return environment
