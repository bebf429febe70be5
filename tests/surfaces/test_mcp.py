"""The MCP server, with the client of the official SDK and with invalid messages."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import MCPError

from offbook.surfaces.mcp_server.http import build_server

TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>\nLOOP_COMPLETE'
FLOW = [{"hat": "planner", "output": TASK}, {"hat": "builder", "output": DONE}]
TOOLS = {
    f"test_{name}"
    for name in [
        "setup",
        "run",
        "record",
        "replay",
        "assert",
        "inspect",
        "evaluate",
        "report",
        "snapshot",
        "diff",
        "cleanup",
    ]
}
Connect = Callable[[], AbstractAsyncContextManager[Client]]


def stdio(mode: Any = "auto") -> Client:
    command = StdioServerParameters(
        command=sys.executable, args=["-m", "offbook", "mcp"], env=dict(os.environ)
    )
    return Client(command, mode=mode)


CONNECTIONS: dict[str, Connect] = {
    "stdio": stdio,
    "stdio, with a handshake": lambda: stdio("legacy"),
    "the server of the SDK": lambda: Client(build_server()),
}


@pytest.fixture(params=CONNECTIONS.values(), ids=list(CONNECTIONS))
def connect(request: pytest.FixtureRequest, workspaces: Path) -> Connect:
    """A client of the server, over each transport."""
    return request.param


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a tool, which must not be an error and whose text must be equal."""
    answer = await client.call_tool(tool, arguments)
    [said] = answer.content
    assert not answer.is_error, said
    assert said.type == "text"
    assert json.loads(said.text) == answer.structured_content
    assert answer.structured_content is not None
    return answer.structured_content


async def call_for_error(client: Client, tool: str, **arguments: Any) -> str:
    """Return the error message of a tool."""
    answer = await client.call_tool(tool, arguments)
    [said] = answer.content
    assert answer.is_error
    assert said.type == "text"
    assert "Traceback" not in said.text
    return said.text


async def test_every_tool_has_a_valid_schema(connect: Connect):
    async with connect() as client:
        assert client.instructions is not None
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        assert tool.description
        for schema in (tool.input_schema, tool.output_schema or {}):
            jsonschema.Draft202012Validator.check_schema(schema)
        described = tool.input_schema["properties"].values()
        assert all(parameter.get("description") for parameter in described), tool.name
        assert "workspace_id" in tool.input_schema["required"]


async def test_an_agent_tests_a_flow_from_setup_to_cleanup(connect: Connect):
    async with connect() as client:
        await ask(client, "test_setup", workspace_id="flow_test")
        ran = await ask(
            client,
            "test_run",
            workspace_id="flow_test",
            task="Add error handling to the API",
            mock_responses=FLOW,
        )
        assert (ran["exit_code"], ran["mock_responses_consumed"]) == (0, 2)
        assertions = [
            {"type": "hat_transition", "from": "planner", "to": "builder"},
            {"type": "event_sequence", "topics": ["task.start", "build.task", "build.done"]},
            {"type": "no_event", "topic": "build.done"},
        ]
        checked = await ask(client, "test_assert", workspace_id="flow_test", assertions=assertions)
        assert (checked["passed"], checked["failed_count"]) == (False, 1)
        told = await ask(client, "test_inspect", workspace_id="flow_test", format="timeline")
        assert [moment["hat"] for moment in told["timeline"]] == ["planner", "builder"]
        report = await ask(
            client, "test_report", workspace_id="flow_test", format="junit", test_name="flow"
        )
        assert (report["tests"], report["failed"]) == (3, 1)
        gone = await ask(client, "test_cleanup", workspace_id="flow_test")
        assert gone == {"deleted": True, "preserved_files": []}


@pytest.mark.parametrize(
    "tool, arguments, told",
    [
        ("test_setup", {"workspace": "x"}, "did you mean 'workspace_id'?"),
        ("test_setup", {}, "missing required field `workspace_id`"),
        ("test_setup", {"workspace_id": 7}, "Expected `str`, got `int`"),
        ("test_setup", {"workspace_id": "../x"}, "invalid workspace name"),
        ("test_run", {"workspace_id": "gone", "task": "x"}, "available: here"),
        ("test_run", {"workspace_id": "here", "task": "x"}, "needs mock_responses"),
        ("test_assert", {"workspace_id": "here", "assertions": []}, "missing assertions"),
        ("test_inspect", {"workspace_id": "here", "format": "xml"}, "Invalid enum value 'xml'"),
        ("test_inspect", {"workspace_id": "here"}, "has no session yet"),
        ("test_cleanup", {"workspace_id": "heer"}, "did you mean 'here'?"),
    ],
)
async def test_errors_are_reported_to_the_agent(
    workspaces: Path, tool: str, arguments: dict[str, Any], told: str
):
    async with Client(build_server()) as client:
        await ask(client, "test_setup", workspace_id="here")
        assert told in await call_for_error(client, tool, **arguments)


