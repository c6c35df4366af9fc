"""Every word of a page, and of what the code says on one, is English or one of `words.txt`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from markdown_it import MarkdownIt
from spellchecker import SpellChecker

import assay
import memsafe
from assay import claims, plugin
from assay.cli import app
from tests.docs.pages import ROOT, pages

PRINTED = "docs/faults.md"
"""A table of what programs print, cut to the width of a column."""
PAGES = (
    *(page for page in pages() if page.relative_to(ROOT).as_posix() != PRINTED),
    *(ROOT / name for name in ("CHANGELOG.md", "SECURITY.md", "results/README.md")),
)
OURS = (Path(__file__).parent / "words.txt").read_text().split()
"""Terms and names: as they are written, and with a capital where a sentence begins."""

TO_DO = "correct it, write it as code, or add it to tests/docs/words.txt"

_ENGLISH = SpellChecker(language="en", distance=1)
_MARKDOWN = MarkdownIt("commonmark").enable("table")
_TEXTS = frozenset({"text", "html_block"})
_TAG = re.compile("<[^>]*>")
# Addresses, paths, targets, issues, dotted names: what has a digit or one of these signs.
_NAME = re.compile(r"\S*(?:[\d/@#_]|\w[.:=]\w)\S*")
_WORD = re.compile(r"[^\W\d_²]+(?:['’][^\W\d_]+)*")


def words(markdown: str) -> Iterator[tuple[int, str]]:
    """The words of a page outside of code, each with its line."""
    for token in _MARKDOWN.parse(markdown):
        line = token.map[0] + 1 if token.map else 0
        for part in (token, *(token.children or ())):
            if part.type in _TEXTS:
                for word in _WORD.findall(_NAME.sub(" ", _TAG.sub(" ", part.content))):
                    yield line, re.sub("['’]s$", "", word)


def known(word: str) -> bool:
    """Whether a word is English, or one of ours."""
    forms = {word, word[:1].lower() + word[1:]}
    return bool(forms & {*OURS} or _ENGLISH.known([word.lower()]))


def misspelt(markdown: str) -> list[str]:
    """The words of a page that are unknown, each with its line."""
    return [f"{line}: {word}" for line, word in words(markdown) if not known(word)]


def made() -> dict[str, str]:
    """What the code says on the pages of the reference, by the name of what it describes."""
    group: Any = typer.main.get_command(app)
    told = {option: help_ for option, *_, help_ in plugin._OPTIONS}
    for name, command in group.commands.items():
        helps = (getattr(each, "help", None) or "" for each in command.params)
        told[f"assay {name}"] = "\n\n".join([command.help, *helps])
    for module in (assay, claims, memsafe):
        told |= {name: inspect.getdoc(getattr(module, name)) or "" for name in module.__all__}
    return told


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_no_word_of_a_page_is_misspelt(page: Path) -> None:
    assert misspelt(page.read_text()) == [], TO_DO


def test_no_word_of_the_reference_is_misspelt() -> None:
    assert {name: wrong for name, text in made().items() if (wrong := misspelt(text))} == {}, TO_DO


def test_the_words_are_sorted_needed_and_used() -> None:
    assert sorted({*OURS}, key=lambda word: (word.lower(), word)) == OURS
    assert [word for word in OURS if _ENGLISH.known([word.lower()])] == []
    text = "\n\n".join([*(page.read_text() for page in PAGES), *made().values()])
    used = {form for _, word in words(text) for form in (word, word[:1].lower() + word[1:])}
    assert {*OURS} - used == set()


@pytest.mark.parametrize(
    ("markdown", "wrong"),
    [
        ("# A verdcit\n\nFine.\n", ["1: verdcit"]),
        ("Right.\n\n- one `verdcit`\n- [recieved](page.md) twice\n", ["4: recieved"]),
        ("| a | b |\n|---|---|\n| lenght | *adress* |\n", ["3: lenght", "3: adress"]),
        ("<details><summary>occured</summary>\n", ["1: occured"]),
        ("Github's Tpu\n", ["1: Github", "1: Tpu"]),
        ("```\nteh\n```\n\nhttps://teh.org jax-ml/jaxx#1 teh.md 3teh\n", []),
        ("Memsafe’s loops don't recompute: XLA's, 2²; `x`y.\n", []),
    ],
)
def test_a_misspelt_word_is_seen_with_its_line(markdown: str, wrong: list[str]) -> None:
    assert misspelt(markdown) == wrong
