"""The test tools over streamable HTTP: many callers at one server, and none in another's way."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client

from offbook.surfaces.mcp_server import describe_tools
from tests.surfaces.test_mcp import FLOW, ask, call_for_error

COMMAND = [sys.executable, "-m", "offbook", "mcp", "--http", "--port"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a server for these tests listens."""
    env = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("workspaces"))}
    server = subprocess.Popen(
        [*COMMAND, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )
    assert server.stdout is not None
    assert server.stderr is not None
    with server, server.stdout, server.stderr:
        told = server.stderr.readline().removeprefix("serving ").strip()
        assert told.startswith("http://127.0.0.1:")
        yield told
        server.send_signal(signal.SIGINT)
        assert server.wait(60) in {0, 130}


async def play(client: Client, name: str) -> dict[str, Any]:
    """Set up, run, check and report; what was checked comes back."""
    await ask(client, "test_setup", workspace_id=name)
    ran = await ask(client, "test_run", workspace_id=name, task=name, mock_responses=FLOW)
    assert (ran["exit_code"], ran["iterations"]) == (0, 2)
    wanted = {"type": "event_occurred", "topic": "task.start", "payload_pattern": f"^{name}$"}
    checked = await ask(client, "test_assert", workspace_id=name, assertions=[wanted])
    told = await ask(client, "test_report", workspace_id=name, format="junit", test_name=name)
    assert (told["tests"], told["passed"]) == (1, 1)
    return checked


async def test_parallel_callers_are_independent(url: str):
    async with Client(url) as one, Client(url) as other, Client(url, mode="legacy") as third:
        names = [
            (c, f"{who}-{n}")
            for who, c in zip("abc", (one, other, third), strict=True)
            for n in range(4)
        ]
        found = await asyncio.gather(*(play(client, name) for client, name in names))
        assert all(checked["passed"] for checked in found)
        gone = [ask(client, "test_cleanup", workspace_id=name) for client, name in names]
        assert all(told["deleted"] for told in await asyncio.gather(*gone))


async def test_one_of_two_workspaces_of_the_same_name_is_an_error(url: str):
    async with Client(url) as one, Client(url) as other:
        clients = (one, other) * 5
        answers = await asyncio.gather(
            *(client.call_tool("test_setup", {"workspace_id": "same"}) for client in clients)
        )
        assert sum(not answer.is_error for answer in answers) == 1
        told = {str(answer.content) for answer in answers if answer.is_error}
        assert all("'same' exists already" in text for text in told)
        left = await call_for_error(one, "test_inspect", workspace_id="same")
        assert "has no session yet" in left


async def test_a_slow_run_does_not_block_other_callers(url: str):
    slow = [{"output": "late", "delay_ms": 600_000}]
    async with Client(url) as one, Client(url) as other:
        await ask(one, "test_setup", workspace_id="slow")
        work = asyncio.ensure_future(
            one.call_tool(
                "test_run", {"workspace_id": "slow", "task": "Go", "mock_responses": slow}
            )
        )
        assert (await play(other, "quick"))["passed"]
        assert (await play(one, "beside"))["passed"]
        assert not work.done()
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_tools_and_errors_are_the_same_as_over_stdio(url: str):
    async with Client(url) as client:
        tools = (await client.list_tools()).tools
        told = {tool.name: (tool.input_schema, tool.output_schema) for tool in tools}
        assert told == {
            tool["name"]: (tool["inputSchema"], tool.get("outputSchema"))
            for tool in json.loads(json.dumps(describe_tools()))
        }
        assert "did you mean 'workspace_id'?" in await call_for_error(
            client, "test_setup", workspace="x"
        )
        assert "did you mean 'test_run'" in await call_for_error(client, "test_runn")
        wrong = {"workspace_id": "w", "task": "x", "mock_responses": [{"outptu": "x"}]}
        await ask(client, "test_setup", workspace_id="w")
        assert "expected fields: output" in await call_for_error(client, "test_run", **wrong)


def test_a_port_in_use_is_reported_with_a_fix(workspaces: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = subprocess.run(
            [*COMMAND, str(port)], capture_output=True, text=True, check=False, env=os.environ
        )
    assert ended.returncode == 2
    assert f"cannot listen on port {port}: Address already in use" in ended.stderr
    assert "--port 0" in ended.stderr


async def test_progress_and_results_reach_their_callers(url: str):
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)

    async with Client(url) as one, Client(url) as other:
        await ask(one, "test_setup", workspace_id="told")
        about = {"workspace_id": "told", "task": "Go", "mock_responses": FLOW}
        await one.call_tool("test_run", about, progress_callback=hear)
        told = await ask(other, "test_inspect", workspace_id="told", format="timeline")
        assert [moment["hat"] for moment in told["timeline"]] == ["planner", "builder"]
        assert "did you mean 'told'" in await call_for_error(
            other, "test_cleanup", workspace_id="tolt"
        )
    assert heard == ["iteration 1: planner", "iteration 2: builder"]
