"""Whether a tool failed: seen by the adapter, said by the wire, or unknown."""

import traceback
from collections.abc import Callable
from typing import Any, cast

import agents
import openai
import pydantic_ai
import pytest
from anthropic import Anthropic, beta_tool
from google import genai
from langchain import agents as langchain
from langchain_core.tools import ToolException, tool
from smolagents import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    OpenAIServerModel,
    ToolCallingAgent,
)
from smolagents import tool as smol_tool  # pyright: ignore[reportMissingTypeStubs,reportUnknownVariableType] - it has none

from offbook import call, drive, say, when
from offbook.errors import PlaybookError, ScriptUnfinished, ToolFailed, UnknownOutcome
from offbook.subjects.frameworks import OpenAIAgents, ToolWatch
from tests.runs.losing_agents import changes_the_id as plain_function

pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")
Find = Callable[[int], str]
Make = Callable[[Find], Any]
CLIENTS: list[genai.Client] = []  # a client closes itself when it is collected


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


def find_order(number: int) -> str:
    """Find an order.

    Args:
        number: its number
    """
    return f"order {number}"


def broken(number: int) -> str:
    """Find an order.

    Args:
        number: its number
    """
    raise RuntimeError(f"no connection for {number}")


broken.__name__ = "find_order"


def openai_chat(find: Find) -> Any:
    model = agents.OpenAIChatCompletionsModel("m", openai_client=openai.AsyncOpenAI())
    return agents.Agent(name="shop", tools=[agents.function_tool(find)], model=model)


def openai_responses(find: Find) -> Any:
    model = agents.OpenAIResponsesModel("m", openai_client=openai.AsyncOpenAI())
    return agents.Agent(name="shop", tools=[agents.function_tool(find)], model=model)


def pydantic_chat(find: Find) -> Any:
    agent = pydantic_ai.Agent("openai-chat:m")
    agent.tool_plain(find)
    return agent


def langchain_chat(find: Find) -> Any:
    handler = cast("Any", langchain).middleware.wrap_tool_call

    @handler
    async def answer_errors(request: Any, run: Any) -> Any:
        from langchain_core.messages import ToolMessage

        try:
            return await run(request)
        except RuntimeError as error:
            return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")

    create_agent: Any = cast("Any", langchain).create_agent
    return create_agent("openai:m", tools=[tool(find)], middleware=[answer_errors])


def anthropic_runner(find: Find) -> Any:
    return Anthropic().beta.messages.tool_runner(
        model="m", max_tokens=100, tools=[beta_tool(find)], messages=[]
    )


def google_chat(find: Find) -> Any:
    CLIENTS.append(client := genai.Client())
    return client.chats.create(model="m", config={"tools": [find]})


def smolagent(find: Find) -> Any:
    model = OpenAIServerModel("m", api_key="none")
    return ToolCallingAgent([smol_tool(find)], model, verbosity_level=0)


# The frameworks that send the exception of a tool to the model as its result.
SWALLOWING: list[Make] = [
    openai_chat,
    openai_responses,
    langchain_chat,
    anthropic_runner,
    google_chat,
]


def script(**options: Any) -> Any:
    return when("Find order 7", [call("find_order", {"number": 7}, **options), say("Sorry.")])


@pytest.mark.parametrize("make", SWALLOWING)
def test_an_exception_of_a_tool_fails_the_run(make: Make):
    message = "the tool find_order raised RuntimeError: no connection for 7"
    with drive(make(broken)) as rehearsal, pytest.raises(ToolFailed, match=message) as raised:
        rehearsal.run(script())
    # The traceback leads to the line in the tool.
    lines = "".join(traceback.format_exception(raised.value))
    assert 'raise RuntimeError(f"no connection for {number}")' in lines
    errors = rehearsal.events.named("tool.error")
    assert [event.data["error"] for event in errors] == ["RuntimeError: no connection for 7"]


@pytest.mark.parametrize("make", SWALLOWING)
def test_an_expected_exception_is_an_error_result(make: Make):
    with drive(make(broken)) as rehearsal:
        run = rehearsal.run(script(raises=RuntimeError))
        assert run.results("find_order")[0].is_error


@pytest.mark.parametrize("make", [*SWALLOWING, pydantic_chat])
def test_a_tool_that_returns_is_known_to_have_succeeded(make: Make):
    seen: list[bool] = []
    action = call("find_order", {"number": 7}).then(lambda result: seen.append(result.is_error))
    with drive(make(find_order)) as rehearsal:
        run = rehearsal.run(when("Find order 7", [action, say("A lamp.")]))
        assert seen == [run.results("find_order")[0].is_error] == [False]


@pytest.mark.parametrize("make", [*SWALLOWING, pydantic_chat])
def test_an_expected_exception_that_does_not_come_fails_the_run(make: Make):
    message = "call find_order was expected to raise RuntimeError"
    with drive(make(find_order)) as rehearsal, pytest.raises(ScriptUnfinished, match=message):
        rehearsal.run(script(raises=RuntimeError))


