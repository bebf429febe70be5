"""An MCP server as the subject: scripts, the rules of the protocol, and what explore finds."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from offbook import Command, ToolResult, call, drive, role, say, when
from offbook.errors import CheckFailed, DeadlineExceeded, RunError, UsageError
from offbook.explore import explore, replay
from offbook.mcp import McpServer, mcp_server
from offbook.protocols import A2a
from offbook.subjects.rpc_process import ProtocolRules
from offbook.testing import SubjectConformance
from offbook.types import Subject

FILE = str(Path(__file__).with_name("plain_server.py"))
FIND = call("find_order", {"number": 7})
VERSION = "2025-06-18"


def plain(fault: str = "", **options: Any) -> McpServer:
    return McpServer([sys.executable, "-I", FILE, fault], **options)


class TestServer(SubjectConformance):
    def subject(self) -> Subject:
        return plain()

    def call(self) -> tuple[str, dict[str, Any]]:
        return "find_order", {"number": 7}


def test_a_script_calls_the_tools_of_a_server():
    seen: list[ToolResult] = []
    wrong = call("find_order", {"number": "x"}, invalid=True).then(seen.append)
    with drive(plain()) as rehearsal:
        run = rehearsal.run(when("Find", [FIND.then(seen.append), wrong, say("Done.")]))
        assert run.output == "Done."
        assert len(run.events.executed) == 2
    assert [(result.text, result.is_error) for result in seen] == [
        ("order 7", False),
        ("number must be an integer", True),
    ]


def test_half_a_character_is_not_sent_to_a_server():
    half = call("find_order", {"number": "\ud800"}, invalid=True)
    with (
        pytest.raises(UnicodeEncodeError, match="surrogates not allowed"),
        drive(plain()) as rehearsal,
    ):
        rehearsal.run(when("Find", [half, say("Done.")]))


@pytest.mark.parametrize(
    "fault, text",
    [
        ("tool_error@1", "injected fault: tool_error of find_order, tool call 1"),
        ("tool_lost@1", "injected fault: tool_lost of find_order, tool call 1"),
        ("tool_empty@1", ""),
    ],
)
def test_a_fault_of_a_tool_is_a_result_and_not_the_end_of_the_run(fault: str, text: str):
    with drive(plain(), faults=[fault]) as rehearsal:
        run = rehearsal.run(when("Find", [FIND, say("Done.")]))
    (result,) = run.results("find_order")
    assert (result.text, result.is_error) == (text, bool(text))


def test_a_server_that_runs_is_reached_by_its_url():
    shop = mcp_server("shop", tools={"find_order": "a lamp"}, page_size=1)
    with drive(McpServer(shop.url)) as rehearsal:
        run = rehearsal.run(when("Find", [FIND, say("Done.")]))
    assert run.results("find_order")[0].text == "a lamp"


class HttpServer(BaseHTTPRequestHandler):
    """An MCP server over HTTP, without a package; the query of its address says what it does."""

    def do_POST(self):
        kind = parse_qs(urlsplit(self.path).query)["kind"][0]
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, version = request["method"], self.headers["mcp-protocol-version"]
        if kind == "refused":
            return self.reply(401, "text/plain", "no such key")
        if kind == "refused call" and method == "tools/call":
            return self.reply(503, "text/plain", "")
        if method != "initialize" and version != VERSION:
            return self.reply(400, "text/plain", f"MCP-Protocol-Version is {version}")
        if "id" not in request:
            return self.reply(202, "text/plain", "")
        results: dict[str, Any] = {
            "initialize": {
                "protocolVersion": VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "plain", "version": "1"},
            },
            "tools/list": {"tools": [{"name": "find_order", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "a lamp"}]},
        }
        message = {"jsonrpc": "2.0", "id": request["id"], "result": results.get(method, {})}
        if kind == "one line":
            return self.reply(200, "application/json", json.dumps(message))
        lines = json.dumps(message, indent=2).splitlines()
        if kind == "several lines":
            return self.reply(200, "application/json", "\n".join(lines))
        # The first event has no data: it only names the position of the stream.
        events = "id: 1\ndata:\n\n" + "".join(f"data:{line}\n" for line in lines) + "\n"
        return self.reply(200, "text/event-stream", events)

    def reply(self, status: int, kind: str, text: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base
        """Print nothing."""


@pytest.fixture
def http_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), HttpServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/mcp"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("kind", ["one line", "several lines", "events"])
def test_each_form_of_a_response_over_http_is_read(kind: str, http_url: str):
    with drive(McpServer(f"{http_url}?kind={quote(kind)}")) as rehearsal:
        run = rehearsal.run(when("Find", [FIND, say("Done.")]))
    assert run.results("find_order")[0].text == "a lamp"


@pytest.mark.parametrize(
    "kind, problem",
    [
        ("refused", "failed in initialize: the MCP server answered with HTTP 401 Unauthorized: no"),
        ("refused call", "failed in find_order: the MCP server answered with HTTP 503"),
    ],
)
def test_an_error_of_http_fails_the_run_with_its_text(kind: str, problem: str, http_url: str):
    with (
        pytest.raises(RunError, match=problem),
        drive(McpServer(f"{http_url}?kind={quote(kind)}")) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))


def test_a_server_that_does_not_run_is_reported_at_once():
    with (
        pytest.raises(RunError, match=r"failed in initialize: the MCP server has gone: .*refused"),
        drive(McpServer("http://127.0.0.1:9/mcp")) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))


def test_the_tools_are_part_of_the_requests():
    with drive(plain()) as rehearsal:
        run = rehearsal.run(when("Find", [FIND, say("Done.")]))
        (tool,) = run.requests[0].tools
    assert (tool.name, tool.description) == ("find_order", "Find an order.")
    assert tool.schema["required"] == ["number"]


def test_a_rule_that_was_checked_is_a_verdict():
    with drive(plain()) as rehearsal:
        rehearsal.run(when("Find", [FIND, say("Done.")]))
        rehearsal.dispose()
        verdicts = [v for v in rehearsal.events.verdicts if v.check == "MCP protocol"]
    assert [(verdict.status, verdict.actual) for verdict in verdicts] == [("pass", 4)]


def test_a_rule_that_ended_a_prompt_is_raised_once_and_stays_in_the_verdict():
    rules = ProtocolRules()
    rules.expect(holds=False, rule="an id must be a text")
    with pytest.raises(CheckFailed, match="the server fails: an id must be a text"):
        rules.raise_broken("the server fails")
    rules.raise_broken("the server fails")
    verdict = rules.verdict("MCP")
    assert (verdict.status, verdict.message) == ("fail", "an id must be a text")


BROKEN = {
    "two tools": "two tools are named 'find_order'",
    "a name": "invalid name of a tool: 'find order'",
    "a schema": "inputSchema of find_order must have the type object",
    "an invalid schema": "inputSchema of find_order: invalid JSON schema",
    "an output": 'structuredContent of find_order must match its schema: null is not of type "obj',
    "no version": 'a message must have "jsonrpc": "2.0"',
    "a version": "unknown protocol version '1999-01-01'",
    "a cursor": "the cursor '1' comes twice",
    "a print": "a line on stdout is not JSON: 'looking for an order'",
    "content": "unknown type of content 'txt' of find_order",
    "no content": "the result of find_order must have a list as content",
    "both": "a response must have a result or an error",
    "two responses": "a response to 4, which is not an open request",
    "a description": "description of find_order must be a text",
    '{"content": [{"type": "text", "text": null}]}': "text content of find_order must have text",
    '{"content": [{"type": "text", "text": {}}]}': "text of text content of find_order must be a t",
    '{"content": [{"type": "image", "data": "*", "mimeType": "image/png"}]}': "must be base64",
    '{"content": [{"type": "resource", "resource": {}}]}': "must have a uri, and a text or a blob",
    '{"content": [], "isError": "false"}': "isError of the result of find_order must be true or",
    '{"content": [], "structuredContent": [1]}': "structuredContent of the result of find_order",
}
VALID: list[Any] = [
    {"content": [{"type": "image", "data": "AAEC", "mimeType": "image/png"}]},
    {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": ""}}]},
    {"content": [{"type": "resource", "resource": {"uri": "file:///a", "blob": "AAEC"}}]},
    {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}], "isError": False},
    {"content": [], "structuredContent": {"id": 7}},
    {"content": [], "structuredContent": None, "isError": None},
]


@pytest.mark.parametrize("result", VALID)
def test_a_valid_result_is_accepted(result: Any):
    with drive(plain(json.dumps(result))) as rehearsal:
        rehearsal.run(when("Find", [FIND, say("Done.")]))


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_rule_fails_the_run(fault: str):
    with (
        pytest.raises(CheckFailed) as caught,
        drive(plain(fault)) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))
    assert BROKEN[fault] in str(caught.value)


def test_an_internal_error_is_a_bug_of_the_server():
    with (
        pytest.raises(RunError, match=r"failed in find_order: KeyError: 7 \(code -32603\)"),
        drive(plain("an internal error")) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))


def test_the_end_of_a_server_is_reported_with_its_last_lines():
    with (
        pytest.raises(RunError, match=r"(?s)exit code 1 during tools/call.*out of orders"),
        drive(plain("an exit")) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))


@pytest.mark.parametrize(
    "fault, end",
    [
        ("a crash after it", r"failed with exit code 3 .*out of orders"),
        (
            "an error at the end",
            r"failed with exit code 1 at the end of its input\n.*cannot save the orders",
        ),
        ("7", "failed with exit code 7 at the end of its input"),
        ("SIGKILL", "was killed by SIGKILL at the end of its input"),
    ],
)
def test_a_server_that_crashes_after_its_last_answer_fails_the_run(fault: str, end: str):
    rehearsal = drive(plain(fault))
    rehearsal.run(when("Find", [FIND, say("Done.")]))
    with pytest.raises(CheckFailed, match=f"(?s)the MCP server {end}"):
        rehearsal.dispose()
    statuses = {v.check: v.status for v in rehearsal.events.verdicts}
    assert statuses["run finished"] == "fail"


@pytest.mark.parametrize("end", ["0", "130", "143", "SIGTERM", "SIGINT"])
def test_a_server_may_end_itself_by_a_signal_when_its_input_ends(end: str):
    with drive(plain(end)) as rehearsal:
        rehearsal.run(when("Find", [FIND, say("Done.")]))


def test_a_server_that_does_not_answer_is_reported():
    with (
        # On a busy machine, the server may not even have started by then.
        pytest.raises(DeadlineExceeded, match=r"did not answer (\w+|tools/call) within 0\.5 s"),
        drive(plain("silence", deadline=0.5)) as rehearsal,
    ):
        rehearsal.run(when("Find", [FIND, say("Done.")]))


def test_a_role_answers_the_questions_of_a_server_to_the_model():
    with drive(plain("sampling")) as rehearsal:
        run = rehearsal.run(
            when("Find", [FIND, say("Done.")]),
            role("sampling", [say("bright")], first="Describe a lamp."),
        )
    assert run.results("find_order")[0].text == "bright"


@pytest.mark.parametrize("command", ["mcp-server-time", []])
def test_a_command_is_a_list_of_words(command: Any):
    with pytest.raises(UsageError):
        McpServer(command)


def test_explore_takes_an_error_result_for_a_rejection():
    explore(lambda: drive(plain()), "Find", runs=8)


def test_explore_finds_a_broken_rule_in_the_answer_to_a_refused_call():
    with pytest.raises(CheckFailed) as caught:
        explore(lambda: drive(plain("both")), "Find", runs=4)
    assert BROKEN["both"] in str(caught.value)


def test_explore_finds_the_arguments_that_end_a_server():
    with pytest.raises(CheckFailed) as caught:
        explore(lambda: drive(plain("a crash at 13")), "Find", runs=20, values={"number": [12, 13]})
    assert "exit code 1 during tools/call" in str(caught.value)
    assert 'call("find_order", {"number": 13})' in str(caught.value)


def test_no_search_asks_a_server_to_refuse_what_the_text_of_a_tool_says():
    shop = mcp_server("shop", tools={"search_pages": "a page", "delete_order": "Deleted."})
    attack = when("Find", [call("search_pages"), call("delete_order"), say("Done.")])
    replay(lambda: drive(McpServer(shop.url)), attack, faults=["tool_injected:search_pages"])


@pytest.mark.parametrize("kind", [McpServer, A2a, Command])
def test_a_file_beside_the_test_is_found_with_cwd(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "beside.py").write_text("")
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(RunError, match="is in the current folder") as caught,
        drive(kind([sys.executable, "beside.py"])) as rehearsal,
    ):
        rehearsal.run(when("Find", [say("Done.")]))
    assert "cwd='.'" in str(caught.value)


def test_a_word_of_a_command_may_be_a_whole_program():
    program = f"{Path(FILE).read_text()}\n{'#' * 300}"
    with drive(McpServer([sys.executable, "-I", "-c", program])) as rehearsal:
        assert rehearsal.run(when("Find", [FIND, say("Done.")])).output == "Done."


def test_a_url_of_https_is_refused_by_its_reason():
    with pytest.raises(UsageError, match="a server is reached over http:// only"):
        McpServer("https://shop.example/mcp")
