"""One real world process for a module's tests, a cell of its own for each test; a real browser for the pages."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from semel.lab import world
from semel.lab.client import World
from semel.lab.wire import Settings


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with world.running() as address:
        yield address


@pytest.fixture
def begin(address: str, request: pytest.FixtureRequest) -> Callable[[Settings], World]:
    """Begin the test's own cell with these settings."""

    def begin(settings: Settings) -> World:
        cell = World(address=address, cell_id=re.sub(r"[^\w-]+", "-", request.node.name))
        cell.prepare(settings)
        return cell

    return begin


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real headless Chromium: the one on the system, else playwright's own.

    No longer than a module: while it is open, playwright's event loop counts as running in this thread, and no
    test can call `asyncio.run`.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", *quiet]
    with playwright.sync_playwright() as started:
        try:
            found = started.chromium.launch(executable_path=chromium, args=arguments)
        except playwright.Error as missing:
            why = "no Chromium: apt-get install chromium, or playwright install chromium"
            pytest.skip(f"{why} ({str(missing).splitlines()[0]})")
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page given as text, from a file. An error in the page's script fails the test.

    `page.requests_made` are the addresses it asked for.
    """
    errors: list[str] = []
    pages = []

    def open_page(text: str, *, width: int = 1280) -> Any:
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 900})
        pages.append(page)
        page.requests_made = []
        page.on("request", lambda request: page.requests_made.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(file.as_uri())
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []
