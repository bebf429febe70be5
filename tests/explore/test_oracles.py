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
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph  # pyright: ignore[reportMissingTypeStubs] - it has none
from mcp import Client

from offbook import call, drive, fail, say, session, when
from offbook.errors import InvariantBroken, UsageError
from offbook.explore import Exploration, explore, replay, run_rendered
from offbook.explore.oracles import ORACLES
from offbook.explore.playing import Job
from offbook.explore.worker import StagePlan
from offbook.mcp import mcp_server
from tests.explore.worlds import MOCKS, PROMPT, fixed_shop
from tests.forked import forked_command

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
    arguments: dict[str, Any] = {"runs": 15, **options}
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
    assert explore(make_loop(""), "Find the chair", runs=30).findings == []


def test_an_oracle_can_be_left_out():
    with pytest.raises(InvariantBroken, match="to leave it out: --without crash"):
        explore(crashing, PROMPT, runs=20)
    assert explore(crashing, PROMPT, runs=20, without=["crash"]).findings == []


def crashing() -> Any:
    def extension(api: Any) -> None:
        @api.tool("find", parameters=TEXT)
        def find(params: Any, ctx: Any) -> str:
            raise SystemError("it crashed")

    return session(extensions=[extension], mock_tools=MOCKS)


@pytest.mark.parametrize("catches", [True, False])
def test_an_invalid_request_is_one_whether_or_not_the_agent_catches_the_error(*, catches: bool):
    def world() -> Any:
        def agent(prompt: str) -> str:
            client = openai.OpenAI(max_retries=0)
            messages: Any = [{"role": "user", "content": prompt}]
            reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            messages.append(reply.choices[0].message.model_dump(exclude_none=True))
            messages.append({"role": "user", "content": "Go on."})  # and no results
            try:
                reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            except openai.APIError:
                if not catches:
                    raise
                return "The model cannot be reached."
            return reply.choices[0].message.content or ""

        return drive(agent)

    script = when("Find the chair", [call("find", {"name": "chair"}), say("Done.")])
    with pytest.raises(InvariantBroken) as caught:
        replay(world, script)
    text = str(caught.value)
    assert text.startswith("no invalid request: the provider refused the request: ")
    assert "raised" not in text
    replay(world, script, without=["request", "conversation"])


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

    found = explore(approving_agent(careless=False), PROMPT, note, runs=12, deadline=None)
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


def drive_loop(tools: Any, answer: Callable[[Any], list[str]]) -> Any:
    """Return a loop over the SDK of OpenAI; `answer` returns the results of a reply's calls."""

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages: Any = [{"role": "user", "content": prompt}]
        for _ in range(20):
            reply = client.chat.completions.create(model="m", messages=messages, tools=tools)
            message: Any = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return message.content or ""
            for made, content in zip(message.tool_calls, answer(message.tool_calls), strict=True):
                messages.append({"role": "tool", "tool_call_id": made.id, "content": content})
        return "too many steps"

    return drive(agent)


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

        def answer(calls: Any) -> list[str]:
            return [run_tool(made.function.arguments) for made in calls]

        return drive_loop(PAY, answer), paid

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


def repeating_loop(*, runs_again: bool) -> Callable[[], Any]:
    """Return the world of a loop that asks again after an error of the provider.

    With `runs_again`, it runs the calls of the last reply again, too.
    """

    def world() -> Any:
        paid: list[str] = []

        def pay(name: str) -> str:
            paid.append(name)
            return "paid"

        def agent(prompt: str) -> str:
            client = openai.OpenAI(max_retries=0)
            messages: Any = [{"role": "user", "content": prompt}]
            calls: Any = []
            results: Any = []
            for _ in range(9):
                if runs_again or not results:
                    texts = [pay(**json.loads(made.function.arguments)) for made in calls]
                    results = [
                        {"role": "tool", "tool_call_id": made.id, "content": text}
                        for made, text in zip(calls, texts, strict=True)
                    ]
                try:
                    reply = client.chat.completions.create(
                        model="m", messages=[*messages, *results], tools=PAY
                    )
                except openai.APIError:
                    continue
                message: Any = reply.choices[0].message
                messages += [*results, message.model_dump(exclude_none=True)]
                calls, results = message.tool_calls or [], []
                if not calls:
                    return message.content or ""
            return "too many steps"

        return drive(agent), paid

    return world


UNAVAILABLE = when(
    "Pay Ada",
    [call("pay", {"name": "Ada"}), fail(status=500, retry_after=0.001), say("Done.")],
)


def test_a_loop_that_runs_a_call_again_after_an_error_of_the_provider_repeats_an_effect():
    with pytest.raises(InvariantBroken, match="pay ran 2 times"):
        replay(repeating_loop(runs_again=True), UNAVAILABLE)


