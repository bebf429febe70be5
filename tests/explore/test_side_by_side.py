"""Two conversations at once: what one user says is not mixed with what the other one says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType] - it has no types
from langchain_core.tools import tool as langchain_tool
from langchain_openai import ChatOpenAI

from offbook import call, drive, fail, say, when
from offbook.errors import InvariantBroken
from offbook.explore import Counterexample, Exploration, explore, replay, run_rendered
from tests.explore.hosts import Bug, host_agents, host_langgraph, host_pydantic

PROMPTS = ["Open a ticket for Ada", "Close the ticket of Ben"]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "add_note",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


class Desk:
    """A desk for all users. A careless one keeps the prompt of the user in an attribute."""

    def __init__(self, *, careless: bool) -> None:
        self._careless = careless
        self._prompt = ""
        self._at_once = self.most_at_once = 0
        self.wrong: list[str] = []

    async def ask(self, prompt: str) -> str:
        self._at_once += 1
        self.most_at_once = max(self._at_once, self.most_at_once)
        try:
            return await self._answer(prompt)
        finally:
            self._at_once -= 1

    async def _answer(self, prompt: str) -> str:
        self._prompt = prompt
        client = openai.AsyncOpenAI(max_retries=0)
        messages: Any = [{"role": "user", "content": prompt}]
        for _ in range(8):
            reply = await client.chat.completions.create(model="m", messages=messages, tools=[TOOL])
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            for made in message.tool_calls or ():
                user = self._prompt if self._careless else prompt
                if user != prompt:
                    self.wrong.append(user)
                messages.append({"role": "tool", "tool_call_id": made.id, "content": "noted"})
            if not message.tool_calls:
                return message.content or ""
        return ""


def make_desk(*, careless: bool) -> Callable[[], Any]:
    def world() -> Any:
        desk = Desk(careless=careless)
        return drive(desk_agent(desk)), desk

    return world


def desk_agent(desk: Desk) -> Callable[[str], Any]:
    async def ask(prompt: str) -> str:
        return await desk.ask(prompt)

    return ask


def is_right(_: Any, desk: Desk) -> bool:
    return not desk.wrong


def find(world: Any, *invariants: Any, **options: Any) -> list[Counterexample]:
    try:
        found = explore(world, PROMPTS, *invariants, **options)
    except InvariantBroken as error:
        found = cast("Exploration", error.exploration)
    return found.findings


def test_a_state_that_two_users_share_is_found_and_its_script_has_both_conversations():
    (finding,) = find(make_desk(careless=True), is_right, runs=40)
    script = run_rendered(finding.script)
    assert isinstance(script, tuple), finding.script
    with pytest.raises(InvariantBroken, match="is_right"):
        replay(make_desk(careless=True), script, is_right)
    replay(make_desk(careless=False), script, is_right)


def test_an_agent_without_such_a_state_has_no_finding():
    assert find(make_desk(careless=False), is_right, runs=40) == []


def test_a_script_with_two_conversations_must_break_it_three_times_in_a_row(tmp_path: Path):
    plays = tmp_path / "plays"
    plays.touch()

    def mostly(_: Any, desk: Desk) -> bool:
        """Break in three of four plays of two conversations at once."""
        if desk.most_at_once < 2:
            return True
        with plays.open("a") as file:
            file.write(".")
        return plays.stat().st_size % 4 == 0

    assert [finding.repeats for finding in find(make_desk(careless=False), mostly, runs=40)] == [
        False
    ]


def shared_tools(*, fixed: bool) -> Bug:
    """A tool that waits between the check and the effect, for any user."""
    sold: list[int] = []
    both = asyncio.Barrier(2)

    async def sell(seat: int) -> str:
        """Sell a seat."""
        if seat in sold:
            return "sold already"
        if not fixed:  # another system is asked, until the other user asks as well
            async with asyncio.timeout(60):
                await both.wait()
        sold.append(seat)
        return "sold"

    return Bug([sell], PROMPTS[0], lambda: len(sold) == len({*sold}))


@pytest.mark.parametrize("host", [host_pydantic, host_agents, host_langgraph])
def test_a_framework_has_two_conversations_at_once(host: Callable[[Bug], Any]):
    script = (
        when("Sell seat 4", [call("sell", {"seat": 4}), say("Done.")]),
        when("I want seat 4", [call("sell", {"seat": 4}), say("Done.")]),
    )

    def make_world(*, fixed: bool) -> Callable[[], Any]:
        def world() -> Any:
            bug = shared_tools(fixed=fixed)
            return host(bug), bug

        return world

    def holds(_: Any, bug: Bug) -> bool:
        return bool(bug.holds and bug.holds())

    with pytest.raises(InvariantBroken, match="holds"):
        replay(make_world(fixed=False), script, holds)
    run = replay(make_world(fixed=True), script, holds)
    assert len(run.executed) == 2


def test_the_prompt_of_one_user_in_a_request_of_the_other_is_a_leak():
    def world() -> Any:
        said: list[str] = []

        async def ask(prompt: str) -> str:
            said.append(prompt)
            await asyncio.sleep(0)
            content = f"You help users. The user says: {said[-1]}"
            messages: Any = [
                {"role": "system", "content": content},
                {"role": "user", "content": prompt},
            ]
            reply = await openai.AsyncOpenAI(max_retries=0).chat.completions.create(
                model="m", messages=messages
            )
            return reply.choices[0].message.content or ""

        return drive(ask)

    with pytest.raises(InvariantBroken, match="of another session is in the system prompt"):
        explore(world, PROMPTS, runs=60)


def test_an_error_of_the_provider_ends_one_of_two_conversations_and_is_no_crash():
    def find(name: str) -> str:
        """Find a seat."""
        return f"seat {name}"

    def world() -> Any:
        model = ChatOpenAI(model="gpt-4o", max_retries=0)
        return drive(cast("Any", create_agent)(model, [langchain_tool(find)]))

    asks = [call("find", {"name": "a"}), call("find", {"name": "b"}), say("Done.")]
    # Which of the two is the first to go on after the error differs from run to run.
    for _ in range(6):
        fails = when("Find seat 4", [fail(status=500), say("Done.")])
        replay(world, (fails, when("Find seat 5", asks)))
