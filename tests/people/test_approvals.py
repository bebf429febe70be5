"""Every agent that asks people: allow, deny, edit, an unexpected question, and one never asked.

Those of the Claude Agent SDK are in `tests/matrix/driven/drive_claude_agent_sdk.py`.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
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

from offbook import Rehearsal, call, drive, say, session, when
from offbook.clis import Acp, Pi
from offbook.errors import ScriptMismatch, UsageError
from offbook.mcp import McpServer, mcp_server
from offbook.people import allow, deny, person
from offbook.protocols import AgUi
from tests.clients import DEADLINE, PI, marks_of
from tests.forked import forked_command
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

create_agent: Any = import_module("langchain.agents").create_agent  # its types are incomplete
ACP_AGENT = Path(__file__).parents[1] / "subjects" / "clis" / "plain_acp_agent.py"
MASTRA = Path(__file__).with_name("mastra_agent.mjs")
NODE_AGENTS = HOMES["node-agents"]
NOT_SCRIPTED = r"(?s)no person\(…\) of the script answers it"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


class Ledger:
    """What was paid, in a file: some of the agents are processes."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def pay(self, amount: object) -> str:
        with self.path.open("a") as file:
            file.write(f"{amount}\n")
        return f"paid {amount}"

    @property
    def paid(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def pydantic_agent(ledger: Ledger, *, asks: bool) -> Rehearsal:
    agent = Agent("openai:gpt-4o", output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=asks)
    def pay(amount: int) -> str:  # pyright: ignore[reportUnusedFunction] - the agent has it
        return ledger.pay(amount)

    return drive(agent)


def openai_agent(ledger: Ledger, *, asks: bool) -> Rehearsal:
    @function_tool(needs_approval=asks)
    def pay(amount: int) -> str:
        return ledger.pay(amount)

    return drive(OpenAIAgent("till", tools=[pay]))


def langchain_agent(ledger: Ledger, *, asks: bool) -> Rehearsal:
    @langchain_tool
    def pay(amount: int) -> str:
        """Pay."""
        return ledger.pay(amount)

    middleware = [HumanInTheLoopMiddleware({"pay": asks})]
    saver = InMemorySaver()
    return drive(create_agent("openai:gpt-4o", [pay], middleware=middleware, checkpointer=saver))


def interrupting_agent(ledger: Ledger, *, asks: bool) -> Rehearsal:
    @langchain_tool
    def pay(amount: int) -> str:
        """Pay."""
        answer: Any = interrupt(f"pay {amount}?") if asks else True
        if isinstance(answer, dict):
            return ledger.pay(cast("dict[str, int]", answer)["amount"])
        return ledger.pay(amount) if answer else "The person refused."

    return drive(create_agent("openai:gpt-4o", [pay], checkpointer=InMemorySaver()))


def mcp_elicitation(ledger: Ledger, *, asks: bool) -> Rehearsal:
    async def pay(amount: int, ctx: Any) -> str:
        """Pay."""
        answer: dict[str, Any] = {"action": "accept", "content": {}}
        if asks:
            answer = await ctx.elicit(f"pay {amount}?", {"amount": {"type": "integer"}})
        if answer["action"] != "accept":
            return "refused"
        return ledger.pay(answer["content"].get("amount", amount))

    return drive(McpServer(mcp_server("till", tools={"pay": pay}).url))


def acp_agent(ledger: Ledger, *, asks: bool) -> Rehearsal:
    return drive(Acp(forked_command(ACP_AGENT, "asks" if asks else "")), cwd=ledger.path.parent)


def session_dialog(ledger: Ledger, *, asks: bool) -> Rehearsal:
    def extension(api: Any) -> None:
        @api.tool("pay", "Pay.")
        async def pay(params: Any, ctx: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            sure = not asks or await ctx.ui.confirm("pay?", f"Really pay {params['amount']}?")
            return ledger.pay(params["amount"]) if sure else "refused"

    return session(extensions=[extension])


def pi_dialog(_ledger: Ledger, *, asks: bool) -> Rehearsal:
    return drive(Pi(extensions=[Path(__file__).with_name("pay.ts")], warm=True, deadline=DEADLINE))


def mastra_suspend(ledger: Ledger, *, asks: bool) -> Rehearsal:
    """Mastra suspends the run at a tool that requires an approval; its server speaks AG-UI."""
    assert NODE_AGENTS.ready, NODE_AGENTS.describe_missing()
    node = shutil.which("node")
    assert node is not None
    script = str(shutil.copy(MASTRA, NODE_AGENTS.folder))
    words = [node, script, "{port}", str(ledger.path), "asks" if asks else ""]
    return drive(AgUi(words, deadline=DEADLINE))


def pay_call(_ledger: Ledger, *, asks: bool) -> Any:
    return call("pay", {"amount": 7})


def shell_call(ledger: Ledger, *, asks: bool) -> Any:
    return call("shell", {"command": f"echo 7 >> {ledger.path}"})


def pi_call(ledger: Ledger, *, asks: bool) -> Any:
    return call("pay", {"amount": 7, "ledger": str(ledger.path), "asks": asks})


@dataclass(frozen=True)
class AskingAgent:
    """An agent that asks before it pays, and whether a person can change what is paid."""

    open: Callable[..., Rehearsal]
    no_edit: str = ""  # the error where the parameters cannot be changed
    about: str = "pay"
    call: Callable[..., Any] = pay_call
    # Dialogs have default answers: a question is unexpected where the script has other people.
    dialog: bool = False

    def __str__(self) -> str:
        return self.open.__name__


AGENTS = [
    AskingAgent(pydantic_agent),
    AskingAgent(langchain_agent),
    AskingAgent(interrupting_agent),
    AskingAgent(openai_agent, "OpenAI Agents cannot change the parameters of pay"),
    AskingAgent(mcp_elicitation),
    AskingAgent(acp_agent, "ACP cannot change the parameters", "shell", shell_call),
    AskingAgent(session_dialog, "the dialog 'pay.' has no parameters to change", dialog=True),
]
CLIENTS = [
    pytest.param(
        AskingAgent(
            pi_dialog, "the dialog 'pay.' has no parameters to change", call=pi_call, dialog=True
        ),
        marks=marks_of(PI),
    ),
    pytest.param(
        AskingAgent(mastra_suspend),
        marks=[
            pytest.mark.clients,
            pytest.mark.slow,
            pytest.mark.skipif(not (WHOLE or NODE_AGENTS.ready), reason="run ./dev clients"),
        ],
    ),
]
every_agent = pytest.mark.parametrize("agent", [*AGENTS, *CLIENTS], ids=str)


def run(agent: AskingAgent, ledger: Ledger, *people: Any, asks: bool = True) -> Any:
    steps = [agent.call(ledger, asks=asks), *people, say("Done.")]
    with agent.open(ledger, asks=asks) as rehearsal:
        return rehearsal.run(when("Pay", steps))


@every_agent
def test_an_allowed_call_runs_once(agent: AskingAgent, ledger: Ledger):
    assert run(agent, ledger, person(agent.about, allow)).output == "Done."
    assert ledger.paid == ["7"]


@every_agent
def test_a_denied_call_does_not_run(agent: AskingAgent, ledger: Ledger):
    assert run(agent, ledger, person(agent.about, deny)).output == "Done."
    assert ledger.paid == []


@every_agent
def test_a_person_changes_the_parameters_or_an_error_says_why_not(
    agent: AskingAgent, ledger: Ledger
):
    edited = person(agent.about, allow({"amount": 5}))
    if agent.no_edit:
        with pytest.raises(UsageError, match=agent.no_edit):
            run(agent, ledger, edited)
        assert ledger.paid == []
    else:
        run(agent, ledger, edited)
        assert ledger.paid == ["5"]


@every_agent
def test_a_question_that_nobody_scripted_fails_the_run(agent: AskingAgent, ledger: Ledger):
    others = [person("Refund?", allow)] if agent.dialog else []
    with pytest.raises(ScriptMismatch, match=NOT_SCRIPTED) as caught:
        run(agent, ledger, *others)
    assert agent.about in str(caught.value)
    assert ledger.paid == []


@every_agent
def test_a_person_who_is_never_asked_fails_the_run(agent: AskingAgent, ledger: Ledger):
    with pytest.raises(ScriptMismatch, match=r"asked no person: step 2. person"):
        run(agent, ledger, person(agent.about, allow), asks=False)
