"""What no agent should do is found without an invariant, and not in an agent that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import openai
import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool

from offbook import drive, session
from offbook.errors import InvariantBroken, UsageError
from offbook.explore import Exploration, explore, replay, run_rendered
from tests.explore.worlds import MOCKS, PROMPT, fixed_shop

TEXT = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
TOOLS: Any = [{"type": "function", "function": {"name": "find", "parameters": TEXT}}]


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "x")


def make_loop(flaw: str) -> Callable[[], Any]:
    """Return the world of a loop over the SDK of OpenAI, with one flaw or none."""
    kept: list[Any] = []  # by all worlds, as in a default argument

    def world() -> Any:
        shared: list[Any] = []

        def agent(prompt: str) -> str:
            client = openai.OpenAI(max_retries=0)
            messages: Any = {"leak": shared, "kept": kept}.get(flaw, [])
            messages.append({"role": "user", "content": prompt})
            for _ in range(100):
                reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
                choice = reply.choices[0]
                messages.append(choice.message.model_dump(exclude_none=True))
                calls: Any = choice.message.tool_calls
                if flaw == "alphabet":
                    (choice.message.content or "").encode("latin-1")
                if not calls and (flaw != "endless" or choice.message.content):
                    return choice.message.content or ""
                for call in calls or ():
                    if flaw == "conversation":
                        arguments = json.dumps({"name": "changed"})
                        messages[-1]["tool_calls"][0]["function"]["arguments"] = arguments
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": "found"})
                if not calls:
                    messages.append({"role": "user", "content": "Say something."})
                if flaw == "growth":
                    messages += [{"role": "user", "content": f"Note {n}"} for n in range(40)]
            return "too many steps"

        return drive(agent)

    return world


def find(world: Any, *invariants: Any, **options: Any) -> Exploration:
    arguments: dict[str, Any] = {"runs": 30, **options}
    with pytest.raises(InvariantBroken) as caught:
        explore(world, "Find the chair", *invariants, **arguments)
    return cast("Exploration", caught.value.exploration)


FLAWS = {
    "leak": "no data of another session",
    "conversation": "no changed conversation",
    "growth": "no growing request",
    "endless": "no endless loop",
    "alphabet": "no unhandled exception",
    "kept": "no data of another session",
}


@pytest.mark.slow
@pytest.mark.parametrize("flaw", FLAWS)
def test_a_flaw_is_found_by_its_oracle_and_its_script_repeats_it(flaw: str):
    found = find(make_loop(flaw))
    assert FLAWS[flaw] in {finding.invariant for finding in found.findings}
    finding = next(one for one in found.findings if one.invariant == FLAWS[flaw])
    script = run_rendered(finding.script)
    with pytest.raises(InvariantBroken, match=FLAWS[flaw]):
        replay(make_loop(flaw), script)
    replay(make_loop(""), script)


@pytest.mark.slow
def test_an_agent_without_a_flaw_has_no_finding():
    assert explore(make_loop(""), "Find the chair", runs=120).findings == []


def test_an_oracle_can_be_left_out():
    with pytest.raises(InvariantBroken, match="to leave it out: --without crash"):
        explore(crashing, PROMPT, runs=40)
    assert explore(crashing, PROMPT, runs=40, without=["crash"]).findings == []


def crashing() -> Any:
    def extension(api: Any) -> None:
        @api.tool("find", parameters=TEXT)
        def find(params: Any, ctx: Any) -> str:
            raise SystemError("it crashed")

    return session(extensions=[extension], mock_tools=MOCKS)


def test_an_unknown_oracle_is_refused_with_the_nearest_one():
    with pytest.raises(UsageError, match="there is no oracle 'crsh'\\ndid you mean 'crash'"):
        explore(fixed_shop, PROMPT, runs=1, without=["crsh"])


def approving_agent(*, careless: bool) -> Callable[[], Any]:
    """Return an agent with a tool that needs an approval; a careless one also runs it before."""

    def world() -> Any:
        @function_tool(needs_approval=True)
        def refund(number: int) -> str:
            return f"refunded {number}"

        @function_tool(name_override="refund_now" if careless else "find")
        def other(number: int) -> str:
            return f"order {number}"

        return drive(OpenAIAgent(name="shop", tools=[refund, other]))

    return world


@pytest.mark.slow
def test_people_deny_in_some_behaviours_and_a_denied_tool_that_does_not_run_is_no_finding():
    denied: list[bool] = []

    def note(run: Any, _: Any) -> None:
        events = run.events.named("person.asked")
        denied.extend(event.data.get("answer") == "deny" for event in events)

    found = explore(approving_agent(careless=False), PROMPT, note, runs=40, deadline=None)
    assert found.findings == []
    assert {True, False} == {*denied}
