"""Executed means executed: what ran, with its real input, in every framework."""

from collections.abc import Callable
from typing import Any, cast

import agents
import openai
import pytest
from langchain import agents as langchain
from langchain_core.tools import tool

from offbook import call, drive, say, session, when
from offbook.errors import UnknownOutcome
from offbook.subjects.frameworks import framework
from tests.subjects.frameworks.test_tool_outcomes import (
    Make,
    anthropic_runner,
    broken,
    find_order,
    google_chat,
    langchain_chat,
    openai_chat,
    openai_responses,
    pydantic_chat,
    smolagent,
)

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")

# Every adapter of the table: the agents whose executions are seen, or the reason why only the
# agent's requests show them.
SEEN: dict[str, list[Make]] = {
    "pydantic_ai.PydanticAI": [pydantic_chat],
    "openai_agents.OpenAIAgents": [openai_chat, openai_responses],
    "langgraph.LangGraph": [langchain_chat],
    "google_genai.GoogleGenAI": [google_chat],
    "anthropic_runner.AnthropicRunner": [anthropic_runner],
    "smolagents.SmolAgents": [smolagent],
}
BY_REQUEST_ONLY = {
    "inspect_ai.InspectAI": "a solver makes its tools when it runs, out of reach of the adapter",
    "claude_agent.ClaudeAgent": "its tools run in the process of Claude Code",
}
MAKES = [make for makes in SEEN.values() for make in makes]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


def test_every_adapter_reports_executions_or_says_why_not():
    assert {*SEEN, *BY_REQUEST_ONLY} == {*framework.ADAPTERS.values()}


@pytest.mark.parametrize("make", MAKES)
def test_an_execution_has_its_input_its_result_and_its_duration(make: Make):
    with drive(make(find_order)) as rehearsal:
        # An agent of smolagents ends with a tool.
        final = call("final_answer", {"answer": "Done."}, unanswered=True)
        end = final if make is smolagent else say("Done.")
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), end]))
    executed = run.executed[0]
    assert (executed.name, executed.input, executed.number) == ("find_order", {"number": 7}, 1)
    assert "order 7" in executed.result.text
    assert executed.duration is not None
    assert executed.call_id == run.scripted.calls[0].id
    names = [event.event for event in run.events.all if event.event.startswith("tool.")]
    assert names[:4] == ["tool.call", "tool.start", "tool.end", "tool.result"]


@pytest.mark.parametrize("make", [openai_chat, langchain_chat, anthropic_runner, google_chat])
def test_a_tool_that_raised_was_executed(make: Make):
    with drive(make(broken)) as rehearsal:
        step = call("find_order", {"number": 7}, raises=RuntimeError)
        run = rehearsal.run(when("Go", [step, say("Sorry.")]))
    (executed,) = run.executed
    assert executed.result.is_error
    (end,) = run.events.named("tool.end")
    assert end.data["error"] == "RuntimeError: no connection for 7"


@pytest.mark.parametrize("make", [pydantic_chat, langchain_chat])
def test_a_call_that_the_framework_refuses_is_not_executed(make: Make):
    with drive(make(find_order), auto_assert=False) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": "x"}), say("Sorry.")]))
    assert run.tools == []


def test_a_result_that_was_never_sent_is_that_of_an_executed_tool():
    model = agents.OpenAIChatCompletionsModel("m", openai_client=openai.AsyncOpenAI())
    agent = agents.Agent(
        name="shop",
        tools=[agents.function_tool(find_order)],
        tool_use_behavior="stop_on_first_tool",
        model=model,
    )
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}, unanswered=True)]))
    assert run.tools == ["find_order"]
    assert [result.text for result in run.results("find_order")] == ["order 7"]


def middleware_agent(change: Any) -> Any:
    handler = cast("Any", langchain).middleware.wrap_tool_call(change)
    create_agent: Any = cast("Any", langchain).create_agent
    return create_agent("openai:m", tools=[tool(find_order)], middleware=[handler])


def test_the_input_is_the_one_that_middleware_made():
    async def other_order(request: Any, run: Any) -> Any:
        changed = {**request.tool_call, "args": {"number": 99}}
        return await run(request.override(tool_call=changed))

    with drive(middleware_agent(other_order)) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), say("Done.")]))
    assert [executed.input for executed in run.executed] == [{"number": 99}]


def test_a_tool_that_ran_twice_for_one_call_is_two_executions():
    async def twice(request: Any, run: Any) -> Any:
        await run(request)
        return await run(request)

    with drive(middleware_agent(twice)) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), say("Done.")]))
    assert [(executed.name, executed.number) for executed in run.executed] == [
        ("find_order", 1),
        ("find_order", 2),
    ]


def test_a_tool_that_middleware_skips_is_not_executed():
    async def skip(request: Any, _: Any) -> Any:
        from langchain_core.messages import ToolMessage

        return ToolMessage("order 7", tool_call_id=request.tool_call["id"])

    with drive(middleware_agent(skip)) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), say("Done.")]))
    assert run.tools == []
    assert len(run.results("find_order")) == 1


# --- Agents whose tools are not seen

TOOLS: Any = [{"type": "function", "function": {"name": "find_order", "parameters": {}}}]


def plain_agent(prompt: str, *, answers: bool = True) -> Any:
    client = openai.OpenAI(max_retries=0)
    messages: list[Any] = [{"role": "user", "content": prompt}]
    reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    message: Any = reply.choices[0].message.to_dict()
    if not answers:
        return ""
    first = message["tool_calls"][0]
    first["function"]["arguments"] = '{"number": 99}'
    function = {"name": "wipe", "arguments": "{}"}
    message["tool_calls"].append({"id": "call_x", "type": "function", "function": function})
    messages += [
        message,
        {"role": "tool", "tool_call_id": first["id"], "content": "order 99"},
        {"role": "tool", "tool_call_id": "call_x", "content": "wiped"},
    ]
    reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
    return reply.choices[0].message.content


def test_the_request_of_the_agent_is_the_evidence():
    with drive(plain_agent, lenient=["history"]) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}), say("Done.")]))
    assert [(tool.name, tool.input, tool.result.text) for tool in run.executed] == [
        ("find_order", {"number": 99}, "order 99"),
        ("wipe", {}, "wiped"),
    ]


QUESTIONS: list[Callable[[Any], object]] = [
    lambda tools: tools == [],
    lambda tools: tools != [],
    len,
    list,
    bool,
    lambda tools: "find_order" in tools,
    lambda tools: tools[0],
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_without_evidence_it_is_unknown_whether_a_tool_ran(ask: Any):
    with drive(plain_agent, answers=False) as rehearsal:
        run = rehearsal.run(when("Go", [call("find_order", {"number": 7}, unanswered=True)]))
    with pytest.raises(UnknownOutcome, match="'find_order' ran"):
        ask(run.tools)
    assert "wipe" not in run.tools
    assert run.tools.known() == []


def test_parallel_tools_of_a_session_have_their_own_durations():
    with session(mock_tools={"bash": "a", "read": "b"}) as rehearsal:
        calls = [call("bash", {"command": "ls"}), call("read", {"path": "x"})]
        run = rehearsal.run(when("Go", [calls, say("Done.")]))
    assert [(tool.name, tool.result.text, tool.result.mocked) for tool in run.executed] == [
        ("bash", "a", True),
        ("read", "b", True),
    ]
    assert all(tool.duration is not None for tool in run.executed)
