"""The official SDK for TypeScript on both sides, and the inspector; `./dev clients` has them."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from offbook import Command, call, drive, say, when
from offbook.mcp import McpServer, ScriptedServer, mcp_server
from tests.matrix.homes import HOMES
from tests.matrix.rows import WHOLE

HOME = HOMES["mcp-node"]
SCRIPTS = Path(__file__).with_name("node")
REASON = "the MCP SDK for TypeScript is not installed: run ./dev clients"
SCRIPT = when("Go", [call("find_order", {"number": 7}), say("Done.")])
pytestmark = [pytest.mark.clients, pytest.mark.skipif(not (WHOLE or HOME.ready), reason=REASON)]


def find_order(number: int) -> str:
    """Find an order."""
    return f"order {number}: one lamp"


def make_shop() -> ScriptedServer:
    return mcp_server("shop", tools={"find_order": find_order})


def node(script: str, *arguments: str) -> list[str]:
    """Return the command of a script, which finds its packages beside it."""
    assert HOME.ready, HOME.describe_missing()
    program = shutil.which("node")
    assert program is not None
    return [program, str(shutil.copy(SCRIPTS / script, HOME.folder)), *arguments]


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_its_client_calls_a_scripted_server(transport: str):
    shop = make_shop()
    words = shop.command if transport == "stdio" else []
    with drive(Command(node("host.mjs", "{prompt}", *words)), mcp=[shop]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.output == "Done."
    assert run.results("find_order")[0].text == "order 7: one lamp"
    assert shop.calls == [("find_order", {"number": 7})]


def test_its_server_is_the_subject_of_a_test():
    with drive(McpServer(node("server.mjs"))) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.results("find_order")[0].text == "order 7: one lamp"


def test_its_client_and_its_server_talk_through_offbook():
    server = mcp_server("shop", command=node("server.mjs"))
    with drive(Command(node("host.mjs", "{prompt}")), mcp=[server]) as rehearsal:
        run = rehearsal.run(SCRIPT)
    assert run.results("find_order")[0].text == "order 7: one lamp"
    assert server.calls == [("find_order", {"number": 7})]


def inspect(*arguments: str) -> Any:
    assert HOME.ready, HOME.describe_missing()
    program = HOME.folder / "node_modules" / ".bin" / "mcp-inspector"
    ended = subprocess.run(
        [str(program), "--cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "HOME": str(HOME.folder)},
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_the_inspector_lists_and_calls_the_tools_of_a_scripted_server():
    shop = make_shop()
    listed = inspect(shop.url, "--transport", "http", "--method", "tools/list")
    assert [tool["name"] for tool in listed["tools"]] == ["find_order"]
    made = ["--method", "tools/call", "--tool-name", "find_order", "--tool-arg", "number=7"]
    result = inspect(*shop.command, *made)
    assert result["content"] == [{"type": "text", "text": "order 7: one lamp"}]
