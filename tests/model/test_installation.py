"""No page and no message installs Assay by its name from an index, where it is not yet."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from assay.model.installation import install_command
from tests.docs.pages import pages

ROOT = Path(__file__).parents[2]
BY_NAME = re.compile(r"pip install [^\n]*?\bassay-xla(?!\[\w+\] @ )")


def test_an_extra_is_installed_from_this_checkout() -> None:
    command = install_command("sign", options="--quiet")
    assert re.fullmatch(r"pip install --quiet (-e )?'?/.*\[sign\]'?", command)
    assert not BY_NAME.search(command)


def test_no_page_and_no_message_installs_by_name() -> None:
    sources = [path for room in ("assay", "benchmarks") for path in (ROOT / room).rglob("*.py")]
    texts = {path: path.read_text() for path in (*pages(), *sources)}
    assert [str(path) for path, text in texts.items() if BY_NAME.search(text)] == []


@pytest.mark.parametrize(
    "text", ["pip install 'assay-xla[fleet]'", "pip install --no-deps assay-xla"]
)
def test_an_installation_by_name_is_noticed(text: str) -> None:
    assert BY_NAME.search(text)
