"""A real MCP server behind a scripted one: its calls are in the trace, and a tape replays them."""

import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client
from mcp.types import ElicitResult
from openai import AsyncOpenAI

from offbook import Cassette, Command, Playbook, Recording, call, drive, say, when
from offbook.errors import CheckFailed, OffbookError, ReplayMismatch, RunError, UsageError
from offbook.mcp import ScriptedServer, mcp_server
from offbook.sources.cassette import load_cassette
from offbook.sources.cassette.written_test import write_test

FOLDER = Path(__file__).parent
AGENT = [sys.executable, str(FOLDER / "process_agent.py"), "{prompt}"]
SERVER = [sys.executable, str(FOLDER / "plain_server.py")]
FULL = [sys.executable, str(FOLDER / "full_server.py")]
MISSING = ["no-such-mcp-server"]  # a replay that starts it fails
SCRIPT = when("Go", [call("find_order", {"number": 7}), say("Done.")])


def make_playbook(number: object = 7) -> Playbook:
    playbook = Playbook()
    playbook.load(when("Go", [call("find_order", {"number": number}), say("Done.")]))
    return playbook


def run_agent(source: Any, command: list[str], *arguments: str) -> Any:
    server = mcp_server("shop", command=command)
    with drive(Command([*AGENT, *arguments]), mcp=[server], source=source) as rehearsal:
        run = rehearsal.run("Go")
        return run, rehearsal.read_events()


def record(path: Path) -> None:
    with Recording(make_playbook(), path, tracks="all") as source:
        run_agent(source, SERVER)


def test_the_calls_of_a_host_reach_the_server_and_the_trace():
    server = mcp_server("shop", command=SERVER)
    with drive(Command(AGENT), mcp=[server]) as rehearsal:
        run = rehearsal.run(SCRIPT)
        (execution,) = run.executed
    assert server.calls == [("find_order", {"number": 7})]
    assert run.results("find_order")[0].text == "order 7"
    assert execution.duration is not None  # the tool itself was seen


def test_a_host_that_makes_a_result_up_fails():
    server = mcp_server("shop", command=SERVER)
    with (
        pytest.raises(CheckFailed, match="never used: the MCP server shop"),
        drive(Command([*AGENT, "invent"]), mcp=[server]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_a_tape_replays_the_model_and_the_server_without_the_server(tmp_path: Path):
    path = tmp_path / "tape.yaml"
    record(path)
    tools = [tool.tool for item in load_cassette(path) for tool in item.tools]
    assert sorted(tools) == ["find_order", "mcp:shop"]
    run, _ = run_agent(Cassette(path, tracks="all"), MISSING)
    assert run.results("find_order")[0].text == "order 7"


def test_a_test_from_a_tape_mocks_the_tools_and_not_the_lists(tmp_path: Path):
    path = tmp_path / "tape.yaml"
    record(path)
    written = write_test(load_cassette(path), "shop:agent", "shop", path)
    assert "find_order" in written.text
    assert "mcp:shop" not in written.text


def test_another_call_of_the_host_is_a_mismatch_of_the_tape(tmp_path: Path):
    path = tmp_path / "tape.yaml"
    record(path)
    tape = Cassette(path, tracks="tools", passthrough=make_playbook(8))
    with pytest.raises(ReplayMismatch, match=r"\(track: tools\): find_order ran with another"):
        run_agent(tape, MISSING)


def test_a_tape_of_another_server_is_a_mismatch(tmp_path: Path):
    path = tmp_path / "tape.yaml"
    record(path)
    server = mcp_server("office", command=MISSING)
    with pytest.raises(ReplayMismatch, match="no execution of mcp:office was recorded"):
        drive(Command(AGENT), mcp=[server], source=Cassette(path, tracks="all"))


def test_secrets_of_the_server_are_not_on_the_tape(tmp_path: Path):
    path = tmp_path / "tape.yaml"
    key = "sk-proj-" + "a1B2c3D4" * 6
    with Recording(make_playbook(), path, tracks="all") as source:
        run_agent(source, [*SERVER, key])
    assert "order 7, paid with" in path.read_text()
    assert key not in path.read_text()


# --- What a host gets


async def ask(server: ScriptedServer) -> list[Any]:
    async with Client(server.url) as client:
        tools = (await client.list_tools()).tools
        result = await client.call_tool("find_order", {"number": 7})
        wrong = await client.call_tool("find_order", {"number": "seven"})
        return [[tool.name for tool in tools], result.content[0], wrong.is_error]


@pytest.mark.anyio
async def test_the_official_client_gets_what_the_server_answers():
    server = mcp_server("shop", command=SERVER)

    async def agent(prompt: str) -> Any:
        return await ask(server)

    async with drive(agent, mcp=[server], source=make_playbook(), auto_assert=False) as rehearsal:
        run = await rehearsal.run("Go")
    names, content, failed = run.output
    assert names == ["find_order"]
    assert content.text == "order 7"
    assert failed


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"command": SERVER, "tools": {"a": "b"}}, "takes a command or tools"),
    ({"command": "uvx server"}, "expected a list of words"),
]


