"""A run reports what the agent did, and apart from it what the script said."""

import asyncio
import gc
import weakref
from collections.abc import Callable
from typing import Any, cast

import openai
import pytest

from offbook import call, drive, fail, say, session, when
from offbook.errors import RunError, ScriptError, ScriptExhausted, ScriptMismatch, ScriptUnfinished
from offbook.runs import Run
from offbook.sources.playbook import Turn
from offbook.subjects.session import Api, Context

JSON = dict[str, Any]
HELLO = when("Hi", [say("Hello.")])


def ask(prompt: str) -> str | None:
    client = openai.OpenAI(api_key="none")
    messages: Any = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": prompt}]
    tools: Any = [{"type": "function", "function": {"name": "find_order", "description": "Find."}}]
    answer = client.chat.completions.create(model="m", messages=messages, tools=tools)
    return answer.choices[0].message.content


def returns_nothing(prompt: str) -> None:
    ask(prompt)


def returns_a_list(prompt: str) -> list[str | None]:
    return [ask(prompt)]


# ------------------------------------------------------------------------------------ the answer


def test_the_output_of_a_function_is_its_return_value():
    with drive(returns_a_list) as rehearsal:
        assert rehearsal.run(HELLO).output == ["Hello."]


class TurnOfDay(Turn, frozen=True): ...


def test_a_turn_of_a_subclass_is_a_turn():
    with session() as rehearsal:
        assert rehearsal.run(HELLO, TurnOfDay("Bye", [say("See you.")])).output == "See you."


def test_a_function_that_returns_nothing_has_no_output_although_the_script_says_something():
    with drive(returns_nothing) as rehearsal:
        run = rehearsal.run(HELLO)
    assert run.output is None
    assert run.scripted.text == "Hello."


def test_the_output_is_the_answer_to_the_last_prompt():
    with session() as rehearsal:
        run = rehearsal.run(HELLO, when("Bye", [say("See you.")]))
        assert run.output == "See you."


def test_an_agent_that_gave_up_after_a_scripted_error_has_no_output():
    with session() as rehearsal:
        assert rehearsal.run(when("Hi", [fail("down", status=500)])).output is None


def test_a_command_of_an_extension_has_no_output():
    def install(api: Api) -> None:
        @api.command("hello")
        def hello(_args: str, _ctx: Context) -> str:
            return "Hello."

    with session(extensions=[install]) as rehearsal:
        assert rehearsal.run(when("/hello", [])).output is None


def test_the_trace_has_the_text_of_the_answer_or_the_type_of_another_value():
    agents: list[Callable[[str], object]] = [ask, returns_nothing, returns_a_list]
    shown: list[object] = []
    for agent in agents:
        with drive(agent) as rehearsal:
            rehearsal.run(HELLO)
            shown.append(rehearsal.events.all[-1].data["output"])
    assert shown == ["Hello.", None, {"type": "list"}]


# ------------------------------------------------------------------------------------- the tools


def shop(api: Api) -> None:
    schema: JSON = {"type": "object", "properties": {"id": {"type": "integer"}}}

    @api.tool("refund", "Refund an order.", schema)
    def refund(params: JSON, _: Context) -> str:
        return f"refunded {params['id']}"

    @api.on("tool_call")
    def guard(event: Any, _: Context) -> JSON | None:
        if event.input["id"] == 6:
            event.input["id"] = 60
        return {"block": True, "reason": "not this one"} if event.input["id"] == 7 else None


def test_a_call_that_was_blocked_or_had_wrong_parameters_was_not_executed():
    with session(extensions=[shop]) as rehearsal:
        run = rehearsal.run(
            when("Refund", [
                call("refund", {"id": 7}),
                call("refund", {"id": "eight"}, invalid=True),
                call("refund", {"id": 9}),
                say("Done."),
            ])
        )  # fmt: skip
    assert [(tool.name, tool.input, tool.result.text) for tool in run.executed] == [
        ("refund", {"id": 9}, "refunded 9")
    ]
    assert run.tools == ["refund"]
    assert [made.arguments["id"] for made in run.scripted.calls] == [7, "eight", 9]


def test_an_executed_tool_has_the_input_that_it_received():
    with session(extensions=[shop]) as rehearsal:
        run = rehearsal.run(when("Refund", [call("refund", {"id": 6}), say("Done.")]))
    assert [(tool.input, tool.result.text) for tool in run.executed] == [
        ({"id": 60}, "refunded 60")
    ]


def test_a_mocked_tool_was_executed():
    with session(mock_tools={"bash": "ok"}) as rehearsal:
        run = rehearsal.run(when("Go", [call("bash", {"command": "ls"}), say("Done.")]))
    assert [(tool.name, tool.result.mocked) for tool in run.executed] == [("bash", True)]


# ---------------------------------------------------------------------------------- the requests


def test_a_request_has_the_system_prompt_the_tools_and_the_messages():
    with drive(ask) as rehearsal:
        (request,) = rehearsal.run(HELLO).requests
    assert request.system == "Be kind."
    assert [(tool.name, tool.description) for tool in request.tools] == [("find_order", "Find.")]
    assert [(message.role, message.text) for message in request.messages] == [("user", "Hi")]


