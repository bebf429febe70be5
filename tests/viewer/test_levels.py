"""How much the page shows: levels, rows that close, a chat, and a state while it reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from offbook.trace import Event
from offbook.viewer import PageTrace, render_page
from tests.viewer.conftest import Opened, OpenPage
from tests.viewer.test_page import FAILED, PASSED
from tests.viewer.test_timeline import EVERYTHING, exchange

pytestmark = pytest.mark.slow

HOOKED: list[tuple[str, dict[str, Any]]] = [
    ("_meta.run_start", {"subject": "session", "turns": 1}),
    ("agent.start", {"prompt": "Go"}),
    ("hook.before", {}),
    *exchange(1, "Done."),
    ("agent.end", {"stop": "stop"}),
    ("_meta.run_end", {"ok": True}),
]
WIRE = {"size": 3, "start": "abc"}
ROWS = {
    "What happened": ["user “Go”", "model “Done.”", "run passed"],
    "Usual rows": [
        "run session · 1 turn",
        "user “Go”",
        "hook before",
        "model “Done.”",
        "run passed",
    ],
    "Every event": [
        *("run session · 1 turn", "user “Go”", "hook before", "model “Done.”", "reply “Done.”"),
        *("turn ended stop", "run passed"),
    ],
}


@pytest.mark.parametrize("level", ROWS)
def test_a_level_shows_its_rows_and_the_filters_count_them(open_events: OpenPage, level: str):
    opened = open_events(*HOOKED)
    opened.page.locator("#level").select_option(level)
    expect(opened.page.locator(".list .row")).to_have_count(len(ROWS[level]))
    assert opened.rows() == ROWS[level]
    chips = opened.page.locator(".chips .chip").all_inner_texts()
    assert sum(int(chip.split()[-1]) for chip in chips) == len(ROWS[level])


def test_the_keys_lead_to_every_byte(open_events: OpenPage):
    wired = ("model.wire", {"exchange": "x1", "request": WIRE, "response": WIRE})
    opened = open_events(*HOOKED[:5], wired, *HOOKED[5:])
    opened.press("+", "+")
    expect(opened.page.locator("#level")).to_have_value("3")
    opened.page.locator(".row", has_text="model").first.click()
    expect(opened.page.get_by_role("tab", name="Wire")).to_have_attribute("aria-selected", "true")
    opened.page.locator(".row", has_text="hook before").click()
    expect(opened.page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    opened.press("-", "-", "-")
    expect(opened.page.locator("#level")).to_have_value("0")


def test_a_row_closes_and_opens(open_events: OpenPage):
    opened = open_events(*HOOKED)
    turn = opened.page.locator(".row", has_text="user “Go”")
    turn.locator(".fold").click()
    expect(opened.page.locator(".list .row")).to_have_count(3)
    expect(turn).to_have_attribute("aria-expanded", "false")
    turn.click()
    opened.press("ArrowRight")
    expect(opened.page.locator(".list .row")).to_have_count(5)
    opened.press("ArrowLeft")
    expect(opened.page.locator(".list .row")).to_have_count(3)


def test_a_search_looks_into_closed_rows(open_events: OpenPage):
    opened = open_events(*HOOKED)
    opened.page.locator(".row", has_text="user “Go”").locator(".fold").click()
    expect(opened.page.locator(".list .row")).to_have_count(3)
    opened.press("/")
    opened.page.keyboard.type("Done.")
    expect(opened.page.locator(".list .row", has_text="model")).to_have_count(1)


# --- The chat


def chat(opened: Opened) -> list[str]:
    expect(opened.page.locator(".chat")).to_be_visible()
    shown = opened.page.locator(".chat > *").all_inner_texts()
    return [" ".join(text.split()).replace("▸ ", "").replace("▾ ", "") for text in shown]


def test_a_run_is_a_chat(open_events: OpenPage):
    opened = open_events(*EVERYTHING)
    opened.press("v")
    entries = chat(opened)
    assert entries[0] == "user event 3 prompt 1"
    assert entries[1] == "model event 4 one"
    assert entries[2].startswith('✓ write {"path":"a.txt","content":"one\\n"} → (nothing)')
    assert any("asks: May I? → allow" in entry for entry in entries)
    assert "✗ fail tools wrong" in entries[-1]
    assert opened.page.locator(".bubble.user").count() == 3


def test_a_message_of_the_chat_opens_its_event(open_events: OpenPage):
    opened = open_events(*PASSED, address="#view=chat&trace=1")
    opened.page.locator(".chat-call .link").first.click()
    expect(opened.page.locator('.row[aria-selected="true"]')).to_contain_text("find_order")


def test_a_call_without_a_result_says_so(open_events: OpenPage):
    call = {"call_id": "c1", "tool": "find_order", "input": {"number": 7}}
    opened = open_events(("tool.call", call), address="#view=chat&trace=1")
    assert chat(opened) == ['! find_order {"number":7} → no result event 1']


def test_a_long_chat_is_shown_in_parts(open_events: OpenPage):
    events = [event for n in range(1, 301) for event in exchange(n, f"answer {n}")]
    opened = open_events(*events, address="#view=chat&trace=1")
    expect(opened.page.locator(".bubble")).to_have_count(200)
    opened.page.get_by_role("button", name="Show 200 more messages of 400").click()
    expect(opened.page.locator(".bubble")).to_have_count(400)


# --- Looks


def test_on_a_phone_the_reason_is_above_the_events(open_events: OpenPage):
    opened = open_events(*FAILED, size=(390, 800))
    boxes = [
        opened.page.locator(place).first.bounding_box()
        for place in (".top-why", ".problem", ".list")
    ]
    tops = [box["y"] for box in boxes if box is not None]
    assert tops == sorted(tops)
    assert tops[1] < 400


WATCH_OUTCOMES = """
window.outcomes = [];
new MutationObserver(() => {
    const outcome = document.querySelector('.top .outcome')?.innerText;
    if (outcome && window.outcomes.at(-1) !== outcome) window.outcomes.push(outcome);
}).observe(document, { childList: true, subtree: true });
"""


def test_a_trace_that_is_being_read_is_not_called_unfinished(browser: Browser, tmp_path: Path):
    published = [
        Event(n, "bus.publish", {"topic": "t", "payload": f"{n} {'x' * 1000}"})
        for n in range(30_000)
    ]
    first, last = Event(0, "_meta.run_start", {}), Event(30_000, "_meta.run_end", {"ok": True})
    path = tmp_path / "page.html"
    path.write_text(render_page([PageTrace("t", [first, *published, last])]))
    page = browser.new_page()
    page.add_init_script(WATCH_OUTCOMES)
    page.goto(f"file://{path}")
    page.wait_for_selector('main[aria-busy="false"]')
    assert page.evaluate("window.outcomes") == ["\N{HORIZONTAL ELLIPSIS} reading", "✓ passed"]
    page.close()
