"""Open every page of the built site in Chromium, and look for violations: ./dev site --browser.

axe-core runs on each page at three widths: all rules in light colours, and the rules of colours in
dark ones. The weight and the first paint of the ten largest pages are printed. A violation fails.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
from collections import defaultdict
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
HTML = ROOT / ".site" / "html"
AXE = ROOT / "src/offbook/viewer/page/node_modules/axe-core/axe.min.js"
WIDTHS = (390, 768, 1280)
# The rules for each scheme: none means all that axe runs by default.
SCHEMES: dict[Literal["light", "dark"], list[str]] = {
    "light": [],
    "dark": ["color-contrast", "link-in-text-block"],
}
LARGEST = 10
LOADED = """() => ({
  bytes: ['navigation', 'resource'].flatMap((type) => performance.getEntriesByType(type))
    .reduce((sum, entry) => sum + entry.transferSize, 0),
  paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1,
})"""
VIOLATIONS = """async (rules) => (
  await axe.run({resultTypes: ['violations'], ...(rules.length && {runOnly: rules})})
).violations.flatMap(({id, help, nodes}) =>
  nodes.map(({target, failureSummary}) => [`${id}: ${help}`, target.join(' '), failureSummary]))"""


class Violation(NamedTuple):
    """An element of a page that breaks a rule of axe."""

    rule: str
    page: str
    place: str  # width and colours
    element: str
    summary: str


class QuietHandler(SimpleHTTPRequestHandler):
    """Serves the files, without a line for each request."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Print nothing."""


@contextmanager
def serve(folder: Path) -> Generator[str]:
    """Serve a folder on loopback, and yield its address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def find_violations(page: Page, name: str, place: str, rules: list[str]) -> list[Violation]:
    """Return the violations of the page that is open; `rules` of axe, empty for all."""
    page.add_script_tag(path=AXE)
    found: list[list[str]] = page.evaluate(VIOLATIONS, rules)
    return [Violation(rule, name, place, element, summary) for rule, element, summary in found]


def check_pages(browser: Browser, address: str, names: list[str]) -> list[Violation]:
    """Return the violations of all pages, at each width and in each colour scheme."""
    found: list[Violation] = []
    for scheme, rules in SCHEMES.items():
        for width in WIDTHS:
            place = f"{width} px, {scheme}"
            context = browser.new_context(
                viewport={"width": width, "height": 900},
                color_scheme=scheme,
                reduced_motion="reduce",  # colours while they change would be measured
            )
            page = context.new_page()
            for name in names:
                page.goto(f"{address}/{name}", wait_until="load")
                found += find_violations(page, name, place, rules)
            context.close()
            broken = sum(violation.place == place for violation in found)
            print(f"site: {place}: {len(names)} pages, {broken} violations", flush=True)
    return found


def measure_page(browser: Browser, address: str) -> tuple[int, float]:
    """Return the bytes of a page with all that it loads, and the ms to its first paint."""
    context = browser.new_context()  # an empty cache
    page = context.new_page()
    page.goto(address, wait_until="networkidle")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    measured: dict[str, Any] = page.evaluate(LOADED)
    context.close()
    return int(measured["bytes"]), float(measured["paint"])


def print_violations(found: list[Violation]) -> None:
    """Print each rule with the number of its elements and pages, and a few examples."""
    rules: defaultdict[str, list[Violation]] = defaultdict(list)
    for violation in found:
        rules[violation.rule].append(violation)
    for rule, broken in sorted(rules.items()):
        pages = {violation.page for violation in broken}
        print(f"{rule}: {len(broken)} elements on {len(pages)} pages")
        for violation in {each.element: each for each in broken}.values():
            print(f"  {violation.page} ({violation.place}): {violation.element}")
            print("   ", violation.summary.replace("\n", "\n    "))


def main() -> int:
    """Check the pages that are named, or all."""
    parser = argparse.ArgumentParser(prog="./dev site --browser", description=__doc__)
    parser.add_argument("pages", nargs="*", help="paths below .site/html")
    parsed = parser.parse_args()
    names = parsed.pages or sorted(
        path.relative_to(HTML).as_posix() for path in HTML.rglob("*.html")
    )
    if not names:
        print("site: no pages in .site/html: run ./dev site", file=sys.stderr)
        return 1
    largest = sorted(names, key=lambda name: (HTML / name).stat().st_size)[-LARGEST:]
    with serve(HTML) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=os.environ.get("CHROMIUM") or shutil.which("chromium"),
            args=["--headless", "--no-sandbox", "--disable-gpu"],
        )
        for name in reversed(largest):
            size, paint = measure_page(browser, f"{address}/{name}")
            print(f"site: {name}: {size / 1024:.0f} KiB, first paint after {paint:.0f} ms")
        found = check_pages(browser, address, names)
        browser.close()
    print_violations(found)
    print(
        f"site: {len(names)} pages at {len(WIDTHS)} widths, light and dark: "
        f"{len(found)} violations of axe"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
