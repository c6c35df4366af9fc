"""The built site: it holds what the code says, and headless Chromium shows it whole.

`tox run -e docs` builds it and runs this. Nothing is wider than the window, no image is missing,
and no page asks another server.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import typer

import assay
from assay import claims, plugin
from assay.cli import app
from tests.report.browser import launched, pictures

BUILT = os.environ.get("ASSAY_SITE", "")
STEPS = {390: 1, 1280: 6}
"""At a width, every page or every sixth: what is too wide is so on a phone first."""
_FAULTS = """
(width) => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > width) found.push(`it is ${root.scrollWidth} px wide`);
  for (const image of document.images)
    if (!image.naturalWidth) found.push("no image: " + image.src);
  return found;
}
"""
_NO_INDEX = {
    "config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {}},
    "docs": [],
}

needs_site = pytest.mark.skipif(not BUILT, reason="no site is built; run `tox run -e docs`")


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that writes no log."""

    def log_message(self, *_words: object) -> None:
        pass


def built(page: str) -> str:
    """The text of a page, as it is published."""
    return (Path(BUILT) / page / "index.html").read_text()


@needs_site
def test_each_command_and_option_is_on_its_page() -> None:
    group: Any = typer.main.get_command(app)
    heads = re.findall(r'<h2 id="assay-(\w+)">', built("commands"))
    assert heads == list(group.commands)
    for name, command in group.commands.items():
        part = built("commands").partition(f'<h2 id="assay-{name}">')[2].partition("<h2")[0]
        shown = set(re.findall(r"<code[^>]*>(--?[\w-]+)</code>", part))
        options = {text for each in command.params for text in each.opts if text.startswith("-")}
        assert options - {"--help"} <= shown, name
    shown = set(re.findall(r"<code[^>]*>--assay-([\w-]+)", built("options")))
    assert shown >= {name for name, *_ in plugin._OPTIONS}


@needs_site
def test_each_public_name_and_claim_is_on_its_page() -> None:
    for name in set(assay.__all__) - {"claims"}:
        assert f'id="assay.{name}"' in built("api")
    for name in claims.__all__:
        assert f'id="{getattr(claims, name).__module__}.{name}"' in built("claims")


@needs_site
def test_no_link_leads_to_a_source_of_a_page() -> None:
    for page in Path(BUILT).rglob("*.html"):
        links = re.findall(r'href="([^":]*\.md)[#"]', page.read_text())
        assert links == [], page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as started:
        yield started


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a server of the folder."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=root)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def faults(browser: Any, root: Path, width: int, names: list[str]) -> dict[str, list[str]]:
    """What is wrong with the pages of a folder, by page; those without a fault are left out."""
    seen: list[str] = []
    found: dict[str, list[str]] = {}
    tab = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    # Every page would read the index of the whole site.
    tab.route("**/search/search_index.json", lambda route: route.fulfill(json=_NO_INDEX))
    with served(root) as address:
        tab.on("console", lambda message: seen.append(f"console: {message.text}"))
        tab.on("pageerror", lambda error: seen.append(f"error: {error}"))
        tab.on("request", lambda request: _note_request(request.url, address, seen))
        for name in names:
            tab.goto(address + name)
            found[name] = [*seen, *tab.evaluate(_FAULTS, width)]
            seen.clear()
            if folder := os.environ.get("ASSAY_SCREENSHOTS"):
                picture = f"{name.strip('/').replace('/', '-') or 'index'}-{width}"
                tab.screenshot(path=pictures(Path(folder), picture), full_page=True)
        tab.context.close()
    return {name: texts for name, texts in found.items() if texts}


def _note_request(url: str, address: str, seen: list[str]) -> None:
    if not url.startswith((address, "data:", "blob:")):
        seen.append(f"request: {url}")


@needs_site
@pytest.mark.parametrize("width", STEPS)
def test_pages_fit_the_window_and_ask_no_other_server(browser: Any, width: int) -> None:
    root = Path(BUILT)
    pages = [page.parent.relative_to(root).as_posix() for page in sorted(root.rglob("index.html"))]
    names = [f"{page}/" for page in pages if not page.startswith("source")]
    assert len(names) > 40
    assert faults(browser, root, width, names[:: STEPS[width]]) == {}


@needs_site
def test_the_search_finds_a_claim(browser: Any) -> None:
    tab = browser.new_page()
    with served(Path(BUILT)) as address:
        tab.goto(address)
        tab.locator(".md-search__input").fill("DeviceBytesFall")
        found = tab.locator(".md-search-result__link").first
        found.wait_for()
        assert "/claims/" in found.get_attribute("href")
        tab.close()


def test_a_page_that_is_too_wide_or_asks_others_is_seen(browser: Any, tmp_path: Path) -> None:
    (tmp_path / "wide.html").write_text(
        '<link rel="icon" href="data:,"><p style="width:500px">wide</p><img src="missing.svg">'
        '<img src="http://localhost:1/x.png">'
    )
    (texts,) = faults(browser, tmp_path, 390, ["wide.html"]).values()
    words = ("px wide", "missing.svg", "request: http://localhost:1/x.png", "console: ")
    assert all(any(word in text for text in texts) for word in words), texts
