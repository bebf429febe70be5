"""The time line with its tracks, the steps of a run, and the commands that fork it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from tests.viewer.conftest import Opened, OpenPage

pytestmark = pytest.mark.slow


def exchange(number: int, text: str) -> list[tuple[str, dict[str, Any]]]:
    """A request with one new message, and its reply: the interaction `number` of a tape."""
    said = {"role": "user", "blocks": [{"type": "text", "text": f"prompt {number}"}]}
    return [
        (
            "model.request",
            {
                "exchange": f"x{number}",
                "before": f"d{2 * number - 2}" if number > 1 else "",
                "after": f"d{2 * number - 1}",
                "new": [said],
                "count": 2 * number - 1,
                "head": "h",
            },
        ),
        (
            "model.reply",
            {
                "exchange": f"x{number}",
                "after": f"d{2 * number}",
                "blocks": [{"type": "text", "text": text}],
                "stop": "stop",
                "step": number + 4,
            },
        ),
    ]


def tool(
    number: int, name: str, given: dict[str, Any], server: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    call = {"call_id": f"c{number}", "tool": name}
    started = {**call, "input": given} | ({"server": server} if server else {})
    return [
        ("tool.call", {**call, "input": given}),
        ("tool.start", started),
        ("tool.end", {**call, "ms": 1, "is_error": False}),
        ("tool.result", {**call, "content": [], "is_error": False}),
    ]


COMMAND = {"subject": "command", "command": ["python", "my agent.py"]}
TAPE = {"file": "tapes/run.yaml", "tracks": ["model", "tools"], "recorded": False}
EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    ("_meta.run_start", COMMAND),
    ("cassette.tape", TAPE),
    *exchange(1, "one"),
    *tool(1, "write", {"path": "a.txt", "content": "one\n"}),
    *tool(2, "find_order", {"number": 7}, server="shop"),
    ("http.call", {"method": "GET", "url": "http://x/7", "status": 200, "replayed": True}),
    ("person.asked", {"question": "May I?", "answer": "allow"}),
    ("host.call", {"capability": "fs", "operation": "read", "params": {}, "outcome": "mock"}),
    ("cell.write", {"cell": "total", "value": 3}),
    *exchange(2, "two"),
    *tool(3, "edit", {"path": "a.txt", "old": "one", "new": "two"}),
    *exchange(3, "three"),
    ("check.verdict", {"check": "tools", "status": "fail", "message": "wrong"}),
    ("_meta.run_end", {"ok": True}),
]
TRACKS = ["Agent", "Model", "Tools", "MCP", "HTTP", "People", "Hosts", "Files", "Cells", "Checks"]


def track_names(opened: Opened) -> list[str]:
    expect(opened.page.locator(".track-names li").first).to_be_visible()
    return opened.page.locator(".track-names li").all_inner_texts()


def test_each_sort_of_event_has_a_track(open_events: OpenPage):
    assert track_names(open_events(*EVERYTHING)) == TRACKS


def test_a_track_without_events_is_not_shown(open_events: OpenPage):
    opened = open_events(*exchange(1, "one"), ("cell.write", {"cell": "total", "value": 3}))
    assert track_names(opened) == ["Model", "Cells"]


# The y of each track, and the row that a click in its middle opens.
CLICKS = {
    "MCP": "find_order",
    "HTTP": "GET http://x/7",
    "People": "asks a person",
    "Cells": "set total",
}


@pytest.mark.parametrize("track", CLICKS)
def test_a_click_on_a_track_opens_its_event(open_events: OpenPage, track: str):
    opened = open_events(*EVERYTHING)
    y = 14 * track_names(opened).index(track) + 7
    opened.page.locator(".strip").click(position={"x": 400, "y": y})
    expect(opened.page.locator('.row[aria-selected="true"]')).to_contain_text(CLICKS[track])


def test_the_steps_are_walked_with_the_state_at_each(open_events: OpenPage):
    opened = open_events(*EVERYTHING)
    opened.press(".")
    expect(opened.page.locator(".facts")).to_contain_text("step 1 of 3")
    opened.page.get_by_role("tab", name="State").click()
    expect(opened.page.locator(".panel")).to_contain_text("Nothing is written up to this event.")
    opened.page.get_by_role("button", name="Next step").click()
    expect(opened.page.locator(".steps")).to_contain_text("Step 2 of 3")
    expect(opened.page.locator(".state")).to_contain_text("a.txt")
    expect(opened.page.locator(".state")).to_contain_text("total")
    opened.press(".")
    expect(opened.page.locator(".steps")).to_contain_text("Step 3 of 3")
    expect(opened.page.locator(".state ins.line")).to_contain_text("two")
    conversation = opened.page.locator(".panel details", has_text="Conversation").first
    conversation.locator("summary").first.click()
    expect(conversation).to_contain_text("prompt 1")
    expect(conversation).to_contain_text("three")
    opened.press(",")
    expect(opened.page.locator(".steps")).to_contain_text("Step 2 of 3")


def test_a_run_of_a_command_with_a_tape_has_its_fork_commands(open_events: OpenPage):
    opened = open_events(*EVERYTHING)
    opened.press(".", ".")
    opened.page.get_by_role("tab", name="State").click()
    expect(opened.page.locator(".forks pre")).to_have_text(
        [
            f"offbook replay tapes/run.yaml --tracks model,tools {options} -- python 'my agent.py'"
            for options in ("--until 6", "--from 6 --live", "--from 6 --script new.yaml")
        ]
    )


def test_a_recording_counts_its_interactions(open_events: OpenPage):
    events = [("cassette.tape", TAPE | {"recorded": True}), *EVERYTHING[2:]]
    opened = open_events(*events)
    opened.press(".", ".")
    opened.page.get_by_role("tab", name="State").click()
    expect(opened.page.locator(".forks pre")).to_have_text(
        'source = Cassette("tapes/run.yaml", tracks="all").fork(2, Live())'
    )


def test_a_run_without_a_tape_has_no_fork_command(open_events: OpenPage):
    opened = open_events(*exchange(1, "one"))
    opened.press(".")
    opened.page.get_by_role("tab", name="State").click()
    expect(opened.page.locator(".steps")).to_contain_text("Step 1 of 1")
    expect(opened.page.locator(".forks")).to_have_count(0)


def test_a_long_run_has_its_steps_and_its_time_line(open_events: OpenPage):
    opened = open_events(*(event for n in range(1, 2001) for event in exchange(n, f"answer {n}")))
    assert track_names(opened) == ["Model"]
    opened.page.locator(".strip").click(position={"x": 600, "y": 7})
    expect(opened.page.locator(".facts")).to_contain_text("of 2000")
    number = int(opened.text(".facts").split(" step ")[-1].split("step ")[-1].split()[0])
    assert 900 < number < 1100
