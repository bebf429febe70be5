"""Real tests that fail in five ways: what the page shows, and after how many clicks.

docs/guides/viewer.md has the numbers.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import expect

from tests.viewer.conftest import Opened, OpenPage

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "viewer.md"
AXE = ROOT / "src" / "offbook" / "viewer" / "page" / "node_modules" / "axe-core" / "axe.min.js"
FILES = {
    "shop.py": """
import anthropic

ORDERS = {7: "one kettle"}
TOOLS = [{"name": "find_order", "input_schema": {"type": "object"}}]


def find_order(number):
    return ORDERS[number]


def agent(prompt):
    client = anthropic.Anthropic(api_key="k")
    messages = [{"role": "user", "content": prompt}]
    while True:
        reply = client.messages.create(
            model="m", max_tokens=9, system="Be polite.", messages=messages, tools=TOOLS
        )
        block = reply.content[0]
        if block.type == "text":
            return block.text
        result = {"type": "tool_result", "tool_use_id": block.id}
        result["content"] = find_order(**block.input)
        messages += [{"role": "assistant", "content": reply.content}]
        messages += [{"role": "user", "content": [result]}]
""",
    "test_shop.py": """
import pytest
from offbook import call, say, when
from shop import agent

FIND = call("find_order", {"number": 7})


def test_argument(offbook):
    run = offbook.drive(agent).run(when("Find order 8", [FIND, say("Done.")]))
    assert run.executed[0].input == {"number": 8}


def test_unmatched(offbook):
    offbook.drive(agent).run(when("Find order 7", [FIND]))


def test_raised(offbook):
    offbook.drive(agent).run(when("Find order 8", [call("find_order", {"number": 8}), say(".")]))


@pytest.mark.offbook_budget(requests=2)
def test_budget(offbook):
    offbook.drive(agent).run(when("Find order 7", [FIND, FIND, say("Done.")]))


def test_golden(offbook):
    run = offbook.drive(agent).run(when("Find order 7", [say("Done.")]))
    offbook.check_requests(run)
""",
    "requests/test_shop-test_golden.yaml": """\
requests:
  - model: m
    system: Be rude.
    tools:
      - name: find_order
        schema:
          type: object
    parameters:
      max_tokens: 9
    messages:
      - user: "Find order 7"
