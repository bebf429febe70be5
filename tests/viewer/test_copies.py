"""What the page copies, in Chromium: a playbook that plays the same run, Markdown, and cURL."""

from __future__ import annotations

import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from offbook import Trace, call, say, session, think, when
from offbook.sources import read_script
from offbook.viewer import PageTrace, render_page
from tests.viewer.conftest import Opened, OpenPage
from tests.viewer.test_page import PASSED

pytestmark = pytest.mark.slow
CLIPBOARD = ["clipboard-read", "clipboard-write"]
FRAME = {
    "path": "test_shop.py",
    "line": 4,
    "first": 3,
    "function": "test",
    "lines": ["def test():", "    assert 1 == 2"],
    "open": True,
}
AGENT = {"path": "shop.py", "line": 9, "function": "", "first": 9, "lines": ["raise KeyError(8)"]}
FAILED: dict[str, Any] = {
    "outcome": "failed",
    "message": "assert 1 == 2\n ``` it",
    "frames": [FRAME, AGENT],
}


def copy(opened: Opened, label: str) -> str:
    opened.page.get_by_role("button", name=label).click()
    opened.page.get_by_role("button", name="Copied").wait_for()
    return opened.page.evaluate("navigator.clipboard.readText()")


def read_replies(path: Path) -> list[Any]:
    return [
        [{**block, "id": ""} for block in event.data["blocks"]]
        for event in Trace(path)
        if event.event == "model.reply"
    ]


def play(trace: Path, *script: Any) -> None:
    """Run a session in a thread: Playwright keeps an event loop in this one."""

    def run() -> None:
        with session(trace=trace) as rehearsal:
            rehearsal.run(*script)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()


def test_the_playbook_of_a_run_plays_the_same_run(tmp_path: Path, open_html: OpenPage):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    play(
        first,
        when('Say "hi": # twice', [
            [think("hm"), call("bash", {"command": "echo 'a: b'"})],
            [call("bash", {"command": "true"}), call("bash", {"command": "false || true"})],
            say("Done:\n- one"),
        ]),
        when("Thanks", [say("Yes.")]),
    )  # fmt: skip
    page = render_page([PageTrace("run", Trace(first))])
    text = copy(open_html(page, permissions=CLIPBOARD), "Copy as playbook")
    copied = tmp_path / "copied.playbook.yaml"
    copied.write_text(text)
    play(second, *read_script(copied))
    assert read_replies(first) == read_replies(second)


def test_markdown_has_the_reason_the_line_of_the_test_and_the_rows(open_html: OpenPage):
    page = render_page([PageTrace("test_shop.py::test", [], about={"test": FAILED})])
    text = copy(open_html(page, "#trace=1", permissions=CLIPBOARD), "Copy as Markdown")
    assert "✗ test_shop.py::test: failed" in text
    assert "````\nassert 1 == 2\n ``` it\n````" in text  # a fence that the text cannot end
    lines = "```python\ndef test():\n    assert 1 == 2\n```"
    assert f"test_shop.py:4 in test\n\n{lines}\n\nshop.py:9\n" in text


def test_the_line_of_the_test_that_failed_is_marked(open_html: OpenPage):
    page = render_page([PageTrace("test_shop.py::test", [], about={"test": FAILED})])
    opened = open_html(page, "#trace=1")
    expect(opened.page.locator(".source .at")).to_have_text(">    4      assert 1 == 2")


def test_a_recorded_request_is_copied_as_a_command(open_events: OpenPage):
    head = "POST /v1/chat HTTP/1.1\r\nhost: 127.0.0.1:9\r\ncontent-type: application/json"
    start = f'{head}\r\n\r\n{{"a": "it\'s"}}'
    wire = {"exchange": "x1", "request": {"size": len(start), "start": start}}
    opened = open_events(
        *PASSED[:4],
        ("model.wire", wire),
        address="#trace=1&event=3&tab=wire",
        permissions=CLIPBOARD,
    )
    words = shlex.split(copy(opened, "Copy as cURL").replace("\\\n", ""))
    assert words == [
        *("curl", "-X", "POST", "http://127.0.0.1:9/v1/chat"),
        *("-H", "content-type: application/json", "--data-binary", '{"a": "it\'s"}'),
    ]


def test_the_chips_count_the_rows(open_events: OpenPage):
    opened = open_events(*PASSED)
    counts = [
        int(text.split()[-1]) for text in opened.page.locator(".chips .chip").all_inner_texts()
    ]
    assert sum(counts) == len(opened.rows())
    opened.press("a")
    expect(opened.page.locator(".list .row:not([hidden])")).to_have_count(len(PASSED))
    counts = [
        int(text.split()[-1]) for text in opened.page.locator(".chips .chip").all_inner_texts()
    ]
    assert sum(counts) == len(PASSED)
