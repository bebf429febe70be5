"""Agents of each framework run unchanged: scripted model, real tools."""

from collections.abc import Callable
from typing import Any, cast

import agents
import openai
import pydantic_ai
import pytest
from anthropic import Anthropic, AsyncAnthropic, beta_async_tool, beta_tool
from google import genai
from langchain import agents as langchain
from langchain_core.tools import tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook import call, drive, fail, say, when
from offbook.errors import (
    CheckFailed,
    IsolationError,
    ScriptExhausted,
    ScriptMismatch,
    UsageError,
)
from offbook.subjects.frameworks import FrameworkSubject, parameter_names
from offbook.testing import assert_handoff_emitted, assert_step_emitted, assert_steps_ran

Numbers = list[int]
Make = Callable[[Numbers], Any]
CLIENTS: list[genai.Client] = []

# google-genai subclasses a class of aiohttp, which warns about it.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession")


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


def pydantic_agent(model: Any) -> Make:
    def make(numbers: Numbers) -> Any:
        agent = pydantic_ai.Agent(model)

        @agent.tool_plain
        def find_order(number: int) -> str:  # pyright: ignore[reportUnusedFunction] - registered by its decorator
            """Find an order."""
            numbers.append(number)
            return f"order {number}"

        return agent

    return make


def openai_agent(api: str) -> Make:
    def make(numbers: Numbers) -> Any:
        @agents.function_tool
        def find_order(number: int) -> str:
            """Find an order."""
            numbers.append(number)
            return f"order {number}"

        client = openai.AsyncOpenAI()
        chat = agents.OpenAIChatCompletionsModel("m", openai_client=client)
        model = chat if api == "chat" else agents.OpenAIResponsesModel("m", openai_client=client)
        return agents.Agent(name="shop", tools=[find_order], model=model)

    return make


def langchain_agent(model: str) -> Make:
    def make(numbers: Numbers) -> Any:
        @tool
        def find_order(number: int) -> str:
            """Find an order."""
            numbers.append(number)
            return f"order {number}"

        create_agent: Any = cast("Any", langchain).create_agent
        return create_agent(model, tools=[find_order])

    return make


def keep_alive(client: genai.Client) -> genai.Client:
    """Keep a reference: a client closes itself when it is collected, even if its chats live on."""
    CLIENTS.append(client)
    return client


def google_chat(numbers: Numbers) -> Any:
    def find_order(number: int) -> str:
        """Find an order."""
        numbers.append(number)
        return f"order {number}"

    return keep_alive(genai.Client()).chats.create(model="m", config={"tools": [find_order]})


def google_chat_async(numbers: Numbers) -> Any:
    async def find_order(number: int) -> str:
        """Find an order."""
        numbers.append(number)
        return f"order {number}"

    return keep_alive(genai.Client()).aio.chats.create(model="m", config={"tools": [find_order]})


def anthropic_runner(*, stream: bool) -> Make:
    def make(numbers: Numbers) -> Any:
        @beta_tool
        def find_order(number: int) -> str:
            """Find an order."""
            numbers.append(number)
            return f"order {number}"

        return Anthropic().beta.messages.tool_runner(
            model="m", max_tokens=100, tools=[find_order], messages=[], stream=stream
        )

    return make


def anthropic_runner_async(numbers: Numbers) -> Any:
    @beta_async_tool
    async def find_order(number: int) -> str:
        """Find an order."""
        numbers.append(number)
        return f"order {number}"

    return AsyncAnthropic().beta.messages.tool_runner(
        model="m", max_tokens=100, tools=[find_order], messages=[]
    )


