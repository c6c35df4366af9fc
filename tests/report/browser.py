"""A headless Chromium that looks at a page, and says what is wrong with what it shows."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest

Scheme = Literal["light", "dark"]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_HEIGHT = 900
_TALLEST = 15_000  # of a picture, in pixels; Chromium draws none of 16,384 or more
_PAPER = 718  # pixels: A4 with margins of a centimetre
_SERIOUS = ("serious", "critical")

_SHOWN_WRONGLY = """
(width) => {
  const found = [], root = document.documentElement;
  if (root.scrollWidth > width) found.push(`the document is ${root.scrollWidth} px wide`);
  const named = (each) => each.tagName + " " + each.textContent.trim().slice(0, 60);
  for (const each of document.body.querySelectorAll("*")) {
    const style = getComputedStyle(each), hides = /hidden|clip/;
    const across = hides.test(style.overflowX) && each.scrollWidth > each.clientWidth;
    const down = hides.test(style.overflowY) && each.scrollHeight > each.clientHeight;
    if (each.clientWidth && !(each instanceof SVGElement) && (across || down))
      found.push("cut: " + named(each));
  }
  for (const text of document.querySelectorAll("svg text")) {
    const inner = text.getBoundingClientRect();
    const outer = text.ownerSVGElement.getBoundingClientRect();
    if (inner.width && (inner.left < outer.left - 1 || inner.right > outer.right + 1
        || inner.top < outer.top - 1 || inner.bottom > outer.bottom + 1))
      found.push("outside of its plot: " + named(text));
  }
  return found;
}
"""
_OPEN_ALL = "for (const each of document.querySelectorAll('details')) each.open = true"


def chromium() -> str:
    """The path of an installed Chromium, empty if there is none."""
    return next(filter(None, map(shutil.which, _NAMES)), "")


@contextmanager
def launched() -> Iterator[Any]:
    """A browser of Playwright's; the test is skipped without Chromium or Playwright."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not chromium():
        pytest.skip(f"no Chromium is installed, wanted one of {', '.join(_NAMES)}")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium())
        yield browser
        browser.close()


def faults(browser: Any, page: Path, width: int, scheme: Scheme, picture: Path) -> list[str]:
    """What a reader of the page would miss or see wrongly; ``picture`` becomes its screenshot.

    The page is looked at as it opens, with all that is folded opened, and on paper: nothing is
    wider than the window or cut off, nothing goes to the console or the network, and axe, which
    needs the scripts that the page does not, finds nothing serious. A second picture shows the
    opened page.
    """
    from axe_playwright_python.sync_playwright import Axe

    found: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": _HEIGHT}, color_scheme=scheme)
    tab = context.new_page()
    tab.on("console", lambda message: found.append(f"console: {message.text}"))
    tab.on("pageerror", lambda error: found.append(f"error: {error}"))
    tab.on("request", lambda request: _note_request(request.url, page, found))
    tab.goto(page.as_uri())
    for number in range(2):
        if number:
            tab.evaluate(_OPEN_ALL)
        found += tab.evaluate(_SHOWN_WRONGLY, width)
        height = min(tab.evaluate("document.documentElement.scrollHeight"), _TALLEST)
        file = picture.with_stem(picture.stem + ("-open" if number else ""))
        clip = {"x": 0, "y": 0, "width": width, "height": height}
        tab.screenshot(path=file, full_page=True, clip=clip)
    for violation in Axe().run(tab).response["violations"]:
        if violation["impact"] in _SERIOUS:
            where = violation["nodes"][0]["html"][:200]
            found.append(f"axe: {violation['id']}: {violation['help']}: {where}")
    tab.emulate_media(media="print")
    tab.set_viewport_size({"width": _PAPER, "height": _HEIGHT})
    found += [f"on paper: {each}" for each in tab.evaluate(_SHOWN_WRONGLY, _PAPER)]
    context.close()
    return found


def _note_request(url: str, page: Path, found: list[str]) -> None:
    if not url.startswith((page.as_uri(), "data:")):
        found.append(f"request: {url}")


def pictures(tmp_path: Path, name: str) -> Path:
    """Where to keep a picture: in ``$ASSAY_SCREENSHOTS`` if that is set."""
    folder = Path(os.environ.get("ASSAY_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}.png"
