"""Published MCP servers: how each is started, a script for it, and what a search breaks.

`offbook explore tests.mcp.published_servers:time "Use the tools"` searches one of them.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from offbook import ToolResult, call, drive, say, when
from offbook.mcp import McpServer
from tests.matrix.homes import HOMES, Home

PROMPT = "Use the tools"


class Page(BaseHTTPRequestHandler):
    """The only page that mcp-server-fetch can reach."""

    def do_GET(self) -> None:
        body = b"<html><body><article><p>The lamp costs 7 euros.</p></article></body></html>"
        found = self.path == "/lamp"
        self.send_response(200 if found else 404)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(body if found else b"")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        pass


@cache
def page_url() -> str:
    """Return the address of the page on loopback; its server ends with this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/lamp"


def has(text: str, *, is_error: bool = False) -> Callable[[ToolResult], None]:
    """Return a check of a result."""

    def check(result: ToolResult) -> None:
        assert result.is_error is is_error, result.text
        assert text in result.text

    return check


@dataclass(frozen=True)
class PublishedServer:
    """A server of a registry, the calls of its script, and the values for a search."""

    program: str
    home_name: str
    calls: Callable[[Path], list[Any]]  # of the folder in which it is started
    arguments: tuple[str, ...] = ()
    before: str = ""  # a command of the shell that prepares the folder
    values: Mapping[str, list[Any]] = field(default_factory=dict[str, Any])
    tools: int = 1

    @property
    def home(self) -> Home:
        return HOMES[self.home_name]

    @property
    def command(self) -> list[str]:
        """Return the command. Paths are those of the folder in which it is started."""
        folder = "node_modules/.bin" if self.home.npm else "bin"
        words = [str(self.home.folder / folder / self.program), *self.arguments]
        if not self.before:
            return words
        shell = shutil.which("sh")
        assert shell is not None
        return [shell, "-c", f'{{ {self.before}; }} >&2 && exec "$0" "$@"', *words]

    def start(self) -> McpServer:
        return McpServer(self.command)


