"""A person's answer is part of the script: allow, deny, edit, unexpected and never asked."""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import interrupt
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import CallDeferred

from offbook import call, drive, say, when
from offbook.errors import PlaybookError, ScriptMismatch, UsageError
from offbook.mcp import McpServer
from offbook.people import allow, deny, person

PAY = call("pay", {"amount": 7})
create_agent: Any = import_module("langchain.agents").create_agent  # its types are incomplete


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


class Till:
    """What was paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> str:
        self.paid.append(amount)
        return f"paid {amount}"


def pydantic_agent(till: Till, *, asks: bool = True) -> Any:
    agent = Agent("openai:gpt-4o", output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=asks)
    def pay(amount: int) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        return till.pay(amount)

    return agent


def openai_agent(till: Till, *, asks: bool = True) -> Any:
    @function_tool(needs_approval=asks)
    def pay(amount: int) -> str:
        return till.pay(amount)

    return OpenAIAgent("till", tools=[pay])


def langchain_agent(till: Till, *, asks: bool = True) -> Any:
    @langchain_tool
    def pay(amount: int) -> str:
        """Pay."""
        return till.pay(amount)

    return create_agent(
        "openai:gpt-4o",
        [pay],
        middleware=[HumanInTheLoopMiddleware({"pay": asks})],
        checkpointer=InMemorySaver(),
    )


def interrupting_agent(till: Till, *, asks: bool = True) -> Any:
    @langchain_tool
    def pay(amount: int) -> str:
        """Pay."""
        answer: Any = interrupt(f"pay {amount}?") if asks else True
        if isinstance(answer, dict):
            return till.pay(cast("dict[str, int]", answer)["amount"])
        return till.pay(amount) if answer else "The person refused."

    return create_agent("openai:gpt-4o", [pay], checkpointer=InMemorySaver())


Make = Callable[..., Any]
AGENTS: list[Make] = [pydantic_agent, openai_agent, langchain_agent, interrupting_agent]
EDITING: list[Make] = [pydantic_agent, langchain_agent, interrupting_agent]


@pytest.mark.parametrize("make", AGENTS)
def test_an_allowed_call_runs_once(make: Make):
    till = Till()
    with drive(make(till)) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", allow), say("Done.")]))
        assert run.output == "Done."
        assert len(run.events.executed) == 1
    assert till.paid == [7]
    assert run.results("pay")[0].text == "paid 7"


@pytest.mark.parametrize("make", AGENTS)
def test_a_denied_call_does_not_run(make: Make):
    till = Till()
    with drive(make(till)) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", deny), say("Not paid.")]))
        assert run.output == "Not paid."
    assert till.paid == []


@pytest.mark.parametrize("make", [pydantic_agent, openai_agent, langchain_agent])
def test_the_model_gets_the_reason_of_a_denial(make: Make):
    with drive(make(Till())) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", deny("too much")), say("No.")]))
    assert "too much" in run.results("pay")[0].text


@pytest.mark.parametrize("make", EDITING)
def test_a_person_changes_the_parameters(make: Make):
    till = Till()
    with drive(make(till)) as rehearsal:
        rehearsal.run(when("Pay", [PAY, person("pay", allow({"amount": 5})), say("Done.")]))
    assert till.paid == [5]


def test_a_framework_that_cannot_change_parameters_says_so():
    with (
        pytest.raises(UsageError, match="OpenAI Agents cannot change the parameters of pay"),
        drive(openai_agent(Till())) as rehearsal,
    ):
        rehearsal.run(when("Pay", [PAY, person("pay", allow({"amount": 5})), say("Done.")]))


@pytest.mark.parametrize("make", AGENTS)
def test_a_question_that_the_script_does_not_answer_fails_the_run(make: Make):
    till = Till()
    with (
        pytest.raises(ScriptMismatch, match=r"(?s)pay.*no person\(…\) of the script answers it"),
        drive(make(till)) as rehearsal,
    ):
        rehearsal.run(when("Pay", [PAY, say("Done.")]))
    assert till.paid == []


@pytest.mark.parametrize("make", AGENTS)
def test_a_person_who_is_never_asked_fails_the_run(make: Make):
    with (
        pytest.raises(ScriptMismatch, match=r'asked no person: step 2. person\("pay", allow\)'),
        drive(make(Till(), asks=False)) as rehearsal,
    ):
        rehearsal.run(when("Pay", [PAY, person("pay", allow), say("Done.")]))


@pytest.mark.parametrize("make", AGENTS)
def test_the_question_and_the_answer_are_in_the_trace(make: Make):
    with drive(make(Till())) as rehearsal:
        rehearsal.run(when("Pay", [PAY, person("pay", deny), say("No.")]))
        (event,) = [e for e in rehearsal.read_events() if e.event == "person.asked"]
    assert event.data["answer"] == "deny"
    assert event.data.get("tool", "pay") == "pay"
    assert event.data.get("input", {"amount": 7}) == {"amount": 7}
    assert event.data["question"] or event.data["tool"]


@pytest.mark.parametrize("make", [pydantic_agent, openai_agent, langchain_agent])
def test_several_calls_of_one_message_are_approved_in_any_order(make: Make):
    till = Till()
    calls = [call("pay", {"amount": 1}), call("pay", {"amount": 2})]
    with drive(make(till)) as rehearsal:
        rehearsal.run(when("Pay", [calls, person("pay", deny), person("pay", allow), say("Done.")]))
    assert till.paid == [2]


def test_a_person_gives_the_result_of_a_deferred_tool():
    agent = Agent("openai:gpt-4o", output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def pay(amount: int) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        raise CallDeferred

    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", "paid in cash"), say("Done.")]))
    assert run.results("pay")[0].text == "paid in cash"


def test_a_person_answers_a_question_with_a_text():
    @langchain_tool
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount} from {interrupt('Which account?')}"

    agent = create_agent("openai:gpt-4o", [pay], checkpointer=InMemorySaver())
    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("Which account?", "A7"), say("Done.")]))
    assert run.results("pay")[0].text == "paid 7 from A7"


SERVER = str(Path(__file__).parents[1] / "mcp" / "plain_server.py")
ANSWERS = [
    (person("Which account?", "A7"), '{"action": "accept", "content": {"account": "A7"}}'),
    (
        person("account", allow({"account": "B"})),
        '{"action": "accept", "content": {"account": "B"}}',
    ),
    (person("account", deny), '{"action": "decline"}'),
]


@pytest.mark.parametrize("answer, expected", ANSWERS)
def test_a_person_answers_an_elicitation_of_an_mcp_server(answer: Any, expected: str):
    server = McpServer([sys.executable, "-I", SERVER, "elicitation"])
    with drive(server) as rehearsal:
        find = call("find_order", {"number": 7})
        run = rehearsal.run(when("Find", [find, answer, say("Done.")]))
    assert run.results("find_order")[0].text == expected


def test_a_person_is_not_part_of_a_message():
    with pytest.raises(PlaybookError, match=r"person\(\) is not part of a message of the model"):
        when("Pay", [[PAY, person("pay", allow)], say("Done.")])


def test_an_answer_is_needed():
    with pytest.raises(PlaybookError, match="has no answer"):
        person("pay", None)


def test_an_elicitation_that_the_script_does_not_answer_fails_the_run():
    server = McpServer([sys.executable, "-I", SERVER, "elicitation"])
    find = call("find_order", {"number": 7})
    with (
        pytest.raises(ScriptMismatch, match=r"Which account\?.*no person\(…\) of the script"),
        drive(server) as rehearsal,
    ):
        rehearsal.run(when("Find", [find, say("Done.")]))


def test_a_person_whom_an_mcp_server_never_asks_fails_the_run():
    find = call("find_order", {"number": 7})
    with (
        pytest.raises(ScriptMismatch, match=r"asked no person: step 2. person"),
        drive(McpServer([sys.executable, "-I", SERVER])) as rehearsal,
    ):
        rehearsal.run(when("Find", [find, person("account", "A7"), say("Done.")]))
