"""Every command that a page names is one that Assay, pytest or Python accepts."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from assay import plugin
from assay.cli import app
from tests.docs.pages import ROOT, Block, Command, blocks, commands, pages

GROUP: Any = typer.main.get_command(app)
INLINE = re.compile(r"`((?:assay|pytest) [^`\n]*)`")
LANGUAGES = ("", "console", "bash", "text")


class Options(list[str]):
    """Takes the place of pytest's parser."""

    def getgroup(self, *_names: str) -> Options:
        return self

    def addoption(self, name: str, **_kind: Any) -> None:
        self.append(name)


def known() -> list[str]:
    found: Any = Options()
    plugin.pytest_addoption(found)
    return list(found)


OPTIONS = known()


def wrong(words: tuple[str, ...], *, whole: bool) -> str:
    """Why a command cannot be typed; empty if it can. One that is not ``whole`` may lack words."""
    words = words[words.index("assay") :] if "assay" in words[:3] else words
    program, *rest = words
    if program == "assay" and rest and rest[0] in GROUP.commands:
        if "…" in " ".join(rest):
            return ""
        try:
            GROUP.commands[rest[0]].make_context(rest[0], rest[1:], resilient_parsing=not whole)
        except Exception as error:  # noqa: BLE001 - typer's own, which it may not export
            told = getattr(error, "format_message", error.__str__)
            return str(told())
    elif program == "assay" and rest and rest[0].islower():
        return f"got {rest[0]}, wanted one of {', '.join(GROUP.commands)}"
    given = [word.partition("=")[0] for word in rest if word.startswith("--assay-")]
    unknown = [option for option in given if option not in OPTIONS]
    if unknown:
        return f"no option {', '.join(unknown)}"
    if program.startswith("python") and rest[:1] == ["-m"]:
        module = rest[1]
        if module.startswith(("benchmarks", "tests")) and importlib.util.find_spec(module) is None:
            return f"no module {module}"
    return ""


def typed() -> Iterator[Command]:
    """The commands of fenced blocks."""
    for page in pages():
        for block in blocks(page):
            if block.language in LANGUAGES and not block.title:
                yield from (
                    each
                    for each in commands(block)
                    if each.words[0] in ("assay", "pytest", "python", "srun")
                )


@pytest.mark.parametrize("command", list(typed()), ids=str)
def test_a_command_of_a_page_is_accepted(command: Command) -> None:
    assert wrong(command.words, whole=True) == ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_command_within_a_sentence_is_accepted(page: Any) -> None:
    text = page.read_text()
    said = {
        found[1]: wrong(tuple(found[1].split()), whole=False) for found in INLINE.finditer(text)
    }
    assert {command: why for command, why in said.items() if why} == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("assay inspect step.py:f --targets cpu", "--targets"),
        ("assay inspekt step.py:f", "got inspekt"),
        ("assay inspect", "SUBJECT"),
        ("pytest --assay-levels full", "no option --assay-levels"),
        ("python -m benchmarks.hlo_raeding", "no module"),
    ],
)
def test_a_command_that_does_not_exist_is_seen(text: str, why: str) -> None:
    block = Block(page="page.md", line=1, language="", title="", text=f"{text}\n")
    (command,) = commands(block)
    assert why.lower() in wrong(command.words, whole=True).lower()
