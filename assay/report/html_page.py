"""HTML pages: one self-contained file each, from the templates of this folder."""

from typing import Any


def render(template: str, **values: Any) -> str:
    """The page of a template. Every value is escaped, unless it is ``markupsafe.Markup``."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("assay.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(values)
