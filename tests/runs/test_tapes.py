"""Agents are recorded once and replayed ten times with their tools unplugged: nothing diverges."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import openai
import pydantic_ai
import pytest
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel

from offbook import Cassette, Playbook, Recording, call, drive, role, say, session, when
from offbook.errors import CheckFailed, ReplayMismatch, ScriptMismatch, UsageError
from offbook.mcp import mcp_server
from offbook.people import allow, deny, person
from offbook.runs import Cassettes, Rehearsal, TerminalCommand
from offbook.sources.cassette import load_cassette
from tests.forked import forked_command
from tests.people.test_people import (
    interrupting_agent,
    langchain_agent,
    openai_agent,
    pydantic_agent,
)
from tests.subjects.frameworks.test_tool_outcomes import (
    anthropic_runner,
    google_chat,
    langchain_chat,
    openai_chat,
    openai_responses,
    pydantic_chat,
    smolagent,
)
from tests.subjects.frameworks.test_tool_runners import (
    anthropic_async_function,
    anthropic_function,
    google_async_function,
    google_function,
    langchain_function,
    langchain_model_function,
    mcp_function,
    openai_loop,
)
from tests.thorough import THOROUGH

pytestmark = pytest.mark.filterwarnings(
    "ignore:Inheritance class AiohttpClientSession", "ignore:Direct use of automatic function"
)
REPLAYS = 10 if THOROUGH else 3  # the first may leave something to the second
DRIVE, SESSION = cast("Any", drive), cast("Any", session)  # called with any options
FIND = call("find_order", {"number": 7})
ONCE = when("Go", [FIND, say("Done.")])


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "none")


class Shop:
    """The world of the tools: each execution returns something else, and none if unplugged."""

    def __init__(self) -> None:
        self.runs = 0
        self.plugged = True

    def look(self, number: int) -> str:
        if not self.plugged:
            raise AssertionError("the tool ran")
        self.runs += 1
        return f"order {number}, seen {self.runs} times"

    def pay(self, amount: int) -> str:
        return self.look(amount)

    def find_order(self) -> Callable[[int], str]:
        def find_order(number: int) -> str:
            """Find an order.

            Args:
                number: its number
            """
            return self.look(number)

        return find_order


def framework(make: Callable[[Any], Any]) -> Callable[[Shop], Any]:
    """Return what drives an agent of a framework with the tool of the shop."""
    return lambda shop: partial(DRIVE, make(shop.find_order()))


def approving(make: Callable[[Any], Any]) -> Callable[[Shop], Any]:
    return lambda shop: partial(DRIVE, make(shop))


def in_session(shop: Shop) -> Any:
    def extension(api: Any) -> None:
        @api.tool("find_order")
        def find_order(params: Any, _: Any) -> str:
            return shop.look(params["number"])

        @api.tool("lose_order")
        def lose_order(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            shop.look(params["number"])
            raise LookupError(f"order {params['number']} is lost")

        @api.tool("choose_order")
        async def choose_order(_: Any, ctx: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            return shop.look(await ctx.ui.input("Which order?", ""))

    return partial(SESSION, extension_factories=[extension], propagate_errors=False)


def mocked_session(shop: Shop) -> Any:
    def answer(params: Any) -> Any:
        return {"content": shop.look(params["number"]), "details": {"number": params["number"]}}

    return partial(SESSION, mock_tools={"find_order": answer})


def served_tools(shop: Shop) -> Any:
    """An agent that reaches a scripted MCP server over HTTP."""

    def rehearse(**options: Any) -> Any:
        server = mcp_server("shop", tools={"find_order": shop.find_order()})

        def agent(prompt: str) -> str:
            from mcp import Client

            def run(given: dict[str, Any]) -> str:
                async def call_tool() -> Any:
                    async with Client(server.url) as client:
                        await client.list_tools()
                        return await client.call_tool("find_order", given)

                return asyncio.run(call_tool()).content[0].text

            return openai_loop(prompt, run)

        return drive(agent, mcp=[server], **options)

    return rehearse


def with_embeddings(shop: Shop) -> Any:
    """An agent that embeds the prompt before it asks the model, as one with retrieval does."""
    look = cast("Any", langchain_tool)(shop.find_order())

    def agent(prompt: str) -> str:
        openai.OpenAI().embeddings.create(model="e", input=prompt, dimensions=8)
        return openai_loop(prompt, look.run)

    return partial(DRIVE, agent)


def looks_first(shop: Shop) -> Any:
    """An agent that runs a tool before the first request, without a call of the model."""
    look = cast("Any", langchain_tool)(shop.find_order())

    def agent(prompt: str) -> str:
        return openai_loop(f"{prompt}: {look.run({'number': 1})}", look.run)

    return partial(DRIVE, agent)


class Order(BaseModel):
    number: int
    seen: str


def typed_results(shop: Shop) -> Any:
    """Tools that return a model, a list and a number."""
    agent = pydantic_ai.Agent("openai-chat:m")

    @agent.tool_plain
    def find_order(number: int) -> Order:  # pyright: ignore[reportUnusedFunction]
        return Order(number=number, seen=shop.look(number))

    @agent.tool_plain
    def list_orders() -> list[Any]:  # pyright: ignore[reportUnusedFunction]
        return [shop.look(1), {"count": shop.runs}, None]

    @agent.tool_plain
    def count() -> int:  # pyright: ignore[reportUnusedFunction]
        return shop.runs

    return partial(DRIVE, agent)


def with_subagent(shop: Shop) -> Any:
    """A tool that asks another agent, whose requests are part of the tool."""
    helper = pydantic_ai.Agent("openai-chat:m", instructions="You help.")
    agent = pydantic_agent(cast("Any", shop))

    @agent.tool_plain
    async def find_order(number: int) -> str:  # pyright: ignore[reportUnusedFunction]
        answer = await helper.run(f"Where is order {number}?")
        return f"{answer.output} {shop.look(number)}"

    return partial(DRIVE, agent)


def retrying(shop: Shop) -> Any:
    """A tool that asks the model to try again."""
    agent = pydantic_ai.Agent("openai-chat:m", retries=2)

    @agent.tool_plain
    def find_order(number: int) -> str:  # pyright: ignore[reportUnusedFunction]
        seen = shop.look(number)
        if number > 8:
            raise pydantic_ai.ModelRetry(f"{seen}: too large")
        return seen

    return partial(DRIVE, agent)


PAY = call("pay", {"amount": 7})
PAID = when("Go", [PAY, person("pay", allow), say("Done.")])
AGENTS: dict[str, tuple[Callable[[Shop], Any], list[Any]]] = {
    "a session": (in_session, [ONCE]),
    "parallel tools": (
        in_session,
        [when("Go", [[call("find_order", {"number": n}) for n in (7, 8, 7)], say("Done.")])],
    ),
    "a tool that raises": (
        in_session,
        [when("Go", [call("lose_order", {"number": 7}), FIND, say("Done.")])],
    ),
    "two prompts": (in_session, [ONCE, when("More", [FIND, FIND, say("Done.")])]),
    "mocks of a session": (mocked_session, [ONCE]),
    "pydantic-ai": (framework(pydantic_chat), [ONCE]),
    "pydantic-ai, parallel": (framework(pydantic_chat), [when("Go", [[FIND, FIND], say("Done.")])]),
    "pydantic-ai, typed results": (
        typed_results,
        [when("Go", [FIND, call("list_orders", {}), call("count", {}), say("Done.")])],
    ),
    "pydantic-ai, a retry": (
        retrying,
        [when("Go", [call("find_order", {"number": 9}), FIND, say("Done.")])],
    ),
    "a subagent in a tool": (
        with_subagent,
        [ONCE, role("helper", [say("In the shop.")], system="You help")],
    ),
    "a subagent in a tool, and an approval": (
        with_subagent,
        [
            when("Go", [[FIND, PAY], person("pay", allow), say("Done.")]),
            role("helper", [say("In the shop.")], system="You help"),
        ],
    ),
    "a question in a tool": (
        in_session,
        [when("Go", [call("choose_order"), person("Which order?", "7"), say("Done.")])],
    ),
    "OpenAI Agents": (framework(openai_chat), [ONCE]),
    "OpenAI Agents, Responses": (framework(openai_responses), [ONCE]),
    "LangChain": (framework(langchain_chat), [ONCE]),
    "LangChain, parallel": (framework(langchain_chat), [when("Go", [[FIND, FIND], say("Done.")])]),
    "google-genai": (framework(google_chat), [ONCE]),
    "anthropic": (framework(anthropic_runner), [ONCE]),
    "smolagents": (
        framework(smolagent),
        [when("Go", [FIND, call("final_answer", {"answer": "Done."}, unanswered=True)])],
    ),
    "a function with anthropic": (framework(anthropic_function), [ONCE]),
    "an async function with anthropic": (framework(anthropic_async_function), [ONCE]),
    "a function with google-genai": (framework(google_function), [ONCE]),
    "an async function with google-genai": (framework(google_async_function), [ONCE]),
    "a function with an MCP client": (framework(mcp_function), [ONCE]),
    "a function with tools of LangChain": (framework(langchain_function), [ONCE]),
    "a function with a model of LangChain": (framework(langchain_model_function), [ONCE]),
    "a served MCP server": (served_tools, [ONCE]),
    "embeddings": (with_embeddings, [ONCE]),
    "a tool before the first request": (
        looks_first,
        [when("Go: order 1, seen 1 times", [FIND, say("Done.")])],
    ),
    "pydantic-ai, an approval": (approving(pydantic_agent), [PAID]),
    "OpenAI Agents, an approval": (approving(openai_agent), [PAID]),
    "LangChain, an approval": (approving(langchain_agent), [PAID]),
    "LangChain, a denial": (
        approving(langchain_agent),
        [when("Go", [PAY, person("pay", deny("too much")), say("Done.")])],
    ),
    "LangGraph, an interrupt": (approving(interrupting_agent), [PAID]),
}


def record(name: str, path: Path, shop: Shop, **options: Any) -> Any:
    """Record an agent of the table; return its answer."""
    make, script = AGENTS[name]
    playbook = Playbook()
    playbook.load(*script)
    with (
        Recording(playbook, path, tracks="all", **options) as source,
        make(shop)(source=source) as rehearsal,
    ):
        output = [rehearsal.run(turn.text).output for turn in script if hasattr(turn, "text")]
    assert playbook.unfinished() is None
    return output


@pytest.mark.parametrize("name", AGENTS)
def test_a_recorded_agent_replays_with_its_tools_unplugged(name: str, tmp_path: Path):
    shop, path = Shop(), tmp_path / "tape.yaml"
    output = record(name, path, shop)
    make, script = AGENTS[name]
    ran, shop.plugged = shop.runs, False
    for _ in range(REPLAYS):
        tape = Cassette(path, tracks="all")
        with make(shop)(source=tape) as rehearsal:
            again = [rehearsal.run(turn.text).output for turn in script if hasattr(turn, "text")]
        assert again == output
        assert tape.verdict().status == "pass", tape.verdict().message
        assert tape.summary().interactions_replayed == len(tape.entries)
    assert shop.runs == ran


# --- What differs is reported


def tape_of(name: str, tmp_path: Path, shop: Shop) -> Path:
    path = tmp_path / "tape.yaml"
    record(name, path, shop)
    return path


def replay(path: Path, rehearse: Any, *prompts: str, **options: Any) -> Cassette:
    tape: Cassette = cast("Any", Cassette)(path, **{"tracks": "all", **options})
    with rehearse(source=tape) as rehearsal:
        for prompt in prompts or ("Go",):
            rehearsal.run(prompt)
    return tape


def hooked(shop: Shop, change: Callable[[Any], Any]) -> Any:
    """A session that changes each call before it runs."""

    def extension(api: Any) -> None:
        @api.on("tool_call")
        def hook(event: Any, _: Any) -> Any:  # pyright: ignore[reportUnusedFunction]
            return change(event)

    rehearse = in_session(shop)
    return partial(rehearse, extensions=[extension])


def test_the_model_of_a_tape_with_real_tools_meets_their_new_results(tmp_path: Path):
    shop = Shop()
    path = tape_of("a session", tmp_path, shop)
    with pytest.raises(ReplayMismatch, match=r"(?s)- order 7, seen 1 times.*\+ order 7, seen 2"):
        replay(path, in_session(shop), tracks="model")
    assert shop.runs == 2


def test_another_input_of_a_tool_is_the_first_difference(tmp_path: Path):
    shop = Shop()
    path = tape_of("a session", tmp_path, shop)
    rehearse = hooked(shop, lambda event: {"input": {"number": event.input["number"] + 1}})
    with pytest.raises(ReplayMismatch) as raised:
        replay(path, rehearse)
    assert str(raised.value).splitlines()[1:-1] == [
        'Recorded: find_order {"number":7}',
        'Got:      find_order {"number":8}',
        "Differs at: $.input.number",
        "- 7",
        "+ 8",
        "  ^",
    ]
    assert "interaction 1 (track: tools): find_order ran with another input" in str(raised.value)
    assert shop.runs == 1


def test_an_agent_that_no_longer_runs_its_tool_fails(tmp_path: Path):
    shop = Shop()
    path = tape_of("a function with tools of LangChain", tmp_path, shop)

    def agent(prompt: str) -> str:  # its result is the recorded one, by chance
        return openai_loop(prompt, lambda _: "order 7, seen 1 times")

    with pytest.raises(CheckFailed, match="1 of 1 executions of tools did not happen"):
        replay(path, partial(DRIVE, agent))


def test_an_agent_that_runs_a_tool_twice_fails(tmp_path: Path):
    shop = Shop()
    path = tape_of("a function with tools of LangChain", tmp_path, shop)
    look = cast("Any", langchain_tool)(shop.find_order())

    def agent(prompt: str) -> str:
        return openai_loop(prompt, lambda given: look.run(given) and look.run(given))

    with pytest.raises(ReplayMismatch, match="find_order ran more often than recorded"):
        replay(path, partial(DRIVE, agent))


def test_an_agent_that_runs_a_tool_before_the_call_fails(tmp_path: Path):
    shop = Shop()
    path = tape_of("a function with tools of LangChain", tmp_path, shop)
    look = cast("Any", langchain_tool)(shop.find_order())

    def agent(prompt: str) -> str:
        seen = look.run({"number": 7})
        return openai_loop(prompt, lambda _: seen)

    with pytest.raises(ReplayMismatch, match="find_order ran before the model called it"):
        replay(path, partial(DRIVE, agent))


def test_a_tool_that_was_not_recorded_does_not_run(tmp_path: Path):
    shop = Shop()
    path = tape_of("a session", tmp_path, shop)
    script = Playbook()
    script.load(when("Go", [call("lose_order", {"number": 7}), say("Done.")]))
    with pytest.raises(ReplayMismatch, match="no execution of lose_order was recorded"):
        replay(path, in_session(shop), tracks="tools", passthrough=script)
    assert shop.runs == 1


def test_a_question_that_was_not_recorded_fails(tmp_path: Path):
    shop = Shop()
    path = tape_of("pydantic-ai, an approval", tmp_path, shop)
    text = path.read_text(encoding="utf-8")
    asked = "amount: 7\n        decision"
    path.write_text(text.replace(asked, asked.replace("7", "8")), encoding="utf-8")
    expected = (
        r"(?s)at interaction 1 \(track: people\).*Recorded: pay.*8.*Got: +pay.*7.*- 8\n\+ 7\n"
    )
    with pytest.raises(ScriptMismatch, match=expected):
        replay(path, AGENTS["pydantic-ai, an approval"][0](shop))


# --- Another model with the recorded tools


def test_another_model_gets_the_recorded_results(tmp_path: Path):
    shop = Shop()
    path = tape_of("a session", tmp_path, shop)
    script = Playbook()
    script.load(when("Go", [FIND, say("Something else.")]))
    tape = Cassette(path, tracks="tools", passthrough=script)
    with in_session(shop)(source=tape) as rehearsal:
        run = rehearsal.run("Go")
    assert (run.output, run.results("find_order")[0].text) == (
        "Something else.",
        "order 7, seen 1 times",
    )
    assert shop.runs == 1


def test_a_script_that_is_left_over_fails(tmp_path: Path):
    path = tape_of("a session", tmp_path, Shop())
    script = Playbook()
    script.load(ONCE, when("Never", [say("Never.")]))
    with pytest.raises(CheckFailed, match="Never"):
        replay(path, in_session(Shop()), tracks="tools", passthrough=script)


def test_a_run_without_a_recorded_tool_tests_nothing(tmp_path: Path):
    path = tape_of("a session", tmp_path, Shop())
    script = Playbook()
    script.load(when("Go", [say("Done.")]))
    with pytest.raises(CheckFailed, match="no tool was answered from the tape"):
        replay(path, in_session(Shop()), tracks="tools", passthrough=script)


# --- Forks

LONG = 50
STEPS = [when("Go", [*(call("find_order", {"number": n}) for n in range(1, LONG)), say("Done.")])]
AGENTS["fifty steps"] = (in_session, STEPS)


def other_end() -> Playbook:
    script = Playbook()
    script.load(when("Go", [call("find_order", {"number": 100}), say("Elsewhere.")]))
    return script


def test_a_run_is_forked_after_a_step(tmp_path: Path):
    shop = Shop()
    path = tape_of("fifty steps", tmp_path, shop)
    tape = Cassette(path, tracks="all").fork(39, other_end())
    with in_session(shop)(source=tape) as rehearsal:
        run = rehearsal.run("Go")
    assert run.output == "Elsewhere."
    assert [executed.input["number"] for executed in run.executed] == [*range(1, 40), 100]
    assert shop.runs == LONG  # the one after the fork is real
    (fork,) = run.events.named("cassette.fork")
    assert fork.data == {"parent": str(path), "step": 39}
    before = [event for event in run.events.all if event.seq < fork.seq]
    assert len([event for event in before if event.event == "model.reply"]) == 39


def test_an_agent_that_differs_before_the_fork_fails(tmp_path: Path):
    path = tape_of("fifty steps", tmp_path, Shop())
    tape = Cassette(path, tracks="all").fork(39, other_end())
    rehearse = hooked(Shop(), lambda _: {"input": {"number": 5}})
    with pytest.raises(ReplayMismatch, match="interaction 1 "), rehearse(source=tape) as rehearsal:
        rehearsal.run("Go")


def test_an_agent_that_ends_before_the_fork_fails(tmp_path: Path):
    path = tape_of("a session", tmp_path, Shop())
    tape = Cassette(path, tracks="all").fork(2, other_end())
    with (
        pytest.raises(CheckFailed, match="the fork was never reached"),
        in_session(Shop())(source=tape) as rehearsal,
    ):
        rehearsal.run("Go")


def test_a_fork_can_be_recorded_beside_its_parent(tmp_path: Path):
    shop = Shop()
    path = tape_of("fifty steps", tmp_path, shop)
    fork = Cassette(path, tracks="all").fork(39, other_end())
    with (
        Recording(fork, tmp_path / "fork.yaml", tracks="all") as source,
        in_session(shop)(source=source) as rehearsal,
    ):
        rehearsal.run("Go")
    shop.plugged = False
    assert replay(tmp_path / "fork.yaml", in_session(shop)).summary().interactions_replayed == 41


@pytest.mark.parametrize("step", [0, 3])
def test_a_fork_is_after_an_interaction(step: int, tmp_path: Path):
    path = tape_of("a session", tmp_path, Shop())
    with pytest.raises(UsageError, match=f"no interaction {step}"):
        Cassette(path).fork(step, other_end())


# --- Files


def test_a_tape_is_extended(tmp_path: Path):
    shop = Shop()
    path = tape_of("a session", tmp_path, shop)
    script = Playbook()
    script.load(when("More", [FIND, say("Done.")]))
    with (
        Recording(script, path, tracks="all", append=True) as source,
        in_session(shop)(source=source) as rehearsal,
    ):
        rehearsal.run("Go")
        rehearsal.run("More")
    assert shop.runs == 2  # the first one is from the tape
    file = load_cassette(path)
    assert [len(file.read(entry).tools) for entry in file.entries] == [1, 0, 1, 0]
    replay(path, in_session(shop), "Go", "More")


def test_a_cassette_of_the_model_alone_is_as_before(tmp_path: Path):
    path, playbook = tmp_path / "model.yaml", Playbook()
    playbook.load(ONCE)
    with Recording(playbook, path) as source, in_session(Shop())(source=source) as rehearsal:
        rehearsal.run("Go")
    file = load_cassette(path)
    assert (file.header.version, file.header.tracks) == (1, ())
    assert "tools:\n      - tool" not in path.read_text(encoding="utf-8")
    with pytest.raises(UsageError, match="no track 'tools', only model"):
        Cassette(path, tracks="all")


TRACKS = {
    "tolls": "unknown track 'tolls'",
    "": "no tracks",
    "tools": "a recording has the track 'model'",
}


@pytest.mark.parametrize("tracks", TRACKS)
def test_wrong_tracks_are_refused(tracks: str, tmp_path: Path):
    with pytest.raises(UsageError, match=TRACKS[tracks]):
        Recording(Playbook(), tmp_path / "tape.yaml", tracks=tracks)


def test_the_tools_alone_need_a_model(tmp_path: Path):
    path = tape_of("a session", tmp_path, Shop())
    with pytest.raises(UsageError, match="the track 'tools' alone has no model"):
        Cassette(path, tracks="tools")


def test_secrets_and_folders_of_results_are_not_on_the_tape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_API_KEY", "k-0123456789abcdef")
    monkeypatch.chdir(tmp_path)
    path, playbook = tmp_path / "tape.yaml", Playbook()
    playbook.load(when("Go", [call("look", {"where": str(tmp_path)}), say("Done.")]))

    def look(params: Any) -> str:
        return f"key k-0123456789abcdef in {params['where']}"

    with (
        Recording(playbook, path, tracks="all") as source,
        session(mock_tools={"look": look}, source=source) as rehearsal,
    ):
        rehearsal.run("Go")
    ((tool,), _) = [item.tools for item in load_cassette(path)]
    assert tool.input == {"where": "[WORKSPACE]"}
    assert str(tool.result).endswith("in [WORKSPACE]")
    assert "k-0123456789" not in path.read_text(encoding="utf-8")
    with session(mock_tools={"look": look}, source=Cassette(path, tracks="all")) as rehearsal:
        assert str(tmp_path) in rehearsal.run("Go").results("look")[0].text


def test_the_cassettes_of_a_test_have_tracks(tmp_path: Path):
    shop, playbook = Shop(), Playbook()
    playbook.load(ONCE)
    recording = Cassettes(tmp_path, "test_shop", recorded=set())
    with in_session(shop)(source=recording.open(live=playbook, tracks="all")) as rehearsal:
        rehearsal.run("Go")
    assert recording.close() == []
    shop.plugged = False
    replaying = Cassettes(tmp_path, "test_shop")
    with in_session(shop)(source=replaying.open(tracks="all")) as rehearsal:
        rehearsal.run("Go")
    assert replaying.close() == []


def test_a_test_that_skips_a_recorded_tool_fails(tmp_path: Path):
    shop = Shop()
    path = tmp_path / "cassettes" / "test_shop.yaml"
    path.parent.mkdir()
    record("a function with tools of LangChain", path, shop)
    replaying = Cassettes(tmp_path, "test_shop")

    def agent(prompt: str) -> str:
        return openai_loop(prompt, lambda _: "order 7, seen 1 times")

    with drive(agent, source=replaying.open(tracks="all")) as rehearsal:
        rehearsal.run("Go")
    (error,) = replaying.close()
    assert "1 of 1 executions of tools did not happen" in str(error)


# --- A command whose tools are those of a scripted MCP server

COMMAND = """
import asyncio, json, os, sys, urllib.request
from mcp import Client