def test_the_requests_of_a_run_have_the_messages_of_the_runs_before_it():
    with session(mock_tools={"bash": "ok"}) as rehearsal:
        rehearsal.run(HELLO)
        run = rehearsal.run(when("Go", [call("bash", {"command": "ls"}), say("Done.")]))
    first, second = run.requests
    assert [message.role for message in first.messages] == ["user", "assistant", "user"]
    assert [message.role for message in second.messages][3:] == ["assistant", "tool"]
    assert second.messages[-1].results[0].text == "ok"


# -------------------------------------------------------------------------------------- evidence


def test_a_result_is_the_same_in_the_run_and_in_then(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_API_KEY", "kettle-and-lamp-4711")
    seen: list[str] = []
    steps = [
        call("bash", {"command": "ls"}).then(lambda result: seen.append(result.text)),
        say("Done."),
    ]
    with session(mock_tools={"bash": "the key is kettle-and-lamp-4711"}) as rehearsal:
        run = rehearsal.run(when("Go", steps))
        stored = rehearsal.trace.read_text()
    assert seen == [run.results("bash")[0].text] == ["the key is kettle-and-lamp-4711"]
    assert run.requests[-1].messages[-1].results[0].text == seen[0]
    assert "kettle-and-lamp-4711" not in stored


def test_a_trace_that_the_agent_overwrites_does_not_change_the_run():
    def forge(_params: JSON) -> str:
        rehearsal.trace.write_text("")
        return "the real result"

    rehearsal = session(mock_tools={"bash": forge})
    run = rehearsal.run(when("Go", [call("bash", {"command": "ls"}), say("Done.")]))
    assert run.results("bash")[0].text == "the real result"
    with pytest.raises(RunError, match="the trace was changed while the agent ran"):
        rehearsal.dispose()


def test_the_events_of_several_names_are_in_the_order_of_the_run():
    with session(mock_tools={"bash": "ok"}) as rehearsal:
        run = rehearsal.run(when("List", [call("bash", {"command": "ls"}), say("Done.")]))
    found = run.events.named("model.reply", "model.request", "model.reply")
    assert found == [event for event in run.events.all if event in found]
    assert [event.event for event in found] == ["model.request", "model.reply"] * 2


def test_new_messages_are_counted_whether_or_not_the_requests_were_read_before():
    twice = [call("bash", {"command": "ls"}), call("bash", {"command": "pwd"})]
    with session(mock_tools={"bash": "ok"}) as rehearsal:
        run = rehearsal.run(when("List", [twice, say("Done.")]))
    counts = run.events.new_messages
    assert counts == [1, 2]
    assert counts == [len(event.data["new"]) for event in run.events.named("model.request")]
    assert counts == run.events.new_messages


def test_a_request_of_another_program_without_data_has_no_new_messages():
    with drive(ask) as rehearsal:
        rehearsal.hub.subscribe(lambda _: rehearsal.hub.emit("model.request"), "agent.start")
        run = rehearsal.run(HELLO)
    assert run.events.new_messages == [0, 1]


def test_events_are_kept_as_they_were_when_they_were_emitted():
    order = {"state": "new"}
    with session() as rehearsal:
        rehearsal.run(HELLO)
        rehearsal.hub.emit("order", order)
        order["state"] = "sent"
        assert rehearsal.events.named("order")[0].data == {"state": "new"}


def asks_nothing(prompt: str) -> None: ...


def asks_twice(prompt: str) -> None:
    ask(prompt)
    ask(prompt)


@pytest.mark.parametrize(
    "agent, script, error",
    [
        (asks_twice, HELLO, ScriptExhausted),
        (asks_nothing, HELLO, ScriptUnfinished),
        (ask, when("Hi", [call("lose_order"), say("Lost.")]), ScriptMismatch),
    ],
    ids=["exhausted", "unfinished", "mismatch"],
)
def test_an_error_of_the_script_is_not_the_assertion_error_that_a_test_expects(
    agent: Callable[[str], object], script: Turn, error: type[ScriptError]
):
    with pytest.raises(error), pytest.raises(AssertionError), drive(agent) as rehearsal:
        rehearsal.run(script)


def test_a_run_that_passed_keeps_no_task():
    tasks: list[weakref.ref[Any]] = []

    def note_task(api: Any) -> None:
        @api.on("turn_start")
        def on_turn(*_: object) -> None:
            tasks.append(weakref.ref(asyncio.current_task()))

    with session(extensions=[note_task]) as rehearsal:
        gc.disable()  # a task in a cycle would be freed later
        try:
            rehearsal.run(HELLO)
            assert [task() for task in tasks] == [None]
        finally:
            gc.enable()


def test_a_run_can_be_closed_after_its_event_loop():
    loop = asyncio.new_event_loop()
    never = loop.create_future()

    async def wait(_: Run) -> None:
        await never

    work = Run(wait, cast("Any", None)).complete()

    async def begin() -> None:
        work.send(None)

    loop.run_until_complete(begin())
    loop.close()
    work.close()