""",
}


class FailingTest(NamedTuple):
    """A test that fails: its reason, the line that failed, and the bytes of its last request."""

    test: str
    reason: str
    line: str
    request: str


SORTS = {
    "a wrong argument of a tool": FailingTest(
        "test_argument", "{'number': 7} == {'number': 8}", 'input == {"number": 8}', "one kettle"
    ),
    "a request that the script does not expect": FailingTest(
        "test_unmatched", "playbook exhausted", 'when("Find order 7", [FIND])', "one kettle"
    ),
    "a tool that raises": FailingTest("test_raised", "KeyError: 8", '{"number": 8}', "Be polite."),
    "a limit that is exceeded": FailingTest(
        "test_budget", "requests 3 exceeds the maximum 2", "def test_budget", "one kettle"
    ),
    "a difference from a golden": FailingTest(
        "test_golden", "got “system: Be polite.”", "check_requests(run)", "Be polite."
    ),
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the tests, made by another process: Playwright keeps an event loop in this."""
    folder = tmp_path_factory.mktemp("shop")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [*command, "--offbook-html=page.html"],
        cwd=folder,
        env=os.environ | {"OFFBOOK_WIRE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert "5 failed" in ended.stdout, ended
    return (folder / "page.html").read_text("utf-8")


class Clicks:
    """Clicks in a page, counted."""

    def __init__(self, opened: Opened) -> None:
        self.page = opened.page
        self.count = 0

    def on(self, selector: str) -> None:
        self.page.locator(selector).last.click()
        self.count += 1


def count_clicks(opened: Opened, failing: FailingTest) -> tuple[int, int, int]:
    """Return the clicks to the reason, to the failing line, and to the bytes of the request."""
    clicks = Clicks(opened)
    row = opened.page.locator(".traces tr", has_text=failing.test)
    expect(row).to_contain_text(failing.reason)
    reason = clicks.count
    clicks.on(f".traces .link:has-text('{failing.test}')")
    expect(opened.page.locator(".source .line.at")).to_contain_text(failing.line)
    line = clicks.count
    clicks.on(".row.model")
    clicks.on("#tab-wire")
    expect(opened.page.locator("#panel pre").first).to_contain_text(failing.request)
    return reason, line, clicks.count


def read_guide() -> dict[str, tuple[int, int, int]]:
    """Return the clicks of each sort in the table of the guide."""
    rows = re.findall(r"^\| ([\w ]+) \| (\d) \| (\d) \| (\d) \|", GUIDE.read_text(), re.MULTILINE)
    return {sort: (int(reason), int(line), int(bytes_)) for sort, reason, line, bytes_ in rows}


@pytest.mark.parametrize("sort", SORTS)
def test_the_guide_has_the_clicks_of_a_failing_test(open_html: OpenPage, page: str, sort: str):
    assert count_clicks(open_html(page), SORTS[sort]) == read_guide()[sort]


def test_each_failing_test_has_one_reason(open_html: OpenPage, page: str):
    opened = open_html(page)
    for number, failing in enumerate(SORTS.values(), 1):
        opened.page.locator(f".traces .link:has-text('{failing.test}')").click()
        expect(opened.page.locator(".summary h2"), str(number)).to_contain_text(failing.test)
        expect(opened.page.locator(".problem")).to_have_count(1)
        opened.press("o")


FRAMES = {
    "test_argument": ["test_shop.py:11 in test_argument"],
    "test_unmatched": [
        "test_shop.py:15 in test_unmatched",
        "shop.py:16 in agent",
        "anthropic/_base_client.py:",
    ],
    "test_raised": [
        "test_shop.py:19 in test_raised",
        "shop.py:23 in agent",
        "shop.py:9 in find_order",
    ],
    "test_budget": ["test_shop.py:23 in test_budget"],
}


@pytest.mark.parametrize("test", FRAMES)
def test_the_frames_lead_from_the_test_to_the_line_that_raised(
    open_html: OpenPage, page: str, test: str
):
    opened = open_html(page)
    opened.page.locator(f".traces .link:has-text('{test}')").click()
    expect(opened.page.locator(".frame > summary")).to_contain_text(FRAMES[test])
    expect(opened.page.locator(".source")).to_have_count(1)


def test_a_frame_opens_to_its_lines(open_html: OpenPage, page: str):
    opened = open_html(page)
    opened.page.locator(".traces .link:has-text('test_raised')").click()
    opened.page.locator(".frame > summary", has_text="in find_order").click()
    expect(opened.page.locator(".frame .source").last).to_have_text(
        "     8  def find_order(number):>    9      return ORDERS[number]"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_frames_have_no_violation_of_axe(open_html: OpenPage, page: str, theme: str):
    if not AXE.is_file():
        pytest.skip("needs axe-core: ./dev viewer installs it")
    opened = open_html(page, color_scheme=theme, bypass_csp=True)
    opened.page.locator(".traces .link:has-text('test_raised')").click()
    opened.page.evaluate("document.querySelectorAll('.frame').forEach(e => { e.open = true })")
    expect(opened.page.locator(".source")).to_have_count(3)
    opened.page.add_script_tag(path=AXE)
    found = opened.page.evaluate("axe.run('.problem')")
    assert [violation["id"] for violation in found["violations"]] == []
    assert "color-contrast" in [passed["id"] for passed in found["passes"]]


def test_on_a_phone_every_control_of_the_head_is_in_sight(open_html: OpenPage, page: str):
    opened = open_html(page, size=(390, 800))
    controls = opened.page.locator(".top nav > *")
    edges = controls.evaluate_all("all => all.map(each => each.getBoundingClientRect().right)")
    assert len(edges) > 3
    assert max(edges) <= 390