def ask(messages):
    tools = [{"type": "function", "function": {"name": "find_order", "parameters": {}}}]
    body = json.dumps({"model": "m", "messages": messages, "tools": tools}).encode()
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))["choices"][0]["message"]

async def run(given):
    async with Client(sys.argv[1]) as client:
        return (await client.call_tool("find_order", given)).content[0].text

messages = [{"role": "user", "content": "Go"}]
while (message := ask(messages)).get("tool_calls"):
    messages.append(message)
    for call in message["tool_calls"]:
        text = asyncio.run(run(json.loads(call["function"]["arguments"])))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
"""


def run_served_command(source: Any, shop: Shop, folder: Path) -> None:
    (folder / "agent.py").write_text(COMMAND)
    server = mcp_server("shop", tools={"find_order": shop.find_order()})
    command = forked_command("agent.py", server.url, imports=["mcp"])
    subject = TerminalCommand(command, cwd=folder)
    try:
        with Rehearsal(subject, source=source, mcp=[server]) as rehearsal:
            rehearsal.run("")
    finally:
        server.close()


@pytest.mark.slow
def test_a_command_replays_with_the_tools_of_its_mcp_server_unplugged(tmp_path: Path):
    shop, playbook, path = Shop(), Playbook(), tmp_path / "tape.yaml"
    playbook.load(ONCE)
    with Recording(playbook, path, tracks="all") as source:
        run_served_command(source, shop, tmp_path)
    assert [len(item.tools) for item in load_cassette(path)] == [1, 0]
    shop.plugged = False
    for _ in range(3):  # each starts a process
        run_served_command(Cassette(path, tracks="all"), shop, tmp_path)
    assert shop.runs == 1
