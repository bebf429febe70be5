"""What no agent should do is found without an invariant, and not in an agent that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import openai
import pytest
from agents import Agent as OpenAIAgent
from agents import function_tool
from langchain_core.tools import tool

from offbook import call, drive, say, session, when
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
                for made in calls or ():
                    if flaw == "conversation":
                        arguments = json.dumps({"name": "changed"})
                        messages[-1]["tool_calls"][0]["function"]["arguments"] = arguments
                    messages.append({"role": "tool", "tool_call_id": made.id, "content": "found"})
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


def asking_session(answers: list[Any], **options: Any) -> Callable[[], Any]:
    """Return a session whose tool asks in four dialogs, and notes the answers."""

    def extension(api: Any) -> None:
        @api.tool("find", parameters=TEXT)
        async def find(params: Any, ctx: Any) -> str:
            answers.append(await ctx.ui.confirm("Search?"))
            answers.append(await ctx.ui.select("Where?", ["here", "there"]))
            answers.append(await ctx.ui.input("Why?"))
            answers.append(await ctx.ui.editor("How?"))
            return "found"

    return lambda: session(extensions=[extension], mock_tools=MOCKS, **options)


def test_people_decline_the_dialogs_of_a_session_in_some_behaviours():
    answers: list[Any] = []
    explore(asking_session(answers), PROMPT, runs=40, deadline=None)
    assert {*answers} == {True, False, "here", "", None}


def test_a_dialog_that_the_world_answers_is_not_declined():
    answers: list[Any] = []
    mocks = {"confirm": True, "select": 1, "input": "x", "editor": "y"}
    explore(asking_session(answers, mock_ui=mocks), PROMPT, runs=40, deadline=None)
    assert {*answers} == {True, "there", "x", "y"}


def test_an_effect_after_a_declined_dialog_has_a_script_with_the_person():
    def world() -> Any:
        removed: list[bool] = []

        def extension(api: Any) -> None:
            @api.tool("remove", parameters=TEXT)
            async def remove(params: Any, ctx: Any) -> str:
                removed.append(await ctx.ui.confirm("Remove it?"))
                return "removed"

        return session(extensions=[extension], mock_tools=MOCKS), removed

    def approved(_: Any, removed: list[bool]) -> bool:
        return all(removed)

    (finding,) = find(world, approved).findings
    assert 'person("Remove it?", deny),' in finding.script
    with pytest.raises(InvariantBroken):
        replay(world, run_rendered(finding.script), approved)


PAY: Any = [{"type": "function", "function": {"name": "pay", "parameters": TEXT}}]


def paying_loop(tries: int, *, once: bool = False) -> Callable[[], Any]:
    """Return the world of a loop that tries a tool again when it raises.

    With `once`, the tool knows what it has paid.
    """

    def world() -> Any:
        paid: list[str] = []

        def pay(name: str) -> str:
            if not once or name not in paid:
                paid.append(name)
            return "paid"

        def run_tool(arguments: str) -> str:
            name = str(json.loads(arguments).get("name"))
            for _ in range(tries):
                with suppress(Exception):
                    return pay(name)
            return "error: it is not known whether it was paid"

        def agent(prompt: str) -> str:
            client = openai.OpenAI(max_retries=0)
            messages: Any = [{"role": "user", "content": prompt}]
            for _ in range(20):
                reply = client.chat.completions.create(model="m", messages=messages, tools=PAY)
                message: Any = reply.choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                if not message.tool_calls:
                    return message.content or ""
                for made in message.tool_calls:
                    content = run_tool(made.function.arguments)
                    messages.append({"role": "tool", "tool_call_id": made.id, "content": content})
            return "too many steps"

        return drive(agent), paid

    return world


LOST = when("Pay Ada", [call("pay", {"name": "Ada"}), say("Done.")])


def test_a_loop_that_tries_a_tool_with_a_lost_result_again_repeats_an_effect():
    with pytest.raises(InvariantBroken, match="pay ran 3 times"):
        replay(paying_loop(3), LOST, faults=["tool_lost"])


@pytest.mark.parametrize("fault", ["tool_lost", "tool_error"])
def test_a_loop_that_does_not_try_again_repeats_nothing(fault: str):
    replay(paying_loop(1), LOST, faults=[fault])


def test_a_tool_that_failed_before_it_ran_may_be_tried_again():
    replay(paying_loop(3), LOST, faults=["tool_error@1"])


def test_a_tool_that_changes_nothing_the_second_time_may_be_tried_again():
    replay(paying_loop(3, once=True), LOST, faults=["tool_lost"])


@pytest.mark.parametrize("words", ["", "Done."])
def test_what_an_agent_says_itself_is_accepted_after_an_empty_reply_only(words: str):
    messages: Any = []

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages.append({"role": "user", "content": prompt})
        reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        if reply.choices[0].message.content:
            messages.append({"role": "assistant", "content": reply.choices[0].message.content})
        messages.append({"role": "assistant", "content": "Sorry, something went wrong."})
        return "Sorry"

    script: Any = [[when("Find the chair", [say(words)]), when("Once more", [say("Done.")])]]
    if words:
        with pytest.raises(InvariantBroken, match="words that the model never said"):
            replay(lambda: drive(agent), script)
    else:
        replay(lambda: drive(agent), script)


@tool
def list_chairs() -> str:
    """List all chairs."""
    return json.dumps([{"chair": number} for number in range(10)])


LIST: Any = [{"type": "function", "function": {"name": "list_chairs", "parameters": {}}}]


def cutting_loop(length: int, mark: str = "") -> Callable[[], Any]:
    """Return the world of a loop that sends the beginning of a result, with a mark after it."""

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages: Any = [{"role": "user", "content": prompt}]
        reply: Any = client.chat.completions.create(model="m", messages=messages, tools=LIST)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        for made in message.tool_calls:
            content = str(list_chairs.invoke({}))[:length] + mark
            messages.append({"role": "tool", "tool_call_id": made.id, "content": content})
        reply = client.chat.completions.create(model="m", messages=messages, tools=LIST)
        return str(reply.choices[0].message.content)

    return lambda: drive(agent)


CHAIRS = when("List the chairs", [call("list_chairs"), say("Done.")])


def test_json_of_a_tool_that_the_agent_cuts_is_a_changed_conversation():
    with pytest.raises(InvariantBroken, match="the JSON that list_chairs returned is cut after"):
        replay(cutting_loop(40), CHAIRS)


@pytest.mark.parametrize("length, mark", [(1000, ""), (40, " … (cut)")])
def test_a_whole_result_and_one_that_says_it_is_cut_are_accepted(length: int, mark: str):
    replay(cutting_loop(length, mark), CHAIRS)


def weather_loop(*, by_name: bool) -> Callable[[], Any]:
    """Return the world of a loop that keeps results by the name of the tool, or by the call."""

    def find(name: str) -> str:
        return f"found {name}"

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages: Any = [{"role": "user", "content": prompt}]
        reply: Any = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        results: dict[str, str] = {}
        for made in message.tool_calls:
            key = "find" if by_name else made.id
            results[key] = find(**json.loads(made.function.arguments))
        for made in message.tool_calls:
            content = results["find" if by_name else made.id]
            messages.append({"role": "tool", "tool_call_id": made.id, "content": content})
        reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
        return str(reply.choices[0].message.content)

    return lambda: drive(agent)


TWO = when("Go", [[call("find", {"name": "a"}), call("find", {"name": "b"})], say("Done.")])


def test_a_result_of_another_call_is_a_changed_conversation():
    with pytest.raises(InvariantBroken, match="find returned 'found a', and the model got"):
        replay(weather_loop(by_name=True), TWO)


def test_each_call_with_its_own_result_is_no_finding():
    replay(weather_loop(by_name=False), TWO)
