"""Hooks of mkdocs (mkdocs.yml): one site from the documents where they are.

The repository's own documents, such as README and the suites' READMEs, become pages without a copy.
Their links, written for a reader of the repository, lead to pages of the site: a link to a source
file leads to a page that shows it. Tables of commands and options are made from the code.
"""

import inspect
import posixpath
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

from assay import Claim, Unit, claims, plugin
from assay.cli import app

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs/"
OUTSIDE = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "benchmarks/README.md",
    "results/README.md",
    "memsafe/DESIGN.md",
    "memsafe/README.md",
    "memsafe/docs/*.md",
    "suites/*/*.md",
)
"""Documents outside of docs/ that are pages."""

_FENCED = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_MERMAID = re.compile(r"^```mermaid\n(?P<drawing>.*?)^```$", re.DOTALL | re.MULTILINE)
_ARROW = re.compile(r"^ +(\w+) --> (\w+)$", re.MULTILINE)
_LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".yaml": "yaml", ".sbatch": "bash"}
# What fits on a line of a phone stays on one line: style.css.
_SHORT = re.compile(r"<code>(?=[^<\n]{1,30}</code>)")
_HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents outside of docs/, and a page for each source file that a page names."""
    for pattern in OUTSIDE:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File.generated(config, _uri(name), abs_src_path=str(path)))
    pages = [file for file in files if file.src_uri.endswith(".md")]
    wanted = [target for file in pages for target in _targets(file)]
    while wanted:
        name = wanted.pop()
        path, uri = ROOT / name, _uri(name)
        if name.startswith("..") or files.get_file_from_path(uri) or not path.exists():
            continue
        if path.is_dir():
            inside = [each for each in sorted(path.iterdir()) if each.is_file()]
            wanted += [each.relative_to(ROOT).as_posix() for each in inside]
        text = _HIDDEN + (_listing(path) if path.is_dir() else _source(path))
        page = File.generated(config, uri, content=text, inclusion=InclusionLevel.NOT_IN_NAV)
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page's text with the links of the site, and with what the code says."""
    del config
    markdown = markdown.replace("<details>", '<details markdown="1">')
    markdown = "\n".join(map(_made, markdown.split("\n")))
    markdown = _MERMAID.sub(lambda found: _imports(found["drawing"]), markdown)
    here = page.file.src_uri

    def linked(found: re.Match[str]) -> str:
        target = _uri(_resolved(_name(here), found["path"]))
        if files.get_file_from_path(target) is None:
            return found[0]  # mkdocs names it.
        return posixpath.relpath(target, posixpath.dirname(here) or ".") + (found["anchor"] or "")

    parts = _FENCED.split(markdown)
    return "".join(part if n % 2 else _LINK.sub(linked, part) for n, part in enumerate(parts))


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its short code marked."""
    del page, config, files
    return _SHORT.sub('<code class="short">', html)


def _uri(name: str) -> str:
    """Where the site has a file of the repository."""
    if name == "README.md":
        return "index.md"
    path = ROOT / name
    if path.is_dir() and (path / "README.md").exists():
        return _uri(f"{name}/README.md")
    if name.startswith(DOCS) and path.is_file():
        return name.removeprefix(DOCS)
    if any(Path(name).match(pattern) for pattern in OUTSIDE):
        return name
    return f"source/{name}.md"


def _name(uri: str) -> str:
    """The file of the repository that a page of the site shows."""
    if uri == "index.md":
        return "README.md"
    return uri if (ROOT / uri).is_file() else DOCS + uri


def _resolved(name: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), link))


def _targets(file: File) -> Iterator[str]:
    """The files of the repository that a page links to."""
    name = _name(file.src_uri)
    for part in _FENCED.split(file.content_string)[::2]:
        yield from (_resolved(name, found["path"]) for found in _LINK.finditer(part))


def _source(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    language = _LANGUAGES.get(path.suffix, "text")
    return f"# {path.name}\n\n`{name}`\n\n````{language}\n{path.read_text().rstrip()}\n````\n"


def _listing(path: Path) -> str:
    name = path.relative_to(ROOT).as_posix()
    files = [f"- [{each.name}]({path.name}/{each.name}.md)" for each in sorted(path.iterdir())]
    shown = [line for line in files if "__pycache__" not in line]
    return "\n".join([f"# {path.name}", "", f"The files of `{name}`:", "", *shown, ""])


def _imports(drawing: str) -> str:
    """A drawing of arrows as a table: it needs no script, and a narrow screen shows it."""
    leads: dict[str, list[str]] = {}
    for start, end in _ARROW.findall(drawing):
        leads.setdefault(start, []).append(f"`{end}`")
    rows = [f"| `{start}` | {', '.join(ends)} |" for start, ends in leads.items()]
    return "\n".join(["| Package | Imports |", "|---|---|", *rows])


def _commands() -> str:
    """Every command with its arguments and options, from typer."""
    group: Any = typer.main.get_command(app)
    return "\n\n".join(_command(name, each) for name, each in group.commands.items())


def _command(name: str, command: Any) -> str:
    told = [f"## assay {name}", _told(command.help)]
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    rows = [
        f"| {_written(each)} | {_cell(each.help or '')}{_default(each)} |"
        for each in shown
        if "--help" not in each.opts
    ]
    if rows:
        told.append("\n".join(["| Argument or option | Meaning |", "|---|---|", *rows]))
    examples = [line.strip() for line in (command.epilog or "").splitlines()]
    typed = [line for line in examples if line.startswith("assay ")]
    told += ["\n".join(["```", *typed, "```"])] * bool(typed)
    return "\n\n".join(told)


def _told(text: str) -> str:
    return inspect.cleandoc(text.replace("\b", "").replace("\f", ""))


def _written(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{option}`" for option in parameter.opts)


def _default(parameter: Any) -> str:
    value = getattr(parameter.default, "value", parameter.default)
    if value in (None, "", False) or callable(value):
        return ""
    return f" Default: `{value:g}`." if isinstance(value, float) else f" Default: `{value}`."


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


class _Options:
    """Takes the place of pytest's parser, and keeps what the plugin adds to it."""

    def __init__(self) -> None:
        self.rows: list[str] = []

    def getgroup(self, *_names: str) -> "_Options":
        return self

    def addoption(self, option: str, **kind: Any) -> None:
        given = f"{option} {kind['metavar']}" if kind.get("metavar") else option
        self.rows.append(f"| `{given}` | {_cell(kind['help'])} |")