@pytest.mark.parametrize("options, message", WRONG)
def test_wrong_options_are_refused(options: dict[str, Any], message: str):
    with pytest.raises(UsageError, match=message):
        mcp_server("shop", **options)


def test_a_server_that_does_not_start_is_reported():
    with pytest.raises(OffbookError, match="no-such-mcp-server"):
        drive(Command(AGENT), mcp=[mcp_server("shop", command=MISSING)])


def test_a_server_that_ends_is_reported():
    with pytest.raises(RunError, match="the MCP server shop failed with exit code 1"):
        drive(
            Command(AGENT),
            mcp=[mcp_server("shop", command=[sys.executable, "-c", "raise SystemExit('no')"])],
        )


async def read_all(server: ScriptedServer) -> list[Any]:
    """Ask the model once, then read everything that the server has."""
    async with AsyncOpenAI(api_key="none") as model:
        messages: Any = [{"role": "user", "content": "Go"}]
        await model.chat.completions.create(model="m", messages=messages)
    async with Client(server.url) as client:
        resources = [str(each.uri) for each in (await client.list_resources()).resources]
        text: Any = (await client.read_resource("shop://terms")).contents[0]
        prompt: Any = (await client.get_prompt("greet", {"name": "Ada"})).messages[0].content
        return [resources, text.text, prompt.text]


def test_resources_and_prompts_are_passed_on_and_replayed(tmp_path: Path):
    path, playbook = tmp_path / "tape.yaml", Playbook()
    playbook.load(when("Go", [say("Done.")]))

    def run(source: Any, command: list[str]) -> Any:
        server = mcp_server("shop", command=command)

        async def agent(_prompt: str) -> Any:
            return await read_all(server)

        options: dict[str, Any] = {"mcp": [server], "allow_unused_mocks": True}
        with drive(agent, source=source, **options) as rehearsal:
            return rehearsal.run("Go").output

    expected = [["shop://terms"], "30 days", "Say hello to Ada."]
    with Recording(playbook, path, tracks="all") as source:
        assert run(source, FULL) == expected
    assert run(Cassette(path, tracks="all"), MISSING) == expected


def test_what_the_server_asks_reaches_the_host():
    server = mcp_server("shop", command=FULL)

    async def name_account(context: Any, params: Any) -> ElicitResult:
        assert params.message == "Which account?", context
        return ElicitResult(action="accept", content={"account": "7"})

    async def agent(_prompt: str) -> Any:
        async with Client(server.url, elicitation_callback=name_account) as client:
            reported: list[Any] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                reported.append((progress, total, message))

            result: Any = await client.call_tool("pay", {}, progress_callback=note)
            return [result.content[0].text, reported]

    source = make_playbook()
    with drive(agent, mcp=[server], source=source, auto_assert=False) as rehearsal:
        run = rehearsal.run("Go")
    assert run.output == ["paid from 7", [(1, 2, "asking")]]
