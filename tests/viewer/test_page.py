"""The page in Chromium: what it shows, and how it is used with the keyboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from offbook.trace import Event
from offbook.viewer import PageTrace, encode_event, encode_record, render_page
from tests.viewer.conftest import Opened, OpenPage

pytestmark = pytest.mark.slow

USER: dict[str, Any] = {"role": "user", "blocks": [{"type": "text", "text": "Refund order 7"}]}
CALL: dict[str, Any] = {
    "type": "tool_call",
    "id": "c1",
    "name": "find_order",
    "arguments": {"number": 7},
}
RESULT_BLOCK: dict[str, Any] = {
    "type": "tool_result",
    "call_id": "c1",
    "name": "find_order",
    "content": [],
}
ASSISTANT: dict[str, Any] = {"role": "assistant", "blocks": [CALL]}
ORDER: dict[str, Any] = {"order": {"items": ["kettle", {"price": 30}]}}
REQUEST: dict[str, Any] = {
    "exchange": "x1",
    "before": "",
    "after": "d1",
    "new": [USER],
    "count": 1,
    "head": "h1",
    "system": "You sell kettles.",
    "tools": [{"name": "find_order", "description": "Find an order.", "schema": {}}],
    "model": "m",
    "parameters": {"temperature": 0},
}
REPLY: dict[str, Any] = {
    "exchange": "x1",
    "after": "d2",
    "blocks": [CALL],
    "stop": "tool_use",
    "usage": {"input": 100, "output": 11},
}
SECOND: dict[str, Any] = {
    "exchange": "x2",
    "before": "d2",
    "after": "d3",
    "new": [{"role": "tool", "blocks": [RESULT_BLOCK]}],
    "count": 3,
    "head": "h1",
}
ANSWER: dict[str, Any] = {
    "exchange": "x2",
    "after": "d4",
    "blocks": [{"type": "text", "text": "Refunded."}],
}
WIRE: dict[str, Any] = {
    "exchange": "x1",
    "request": {"size": 21, "start": "POST /v1 HTTP/1.1\r\n\r\n{}"},
    "response": {"size": 90_000, "encoding": "base64", "start": "/wBB", "end": "Qg=="},
    "ending": "reset",
}
RUN: list[tuple[str, dict[str, Any]]] = [
    ("_meta.run_start", {"subject": "session", "turns": 1}),
    ("agent.start", {"prompt": "Refund order 7"}),
    ("model.request", REQUEST),
    ("model.reply", REPLY),
    ("tool.call", {"call_id": "c1", "tool": "find_order", "input": {"number": 7}}),
    (
        "tool.result",
        {
            "call_id": "c1",
            "tool": "find_order",
            "content": [{"type": "text", "text": json.dumps(ORDER)}],
            "is_error": False,
        },
    ),
    ("model.request", SECOND),
    ("model.reply", ANSWER),
    ("ui.confirm", {"method": "confirm", "args": ["Sure?"], "answer": True}),
    ("agent.end", {"stop": "stop"}),
]
PASSED = [*RUN, ("_meta.run_end", {"ok": True})]
FAILED = [
    *RUN,
    (
        "check.verdict",
        {
            "check": "tools",
            "status": "fail",
            "message": "the order of the tools differs",
            "expected": ["find_order", "refund"],
            "actual": ["find_order"],
        },
    ),
    ("_meta.run_end", {"ok": False, "error": "the order of the tools differs"}),
]


def open_row(opened: Opened, text: str, tab: str = "", kind: str = "") -> None:
    opened.page.locator(f".list .row{kind}", has_text=text).first.click()
    opened.page.wait_for_selector(".panel")
    if tab:
        opened.page.get_by_role("tab", name=tab).click()


# --- The verdict and the list


def test_a_run_that_passed_says_so(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    assert "passed" in opened.text(".top .outcome")
    assert "Why it failed" not in opened.text(".side")


def test_a_failure_is_explained_before_anything_is_pressed(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    assert "failed" in opened.text(".top .outcome")
    assert "the order of the tools differs" in opened.text(".top-why")
    problem = opened.text(".problem")
    assert "The check “tools” failed" in problem
    assert '"refund"' in opened.text(".problem .expected")
    assert '"refund"' not in opened.text(".problem .actual")
    assert opened.page.locator(".problem .diff del.line").count() == 2


def test_the_same_message_is_explained_once(open_events: OpenPage) -> None:
    assert open_events(*FAILED).page.locator(".problem").count() == 1


def test_a_trace_without_an_end_is_unfinished(open_events: OpenPage) -> None:
    opened = open_events(*RUN)
    assert "unfinished" in opened.text(".top .outcome")
    assert "ends before the end of the run" in opened.text(".side")


def test_a_trace_without_checks_and_runs_is_no_pass(open_events: OpenPage) -> None:
    opened = open_events(("custom.event", {"a": 1}))
    assert "no verdict" in opened.text(".top .outcome")


def test_a_check_without_data_fails(open_events: OpenPage) -> None:
    opened = open_events(("check.verdict", {"check": "cost", "status": "no_data"}))
    assert "failed" in opened.text(".top .outcome")


def test_a_request_and_its_reply_are_one_row(open_events: OpenPage) -> None:
    assert open_events(*PASSED).rows() == [
        "run session · 1 turn",
        "user “Refund order 7”",
        'model calls find_order {"number":7}',
        f'find_order {{"number":7}} → {json.dumps(ORDER)}',
        "model “Refunded.”",
        'ui confirm "Sure?" → true',
        "run passed",
    ]


def test_an_error_belongs_to_its_exchange(open_events: OpenPage) -> None:
    later = {**SECOND, "before": "d1"}
    error = {"message": "playbook exhausted", "status": 400, "category": "invalid_request"}
    requests = [*RUN[:3], ("model.request", later)]
    rows = open_events(*requests, ("model.error", {**error, "exchange": "x1"})).rows()
    assert rows[2:] == [
        "model error: playbook exhausted (400 invalid_request)",
        "model no reply yet to 3 messages",
    ]
    # of a request that reached no source, or in a trace of an earlier version
    rows = open_events(*requests, ("model.error", error)).rows()
    assert rows[2:] == [
        "model no reply yet to 1 message",
        "model no reply yet to 3 messages",
        "model error playbook exhausted (400 invalid_request)",
    ]


def test_all_events_can_be_shown_on_their_own(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    opened.press("a")
    expect(opened.page.locator(".list .row")).to_have_count(len(PASSED))


def test_rows_have_durations_and_tokens(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    row = opened.page.locator(".list .row.model").first
    assert row.locator(".time").inner_text() == "10 ms"
    assert row.locator(".tokens").inner_text() == "111 tok"
    assert "100 in, 11 out" in opened.text(".facts-list")


def test_costs_are_added_up(open_events: OpenPage) -> None:
    opened = open_events(
        ("_meta.iteration", {"n": 1, "hat": "planner"}),
        ("iteration.summary", {"hat": "planner", "cost_usd": 0.25}),
        ("iteration.summary", {"hat": "planner", "cost_usd": 0.5}),
    )
    assert "$0.75" in opened.text(".facts-list")


def test_a_call_without_a_result_is_noted(open_events: OpenPage) -> None:
    opened = open_events(*RUN[:5], ("_meta.run_end", {"ok": False, "error": "stopped"}))
    assert "The call of find_order has no result" in opened.text(".side")
    open_row(opened, "find_order {", kind=".tool")
    assert "no result of this call" in opened.text(".panel")


def test_a_blocked_call_shows_the_reason_of_the_hook(open_events: OpenPage) -> None:
    blocked = {"call_id": "c1", "tool": "find_order", "reason": "no shell here"}
    opened = open_events(*RUN[:5], ("tool.blocked", blocked), RUN[5])
    assert "A hook blocked the tool find_order: no shell here" in opened.text(".side")
    open_row(opened, "blocked: no shell here")
    assert "A hook blocked this call" in opened.text(".panel")
    assert "Arguments" in opened.text(".panel")


def test_damaged_lines_are_listed(open_html: OpenPage) -> None:
    from offbook.trace import LineFault

    faults = [LineFault(7, "no JSON", torn=False, text="{broken")]
    trace = PageTrace("t", [Event(0, "_meta.run_end", {"ok": True})], faults=faults)
    assert "line 7: no JSON {broken" in open_html(render_page([trace])).text(".side")


# --- One event


def test_a_conversation_is_rebuilt_from_the_digests(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    open_row(opened, "Refunded.", "Conversation")
    messages = opened.page.locator(".conversation .message .role").all_inner_texts()
    assert [text.split()[0] for text in messages] == ["user", "assistant", "tool", "assistant"]
    assert "You sell kettles." in opened.text(".conversation")


def test_the_request_diff_shows_what_the_agent_added(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    open_row(opened, "Refunded.", "Request diff")
    assert "1 message unchanged, 0 removed, 2 added" in opened.text(".panel")
    added = opened.page.locator(".message.added .role").all_inner_texts()
    assert [text.split(" · ")[1] for text in added] == ["assistant", "tool"]


def test_a_message_that_was_dropped_is_marked(open_events: OpenPage) -> None:
    compacted: dict[str, Any] = {
        **SECOND,
        "before": "",
        "new": [{**USER, "blocks": []}],
        "count": 1,
    }
    opened = open_events(*RUN[:6], ("model.request", compacted), RUN[7])
    open_row(opened, "Refunded.", "Request diff")
    assert opened.page.locator(".message.removed").count() == 1


def test_a_changed_system_prompt_is_a_diff(open_events: OpenPage) -> None:
    changed: dict[str, Any] = {
        **SECOND,
        "head": "h2",
        "system": "You sell pans.",
        "tools": REQUEST["tools"],
    }
    opened = open_events(*RUN[:6], ("model.request", changed), RUN[7])
    open_row(opened, "Refunded.", "Request diff")
    assert "system changed" in opened.text(".panel")
    marked = opened.page.locator(".panel ins mark").all_inner_texts()
    assert "pan" in marked[0]


def test_a_result_in_json_is_a_tree_that_opens(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    open_row(opened, "find_order {", kind=".tool")
    panel = opened.page.locator(".panel")
    expect(panel.locator(".key", has_text="order: ").first).to_be_visible()
    assert "30" not in panel.locator(".tree").nth(1).inner_text()
    panel.locator("summary", has_text="1: ").click()
    expect(panel.locator(".leaf", has_text="price: 30")).to_be_visible()


def test_the_raw_event_is_shown(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    open_row(opened, "ui confirm", "Raw")
    assert json.loads(opened.text(".panel pre"))["data"] == RUN[8][1]


def test_wire_bytes_are_shown_where_they_were_recorded(open_events: OpenPage) -> None:
    opened = open_events(*PASSED[:4], ("model.wire", WIRE))
    expect(opened.page.locator(".row")).to_have_count(3)  # in the row of its request
    open_row(opened, "model", "Wire")
    assert opened.text(".panel pre >> nth=0") == "POST /v1 HTTP/1.1\n\n{}"
    assert "Request: 21 bytes" in opened.text(".panel")
    assert "The middle is left out." in opened.text(".panel")
    assert opened.text(".panel pre >> nth=1").split() == ["000000", "ff", "00", "41", "..A"]
    assert opened.text(".panel pre >> nth=2").split() == ["000000", "42", "B"]
    assert "The response broke off: reset" in opened.text(".panel")


def test_wire_bytes_without_an_exchange_are_a_row(open_events: OpenPage) -> None:
    side = {"request": {"size": 9, "start": "GET /what"}, "response": {"size": 0, "start": ""}}
    opened = open_events(("model.wire", side))
    open_row(opened, "wire", "Event")
    assert opened.text(".panel pre") == "GET /what"
    assert "Nothing was sent." in opened.text(".panel")


def test_terminal_output_has_its_colours(open_events: OpenPage) -> None:
    text = "\x1b[1;31mred\x1b[0m plain \x1b[38;2;1;2;3mrgb\x1b[0m\nold\rnew\x1b]0;title\x07\n"
    opened = open_events(
        ("process.start", {"command": ["sh"]}),
        ("process.output", {"stream": "stderr", "text": text}),
        ("process.exit", {"code": 1}),
    )
    open_row(opened, "process ended", "Output")
    box = opened.page.locator(".terminal .stderr")
    assert box.inner_text().splitlines()[:2] == ["red plain rgb", "new"]
    assert box.locator(".ansi-fg-red.ansi-bold").inner_text() == "red"
    rgb = box.locator("span", has_text="rgb")
    assert rgb.evaluate("e => getComputedStyle(e).color") == "rgb(1, 2, 3)"


def test_bytes_of_a_terminal_are_decoded(open_events: OpenPage) -> None:
    opened = open_events(("ux.terminal.write", {"bytes": "aGVsbG8bWzMybSE="}))
    open_row(opened, "terminal", "Output")
    assert opened.text(".terminal") == "hello!"


# --- State


def test_cells_are_shown_at_any_moment_with_their_difference(open_events: OpenPage) -> None:
    opened = open_events(
        ("cell.write", {"cell": "total", "value": {"sum": 1, "n": 1}}),
        ("cell.write", {"cell": "total", "value": {"sum": 3, "n": 1}}),
        ("cell.write", {"cell": "other", "value": 1}),
    )
    opened.press("ArrowDown", "ArrowDown")
    opened.page.get_by_role("tab", name="State").click()
    state = opened.page.locator(".state")
    expect(state).to_contain_text("total")
    assert "other" not in state.inner_text()
    assert "sum" in state.locator("del.line").inner_text()
    opened.page.locator("#moment").select_option("-1")
    expect(state.locator(".badge.added")).to_have_count(1)


def test_files_that_tools_wrote_are_shown_with_their_difference(open_events: OpenPage) -> None:
    def tool(number: int, name: str, arguments: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        call = {"call_id": f"c{number}", "tool": name}
        return [
            ("tool.call", {**call, "input": arguments}),
            ("tool.result", {**call, "content": [], "is_error": False}),
        ]

    opened = open_events(
        *tool(1, "write", {"path": "a.txt", "content": "one\ntwo\n"}),
        *tool(2, "edit", {"path": "a.txt", "old": "two", "new": "three"}),
        *tool(3, "write", {"path": "__proto__", "content": "x"}),
    )
    opened.page.goto(f"{opened.page.url.split('#')[0]}#trace=1&event=4&tab=state&all=1")
    opened.page.wait_for_selector(".state")
    assert opened.page.locator(".state del.line").inner_text().endswith("two")
    assert opened.page.locator(".state ins.line").inner_text().endswith("three")


# --- Search, filters, links, keys


def test_files_of_a_workspace_are_shown_with_their_difference(open_events: OpenPage) -> None:
    opened = open_events(
        ("_meta.loop_start", {"max_iterations": 2}),
        ("workspace.files", {"written": {"plan.md": "one\n", "old.txt": "x"}, "deleted": []}),
        ("_meta.iteration", {"n": 1, "hat": "planner"}),
        ("workspace.files", {"written": {"plan.md": "one\ntwo\n"}, "deleted": ["old.txt"]}),
    )
    opened.page.locator(".list .row", has_text="old.txt (deleted)").click()
    opened.page.get_by_role("tab", name="State").click()
    state = opened.page.locator(".state")
    expect(state.locator(".badge.changed")).to_have_count(1)
    expect(state.locator(".badge.removed")).to_have_count(1)
    expect(state.locator("ins")).to_contain_text("two")


def test_the_search_finds_text_inside_of_events(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    opened.press("/")
    opened.page.keyboard.type("kettles")  # only in the system prompt
    expect(opened.page.locator(".list .row")).to_have_count(1)
    assert opened.rows() == ['model calls find_order {"number":7}']
    opened.press("Escape")
    expect(opened.page.locator(".list .row")).to_have_count(7)


def test_a_search_without_a_match_says_so(open_events: OpenPage) -> None:
    opened = open_events(*PASSED, address="#trace=1&q=nowhere")
    expect(opened.page.locator(".empty")).to_be_visible()


def test_events_are_filtered_by_kind(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    opened.page.locator(".chip.tool").click()
    expect(opened.page.locator(".list .row")).to_have_count(1)
    assert opened.page.locator(".chip.tool").get_attribute("aria-pressed") == "true"


def test_events_are_filtered_by_agent_or_hat(open_events: OpenPage) -> None:
    opened = open_events(
        ("_meta.iteration", {"n": 1, "hat": "planner"}),
        ("process.output", {"stream": "stdout", "text": "plan"}),
        ("_meta.iteration", {"n": 2, "hat": "builder"}),
        ("process.output", {"stream": "stdout", "text": "build"}),
    )
    opened.page.locator("#who").select_option("builder")
    expect(opened.page.locator(".list .row")).to_have_count(2)
    assert opened.rows() == ["iteration 2 builder", "stdout build"]


def test_problems_can_be_shown_alone(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    opened.press("f")
    expect(opened.page.locator(".list .row")).to_have_count(2)


def test_a_range_of_time_is_kept_by_dragging(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    box = opened.page.locator(".strip").bounding_box()
    assert box is not None
    opened.page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 9)
    opened.page.mouse.down()
    opened.page.mouse.move(box["x"] + box["width"] * 0.85, box["y"] + 9)
    opened.page.mouse.up()
    expect(opened.page.locator(".list .row", has_text="find_order")).to_have_count(0)
    expect(opened.page.locator(".list .row", has_text="ui confirm")).to_have_count(1)


def test_a_link_opens_the_event_and_the_tab(open_events: OpenPage) -> None:
    opened = open_events(*PASSED, address="#trace=1&event=7&tab=added")
    expect(opened.page.get_by_role("tab", name="Request diff")).to_have_attribute(
        "aria-selected", "true"
    )
    assert opened.page.locator('.row[aria-selected="true"]').get_attribute("data-index") == "6"


def test_a_link_to_a_reply_opens_the_row_of_its_request(open_events: OpenPage) -> None:
    opened = open_events(*PASSED, address="#trace=1&event=8")
    expect(opened.page.locator('.row[aria-selected="true"]')).to_have_attribute("data-index", "6")


def test_the_address_follows_the_selection(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    opened.press("j", "j", "j")
    opened.page.wait_for_function("() => location.hash === '#trace=1&event=3'")
    opened.press("2")
    opened.page.wait_for_function("() => location.hash.endsWith('tab=conversation')")


def send_keys(opened: Opened, *keys: str) -> None:
    """Send keys in one task, so that no answer of the page's worker arrives between them."""
    opened.page.evaluate(
        """(keys) => {
            for (const key of keys) {
                const options = { key, bubbles: true, cancelable: true };
                document.activeElement.dispatchEvent(new KeyboardEvent("keydown", options));
            }
        }""",
        list(keys),
    )


