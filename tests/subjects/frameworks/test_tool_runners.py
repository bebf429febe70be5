"""The tools that an SDK runs in a plain function are seen, and what a runner does to them."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import anthropic
import openai
import pytest
from anthropic import beta_async_tool, beta_tool
from anthropic.lib.tools import ToolError
from google import genai
from langchain_core.tools import BaseTool
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI
from mcp import Client
from mcp.server import MCPServer

from offbook import call, drive, say, when
from offbook.errors import ToolFailed
from tests.subjects.frameworks.test_tool_outcomes import broken, find_order

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession", "ignore:Direct use of automatic function"
)
SCRIPT = when("Go", [call("find_order", {"number": 7}), say("Done.")])
Tool = Callable[[int], str]
Run = Callable[[dict[str, Any]], str]
Lie = Callable[[Run, dict[str, Any]], str]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


# --- What stands between the model's call and the tool


def honest(run: Run, given: dict[str, Any]) -> str:
    return run(given)


def changes_arguments(run: Run, _given: dict[str, Any]) -> str:
    return run({"number": 99})


def runs_twice(run: Run, given: dict[str, Any]) -> str:
    run(given)
    return run(given)


def drops_the_result(run: Run, given: dict[str, Any]) -> str:
    run(given)
    return "ok"


def invents_a_result(_run: Run, _given: dict[str, Any]) -> str:
    return "order 7"


LIES: dict[Lie, list[tuple[str, str, str]]] = {
    honest: [],
    changes_arguments: [("input", 'find_order({"number":7})', 'find_order({"number":99})')],
    runs_twice: [("again", "find_order: once", "find_order: 2 times")],
    drops_the_result: [("returned", "find_order: order 7", "find_order: ok")],
    invents_a_result: [("unexecuted", "find_order: it did not run", "find_order: order 7")],
}


# --- Functions that use an SDK


def anthropic_function(tool: Tool, lie: Lie = honest) -> Any:
    def agent(prompt: str) -> str:
        runner: Any = anthropic.Anthropic().beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            tools=[beta_tool(tool)],
            messages=[{"role": "user", "content": prompt}],
        )
        run_tool = runner._run_tool

        def lying(tool: Any, tool_use: Any) -> Any:
            sent: dict[str, Any] = {"type": "tool_result", "tool_use_id": tool_use.id}

            def run(given: dict[str, Any]) -> str:
                sent.update(run_tool(tool, tool_use.model_copy(update={"input": given})))
                return sent["content"]

            return {**sent, "content": lie(run, tool_use.input), **_error_of(sent)}

        runner._run_tool = lying
        return runner.until_done().content[0].text

    return agent


def _error_of(sent: dict[str, Any]) -> dict[str, Any]:
    return {"is_error": True} if sent.get("is_error") else {}


def anthropic_async_function(tool: Tool) -> Any:
    async def find_order(number: int) -> str:
        return tool(number)

    async def agent(prompt: str) -> str:
        runner: Any = anthropic.AsyncAnthropic().beta.messages.tool_runner(
            model="m",
            max_tokens=100,
            tools=[beta_async_tool(find_order)],
            messages=[{"role": "user", "content": prompt}],
        )
        return (await runner.until_done()).content[0].text

    return agent


def google_function(tool: Tool) -> Any:
    def agent(prompt: str) -> str | None:
        with genai.Client() as client:
            return client.models.generate_content(
                model="m", contents=prompt, config={"tools": [tool]}
            ).text

    return agent


def google_async_function(tool: Tool) -> Any:
    async def agent(prompt: str) -> str | None:
        with genai.Client() as client:
            models = client.aio.models
            config: Any = {"tools": [tool]}
            return (await models.generate_content(model="m", contents=prompt, config=config)).text

    return agent


OFFERED: Any = {"name": "find_order", "parameters": {"type": "object"}}


def openai_loop(prompt: str, run_tool: Run) -> str:
    """Ask the model until it calls no tool."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        tools: Any = [{"type": "function", "function": OFFERED}]
        reply: Any = openai.OpenAI().chat.completions.create(
            model="m", messages=messages, tools=tools
        )
        message = reply.choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.to_dict())
        for made in message.tool_calls:
            text = run_tool(json.loads(made.function.arguments))
            messages.append({"role": "tool", "tool_call_id": made.id, "content": text})


def mcp_function(tool: Tool, lie: Lie = honest) -> Any:
    server = MCPServer("shop")
    server.add_tool(tool)

    def agent(prompt: str) -> str:
        def run(given: dict[str, Any]) -> str:
            async def call_tool() -> Any:
                async with Client(server) as client:
                    await client.list_tools()
                    return await client.call_tool("find_order", given)

            return asyncio.run(call_tool()).content[0].text

        async def list_tools() -> None:
            async with Client(server) as client:
                await client.list_tools()

        asyncio.run(list_tools())
        return openai_loop(prompt, lambda given: lie(run, given))

    return agent


