"""Real Chromium for the tests of the page, and pages made of events."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from offbook.trace import Event
from offbook.viewer import PageTrace, render_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page, ViewportSize

SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Return the browser of the system, or the one that CHROMIUM names."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.hookimpl(tryfirst=True)  # before `-m browser` selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Playwright keeps an event loop running in the main thread: other tests would see it.
    skip = pytest.mark.skip(reason="runs in a process of its own: ./dev browser")
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.browser)
            if "browser" not in config.option.markexpr:
                item.add_marker(skip)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = find_chromium()
    if path is None:
        pytest.skip("needs Chromium: ./dev browser installs it")
    sync_playwright = pytest.importorskip("playwright.sync_api").sync_playwright
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(SWITCHES))
        yield launched
        launched.close()


class Opened:
    """A page in the browser, with everything that it requested and reported."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.requests: list[str] = []
        self.messages: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.messages.append(message.text))
        page.on("pageerror", lambda error: self.messages.append(str(error)))
        page.on("dialog", self._refuse)

    def _refuse(self, dialog: Dialog) -> None:
        self.messages.append("dialog")
        dialog.dismiss()

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def rows(self) -> list[str]:
        """Return the texts of the rows in sight, in order."""
        return self.page.locator(".list .row").evaluate_all(
            "rows => rows.sort((a, b) => a.dataset.position - b.dataset.position)"
            ".map(row => row.querySelector('.label').textContent.trim())"
        )


OpenPage = Callable[..., Opened]


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> Iterator[dict[str, Any]]:
    """The contexts by their options: to make one takes longer than to make a page."""
    made: dict[str, Any] = {}
    yield made
    for context in made.values():
        context.close()


@pytest.fixture
def open_html(browser: Browser, contexts: dict[str, Any], tmp_path: Path) -> Iterator[OpenPage]:
    """Open a page of this HTML from disk."""
    pages: list[Page] = []

    def open_(
        text: str, address: str = "", size: tuple[int, int] = (1280, 800), **options: Any
    ) -> Opened:
        path = tmp_path / f"page{len(pages)}.html"
        path.write_text(text, encoding="utf-8")
        viewport: ViewportSize = {"width": size[0], "height": size[1]}
        key = repr((size, options))
        if key not in contexts:
            contexts[key] = browser.new_context(viewport=viewport, **options)
        opened = Opened(contexts[key].new_page())
        pages.append(opened.page)
        opened.page.goto(f"file://{path}{address}")
        opened.page.wait_for_selector('main[aria-busy="false"]', timeout=60_000)
        opened.page.wait_for_selector(".summary, .overview, .panel, .remark, .chat", timeout=20_000)
        return opened

    yield open_
    for page in pages:
        page.close()


@pytest.fixture
def open_events(open_html: OpenPage) -> OpenPage:
    """Open a page of one trace with these events: pairs of a name and its data."""

    def open_(*events: tuple[str, dict[str, Any]], address: str = "", **options: Any) -> Opened:
        trace = [Event(1000 + 10 * n, name, data, n + 1) for n, (name, data) in enumerate(events)]
        return open_html(render_page([PageTrace("trace", trace)]), address, **options)

    return open_