AGENTS = {
    "pydantic-ai, chat": pydantic_agent("openai-chat:m"),
    "pydantic-ai, responses": pydantic_agent("openai:m"),
    "pydantic-ai, messages": pydantic_agent("anthropic:m"),
    "pydantic-ai, gemini": pydantic_agent("google:m"),
    "openai-agents, chat": openai_agent("chat"),
    "openai-agents, responses": openai_agent("responses"),
    "langchain, chat": langchain_agent("openai:m"),
    "langchain, messages": langchain_agent("anthropic:m"),
    "google-genai": google_chat,
    "google-genai, async": google_chat_async,
    "anthropic": anthropic_runner(stream=False),
    "anthropic, streamed": anthropic_runner(stream=True),
    "anthropic, async": anthropic_runner_async,
}


@pytest.fixture(params=AGENTS)
def make(request: pytest.FixtureRequest) -> Make:
    return AGENTS[request.param]


def test_the_model_is_scripted_and_the_tool_is_real(make: Make):
    numbers: Numbers = []
    received: list[str] = []
    script = [
        call("find_order", {"number": 7}).then(lambda result: received.append(result.text)),
        say("Done."),
    ]
    with drive(make(numbers)) as rehearsal:
        run = rehearsal.run(when("Find order 7", script))
        assert run.tools == ["find_order"]
        assert run.executed[0].input == {"number": 7}
        assert [result.text for result in run.results("find_order")] == ["order 7"]
        assert run.output == "Done."
    assert (numbers, received) == ([7], ["order 7"])


async def test_agents_run_in_async_tests(make: Make):
    numbers: Numbers = []
    async with drive(make(numbers)) as rehearsal:
        run = await rehearsal.run(
            when("Find order 7", [call("find_order", {"number": 7}), say("Done.")])
        )
        assert run.tools == ["find_order"]
    assert numbers == [7]


def test_two_calls_in_one_message_both_run(make: Make):
    numbers: Numbers = []
    both = [call("find_order", {"number": 1}), call("find_order", {"number": 2})]
    with drive(make(numbers)) as rehearsal:
        run = rehearsal.run(when("Find both", [both, say("Done.")]))
        assert run.tools == ["find_order", "find_order"]
    assert sorted(numbers) == [1, 2]


def test_prompts_continue_the_conversation(make: Make):
    with drive(make([])) as rehearsal:
        rehearsal.run(
            when("Find order 7", [call("find_order", {"number": 7}), say("Done.")]),
            when("And now?", [say("Nothing.")]),
        )
        rehearsal.run(when("Bye", [say("Bye.")]))
        prompts = [(m.role, m.text) for m in rehearsal.events.messages if m.role == "user"]
        counts = [e.data["count"] for e in rehearsal.events.named("model.request")]
    assert prompts == [("user", "Find order 7"), ("user", "And now?"), ("user", "Bye")]
    assert counts == sorted(counts)
    assert counts[-1] >= 7


def test_a_tool_is_mocked_in_place_and_restored(make: Make):
    numbers: Numbers = []
    agent = make(numbers)
    script = when("Find it", [call("find_order", {"number": 7}), say("Done.")])
    received_params: list[Any] = []

    def mock(params: dict[str, Any]) -> str:
        received_params.append(params)
        return "mocked"

    with drive(agent, mock_tools={"find_order": mock}) as mocked:
        results = mocked.run(script).results("find_order")
        assert [(result.text, result.mocked) for result in results] == [("mocked", True)]
    assert (numbers, received_params) == ([], [{"number": 7}])
    with drive(agent) as real:
        assert not real.run(script).results("find_order")[0].mocked
    assert numbers == [7]


def test_a_mocked_result_is_marked_under_its_alias():
    agent = pydantic_agent("openai-chat:m")([])
    names = {"look": "find_order"}
    with drive(agent, mock_tools={"find_order": "mocked"}, tool_aliases=names) as rehearsal:
        run = rehearsal.run(when("Find it", [call("look", {"number": 7}), say("Done.")]))
        assert run.results("look")[0].mocked


def test_mocks_can_be_async_or_constant(make: Make):
    async def answer(params: dict[str, Any]) -> str:
        return f"late {params['number']}"

    script = when("Find it", [call("find_order", {"number": 7}), say("Done.")])
    with drive(make([]), mock_tools={"find_order": answer}) as rehearsal:
        assert rehearsal.run(script).results("find_order")[0].text == "late 7"
    with drive(make([]), mock_tools={"find_order": "plain"}) as rehearsal:
        assert rehearsal.run(script).results("find_order")[0].text == "plain"