async def test_parallel_callers_are_independent(workspaces: Path):
    async def play(client: Client, name: str) -> dict[str, Any]:
        await ask(client, "test_setup", workspace_id=name)
        return await ask(client, "test_run", workspace_id=name, task=name, mock_responses=FLOW)

    async with stdio() as one, stdio() as other:
        both = [(one, f"a{n}") for n in range(4)] + [(other, f"b{n}") for n in range(4)]
        runs = await asyncio.gather(*(play(client, name) for client, name in both))
        for client, name in both:
            found = await ask(
                client, "test_inspect", workspace_id=name, filter={"topics": ["task.start"]}
            )
            assert [record["data"]["payload"] for record in found["records"]] == [name]
    assert {(ran["exit_code"], ran["iterations"]) for ran in runs} == {(0, 2)}


async def test_a_run_reports_progress_on_request(connect: Connect):
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with connect() as client:
        await ask(client, "test_setup", workspace_id="w")
        about = {"workspace_id": "w", "task": "Go", "mock_responses": FLOW}
        answer = await client.call_tool("test_run", about, progress_callback=hear)
        assert not answer.is_error
        assert heard == [(1, 5, "iteration 1: planner"), (2, 5, "iteration 2: builder")]
        await ask(client, "test_run", **about)
    assert len(heard) == 2


async def test_an_unknown_tool_suggests_the_nearest(workspaces: Path):
    async with stdio() as client:
        with pytest.raises(MCPError, match="did you mean 'test_run'"):
            await client.call_tool("test_runn", {})


def converse(*lines: str) -> list[dict[str, Any]]:
    """Return the answers of the server to these lines and the end of input."""
    ended = subprocess.run(
        [sys.executable, "-m", "offbook", "mcp"],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stderr == ""
    return [json.loads(line) for line in ended.stdout.splitlines()]


def request(method: str, number: int = 1, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})


@pytest.mark.parametrize(
    "line, code",
    [
        ("{oops", -32700),
        ("7", -32600),
        ('{"id": 1, "method": 7}', -32600),
        ('{"id": 1, "method": "ping", "params": []}', -32600),
        (request("no/such"), -32601),
        (request("tools/call", name=7), -32602),
        (request("tools/call", name="no_such"), -32602),
    ],
)
def test_an_invalid_request_is_rejected_and_the_next_is_answered(line: str, code: int):
    refused, answered = converse(line, request("ping", 2))
    assert refused["error"]["code"] == code
    assert answered == {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.mark.parametrize(
    "wanted, given", [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")]
)
def test_a_known_protocol_version_is_used(wanted: str, given: str):
    [answer] = converse(request("initialize", protocolVersion=wanted))
    assert answer["result"]["protocolVersion"] == given


def test_initialize_does_not_import_the_sdk(unwatched: dict[str, str]):
    code = (
        "import sys\n"
        "from offbook.surfaces.cli import main\n"
        "try: main(['mcp'])\n"
        "finally: print(sorted(sys.modules), file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        input=request("initialize") + "\n",
        env=unwatched,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(ended.stderr.split("'")[1::2])
    assert not imported & {"mcp", "pydantic", "anyio", "regex", "yaml_rs", "rich"}
    assert json.loads(ended.stdout)["result"]["serverInfo"]["name"] == "offbook"


async def test_each_row_of_the_error_table_is_reported(workspaces: Path):
    slow = [{"output": "late", "delay_ms": 60_000}]
    async with Client(build_server()) as client:
        made = await ask(client, "test_setup", workspace_id="t")
        assert "available: t" in await call_for_error(
            client, "test_inspect", workspace_id="unknown"
        )

        dry = await ask(
            client, "test_run", workspace_id="t", task="Go", mock_responses=[{"output": TASK}]
        )
        assert "all 1 mock responses are used" in dry["error"]
        assert dry["mock_responses_consumed"] == 1

        late = await ask(
            client,
            "test_run",
            workspace_id="t",
            task="Go",
            mock_responses=slow,
            max_runtime_secs=0.1,
        )
        assert late["termination_reason"] == "MaxRuntime"
        assert late["events_count"] > 0
        assert "was used before" in late["warnings"][0]

        wanted = [{"type": "file_contains", "path": "gone.py", "pattern": "x"}]
        checked = await ask(client, "test_assert", workspace_id="t", assertions=wanted)
        assert checked["results"][0]["message"] == "gone.py is missing"

        break_line(Path(made["workspace_path"]) / "session.jsonl", 3)
        told = await call_for_error(client, "test_assert", workspace_id="t", assertions=wanted)
        assert "session.jsonl:3: the session is corrupt" in told


def break_line(path: Path, number: int) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = "{oops"
    path.write_text("\n".join(lines) + "\n")