def git_in_an_empty_home(command: str) -> str:
    """Return a command with the variables without which git has no author."""
    names = [
        f"GIT_{who}_{what}=a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    ]
    return f"export {' '.join(names)} && {command}"


SERVERS: dict[str, PublishedServer] = {
    "everything": PublishedServer(
        "mcp-server-everything",
        "mcp-servers-node",
        lambda _: [
            call("echo", {"message": "a lamp"}).then(has("Echo: a lamp")),
            call("get-sum", {"a": 3, "b": 4}).then(has("7")),
            call("get-structured-content", {"location": "Chicago"}).then(has("temperature")),
        ],
        tools=16,
    ),
    "filesystem": PublishedServer(
        "mcp-server-filesystem",
        "mcp-servers-node",
        lambda _: [
            call("write_file", {"path": "note.txt", "content": "a lamp"}).then(has("wrote")),
            call("read_text_file", {"path": "note.txt"}).then(has("a lamp")),
            call("read_text_file", {"path": "/etc/passwd"}).then(has("denied", is_error=True)),
        ],
        (".",),
        values={"path": ["note.txt", "."]},
        tools=14,
    ),
    "memory": PublishedServer(
        "mcp-server-memory",
        "mcp-servers-node",
        lambda _: [
            call(
                "create_entities",
                {"entities": [{"name": "lamp", "entityType": "ware", "observations": ["7 euros"]}]},
            ).then(has("lamp")),
            call("search_nodes", {"query": "euros"}).then(has("lamp")),
        ],
        before="export MEMORY_FILE_PATH=$PWD/memory.json",
        tools=9,
    ),
    "sequential-thinking": PublishedServer(
        "mcp-server-sequential-thinking",
        "mcp-servers-node",
        lambda _: [
            call(
                "sequentialthinking",
                {
                    "thought": "Look first.",
                    "nextThoughtNeeded": False,
                    "thoughtNumber": 1,
                    "totalThoughts": 1,
                },
            ).then(has('"thoughtHistoryLength": 1')),
        ],
    ),
    "sqlite-npx": PublishedServer(
        "mcp-server-sqlite-npx",
        "mcp-servers-node",
        lambda _: [
            call("create_table", {"query": "CREATE TABLE lamp (price int)"}),
            call("write_query", {"query": "INSERT INTO lamp VALUES (7)"}),
            call("read_query", {"query": "SELECT price FROM lamp"}).then(has("7")),
        ],
        ("shop.db",),
        values={"query": ["SELECT 1", "CREATE TABLE lamp (price int)"]},
        tools=5,
    ),
    "time": PublishedServer(
        "mcp-server-time",
        "mcp-servers",
        lambda _: [
            call(
                "convert_time",
                {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
            ).then(has("+9.0h")),
            call("get_current_time", {"timezone": "Moon"}).then(has("Moon", is_error=True)),
        ],
        values={"timezone": ["UTC"], "time": ["12:00"]},
        tools=2,
    ),
    "git": PublishedServer(
        "mcp-server-git",
        "mcp-servers",
        lambda _: [
            call("git_add", {"repo_path": ".", "files": ["note.txt"]}).then(has("staged")),
            call("git_commit", {"repo_path": ".", "message": "A note"}).then(has("committed")),
            call("git_log", {"repo_path": "."}).then(has("A note")),
        ],
        before=git_in_an_empty_home("git init -q && echo a lamp > note.txt"),
        values={"repo_path": ["."], "files": [["note.txt"]], "revision": ["HEAD"]},
        tools=12,
    ),
    "fetch": PublishedServer(
        "mcp-server-fetch",
        "mcp-servers",
        lambda _: [
            # Without `raw`, its first call runs `npm install` for the text of a page.
            call("fetch", {"url": page_url(), "raw": True}).then(has("The lamp costs 7 euros.")),
            call("fetch", {"url": page_url() + "s"}).then(has("404", is_error=True)),
        ],
        ("--ignore-robots-txt", "--allow-private-ips"),
    ),
    "sqlite": PublishedServer(
        "mcp-server-sqlite",
        "mcp-servers-1",
        lambda _: [
            call("create_table", {"query": "CREATE TABLE lamp (price int)"}),
            call("write_query", {"query": "INSERT INTO lamp VALUES (7)"}),
            call("read_query", {"query": "SELECT price FROM lamp"}).then(has("7")),
        ],
        ("--db-path", "shop.db"),
        values={"query": ["SELECT 1", "CREATE TABLE lamp (price int)"]},
        tools=6,
    ),
    "calculator": PublishedServer(
        "mcp-server-calculator",
        "mcp-servers-1",
        lambda _: [
            call("calculate", {"expression": "3 + 4"}).then(has("7")),
            call("calculate", {"expression": "3 +"}).then(has("syntax", is_error=True)),
        ],
        values={"expression": ["3 + 4", "1 / 0", "2 ** 9"]},
    ),
    "text-editor": PublishedServer(
        "mcp-text-editor",
        "mcp-servers-1",
        lambda folder: [
            call(
                "get_text_file_contents",
                {"files": [{"file_path": str(folder / "note.txt"), "ranges": [{"start": 1}]}]},
            ).then(has("a lamp")),
        ],
        before="echo a lamp > note.txt",
        tools=2,
    ),
    "duckdb": PublishedServer(
        "mcp-server-duckdb",
        "mcp-servers-1",
        lambda _: [
            call("query", {"query": "CREATE TABLE lamp AS SELECT 7 AS price"}),
            call("query", {"query": "SELECT price FROM lamp"}).then(has("7")),
        ],
        ("--db-path", "shop.duckdb"),
        values={"query": ["SELECT 1", "CREATE TABLE lamp (price int)"]},
    ),
}


def script(name: str, folder: Path) -> Any:
    """Return the script of a server that is started in a folder."""
    return when(PROMPT, [*SERVERS[name].calls(folder), say("Done.")])


def values(name: str) -> dict[str, list[Any]]:
    """Return the values for a search; the address of the page is known when it is served."""
    return {**SERVERS[name].values, **({"url": [page_url()]} if name == "fetch" else {})}


def world(name: str) -> Any:
    """Return a new rehearsal of a server."""
    return drive(SERVERS[name].start())


for _name in SERVERS:  # worlds for the command: tests.mcp.published_servers:text_editor
    globals()[_name.replace("-", "_")] = partial(world, _name)