def test_a_loop_that_only_asks_again_after_an_error_of_the_provider_repeats_nothing():
    replay(repeating_loop(runs_again=False), UNAVAILABLE)


def continuing_loop(most: int) -> Callable[[], Any]:
    """Return the world of a loop that continues a reply that is cut short, up to `most` times."""

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages: Any = [{"role": "user", "content": prompt}]
        text = ""
        for _ in range(most):
            reply = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            message = reply.choices[0].message
            text += message.content or ""
            if reply.choices[0].finish_reason != "length":
                break
            messages.append({"role": "assistant", "content": message.content or "…"})
            messages.append({"role": "user", "content": "Go on."})
        return text

    return lambda: drive(agent)


STORY: Any = {"runs": 40, "without": ["crash", "conversation"]}  # the 16th has an endless loop


def test_a_loop_that_continues_every_reply_that_is_cut_short_is_endless():
    with pytest.raises(InvariantBroken, match="endless") as error:
        explore(continuing_loop(1_000), "Write a story", **STORY)
    assert """say("", stop="length")""" in str(error.value)


def test_a_loop_that_continues_a_few_replies_that_are_cut_short_ends():
    explore(continuing_loop(3), "Write a story", **STORY)


def drive_graph(tool: Any, run_tools: Callable[[Any], Any]) -> Any:
    """Return a graph that runs the calls of the model by a node, and asks it again."""
    client: Any = ChatOpenAI(model="m", max_retries=0)
    model = client.bind_tools([tool])

    def ask(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    def route(state: MessagesState) -> str:
        return "tools" if cast("Any", state["messages"][-1]).tool_calls else END

    graph: Any = StateGraph(MessagesState)
    graph.add_node("ask", ask)
    graph.add_node("tools", run_tools)
    graph.add_edge(START, "ask")
    graph.add_conditional_edges("ask", route, ["tools", END])
    graph.add_edge("tools", "ask")
    return drive(graph.compile())


def paying_graph(tries: int, *, once: bool = False, state: bool = True) -> Callable[[], Any]:
    """Return the world of a graph whose node runs a tool that fails again, up to `tries` times."""

    def world() -> Any:
        paid: list[str] = []

        @tool
        def pay(name: str) -> str:
            """Pay somebody."""
            if once and name in paid:
                return "it was paid"
            paid.append(name)
            return "paid"

        def run_tools(state: MessagesState) -> Any:
            results: list[Any] = []
            for made in cast("Any", state["messages"][-1]).tool_calls:
                text = "it failed"
                for _ in range(tries):
                    with suppress(Exception):
                        text = pay.invoke(made["args"])
                        break
                results.append(ToolMessage(text, tool_call_id=made["id"]))
            return {"messages": results}

        agent = drive_graph(pay, run_tools)
        return (agent, paid) if state else agent

    return world


@pytest.mark.parametrize("fault", ["tool_lost", "tool_lost@1"])
@pytest.mark.parametrize("state", [True, False])
def test_a_graph_that_tries_a_tool_with_a_lost_result_again_repeats_an_effect(
    fault: str, *, state: bool
):
    with pytest.raises(InvariantBroken, match=r"pay ran \d times"):
        replay(paying_graph(3, state=state), LOST, faults=[fault])


@pytest.mark.parametrize(
    "tries, once, fault",
    [(1, False, "tool_lost"), (3, False, "tool_error@1"), (3, True, "tool_lost")],
)
def test_a_graph_whose_second_try_has_no_effect_repeats_nothing(
    tries: int, fault: str, *, once: bool
):
    replay(paying_graph(tries, once=once), LOST, faults=[fault])


@pytest.mark.parametrize("reply", [say(""), fail("down", status=500), say("Done.")])
def test_what_an_agent_says_itself_is_accepted_after_an_empty_reply_or_an_error_only(reply: Any):
    messages: Any = []

    def agent(prompt: str) -> str:
        client = openai.OpenAI(max_retries=0)
        messages.append({"role": "user", "content": prompt})
        with suppress(openai.APIError):
            made = client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
            if words := made.choices[0].message.content:
                messages.append({"role": "assistant", "content": words})
        messages.append({"role": "assistant", "content": "Sorry, something went wrong."})
        return "Sorry"

    script: Any = [[when("Find the chair", [reply]), when("Once more", [say("Done.")])]]
    if reply == say("Done."):
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

    def answer(calls: Any) -> list[str]:
        return [str(list_chairs.invoke({}))[:length] + mark for _ in calls]

    return lambda: drive_loop(LIST, answer)


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

    def answer(calls: Any) -> list[str]:
        keys = ["find" if by_name else made.id for made in calls]
        texts = [find(**json.loads(made.function.arguments)) for made in calls]
        results = dict(zip(keys, texts, strict=True))
        return [results[key] for key in keys]

    return lambda: drive_loop(TOOLS, answer)


TWO = when("Go", [[call("find", {"name": "a"}), call("find", {"name": "b"})], say("Done.")])


def test_a_result_of_another_call_is_a_changed_conversation():
    with pytest.raises(InvariantBroken, match="find returned 'found a', and the model got"):
        replay(weather_loop(by_name=True), TWO)


def test_each_call_with_its_own_result_is_no_finding():
    replay(weather_loop(by_name=False), TWO)


def weather_graph(*, by_name: bool) -> Callable[[], Any]:
    """Return the world of a graph that keeps results by the name of the tool, or by the call."""

    def world() -> Any:
        @tool
        def find(name: str) -> str:
            """Find something."""
            return f"found {name}"

        def run_tools(state: MessagesState) -> Any:
            calls = cast("Any", state["messages"][-1]).tool_calls
            keys = [made["name" if by_name else "id"] for made in calls]
            results = dict(zip(keys, [find.invoke(made["args"]) for made in calls], strict=True))
            sent = [
                ToolMessage(results[key], tool_call_id=made["id"])
                for key, made in zip(keys, calls, strict=True)
            ]
            return {"messages": sent}

        return drive_graph(find, run_tools)

    return world


def test_a_result_of_another_call_in_a_graph_is_a_changed_conversation():
    with pytest.raises(InvariantBroken, match="find returned 'found a', and the model got"):
        replay(weather_graph(by_name=True), TWO)


@pytest.mark.parametrize("make", [weather_loop, weather_graph])
def test_results_of_other_calls_are_one_cause_for_all_tools(make: Callable[..., Any]):
    with StagePlan(make(by_name=True), ("",), (), script=TWO).open() as stage:
        (violation,) = stage.play(Job()).violations
    assert violation.key == "no changed conversation: exchanged"


def test_each_call_with_its_own_result_in_a_graph_is_no_finding():
    replay(weather_graph(by_name=False), TWO)


STOCK = """
from mcp.server import MCPServer
server = MCPServer("stock")
@server.tool()
def list_chairs() -> list[str]: return ["blue", "red"]
server.run()
"""


def stock_loop(*, whole: bool) -> Callable[[], Any]:
    """Return the world of a loop that sends all texts of a server's result, or the first one."""
    command = forked_command("-c", STOCK, imports=["mcp.server"])

    def world() -> Any:
        stock = mcp_server("stock", command=command)

        async def agent(prompt: str) -> str:
            async with Client(stock.url) as server:
                client = openai.AsyncOpenAI(max_retries=0)
                messages: Any = [{"role": "user", "content": prompt}]
                for _ in range(9):
                    reply = await client.chat.completions.create(
                        model="m", messages=messages, tools=LIST
                    )
                    message: Any = reply.choices[0].message
                    messages.append(message.model_dump(exclude_none=True))
                    if not message.tool_calls:
                        break
                    for made in message.tool_calls:
                        result = await server.call_tool(made.function.name, {})
                        texts = [cast("Any", block).text for block in result.content]
                        content = "\n".join(texts if whole else texts[:1])
                        sent = {"role": "tool", "tool_call_id": made.id, "content": content}
                        messages.append(sent)
            return "Done."

        return drive(agent, mcp=[stock])

    return world


def test_texts_of_a_result_that_are_left_out_are_a_changed_conversation():
    with pytest.raises(InvariantBroken, match="1 of the 2 texts that list_chairs returned are"):
        replay(stock_loop(whole=False), CHAIRS)


def test_all_texts_of_a_result_as_one_are_no_finding():
    replay(stock_loop(whole=True), CHAIRS)


def raise_in_oracle(_: object) -> Any:
    raise ZeroDivisionError("of the oracle")


@pytest.fixture
def growth_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ORACLES["growth"]._replace(check=raise_in_oracle)
    monkeypatch.setitem(ORACLES, "growth", broken)


@pytest.mark.usefixtures("growth_raises")
def test_an_oracle_that_raises_does_not_end_the_search():
    with pytest.raises(InvariantBroken) as caught:
        explore(make_loop("endless"), PROMPT, runs=15)
    assert "no endless loop: " in str(caught.value)
    assert "the oracle growth raised ZeroDivisionError: of the oracle" in str(caught.value)


@pytest.mark.usefixtures("growth_raises")
def test_a_search_with_an_oracle_that_raises_does_not_pass():
    with pytest.raises(UsageError, match="this is a bug of Offbook") as caught:
        explore(make_loop(""), PROMPT, runs=5)
    assert "raise_in_oracle" in caught.value.where