def test_an_unused_mock_fails_the_test(make: Make):
    with (
        pytest.raises(CheckFailed, match="never used: mock_tools find_order"),
        drive(make([]), mock_tools={"find_order": "plain"}) as rehearsal,
    ):
        rehearsal.run(when("Hi", [say("Hi.")]))


FIND_IT = when("Find it", [call("find_order", {"number": 7}), say("Done.")])


def test_a_mock_that_raises_breaks_the_test_with_its_own_error(make: Make):
    def check(params: dict[str, Any]) -> str:
        assert params == {"number": 8}
        return "never"

    with (
        drive(make([]), mock_tools={"find_order": check}) as rehearsal,
        pytest.raises(AssertionError, match="'number': 7") as caught,
    ):
        rehearsal.run(FIND_IT)
    assert "in mock_tools['find_order']" in caught.value.__notes__


@pytest.mark.parametrize(
    "name, text",
    [
        ("pydantic-ai, messages", "out of stock"),
        ("openai-agents, chat", "An error occurred while running the tool"),
        ("anthropic", "out of stock"),
    ],
)
def test_an_exception_as_a_mocked_result_is_a_tool_that_fails(name: str, text: str):
    mocks = {"find_order": pydantic_ai.ModelRetry("out of stock")}
    with drive(AGENTS[name]([]), mock_tools=mocks) as rehearsal:
        assert text in rehearsal.run(FIND_IT).results("find_order")[0].text


def test_an_exception_as_a_mocked_result_ends_an_agent_that_does_not_handle_it():
    mocks = {"find_order": ConnectionError("out of reach")}
    agent = AGENTS["pydantic-ai, messages"]([])
    with (
        drive(agent, mock_tools=mocks) as rehearsal,
        pytest.raises(ConnectionError, match="out of reach"),
    ):
        rehearsal.run(FIND_IT)


def test_a_mock_of_an_unknown_tool_suggests_the_nearest(make: Make):
    with pytest.raises(UsageError, match="did you mean 'find_order'"):
        drive(make([]), mock_tools={"find_ordr": "x"})


def test_a_call_of_an_unknown_tool_fails_the_run_at_once(make: Make):
    with drive(make([])) as rehearsal:
        with pytest.raises(ScriptMismatch, match="did you mean 'find_order'"):
            rehearsal.run(when("Find it", [call("find_ordr", {}), say("Done.")]))
        assert len(rehearsal.events.named("model.request")) == 1


def test_an_exhausted_script_fails_the_run(make: Make):
    with drive(make([])) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("Find it", [call("find_order", {"number": 7})]))


def test_an_exception_in_then_fails_the_run_unchanged(make: Make):
    def complain(_: object) -> None:
        raise ZeroDivisionError("on purpose")

    with drive(make([])) as rehearsal, pytest.raises(ZeroDivisionError, match="on purpose"):
        rehearsal.run(
            when("Find it", [call("find_order", {"number": 7}).then(complain), say("Done.")])
        )


def test_a_scripted_provider_error_that_the_agent_does_not_catch_is_raised(make: Make):
    with drive(make([])) as rehearsal:
        with pytest.raises(Exception, match="no such key") as caught:
            rehearsal.run(when("Find it", [fail("no such key", status=401)]))
        [event] = rehearsal.events.named("agent.error")
    assert "no such key" in event.data["error"]
    assert "pytest.raises" in caught.value.__notes__[-1]


