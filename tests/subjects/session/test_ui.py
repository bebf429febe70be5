"""The mocked user interface: answers, displays and their events."""

from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import ToolFailed, UsageError
from offbook.subjects.session.extensions import Api
from offbook.subjects.session.hooks import Context
from offbook.trace.query import Events

JSON = dict[str, Any]


def asker(api: Api) -> None:
    @api.tool("ask")
    async def ask(params: JSON, ctx: Context) -> str:
        return repr(await getattr(ctx.ui, params["method"])(*params["args"]))

    @api.tool("show")
    def show(params: JSON, ctx: Context) -> str:
        ctx.ui.notify("hello")
        ctx.ui.notify("careful", "warning")
        ctx.ui.set_status("plan", "on")
        ctx.ui.set_status("plan", None)
        ctx.ui.set_widget("list", ("a", "b"))
        ctx.ui.set_widget("list", None)
        return "shown"


def ask(mock_ui: JSON, method: str, *args: Any) -> tuple[str, Events]:
    with session(extensions=[asker], mock_ui=mock_ui) as t:
        t.run(when("x", [call("ask", {"method": method, "args": list(args)}), say("ok")]))
    return t.events.tool_results[0].text, t.events


ITEMS = ["Approve", "Reject", "Later"]


def is_safe(_title: str, message: str) -> bool:
    return "Delete" not in message


def last(_title: str, items: list[str]) -> str:
    return items[-1]


def lowered(title: str) -> str:
    return title.lower()


async def appended(_title: str, prefilled: str) -> str:
    return f"{prefilled}\nappended"


QUESTIONS: list[tuple[JSON, str, list[Any], Any]] = [
    ({}, "confirm", ["Sure?"], True),
    ({}, "select", ["Pick", ITEMS], "Approve"),
    ({}, "select", ["Pick", []], None),
    ({}, "input", ["Name:"], ""),
    ({}, "editor", ["Text:"], ""),
    ({"confirm": True}, "confirm", ["Sure?", "Really?"], True),
    ({"confirm": False}, "confirm", ["Sure?", "Really?"], False),
    ({"confirm": is_safe}, "confirm", ["Sure?", "Delete all?"], False),
    ({"confirm": is_safe}, "confirm", ["Sure?", "Keep all?"], True),
    ({"confirm": lambda: 0}, "confirm", ["Sure?"], False),
    ({"select": 1}, "select", ["Pick", ITEMS], "Reject"),
    ({"select": 9}, "select", ["Pick", ITEMS], None),
    ({"select": -1}, "select", ["Pick", ITEMS], None),
    ({"select": "Later"}, "select", ["Pick", ITEMS], "Later"),
    ({"select": "None of these"}, "select", ["Pick", ITEMS], "Approve"),
    ({"select": None}, "select", ["Pick", ITEMS], None),
    ({"select": last}, "select", ["Pick", ITEMS], "Later"),
    ({"select": lambda: None}, "select", ["Pick", ITEMS], None),
    ({"input": "test value"}, "input", ["Name:"], "test value"),
    ({"input": lowered}, "input", ["Name:", "who?"], "name:"),
    ({"input": None}, "input", ["Name:"], None),
    ({"editor": "edited"}, "editor", ["Text:", "old"], "edited"),
    ({"editor": appended}, "editor", ["Text:", "old"], "old\nappended"),
]


@pytest.mark.parametrize("mock_ui, method, args, answer", QUESTIONS)
def test_a_question_gets_the_mocked_answer_and_is_recorded(
    mock_ui: JSON, method: str, args: list[Any], answer: Any
):
    text, events = ask(mock_ui, method, *args)
    assert text == repr(answer)
    (question,) = events.ui_calls_for(method)
    assert question.args[: len(args)] == args
    assert question.return_value == answer
    assert type(question.return_value) is type(answer)


@pytest.mark.parametrize(
    "wanted, fallback",
    [("None of these", True), ("Later", None), (2, None), (None, None)],
)
def test_an_unknown_item_is_recorded_as_a_fallback(wanted: Any, fallback: object):
    _, events = ask({"select": wanted}, "select", "Pick", ITEMS)
    (event,) = events.named("ui.select")
    assert event.data.get("fallback") is fallback


def test_displays_are_recorded_in_order():
    with session(extensions=[asker]) as t:
        t.run(when("x", [call("show"), say("ok")]))
        assert [(call_.method, call_.args) for call_ in t.events.ui] == [
            ("notify", ["hello", "info"]),
            ("notify", ["careful", "warning"]),
            ("set_status", ["plan", "on"]),
            ("set_status", ["plan", None]),
            ("set_widget", ["list", ["a", "b"]]),
            ("set_widget", ["list", None]),
        ]
        assert {call_.return_value for call_ in t.events.ui} == {None}


@pytest.mark.parametrize("key", ["set_status", "setStatus"])
def test_displays_can_call_a_function_of_the_test(key: str):
    received: list[Any] = []

    def receive(key: str, value: str) -> None:
        received.append((key, value))

    mock_ui = {key: receive, "notify": "collect"}
    with session(extensions=[asker], mock_ui=mock_ui) as t:
        t.run(when("x", [call("show"), say("ok")]))
        assert len(t.events.ui) == 6
    assert received == [("plan", "on"), ("plan", None)]


@pytest.mark.parametrize(
    "mock_ui, method, expected",
    [
        ({"select": lambda: "Aprove"}, "select", "did you mean 'Approve'"),
        ({"input": lambda: 5}, "input", "expected a string or None as answer, got int"),
        ({"editor": lambda: ["a"]}, "editor", "expected a string or None as answer, got list"),
    ],
)
def test_an_impossible_answer_fails_the_run(mock_ui: JSON, method: str, expected: str):
    args = ["Pick", ITEMS] if method == "select" else ["Title"]
    with pytest.raises(UsageError) as caught:
        ask(mock_ui, method, *args)
    assert expected in str(caught.value)
    assert f"mock_ui['{method}']" in str(caught.value)


def test_an_answer_that_raises_fails_the_run_with_the_step():
    def confirm(_title: str) -> bool:
        raise LookupError("no answer prepared")

    with pytest.raises(ToolFailed, match=r"step 1.*LookupError: no answer prepared"):
        ask({"confirm": confirm}, "confirm", "Sure?")


def test_a_mock_can_return_different_answers():
    answers = iter([True, False])

    def twice(api: Api) -> None:
        @api.tool("twice")
        async def twice(params: JSON, ctx: Context) -> str:
            return f"{await ctx.ui.confirm('1')} {await ctx.ui.confirm('2')}"

    with session(extensions=[twice], mock_ui={"confirm": lambda: next(answers)}) as t:
        t.run(when("x", [call("twice"), say("ok")]))
        assert t.events.tool_results[0].text == "True False"