def langchain_function(tool: Tool, lie: Lie = honest) -> Any:
    made: BaseTool = cast("Any", langchain_tool)(tool)

    def agent(prompt: str) -> str:
        return openai_loop(prompt, lambda given: lie(made.run, given))

    return agent


def langchain_model_function(tool: Tool) -> Any:
    """A loop as LangChain's documentation writes it."""
    made: BaseTool = cast("Any", langchain_tool)(tool)

    def agent(prompt: str) -> str:
        from langchain_core.messages import HumanMessage

        model = cast("Any", ChatOpenAI(model="m")).bind_tools([made])
        messages: list[Any] = [HumanMessage(prompt)]
        while (reply := model.invoke(messages)).tool_calls:
            messages += [reply, *(made.invoke(one) for one in reply.tool_calls)]
        return reply.text

    return agent


FUNCTIONS = [
    anthropic_function,
    anthropic_async_function,
    google_function,
    google_async_function,
    mcp_function,
    langchain_function,
    langchain_model_function,
]
# A tool that the agent calls by itself: where nothing lists the tools, a missing run is unknown.
LYING = [
    *((make, lie) for make in (anthropic_function, mcp_function) for lie in LIES),
    *((langchain_function, lie) for lie in LIES if lie is not invents_a_result),
]


@pytest.mark.parametrize("make", FUNCTIONS)
def test_a_tool_that_an_sdk_runs_in_a_function_is_seen(make: Callable[[Tool], Any]):
    with drive(make(find_order)) as rehearsal:
        run = rehearsal.run(SCRIPT)
    (executed,) = run.executed
    assert (executed.name, executed.input) == ("find_order", {"number": 7})
    assert (executed.result.text, executed.result.is_error) == ("order 7", False)
    assert executed.duration is not None
    assert executed.call_id == run.scripted.calls[0].id
    assert run.changes == []


@pytest.mark.parametrize("make, lie", LYING)
def test_a_runner_that_lies_is_shown(make: Any, lie: Lie):
    with drive(make(find_order, lie)) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert [(one.what, one.expected, one.got) for one in run.changes] == LIES[lie]


@pytest.mark.parametrize("make", [*FUNCTIONS[:4], langchain_model_function])
def test_an_exception_of_a_tool_in_a_function_fails_the_run(make: Callable[[Tool], Any]):
    with (
        drive(make(broken)) as rehearsal,
        pytest.raises((ToolFailed, RuntimeError), match="no connection for 7"),
    ):
        rehearsal.run(SCRIPT)
    (end,) = rehearsal.events.named("tool.end")
    assert end.data["error"] == "RuntimeError: no connection for 7"


def test_an_error_that_a_tool_tells_the_model_is_no_failure_of_the_run():
    def find_order(number: int) -> str:
        raise ToolError(f"no order {number}")

    with drive(anthropic_function(find_order)) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.results("find_order")[0].is_error


def test_an_error_result_of_mcp_is_a_failed_execution():
    with drive(mcp_function(broken)) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.executed[0].result.is_error


def test_what_a_tool_calls_is_a_part_of_it():
    server = MCPServer("shop")
    server.add_tool(find_order)

    def refund(number: int) -> str:
        """Refund an order."""

        async def look() -> Any:
            async with Client(server) as client:
                return await client.call_tool("find_order", {"number": number})

        return asyncio.run(look()).content[0].text

    with drive(anthropic_function(refund)) as rehearsal:
        run = rehearsal.run(when("Go", [call("refund", {"number": 7}), say("Done.")]))
    assert run.tools == ["refund"]


def test_a_tool_that_the_model_never_called_is_executed_and_shown():
    look: BaseTool = cast("Any", langchain_tool)(find_order)

    def agent(prompt: str) -> str:
        look.run({"number": 8})
        return openai_loop(prompt, look.run)

    with drive(agent) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert [one.input for one in run.executed] == [{"number": 8}, {"number": 7}]
    assert [(one.what, one.got) for one in run.changes] == [
        ("unasked", 'find_order({"number":8})'),
    ]


def test_outside_of_a_run_the_sdk_is_as_before():
    async def call_tool() -> Any:
        server = MCPServer("shop")
        server.add_tool(find_order)
        async with Client(server) as client:
            return await client.call_tool("find_order", {"number": 7})

    original = BaseTool.run
    with drive(langchain_function(find_order)) as rehearsal:
        rehearsal.run(SCRIPT)
        events = len(rehearsal.events.all)
        assert asyncio.run(call_tool()).content[0].text == "order 7"
        assert len(rehearsal.events.all) == events
    assert BaseTool.run is original
