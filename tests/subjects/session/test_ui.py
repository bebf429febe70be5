"""The mocked user interface: answers, displays and their events."""

import asyncio
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.errors import CheckFailed, ToolFailed, UsageError
from offbook.subjects.session import Api, Context
from offbook.trace import Events

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
    ({"confirm": lambda: False}, "confirm", ["Sure?"], False),
    ({"confirm": [False]}, "confirm", ["Sure?"], False),
    ({"confirm": [is_safe]}, "confirm", ["Sure?", "Keep all?"], True),
    ({"select": ["Later"]}, "select", ["Pick", ITEMS], "Later"),
    ({"select": lambda: 1}, "select", ["Pick", ITEMS], "Reject"),
    ({"select": 1}, "select", ["Pick", ITEMS], "Reject"),
    ({"select": "Later"}, "select", ["Pick", ITEMS], "Later"),
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
        ({"select": "Aprove"}, "select", "did you mean 'Approve'"),
        ({"select": ["Aprove"]}, "select", "did you mean 'Approve'"),
        ({"select": lambda: "Aprove"}, "select", "did you mean 'Approve'"),
        ({"select": 9}, "select", "answer 9 is not an item of 'Pick'"),
        ({"select": -1}, "select", "answer -1 is not an item of 'Pick'"),
        ({"confirm": lambda: None}, "confirm", "expected bool as answer to 'Pick', got NoneType"),
        ({"input": lambda: 5}, "input", "expected str or None as answer to 'Pick', got int"),
        ({"editor": lambda: ["a"]}, "editor", "expected str or None as answer to 'Pick', got list"),
        ({"input": []}, "input", "no answer left for 'Pick': 0 given"),
    ],
)
@pytest.mark.parametrize("caught_by_the_extension", [False, True])
def test_an_answer_that_no_user_could_give_fails_the_run(
    mock_ui: JSON, method: str, expected: str, *, caught_by_the_extension: bool
):
    def catching(api: Api) -> None:
        @api.tool("ask")
        async def ask(params: JSON, ctx: Context) -> str:
            try:
                return str(await getattr(ctx.ui, params["method"])(*params["args"]))
            except Exception:
                if not caught_by_the_extension:
                    raise
                return "declined"

    args = ["Pick", ITEMS] if method == "select" else ["Pick"]
    script = when("x", [call("ask", {"method": method, "args": args}), say("ok")])
    with (
        session(extensions=[catching], mock_ui=mock_ui) as t,
        pytest.raises(UsageError) as caught,
    ):
        t.run(script)
    assert expected in str(caught.value)
    assert f"mock_ui['{method}']" in str(caught.value)


def test_an_answer_that_raises_fails_the_run_with_its_own_error_and_the_step():
    def confirm(_title: str) -> bool:
        raise LookupError("no answer prepared")

    with pytest.raises(LookupError, match="no answer prepared") as caught:
        ask({"confirm": confirm}, "confirm", "Sure?")
    assert "at playbook step 1 (call 'ask')" in caught.value.__notes__[0]


def twice(api: Api) -> None:
    @api.tool("twice")
    async def twice(params: JSON, ctx: Context) -> str:
        return f"{await ctx.ui.confirm('1')} {await ctx.ui.confirm('2')}"


TWICE = when("x", [call("twice"), say("ok")])


def test_a_list_answers_one_question_after_the_other():
    with session(extensions=[twice], mock_ui={"confirm": [True, False]}) as t:
        t.run(TWICE)
        assert t.events.tool_results[0].text == "True False"


def test_a_question_after_the_last_answer_of_a_list_fails_the_run():
    with (
        session(extensions=[twice], mock_ui={"confirm": [True]}) as t,
        pytest.raises(UsageError, match="no answer left for '2': 1 given"),
    ):
        t.run(TWICE)


def test_an_answer_of_a_list_that_is_never_used_fails_the_test():
    with (
        pytest.raises(CheckFailed, match=r"never used: 1 answer of mock_ui\['confirm'\]"),
        session(extensions=[twice], mock_ui={"confirm": [True, True, False]}) as t,
    ):
        t.run(TWICE)


def forgetful(api: Api) -> None:
    @api.tool("delete")
    async def delete(params: JSON, ctx: Context) -> str:
        if ctx.ui.confirm("Delete everything?"):  # the forgotten await
            return "deleted"
        return "kept"

    @api.command("delete")
    async def delete_now(args: str, ctx: Context) -> None:
        ctx.ui.confirm("Delete everything?")  # pyright: ignore[reportUnusedCoroutine] - on purpose


@pytest.mark.parametrize("propagate", [True, False])
@pytest.mark.parametrize(
    "script", [when("x", [call("delete"), say("ok")]), when("/delete", [])], ids=["used", "dropped"]
)
def test_a_question_that_is_not_awaited_fails_the_run(script: Any, *, propagate: bool):
    expected = r"ctx\.ui\.confirm\('Delete everything\?'\) was not awaited"
    with (
        session(
            extensions=[forgetful], mock_ui={"confirm": False}, propagate_errors=propagate
        ) as t,
        pytest.raises(ToolFailed, match=expected),
    ):
        t.run(script)


def test_a_question_can_be_awaited_in_a_task():
    def patient(api: Api) -> None:
        @api.tool("ask")
        async def ask(params: JSON, ctx: Context) -> str:
            task = asyncio.create_task(ctx.ui.confirm("Sure?"))
            return str(await asyncio.wait_for(task, 300))

    with session(extensions=[patient]) as t:
        t.run(when("x", [call("ask"), say("ok")]))
        assert t.events.tool_results[0].text == "True"


@pytest.mark.parametrize(
    "method, args, answer",
    [
        ("confirm", ["Sure?"], False),
        ("select", ["Pick", ITEMS], None),
        ("input", ["Name:"], None),
        ("editor", ["Text:"], None),
    ],
)
def test_without_a_user_interface_every_question_is_declined(
    method: str, args: list[Any], answer: Any
):
    def asking(api: Api) -> None:
        @api.tool("ask")
        async def ask(params: JSON, ctx: Context) -> str:
            return repr((ctx.has_ui, await getattr(ctx.ui, method)(*args)))

    with session(extensions=[asking], has_ui=False) as t:
        t.run(when("x", [call("ask"), say("ok")]))
        assert t.events.tool_results[0].text == repr((False, answer))


def test_an_answer_without_a_user_interface_is_refused():
    with pytest.raises(UsageError, match=r"mock_ui\['confirm'\] has no effect"):
        session(has_ui=False, mock_ui={"confirm": True, "notify": "collect"})