def _options() -> str:
    """Every option of the pytest plugin."""
    found: Any = _Options()
    plugin.pytest_addoption(found)
    return "\n".join(["| Option | Meaning |", "|---|---|", *found.rows])


def _claims() -> str:
    """Every claim with the name and the unit of its records, and its contract."""
    found = (getattr(claims, name) for name in claims.__all__)
    rows = [_claim(each) for each in found if issubclass(each, Claim)]
    return "\n".join(["| Claim | In records | Unit | Passes if |", "|---|---|---|---|", *rows])


def _claim(kind: type[Claim]) -> str:
    names = {field.name: field.default for field in fields(kind)}
    name = f"`{names['name']}`" if "name" in names else _property(kind, "name")
    usual = Unit.BYTES if kind.unit is Claim.unit else kind.unit
    unit = usual.value if isinstance(usual, Unit) else _property(kind, "unit")
    promise = _cell(inspect.cleandoc(kind.__doc__ or "").splitlines()[0].replace("``", "`"))
    return (
        f"| [`{kind.__name__}`][{kind.__module__}.{kind.__name__}] | {name} | {unit} | {promise} |"
    )


def _property(kind: type[Claim], name: str) -> str:
    """What the documentation of a claim's property says: it depends on the claim's fields."""
    told = inspect.cleandoc(getattr(kind, name).__doc__).splitlines()[0]
    return _cell(told.replace("``", "`").rstrip("."))


def _made(line: str) -> str:
    return next((made() for mark, made in _MADE.items() if line.endswith(mark)), line)


_MADE = {
    "<!-- claims -->": _claims,
    "<!-- commands -->": _commands,
    "<!-- options -->": _options,
}
"""What the code says in place of a line that ends with a mark."""