def test_a_tab_chosen_while_its_event_is_read_is_shown(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    expect(opened.page.locator(".row").nth(2)).to_be_visible()
    send_keys(opened, "j", "j", "j", "2")
    expect(opened.page.locator('[role="tab"][aria-selected="true"]')).to_have_text("Conversation")
    assert opened.page.evaluate("location.hash") == "#trace=1&event=3&tab=conversation"


def test_keys_that_come_before_their_row_is_read_all_count(open_events: OpenPage) -> None:
    opened = open_events(*[("bus.publish", {"topic": "t"})] * 2000)
    expect(opened.page.locator(".row").first).to_be_visible()
    send_keys(opened, "End", "k", "k")
    expect(opened.page.locator('.row[aria-selected="true"]')).to_have_attribute(
        "data-index", "1997"
    )


def test_the_next_failure_is_one_key_away(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    opened.press("n")
    expect(opened.page.locator('.row[aria-selected="true"]')).to_contain_text("fail tools")
    expect(opened.page.locator(".panel .expected")).to_contain_text("refund")


def test_escape_goes_back_to_the_summary(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    opened.press("n")
    expect(opened.page.locator(".panel")).to_be_visible()
    opened.press("Enter")
    expect(opened.page.locator(".panel")).to_be_focused()
    opened.press("Escape")
    expect(opened.page.locator(".list")).to_be_focused()
    opened.press("Escape")
    expect(opened.page.locator(".summary")).to_be_visible()


def test_the_keys_are_listed(open_events: OpenPage) -> None:
    opened = open_events(*PASSED)
    opened.press("?")
    expect(opened.page.locator("dialog.help")).to_be_visible()
    opened.press("Escape")
    expect(opened.page.locator("dialog.help")).not_to_be_visible()


# --- Several traces, runs, comparison, live


def case(name: str, trial: int, status: str) -> dict[str, Any]:
    verdict = {"check": "output", "status": status, "message": f"{name} {status}"}
    return {
        "case": {"id": name, "label": name, "trial": trial, "status": status, "verdicts": [verdict]}
    }


def test_several_traces_have_an_overview_with_the_failures_first(open_html: OpenPage) -> None:
    good = PageTrace("good", [Event(0, "_meta.run_end", {"ok": True})])
    bad = PageTrace("bad", [Event(0, "_meta.run_end", {"ok": False, "error": "broken"})])
    opened = open_html(render_page([good, bad]))
    rows = opened.page.locator(".overview tbody tr").all_inner_texts()
    assert "bad" in rows[0]
    assert "broken" in rows[0]
    opened.page.locator(".overview button", has_text="good").click()
    expect(opened.page.locator(".top .outcome")).to_contain_text("passed")


def test_a_failed_test_is_a_failure_although_its_run_passed(open_html: OpenPage) -> None:
    test = {"test": {"outcome": "failed", "phase": "call", "message": "assert 1 == 2"}}
    trace = PageTrace("t", [Event(0, "_meta.run_end", {"ok": True})], about=test)
    opened = open_html(render_page([trace]))
    assert "failed" in opened.text(".top .outcome")
    assert "assert 1 == 2" in opened.text(".problem")


PYTHON = [
    "@pytest.mark.slow",
    "async def refund(order_7, name=r'it\\'s', b=b\"\"):  # a 'comment'",
    '    """The docstring',
    '    of "refund" is 2 lines."""',
    "    return f'{order_7}' if 0x1F + 2.5 else None",
    "    text = 'not closed",
    "    classes = defined",
    "    '''not closed either",
    "    return 1",
]


def test_python_has_colours(open_html: OpenPage) -> None:
    opened = open_html(page_of_lines(PYTHON), "#trace=1")
    kinds: dict[str, list[str]] = {}
    for part in opened.page.locator(".source .line span").all():
        kind = (part.get_attribute("class") or "").removeprefix("py-")
        kinds.setdefault(kind, []).append(part.inner_text().strip())
    assert kinds == {
        "name": ["@pytest.mark.slow", "refund"],
        "keyword": ["async", "def", "return", "if", "else", "None"],
        "string": [
            "r'it\\'s'",
            'b""',
            '"""The docstring',
            'of "refund" is 2 lines."""',
            "f'{order_7}'",
            "'not closed",
            "'''not closed either",
            "return 1",
        ],
        "comment": ["# a 'comment'"],
        "number": ["0x1F", "2.5"],
    }
    assert [line[8:] for line in opened.text(".source").splitlines()] == PYTHON


def test_a_very_long_line_has_no_colours(open_html: OpenPage) -> None:
    line = "x = '" + 'ab "' * 100_000
    opened = open_html(page_of_lines([line, "@" * 1000]), "#trace=1")
    assert opened.page.locator(".source .line span").count() == 0
    assert len(opened.text(".source")) > len(line)


def page_of_lines(lines: list[str]) -> str:
    frame = {"path": "shop.py", "line": 1, "function": "", "first": 1, "lines": lines, "open": True}
    test = {"outcome": "failed", "message": "", "frames": [frame]}
    return render_page([PageTrace("test", [], about={"test": test})])


def test_an_eval_run_has_pass_rates_intervals_and_trials(open_html: OpenPage) -> None:
    records = [
        {"run": {"name": "pack", "pass": False, "total": 2, "passed": 1, "pass_rate": 0.75}},
        *[case("refund", n, "pass" if n < 3 else "fail") for n in range(1, 5)],
        *[case("greet", n, "pass") for n in range(1, 5)],
    ]
    opened = open_html(render_page(records=records))
    rows = opened.page.locator(".run tbody tr")
    assert "refund" in rows.first.inner_text()
    assert "2 of 4 (50.0 %)" in rows.first.inner_text()
    label = rows.first.locator(".plot").get_attribute("aria-label")
    assert label == "50.0 %, between 15.0 % and 85.0 %"
    rows.first.locator(".trial.fail").first.click()
    expect(opened.page.locator(".case-detail")).to_contain_text("refund fail")


def test_two_eval_runs_are_compared_case_by_case(open_html: OpenPage) -> None:
    records = [
        {"run": {"name": "main", "pass": True}},
        *[case("refund", n, "pass") for n in (1, 2)],
        {"run": {"name": "branch", "pass": False}},
        *[case("refund", n, "fail") for n in (1, 2)],
        case("new", 1, "pass"),
    ]
    opened = open_html(render_page(records=records))
    rows = opened.page.locator(".compare tbody tr").all_inner_texts()
    assert "worse \N{MINUS SIGN}100 %" in rows[0].replace("\t", " ")
    assert opened.page.locator(".compare .plot").count() == 3
    assert "1 worse, 0 better, 0 the same, 1 new, 0 gone" in opened.text(".compare")


def test_two_traces_are_aligned_and_the_first_divergence_is_marked(
    open_html: OpenPage, tmp_path: Path
) -> None:
    from offbook.trace import Redaction
    from offbook.viewer import read_comparison

    other = [
        *RUN[:4],
        ("tool.call", {"call_id": "c1", "tool": "find_order", "input": {"number": 8}}),
    ]
    paths = [tmp_path / "before.jsonl", tmp_path / "after.jsonl"]
    for path, events in zip(paths, (PASSED, other), strict=True):
        lines = [
            json.dumps({"ts": n, "event": name, "data": data, "seq": n + 1})
            for n, (name, data) in enumerate(events)
        ]
        path.write_text("\n".join(lines) + "\n")
    traces, records = read_comparison(paths[0], paths[1], Redaction({}))
    opened = open_html(render_page(traces, records=records))
    divergence = opened.page.locator("#divergence")
    assert "first divergence" in divergence.inner_text()
    assert "8" in opened.page.locator("#divergence + .changes ins mark").inner_text()
    divergence.locator("button").last.click()
    expect(opened.page.locator('.row[aria-selected="true"]')).to_contain_text("find_order")


def test_a_page_of_a_server_follows_its_events(browser: Browser) -> None:
    events = [Event(10 * n, name, data, n + 1) for n, (name, data) in enumerate(FAILED)]
    lines = [encode_record({"trace": {"name": "live"}})]
    lines += [
        encode_event(event, before)
        for before, event in zip([None, *events[:-1]], events, strict=True)
    ]
    data = "".join(f"data: {line.decode()}\n" for line in lines)
    context = browser.new_context()
    page = context.new_page()
    html = render_page(title="Live", live="events?token=t")
    page.route("http://127.0.0.1:9/", lambda r: r.fulfill(body=html, content_type="text/html"))
    page.route(
        "http://127.0.0.1:9/events?token=t",
        lambda r: r.fulfill(
            body=f"id: 1\n{data}\nevent: end\ndata: x\n\n", content_type="text/event-stream"
        ),
    )
    page.goto("http://127.0.0.1:9/")
    expect(page.locator(".problem")).to_contain_text("the order of the tools differs")
    context.close()


# --- Looks


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_have_enough_contrast(open_events: OpenPage, theme: str) -> None:
    opened = open_events(*FAILED, color_scheme=theme)
    low = opened.page.evaluate(CONTRAST)
    assert low == []


CONTRAST = """() => {
  const luminance = (c) => {
    const [r, g, b] = c.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backOf = (e) => {
    for (; e; e = e.parentElement) {
      const c = getComputedStyle(e).backgroundColor;
      if (!c.endsWith(', 0)') && c !== 'transparent') return c;
    }
    return 'rgb(255, 255, 255)';
  };
  const low = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.checkVisibility()) continue;
    const [a, b] = [getComputedStyle(e).color, backOf(e)].map(luminance);
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${e.className || e.tagName} ${ratio.toFixed(2)}`);
  }
  return low;
}"""


def test_every_control_has_a_name(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    opened.press("n")
    opened.page.wait_for_selector(".panel")
    unnamed = opened.page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, [role=listbox], canvas')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim()))
        .map(e => e.outerHTML)"""
    )
    assert unnamed == []


def test_paper_has_the_reasons_and_the_list(open_events: OpenPage) -> None:
    opened = open_events(*FAILED)
    opened.page.wait_for_selector(".list[data-printable='8']")
    opened.page.emulate_media(media="print")
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    expect(opened.page.locator(".problem")).to_be_visible()
    expect(opened.page.locator(".print-list .row")).to_have_count(8)
    expect(opened.page.locator(".toolbar")).not_to_be_visible()
    assert len(opened.page.pdf()) > 5000


@pytest.mark.parametrize("size", [(1600, 1000), (900, 700), (390, 800)])
def test_nothing_is_wider_than_the_window(open_events: OpenPage, size: tuple[int, int]) -> None:
    opened = open_events(*FAILED, size=size)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    opened.press("n")
    opened.page.wait_for_selector(".panel")
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert opened.page.locator(".panel").is_visible()
