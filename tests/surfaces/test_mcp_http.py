"""The test tools over streamable HTTP, with several clients of one server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError

from offbook.surfaces.mcp_server import describe_tools
from tests.forked import forked_command
from tests.surfaces.test_mcp import FLOW, call_for_error, call_tool

COMMAND = ["-m", "offbook", "mcp", "--http", "--port"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for these tests."""
    env = {**os.environ, "TMPDIR": str(tmp_path_factory.mktemp("workspaces"))}
    server = subprocess.Popen(
        forked_command(*COMMAND, 0),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=env,
    )
    assert server.stdout is not None
    assert server.stderr is not None
    with server, server.stdout, server.stderr:
        address = server.stderr.readline().removeprefix("serving ").strip()
        assert address.startswith("http://127.0.0.1:")
        yield address
        server.send_signal(signal.SIGINT)
        assert server.wait(300) in {0, 130}


async def run_flow(client: Client, name: str) -> dict[str, Any]:
    """Set up, run, check and report; return the result of the check."""
    await call_tool(client, "test_setup", workspace_id=name)
    run = await call_tool(client, "test_run", workspace_id=name, task=name, mock_responses=FLOW)
    assert (run["exit_code"], run["iterations"]) == (0, 2)
    assertion = {"type": "event_occurred", "topic": "task.start", "payload_pattern": f"^{name}$"}
    checked = await call_tool(client, "test_assert", workspace_id=name, assertions=[assertion])
    report = await call_tool(
        client, "test_report", workspace_id=name, format="junit", test_name=name
    )
    assert (report["tests"], report["passed"]) == (1, 1)
    return checked


async def test_parallel_callers_are_independent(url: str):
    async with Client(url) as one, Client(url) as other, Client(url, mode="legacy") as third:
        workspaces = [
            (client, f"{prefix}-{n}")
            for prefix, client in zip("abc", (one, other, third), strict=True)
            for n in range(4)
        ]
        checks = await asyncio.gather(*(run_flow(client, name) for client, name in workspaces))
        assert all(checked["passed"] for checked in checks)
        cleanups = [
            call_tool(client, "test_cleanup", workspace_id=name) for client, name in workspaces
        ]
        assert all(result["deleted"] for result in await asyncio.gather(*cleanups))


async def test_a_duplicate_workspace_name_is_an_error(url: str):
    async with Client(url) as one, Client(url) as other:
        clients = (one, other) * 5
        results = await asyncio.gather(
            *(client.call_tool("test_setup", {"workspace_id": "same"}) for client in clients)
        )
        assert sum(not result.is_error for result in results) == 1
        errors = {str(result.content) for result in results if result.is_error}
        assert all("'same' exists already" in text for text in errors)
        error = await call_for_error(one, "test_inspect", workspace_id="same")
        assert "has no session yet" in error


async def test_a_slow_run_does_not_block_other_callers(url: str):
    slow = [{"output": "late", "delay_ms": 600_000}]
    async with Client(url) as one, Client(url) as other:
        await call_tool(one, "test_setup", workspace_id="slow")
        pending = asyncio.ensure_future(
            one.call_tool(
                "test_run", {"workspace_id": "slow", "task": "Go", "mock_responses": slow}
            )
        )
        assert (await run_flow(other, "quick"))["passed"]
        assert (await run_flow(one, "parallel"))["passed"]
        assert not pending.done()
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)


async def test_tools_and_errors_are_the_same_as_over_stdio(url: str):
    async with Client(url) as client:
        tools = (await client.list_tools()).tools
        schemas = {tool.name: (tool.input_schema, tool.output_schema) for tool in tools}
        assert schemas == {
            tool["name"]: (tool["inputSchema"], tool.get("outputSchema"))
            for tool in json.loads(json.dumps(describe_tools()))
        }
        assert "did you mean 'workspace_id'?" in await call_for_error(
            client, "test_setup", workspace="x"
        )
        with pytest.raises(MCPError, match="did you mean 'test_run'"):
            await client.call_tool("test_runn", {})
        invalid = {"workspace_id": "w", "task": "x", "mock_responses": [{"outptu": "x"}]}
        await call_tool(client, "test_setup", workspace_id="w")
        assert "did you mean 'output'?" in await call_for_error(client, "test_run", **invalid)


def test_a_port_in_use_is_reported_with_a_fix(workspaces: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            forked_command(*COMMAND, port),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ,
        )
    assert result.returncode == 2
    assert f"port {port} is already in use" in result.stderr
    assert "use another port, or 0 for any" in result.stderr


async def test_progress_and_results_reach_their_callers(url: str):
    messages: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    async with Client(url) as one, Client(url) as other:
        await call_tool(one, "test_setup", workspace_id="shared")
        arguments = {"workspace_id": "shared", "task": "Go", "mock_responses": FLOW}
        await one.call_tool("test_run", arguments, progress_callback=on_progress)
        inspection = await call_tool(
            other, "test_inspect", workspace_id="shared", format="timeline"
        )
        assert [entry["hat"] for entry in inspection["timeline"]] == ["planner", "builder"]
        assert "did you mean 'shared'" in await call_for_error(
            other, "test_cleanup", workspace_id="shard"
        )
    assert messages == ["iteration 1: planner", "iteration 2: builder"]


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}]
)
def test_a_page_of_another_origin_is_refused(url: str, headers: dict[str, str]):
    assert httpx.post(url, json={}, headers=headers).status_code == 403