def test_an_exception_of_the_agent_fails_the_run():
    agent = pydantic_ai.Agent("openai:m")

    @agent.tool_plain
    def explode() -> str:  # pyright: ignore[reportUnusedFunction] - registered by its decorator
        """Explode."""
        raise ZeroDivisionError("on purpose")

    with drive(agent) as rehearsal, pytest.raises(ZeroDivisionError, match="on purpose"):
        rehearsal.run(when("Go", [call("explode"), say("Done.")]))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_handoff_is_in_the_trace(*, wrapped: bool):
    refunds: Any = agents.Agent(name="refunds", model="m")
    target: Any = agents.handoff(refunds) if wrapped else refunds
    agent: Any = agents.Agent(name="triage", model="m", handoffs=[target])
    with drive(agent) as rehearsal:
        rehearsal.run(
            when("Refund", [call("transfer_to_refunds"), say("Refunded.")]),
            when("Thanks", [say("Welcome.")]),
        )
        [event] = rehearsal.events.named("handoff")
        assert_steps_ran(["triage", "refunds", "refunds"], rehearsal.events)
        assert_handoff_emitted(rehearsal.events, "handoff", "refunds")
        assert_step_emitted("triage", {"output": {"handoff": "refunds"}}, rehearsal.events)
        assert_step_emitted("refunds", {"output": "Welcome."}, rehearsal.events)
    assert event.data == {"from": "triage", "to": "refunds"}


def test_a_tool_after_a_handoff_can_be_mocked():
    @agents.function_tool
    def refund(number: int) -> str:
        """Refund it."""
        return f"refunded {number}"

    agent = agents.Agent(
        name="triage",
        model="m",
        handoffs=[agents.Agent(name="refunds", model="m", tools=[refund])],
    )
    script = [call("transfer_to_refunds"), call("refund", {"number": 7}), say("Done.")]
    with drive(agent, mock_tools={"refund": "not really"}) as rehearsal:
        assert rehearsal.run(when("Go", script)).results("refund")[0].text == "not really"


def test_options_are_passed_to_the_framework():
    agent = pydantic_ai.Agent("openai:m", deps_type=str)

    @agent.tool
    def whoami(ctx: pydantic_ai.RunContext[str]) -> str:  # pyright: ignore[reportUnusedFunction] - registered by its decorator
        """Return the user."""
        return ctx.deps

    with drive(agent, deps="ada") as rehearsal:
        run = rehearsal.run(when("Who?", [call("whoami"), say("You.")]))
        assert run.results("whoami")[0].text == "ada"


def test_an_unknown_option_is_refused_at_once_with_the_nearest(make: Make):
    with pytest.raises(UsageError, match="unknown option 'lenint'") as caught:
        drive(make([]), lenint=["missing_max_tokens"])
    assert "did you mean 'lenient'" in str(caught.value)


def test_the_result_of_the_framework_is_kept():
    agent = pydantic_ai.Agent("openai:m", output_type=int)
    with drive(agent) as rehearsal:
        rehearsal.run(when("How many?", [call("final_result", {"response": 7}, unanswered=True)]))
        result = cast("Any", cast("FrameworkSubject", rehearsal.subject).result)
    assert result.output == 7


def test_a_custom_base_url_is_intercepted_with_urls():
    provider = OpenAIProvider(base_url="https://gateway.example/llm/v1", api_key="none")
    agent = pydantic_ai.Agent(OpenAIChatModel("m", provider=provider))
    script = when("Hi", [say("Hello.")])
    with drive(agent, urls=["https://gateway.example/llm/v1"]) as rehearsal:
        assert rehearsal.run(script).output == "Hello."
    with drive(agent) as rehearsal, pytest.raises(IsolationError, match=r"gateway\.example"):
        rehearsal.run(script)


def any_options(prompt: str, **options: object) -> None:
    """Take any option."""


def some_options(prompt: str, *words: str, depth: int = 1, _: int = 0) -> None:
    """Take two options."""


@pytest.mark.parametrize(
    "function, names",
    [(min, None), (any_options, None), (some_options, {"depth"})],
    ids=["no signature", "any options", "some options"],
)
def test_the_options_of_a_function_are_its_keyword_parameters(
    function: Callable[..., Any], names: set[str] | None
):
    assert parameter_names(function, reserved=["_"]) == names