def test_another_exception_than_the_expected_one_fails_the_run():
    with drive(openai_chat(broken)) as rehearsal, pytest.raises(ToolFailed, match="RuntimeError"):
        rehearsal.run(script(raises=(ValueError, KeyError)))


def test_tools_are_restored_after_the_run():
    function_tool = agents.function_tool(find_order)
    before = dict(vars(function_tool)), dict(vars(function_tool.on_invoke_tool))
    agent = agents.Agent(name="shop", tools=[function_tool])
    with drive(agent, auto_assert=False):
        assert (vars(function_tool), vars(function_tool.on_invoke_tool)) != before
    assert (vars(function_tool), vars(function_tool.on_invoke_tool)) == before


def test_a_retry_of_pydantic_ai_is_an_error_result_on_the_wires_of_openai():
    agent = pydantic_ai.Agent("openai-chat:m")

    @agent.tool_plain
    def find_order(number: int) -> str:  # pyright: ignore[reportUnusedFunction] - registered
        raise pydantic_ai.ModelRetry(f"ask for more than {number}")

    with drive(agent) as rehearsal:
        run = rehearsal.run(script())
        assert run.results("find_order")[0].is_error


def test_an_exception_that_a_langchain_tool_handles_is_an_error_result():
    def find_order(number: int) -> str:
        """Find an order."""
        raise ToolException(f"no order {number}")

    handled = tool(find_order)
    handled.handle_tool_error = True
    create_agent: Any = cast("Any", langchain).create_agent
    with drive(create_agent("openai:m", tools=[handled])) as rehearsal:
        run = rehearsal.run(script())
        assert run.results("find_order")[0].is_error


def test_smolagents_tool_exceptions_fail_the_run():
    model = OpenAIServerModel("m", api_key="none")
    agent = ToolCallingAgent([smol_tool(broken)], model, verbosity_level=0)
    answer = call("final_answer", {"answer": "Sorry."}, unanswered=True)
    find = call("find_order", {"number": 7})
    with drive(agent) as rehearsal, pytest.raises(ToolFailed, match="no connection for 7"):
        rehearsal.run(when("Find order 7", [find, answer]))


def test_an_outcome_that_nothing_saw_is_unknown_and_asserting_on_it_says_so():
    with drive(plain_function) as rehearsal:
        run = rehearsal.run(script())
        result = run.results("find_order")[0]
        assert result.failed is None
        with pytest.raises(UnknownOutcome, match="unknown whether find_order failed"):
            assert not result.is_error


def test_an_unknown_outcome_read_in_then_fails_the_run():
    find = call("find_order", {"number": 7}).then(lambda result: bool(result.is_error))
    with drive(plain_function) as rehearsal, pytest.raises(UnknownOutcome):
        rehearsal.run(when("Find order 7", [find, say("A lamp.")]))


@pytest.mark.parametrize(
    "raises", ["ValueError", ValueError("x"), (ValueError, 3), KeyboardInterrupt]
)
def test_what_is_no_exception_class_is_refused(raises: Any):
    with pytest.raises(PlaybookError, match="takes a class of exceptions"):
        call("find_order", raises=raises)


@pytest.mark.parametrize("make", [anthropic_runner, google_chat])
def test_a_fault_of_a_tool_without_await_is_its_error_result(make: Make):
    with drive(make(find_order), faults=["tool_error:find_order@1"]) as rehearsal:
        run = rehearsal.run(script())
    (result,) = run.results("find_order")
    assert result.is_error
    assert "injected fault: tool_error" in result.text
    assert run.events.named("tool.error") == []


def test_an_exception_is_kept_before_the_run_has_a_trace():
    watch = ToolWatch(())
    with pytest.raises(RuntimeError), watch.call("find_order", {}, "1"):
        broken(7)
    (error,) = watch.errors
    assert (error.call_id, error.tool) == ("1", "find_order")
    assert watch.failed == {"1": True}


def test_a_call_that_is_interrupted_has_no_outcome():
    watch = ToolWatch(())
    with pytest.raises(KeyboardInterrupt), watch.call("find_order", {}, "1"):
        raise KeyboardInterrupt
    assert (watch.failed, watch.errors) == ({}, [])


def test_tools_are_restored_when_one_of_them_cannot_be_watched(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object) -> None:
        raise LookupError("no such attribute")

    function_tool = agents.function_tool(find_order)
    before = function_tool.on_invoke_tool
    agent = agents.Agent(name="shop", tools=[function_tool])
    monkeypatch.setattr(OpenAIAgents, "watch_tool", refuse)
    mocks = {"find_order": "mocked"}
    with pytest.raises(LookupError), drive(agent, mock_tools=mocks) as rehearsal:
        rehearsal.run(script())
    assert function_tool.on_invoke_tool is before
