"""Scripted MCP servers in a run: what they execute is in the trace, and what is unused fails."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner
from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

from offbook import Command, call, drive, say, when
from offbook.clis import Pi
from offbook.errors import CheckFailed, ScriptMismatch, ToolFailed, UsageError
from offbook.mcp import ScriptedServer, mcp_server
from tests.clients import CLAUDE, CODEX, DEADLINE, GEMINI, OPENCODE, PI, Shell, installed, needs
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

SCRIPT = when("Go", [call("find_order", {"number": 7}), say("Done.")])
AGENT = [sys.executable, str(Path(__file__).with_name("process_agent.py")), "{prompt}"]


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: one lamp"


def make_shop(**tools: Any) -> ScriptedServer:
    return mcp_server("shop", tools={"find_order": find_order, **tools})


def in_this_process(shop: ScriptedServer) -> Any:
    async def run(prompt: str) -> str:
        async with MCPServerStreamableHttp({"url": shop.url}) as server:
            return (await Runner.run(Agent("shop", mcp_servers=[server]), prompt)).final_output

    return run


def over_stdio(shop: ScriptedServer) -> Any:
    program, *arguments = shop.command

    async def run(prompt: str) -> str:
        async with MCPServerStdio({"command": program, "args": arguments}) as server:
            return (await Runner.run(Agent("shop", mcp_servers=[server]), prompt)).final_output

    return run


def in_another_process(_shop: ScriptedServer) -> Command:
    return Command(AGENT)


SUBJECTS = [in_this_process, over_stdio, in_another_process]
Make = Callable[[ScriptedServer], Any]


@pytest.mark.parametrize("make", SUBJECTS)
def test_a_call_is_one_execution_of_the_call_of_the_model(make: Make):
    shop = make_shop()
    with drive(make(shop), mcp=[shop]) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert run.output == "Done."
        assert len(run.events.executed) == 1
        events = [e.event for e in rehearsal.read_events() if e.event.startswith("tool.")]
        assert events == ["tool.call", "tool.start", "tool.end", "tool.result"]
        ids = {e.data["call_id"] for e in rehearsal.read_events() if e.event.startswith("tool.")}
        assert len(ids) == 1
        assert run.results("find_order")[0].text == "order 7: one lamp"
        assert not run.results("find_order")[0].is_error


def test_an_invented_result_is_no_execution_and_fails_the_run():
    shop = make_shop()
    rehearsal = drive(Command([*AGENT, "invent"]), mcp=[shop])
    run = rehearsal.run(SCRIPT)
    assert run.events.executed == []
    with pytest.raises(CheckFailed, match="never used: find_order of the MCP server shop"):
        rehearsal.dispose()


@pytest.mark.parametrize("make", [in_this_process, in_another_process])
def test_a_tool_that_is_never_called_fails_the_run(make: Make):
    shop = make_shop(refund="refunded")
    with (
        pytest.raises(CheckFailed, match="never used: refund of the MCP server shop"),
        drive(make(shop), mcp=[shop]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_agent_without_a_client_is_reported_with_the_server():
    with (
        pytest.raises(ScriptMismatch, match="no client has connected to the MCP server shop") as e,
        drive(Agent("shop"), mcp=[make_shop()]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)
    assert "give the agent a client with the url of the server" in str(e.value)


def test_an_unused_tool_can_be_allowed():
    shop = make_shop(refund="refunded")
    with drive(Command(AGENT), mcp=[shop], allow_unused_mocks=True) as rehearsal:
        rehearsal.run(SCRIPT)


@pytest.mark.parametrize("make", [in_this_process, in_another_process])
def test_a_mock_replaces_the_result_of_a_tool(make: Make):
    shop = make_shop()
    mocks = {"find_order": "no lamp"}
    with drive(make(shop), mcp=[shop], mock_tools=mocks) as rehearsal:
        run = rehearsal.run(SCRIPT)
        assert run.results("find_order")[0].text == "no lamp"
        ends = [e for e in rehearsal.read_events() if e.event == "tool.end"]
        assert [e.data.get("mocked") for e in ends] == [True]


@pytest.mark.parametrize("make", [in_this_process, in_another_process])
def test_a_fault_breaks_a_tool(make: Make):
    shop = make_shop()
    with drive(make(shop), mcp=[shop], faults=["tool_error:find_order@1"]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.results("find_order")[0].is_error


def test_the_check_of_a_call_gets_the_result():
    shop, seen = make_shop(), list[str]()
    checked = call("find_order", {"number": 7}).then(lambda result: seen.append(result.text))
    with drive(Command(AGENT), mcp=[shop]) as rehearsal:
        rehearsal.run(when("Go", [checked, say("Done.")]))
    assert seen == ["order 7: one lamp"]


def broken(number: int) -> str:
    raise KeyError(number)


def test_an_exception_of_a_tool_fails_the_run():
    shop = mcp_server("shop", tools={"find_order": broken})
    with (
        pytest.raises(ToolFailed, match="the tool find_order raised KeyError: 7"),
        drive(Command(AGENT), mcp=[shop]) as rehearsal,
    ):
        rehearsal.run(SCRIPT)


def test_an_exception_of_a_tool_can_be_expected():
    shop = mcp_server("shop", tools={"find_order": broken})
    with drive(Command(AGENT), mcp=[shop]) as rehearsal:
        expected = call("find_order", {"number": 7}, raises=KeyError)
        rehearsal.run(when("Go", [expected, say("Done.")]))


def test_a_server_is_part_of_one_run_at_a_time():
    shop = make_shop()
    with drive(Command(AGENT), mcp=[shop]) as rehearsal:
        rehearsal.run(SCRIPT)
        with pytest.raises(UsageError, match="'shop' is part of another run"):
            drive(Command(AGENT), mcp=[shop])
    with drive(Command(AGENT), mcp=[shop]) as rehearsal:
        rehearsal.run(SCRIPT)


CLIENTS = [CLAUDE, CODEX, GEMINI, OPENCODE]


@pytest.mark.parametrize("shell", [*map(installed, CLIENTS)])
def test_a_command_line_agent_uses_a_server_by_one_script(shell: Shell):
    shop = make_shop()
    with drive(shell.start(), mcp=[shop]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert len(run.events.executed) == 1
    assert "order 7: one lamp" in run.results("find_order")[0].text
    assert shop.calls == [("find_order", {"number": 7})]


PI_MCP = HOMES["pi-mcp"]
ADAPTER = PI_MCP.folder / "node_modules" / "pi-mcp-adapter" / "index.ts"


@needs(PI)
@pytest.mark.skipif(not (WHOLE or PI_MCP.ready), reason="run ./dev clients")
def test_pi_uses_a_server_by_a_published_extension(tmp_path: Path):
    assert PI_MCP.ready, PI_MCP.describe_missing()
    shop = make_shop()
    servers = {"mcpServers": {"shop": {"url": shop.url, "lifecycle": "eager"}}}
    (tmp_path / ".mcp.json").write_text(json.dumps(servers))
    # The extension has one tool for the tools of all servers.
    find = call("mcp", {"tool": "find_order", "args": '{"number": 7}'})
    pi = Pi(extensions=[ADAPTER], deadline=DEADLINE)
    with drive(pi, mcp=[shop], cwd=tmp_path) as rehearsal:
        run = rehearsal.run(when("Go", [find, say("Done.")]))
    assert [tool.name for tool in run.events.executed] == ["mcp", "find_order"]
    assert run.results("mcp")[0].text == "order 7: one lamp"
    assert shop.calls == [("find_order", {"number": 7})]
