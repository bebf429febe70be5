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

from offbook.mcp.http_sessions import mount
from offbook.mcp.server_session import LISTS
from offbook.surfaces.mcp_server import OffbookServer
from tests.forked import forked_command

TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>\nLOOP_COMPLETE'
FLOW = [{"hat": "planner", "output": TASK}, {"hat": "builder", "output": DONE}]
TOOLS = {
    f"test_{name}"
    for name in [
        "benchmark",
        "chaos",
        "compare",
        "coverage",
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
    program, *words = forked_command("-m", "offbook", "mcp")
    command = StdioServerParameters(command=program, args=words, env=dict(os.environ))
    return Client(command, mode=mode)


def serve_tools() -> str:
    """Return the URL of a server in this process."""
    return mount(OffbookServer())[0]


CONNECTIONS: dict[str, Connect] = {
    "stdio": stdio,
    "stdio, with a handshake": lambda: stdio("legacy"),
    "HTTP": lambda: Client(serve_tools()),
}


@pytest.fixture(params=CONNECTIONS.values(), ids=list(CONNECTIONS))
def connect(request: pytest.FixtureRequest, workspaces: Path) -> Connect:
    """A client of the server, over each transport."""
    return request.param


async def call_tool(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a tool; assert that it succeeded and that its text is equal."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    assert not result.is_error, content
    assert content.type == "text"
    assert json.loads(content.text) == result.structured_content
    assert result.structured_content is not None
    return result.structured_content


async def call_for_error(client: Client, tool: str, **arguments: Any) -> str:
    """Return the error message of a tool."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    assert result.is_error
    assert content.type == "text"
    assert "Traceback" not in content.text
    return content.text


async def test_every_tool_has_a_valid_schema(connect: Connect):
    async with connect() as client:
        assert client.instructions is not None
        tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        assert tool.description
        for schema in (tool.input_schema, tool.output_schema or {}):
            jsonschema.Draft202012Validator.check_schema(schema)
        parameters = tool.input_schema["properties"].values()
        assert all(parameter.get("description") for parameter in parameters), tool.name
        assert "workspace_id" in tool.input_schema["required"]


async def test_an_agent_tests_a_flow_from_setup_to_cleanup(connect: Connect):
    async with connect() as client:
        await call_tool(client, "test_setup", workspace_id="flow_test")
        run = await call_tool(
            client,
            "test_run",
            workspace_id="flow_test",
            task="Add error handling to the API",
            mock_responses=FLOW,
        )
        assert (run["exit_code"], run["mock_responses_consumed"]) == (0, 2)
        assertions = [
            {"type": "hat_transition", "from": "planner", "to": "builder"},
            {"type": "event_sequence", "topics": ["task.start", "build.task", "build.done"]},
            {"type": "no_event", "topic": "build.done"},
        ]
        checked = await call_tool(
            client, "test_assert", workspace_id="flow_test", assertions=assertions
        )
        assert (checked["passed"], checked["failed_count"]) == (False, 1)
        inspection = await call_tool(
            client, "test_inspect", workspace_id="flow_test", format="timeline"
        )
        assert [entry["hat"] for entry in inspection["timeline"]] == ["planner", "builder"]
        report = await call_tool(
            client, "test_report", workspace_id="flow_test", format="junit", test_name="flow"
        )
        assert (report["tests"], report["failed"]) == (3, 1)
        cleanup = await call_tool(client, "test_cleanup", workspace_id="flow_test")
        assert cleanup == {"deleted": True, "preserved_files": []}


async def test_no_result_of_a_tool_contains_a_secret(connect: Connect):
    key = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ0123456789"
    replies = [{"output": f"the key is {key}\nLOOP_COMPLETE"}]
    async with connect() as client:
        await call_tool(client, "test_setup", workspace_id="k", fixtures={"a.txt": f"{key} TODO"})
        await call_tool(client, "test_run", workspace_id="k", task="Go", mock_responses=replies)
        forbidden = {"type": "file_not_contains", "path": "a.txt", "pattern": "TODO"}
        wrong = {"type": "output_matches", "pattern": key}
        checked = await client.call_tool(
            "test_assert", {"workspace_id": "k", "assertions": [forbidden, wrong]}
        )
        assert "[API_KEY]" in str(checked)
        assert "ghp_aB3" not in str(checked)


@pytest.mark.parametrize(
    "tool, arguments, expected",
    [
        ("test_setup", {"workspace": "x"}, "did you mean 'workspace_id'?"),
        ("test_setup", {}, "missing key 'workspace_id'"),
        ("test_setup", {"workspace_id": 7}, "expected a text, got an integer"),
        ("test_setup", {"workspace_id": "../x"}, "invalid workspace name"),
        ("test_run", {"workspace_id": "gone", "task": "x"}, "available: here"),
        ("test_run", {"workspace_id": "here", "task": "x"}, "needs mock_responses"),
        ("test_assert", {"workspace_id": "here", "assertions": []}, "missing assertions"),
        (
            "test_inspect",
            {"workspace_id": "here", "format": "xml"},
            "expected one of: json, summary, timeline",
        ),
        ("test_inspect", {"workspace_id": "here"}, "has no session yet"),
        ("test_cleanup", {"workspace_id": "heer"}, "did you mean 'here'?"),
    ],
)
async def test_errors_are_reported_to_the_agent(
    workspaces: Path, tool: str, arguments: dict[str, Any], expected: str
):
    async with Client(serve_tools()) as client:
        await call_tool(client, "test_setup", workspace_id="here")
        assert expected in await call_for_error(client, tool, **arguments)


async def test_parallel_callers_are_independent(workspaces: Path):
    async def run_flow(client: Client, name: str) -> dict[str, Any]:
        await call_tool(client, "test_setup", workspace_id=name)
        return await call_tool(
            client, "test_run", workspace_id=name, task=name, mock_responses=FLOW
        )

    async with stdio() as one, stdio() as other:
        calls = [(one, f"a{n}") for n in range(4)] + [(other, f"b{n}") for n in range(4)]
        runs = await asyncio.gather(*(run_flow(client, name) for client, name in calls))
        for client, name in calls:
            inspection = await call_tool(
                client, "test_inspect", workspace_id=name, filter={"topics": ["task.start"]}
            )
            assert [record["data"]["payload"] for record in inspection["records"]] == [name]
    assert {(run["exit_code"], run["iterations"]) for run in runs} == {(0, 2)}


async def test_a_run_reports_progress_on_request(connect: Connect):
    reports: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        reports.append((progress, total, message))

    async with connect() as client:
        await call_tool(client, "test_setup", workspace_id="w")
        arguments = {"workspace_id": "w", "task": "Go", "mock_responses": FLOW}
        result = await client.call_tool("test_run", arguments, progress_callback=on_progress)
        assert not result.is_error
        assert reports == [(1, 5, "iteration 1: planner"), (2, 5, "iteration 2: builder")]
        await call_tool(client, "test_run", **arguments)
    assert len(reports) == 2


async def test_an_unknown_tool_suggests_the_nearest(workspaces: Path):
    async with stdio() as client:
        with pytest.raises(MCPError, match="did you mean 'test_run'"):
            await client.call_tool("test_runn", {})


def send_lines(*lines: str) -> list[dict[str, Any]]:
    """Send these lines to the server, close its input, and return its replies."""
    result = subprocess.run(
        forked_command("-m", "offbook", "mcp"),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stderr == ""
    return [json.loads(line) for line in result.stdout.splitlines()]


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
    refused, answered = send_lines(line, request("ping", 2))
    assert refused["error"]["code"] == code
    assert answered == {"jsonrpc": "2.0", "id": 2, "result": {}}


@pytest.mark.parametrize(
    "requested, negotiated", [("2024-11-05", "2024-11-05"), ("1999-01-01", "2025-11-25")]
)
def test_the_protocol_version_is_negotiated(requested: str, negotiated: str):
    [answer] = send_lines(request("initialize", protocolVersion=requested))
    assert answer["result"]["protocolVersion"] == negotiated


def test_initialize_does_not_import_the_sdk(unwatched: dict[str, str]):
    code = (
        "import sys\n"
        "from offbook.surfaces.cli import main\n"
        "try: main(['mcp'])\n"
        "finally: print(sorted(sys.modules), file=sys.stderr)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=request("initialize") + "\n",
        env=unwatched,
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(result.stderr.split("'")[1::2])
    assert not imported & {"mcp", "pydantic", "anyio", "regex", "yaml_rs", "rich"}
    assert json.loads(result.stdout)["result"]["serverInfo"]["name"] == "offbook"


async def test_each_row_of_the_error_table_is_reported(workspaces: Path):
    slow = [{"output": "late", "delay_ms": 60_000}]
    async with Client(serve_tools()) as client:
        workspace = await call_tool(client, "test_setup", workspace_id="t")
        assert "available: t" in await call_for_error(
            client, "test_inspect", workspace_id="unknown"
        )

        exhausted = await call_tool(
            client, "test_run", workspace_id="t", task="Go", mock_responses=[{"output": TASK}]
        )
        assert "all 1 mock responses are used" in exhausted["error"]
        assert exhausted["mock_responses_consumed"] == 1

        timed_out = await call_tool(
            client,
            "test_run",
            workspace_id="t",
            task="Go",
            mock_responses=slow,
            max_runtime_secs=0.1,
        )
        assert timed_out["termination_reason"] == "MaxRuntime"
        assert timed_out["events_count"] > 0
        assert "was used before" in timed_out["warnings"][0]

        assertions = [{"type": "file_contains", "path": "gone.py", "pattern": "x"}]
        checked = await call_tool(client, "test_assert", workspace_id="t", assertions=assertions)
        assert checked["results"][0]["message"] == "gone.py is missing"

        break_line(Path(workspace["workspace_path"]).parent / "session.jsonl", 3)
        error = await call_for_error(client, "test_assert", workspace_id="t", assertions=assertions)
        assert "session.jsonl:3: the session is corrupt" in error


def break_line(path: Path, number: int) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = "{oops"
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.external
def test_the_requests_of_real_clients_are_answered(shared_data: Path):
    logs = sorted((shared_data / "wire" / "mcp").glob("*.jsonrpc.log"))
    assert len(logs) >= 7
    for log in logs:
        sent = [line[2:] for line in log.read_text().splitlines() if line.startswith("> ")]
        requests = {each["id"]: each["method"] for each in map(json.loads, sent) if "id" in each}
        answers = {answer["id"]: answer for answer in send_lines(*sent) if "id" in answer}
        assert answers.keys() == requests.keys(), log.name
        for number, method in requests.items():
            known = method == "initialize" or method in LISTS
            assert ("result" in answers[number]) is known, (log.name, answers[number])
