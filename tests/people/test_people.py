"""A person's answer is part of the script; `test_approvals.py` has the cases of every agent."""

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

from offbook import Cassette, Playbook, Recording, call, drive, say, session, when
from offbook.errors import CheckFailed, PlaybookError, ScriptMismatch, UsageError
from offbook.exchange.people import PersonQuestion
from offbook.mcp import McpServer
from offbook.people import allow, deny, person
from offbook.sources.cassette import load_cassette, write_test

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


@pytest.mark.parametrize("make", [pydantic_agent, openai_agent, langchain_agent])
def test_the_model_gets_the_reason_of_a_denial(make: Make):
    with drive(make(Till())) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", deny("too much")), say("No.")]))
    assert "too much" in run.results("pay")[0].text


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


def test_a_person_is_asked_by_each_of_parallel_tools_that_interrupt():
    till = Till()
    calls = [call("pay", {"amount": amount}) for amount in (1, 2, 3)]
    answers = [person("pay", deny), person("pay", allow), person("pay", deny)]
    with drive(interrupting_agent(till)) as rehearsal:
        run = rehearsal.run(when("Pay", [calls, *answers, say("Done.")]))
    assert len(till.paid) == 1
    texts = [result.text for result in run.results("pay")]
    assert texts.count("The person refused.") == 2


def test_a_person_gives_the_result_of_a_deferred_tool():
    agent = Agent("openai:gpt-4o", output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def pay(amount: int) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        raise CallDeferred

    with drive(agent) as rehearsal:
        run = rehearsal.run(when("Pay", [PAY, person("pay", "paid in cash"), say("Done.")]))
    assert run.results("pay")[0].text == "paid in cash"


def test_a_question_about_half_a_character_is_shown():
    question = PersonQuestion(tool="pay", input={"note": "half \ud83d"})
    assert str(question) == r'pay({"note": "half \ud83d"})'


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


DIALOGS = [
    ("select", ["formal", "casual"], "casual", "casual"),
    ("input", "your name", "Ada", "Ada"),
    ("editor", "draft", "Dear Ada", "Dear Ada"),
    ("input", "your name", deny, None),
]


@pytest.mark.parametrize("method, argument, answer, expected", DIALOGS)
def test_a_person_answers_a_dialog(method: str, argument: Any, answer: Any, expected: Any):
    with session(extensions=[asking(method, argument)]) as rehearsal:
        run = rehearsal.run(when("Go", [call("ask"), person("Tone", answer), say("Done.")]))
    assert run.results("ask")[0].text == str(expected)


def asking(method: str, argument: Any) -> Any:
    def extension(api: Any) -> None:
        @api.tool("ask", "Ask.")
        async def ask(params: Any, ctx: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            return str(await getattr(ctx.ui, method)("Tone", argument))

    return extension


@pytest.mark.parametrize(
    "method, argument, answer, message",
    [
        ("select", ["formal"], "casual", "'casual' is not an item of 'Tone'"),
        ("input", "your name", allow, "expected str or None as answer to 'Tone', got allow"),
        ("confirm", "", "yes", "expected bool as answer to 'Tone', got str"),
    ],
)
def test_an_answer_that_a_dialog_does_not_have_fails_the_run(
    method: str, argument: Any, answer: Any, message: str
):
    with (
        pytest.raises(UsageError, match=message) as caught,
        session(extensions=[asking(method, argument)]) as rehearsal,
    ):
        rehearsal.run(when("Go", [call("ask"), person("Tone", answer), say("Done.")]))
    assert caught.value.where == "person('Tone', …)"


def test_mock_ui_answers_before_a_person():
    with session(extensions=[asking("input", "")], mock_ui={"input": "Ada"}) as rehearsal:
        run = rehearsal.run(when("Go", [call("ask"), say("Done.")]))
    assert run.results("ask")[0].text == "Ada"


@pytest.mark.parametrize("tracks", ["all", "model,people"])
def test_a_dialog_of_a_tape_is_answered_again(tmp_path: Path, tracks: Any):
    model = Playbook()
    model.load(when("Go", [call("ask"), person("Tone", "Ada"), say("Done.")]))
    tape = tmp_path / "tape.yaml"
    with Recording(model, tape, tracks="all") as source:
        assert play_tape(source) == "Ada"
    # With all tracks the tool is replayed, and asks nothing.
    assert play_tape(Cassette(tape, tracks=tracks)) == "Ada"
    written = write_test(load_cassette(tape), "shop:agent", "shop", tape).text
    assert "mock_tools" in written
    assert "person" not in written


def test_a_replay_without_a_question_outside_of_tools_fails(tmp_path: Path):
    model = Playbook()
    model.load(when("Pay", [PAY, person("pay", allow), say("Paid.")]))
    tape = tmp_path / "tape.yaml"
    with (
        Recording(model, tape, tracks="all") as source,
        drive(pydantic_agent(Till()), source=source) as run,
    ):
        run.run("Pay")
    with (
        pytest.raises(CheckFailed, match="never asked: pay"),
        drive(pydantic_agent(Till(), asks=False), source=Cassette(tape, tracks="all")) as run,
    ):
        run.run("Pay")


def play_tape(source: Any) -> str:
    with session(extensions=[asking("input", "")], source=source) as rehearsal:
        return rehearsal.run("Go").results("ask")[0].text
