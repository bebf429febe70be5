"""The parsers that are fuzzed: one line of `TARGETS` for each.

A target yields the ways in which the bytes of an input are read. Each of them returns, or raises an
OffbookError. Everything else is a finding. A target reads only: no text of an input is run as a
command, and none names a file that is written.
"""

from __future__ import annotations

import asyncio
import atexit
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from functools import cache, partial
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from offbook.errors import FormatError, OffbookError
from offbook.exchange import History, Reply, Request, Text, user
from offbook.exchange.dialects.dialect import HttpRequest, HttpResponse
from offbook.exchange.providers import all_providers, load_dialect

ROOT = Path(__file__).parents[2]
MAX_SEED_SIZE = 32 * 1024
Steps = Iterator[Callable[[], object]]


class Target(NamedTuple):
    """A parser: the function that reads an input, and the inputs that it accepts.

    These are the files in tests/fuzz/seeds/NAME, those that the patterns of `seeds` find, and
    `texts`. `located` targets read a file: each of their errors must name the file.
    """

    run: Callable[[bytes], Steps]
    seeds: tuple[str, ...] = ()
    texts: Callable[[], Iterable[bytes]] = tuple
    located: bool = True


def list_seeds(name: str) -> list[bytes]:
    """Return the valid inputs of a target."""
    patterns = (f"tests/fuzz/seeds/{name}/*", *TARGETS[name].seeds)
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))[:20]]
    # small ones: a change of a large one hits the same place less often
    small = [path.read_bytes() for path in paths if path.stat().st_size <= MAX_SEED_SIZE]
    return [*small, *TARGETS[name].texts()]


@cache
def _folder() -> Path:
    """Return the folder of the inputs of this process; it is removed at its end."""
    folder = tempfile.mkdtemp(prefix="offbook-fuzz-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _write(name: str, data: bytes) -> Path:
    path = _folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def _document(stem: str, data: bytes, plain: str) -> Path:
    """Write a document with the suffix that its first character suggests."""
    return _write(f"{stem}{'.json' if data.lstrip()[:1] in (b'{', b'[') else plain}", data)


def _command(*words: str | Path) -> None:
    """Run a command of Offbook that only reads."""
    from offbook.surfaces.cli import offbook

    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        offbook.main([str(word) for word in words], prog_name="offbook", standalone_mode=False)


# --- Files


def playbook(data: bytes) -> Steps:
    from offbook.sources.loading import open_source, read_script

    path = _document("playbook", data, ".yaml")
    yield lambda: [open_source(path)()]
    yield lambda: read_script(path)


def scenario(data: bytes) -> Steps:
    from offbook.workflows.scenario_cli import read_scenario

    yield lambda: read_scenario(_document("scenario", data, ".yaml"))


def cassette(data: bytes) -> Steps:
    from offbook.sources.cassette import load_cassette
    from offbook.sources.loading import open_source

    path = _write("cassette.yaml", data)
    yield lambda: load_cassette(path)
    yield lambda: [open_source(path)()]
    yield lambda: _command("show", path)
    yield lambda: _command("show", path, "--stats")
    yield lambda: _command("cassette", "verify", path)


def trace(data: bytes) -> Steps:
    path = _write("trace.jsonl", data)
    yield lambda: _command("show", path)
    yield lambda: _command("compare", path, path)
    yield lambda: _command("contract", path, "--infer")
    output = _folder() / "report"
    for name in ("junit", "tap", "ctrf", "json", "markdown", "github", "coverage", "otlp", "html"):
        yield partial(_command, "report", path, "--format", name, "-o", output)


def mocks(data: bytes) -> Steps:
    from offbook.sources.loading import open_source
    from offbook.sources.mocks import read_mocks

    path = _write("mocks.jsonl", data)
    yield lambda: read_mocks(path)
    yield lambda: asyncio.run(open_source(path)().reply(_REQUEST))


def pack(data: bytes) -> Steps:
    from offbook.evals.pack_file import find_single_case, read_pack

    path = _document("pack.eval", data, ".toml")
    yield lambda: find_single_case(path)
    yield lambda: read_pack(path)


def golden(data: bytes) -> Steps:
    from offbook.goldens.fixture_store import read_scenarios

    path = _write("golden/hub/case.jsonl", data)
    yield lambda: read_scenarios(path)
    subscribing = (ROOT / "fixtures/golden/hub/subscribe-list.jsonl").read_bytes()
    other = _write("golden/hub/other.jsonl", subscribing)
    _write("golden/hub/other.match.json", data)
    yield lambda: read_scenarios(other)


def spec(data: bytes) -> Steps:
    from offbook.goldens.specs import read_spec

    yield lambda: read_spec(_write("specs/hub.test-spec.md", data))


def imported(data: bytes) -> Steps:
    from offbook.sources.importers import read_trace, write_mocks

    path = _write("import.jsonl", data)
    yield lambda: write_mocks(read_trace(path), _folder() / "imported.jsonl")
    yield lambda: _command("import", path, "-o", _folder() / "imported.yaml", "--replace")


def conformance(data: bytes) -> Steps:
    from offbook.conformance.conformance_cli import find_cases, read_suite_settings

    source, error = _folder() / "suite", _folder() / "failing"
    _write("suite/one.js", data)
    _write("suite/one.expected", data)
    yield lambda: find_cases(source, read_suite_settings(source, ("node {file}",)))
    _write("failing/two.js", b"// @xfail: known\n")
    _write("failing/two.error", data)
    yield lambda: find_cases(error, read_suite_settings(error, ("node {file}",)))
    settings = _write("settings/conformance.toml", data).parent
    yield lambda: find_cases(settings, read_suite_settings(settings))


# A counter of values of any type: a pattern that raises is not a finding.
COUNTER = b"""
from offbook.patterns import computed, default, handler, pattern

@handler
def increment(event, value):
    value.set(f"{value.get()}1")

@pattern
def counter(value=default(0)):
    return {
        "value": value,
        "label": computed(lambda: f"the {value.get()}th visit"),
        "increment": increment(value=value),
        "decrement": increment(value=value),
    }
"""


def steps(data: bytes) -> Steps:
    from offbook.files import read_document
    from offbook.patterns import create_harness, load_pattern
    from offbook.patterns.steps import OPTIONS, StepsFile, run_steps, validate_steps

    path = _document("counter.steps", data, ".yaml")

    def run() -> None:
        file = read_document(path, StepsFile)
        pattern = load_pattern(_write("counter.py", COUNTER))
        with create_harness() as h:
            validate_steps(file.steps, h.load(pattern))
        # An assertion is an expression of Python: no call of a function is evaluated.
        if not any(word in str(file.steps) for word in ("(", "__")):
            options = {name: getattr(file, name) for name in OPTIONS}
            run_steps(pattern, file.steps, file.state, **options)

    yield run


def regex(data: bytes) -> Steps:
    from offbook.trace.matching import compile_check

    source, _, text = data.decode("utf-8", "replace").partition("\n")
    yield lambda: compile_check(source, "here").search(text)


# --- Messages


_REQUEST = Request(History((user("Hi"),)))


class _Model:
    """A source with one reply."""

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        return Reply((Text("Hello."),))


class _Transport:
    """A transport that keeps nothing."""

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...
    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str) -> None: ...


def _run(work: Callable[[], Any]) -> None:
    """Run asynchronous work; an exception that only the event loop sees is raised."""
    raised: list[BaseException] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: raised.append(context.get("exception") or Exception(str(context)))
        )
        await work()
        for _ in range(12):
            await asyncio.sleep(0)

    asyncio.run(main())
    if raised:
        raise raised[0]


async def _connect(*pieces: bytes) -> None:
    from offbook.sources.server import Connection, Server

    server = Server(limit=1 << 20)
    server.loop = asyncio.get_running_loop()
    endpoint = server.mount(_Model(), run="")
    connection = Connection(server)
    connection.connection_made(cast("Any", _Transport()))
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(12):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    failure = endpoint.failure
    if failure is not None and not isinstance(failure, OffbookError):
        raise failure


def http(data: bytes) -> Steps:
    yield lambda: _run(lambda: _connect(data[: len(data) // 2], data[len(data) // 2 :]))


def frame(payload: bytes, first: int = 0x81) -> bytes:
    """Return a frame of a client; a mask of zeros leaves the payload as it is."""
    length = len(payload)
    if length < 126:
        head = bytes([first, 0x80 | length])
    elif length < 1 << 16:
        head = bytes([first, 0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + length.to_bytes(8, "big")
    return head + bytes(4) + payload


def websocket(data: bytes) -> Steps:
    """Send frames; an input that is JSON is the payload of one, for each path with a socket."""
    is_message = data[:1] in (b"{", b"[")
    for path in (b"/v1/responses", b"/v1/realtime", GEMINI_LIVE):
        upgrade = (
            b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\n"
            b"upgrade: websocket\r\nsec-websocket-version: 13\r\n"
            b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        lines = [frame(line) for line in data.split(b"\n")] if is_message else [data]
        yield lambda pieces=[upgrade, *lines]: _run(lambda: _connect(*pieces))


GEMINI_LIVE = b"/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent"


def sse(data: bytes) -> Steps:
    """Parse the stream and the body of a response, as each provider has them."""
    from offbook.exchange.dialects.provider_responses import (
        parse_sse,
    )
    from offbook.sources.live import read_reply

    yield lambda: [*parse_sse(data)]
    stream, body = {"content-type": "text/event-stream"}, {"content-type": "application/json"}
    for name in all_providers():
        parse = partial(read_reply, load_dialect(name))
        request = msgspec.structs.replace(_REQUEST, stream=True)
        yield partial(parse, HttpResponse(200, stream, data), request)
        yield partial(parse, HttpResponse(200, body, data), _REQUEST)


def json_rpc(data: bytes) -> Steps:
    """Send messages to a scripted MCP server, and to a client of one."""
    from offbook.exchange.json_rpc import Peer
    from offbook.mcp import mcp_server
    from offbook.mcp.http_sessions import HttpSessions
    from offbook.surfaces.mcp_server import serve_lines

    async def talk() -> None:
        server = mcp_server(
            "shop", tools={"find": {"price": 7}}, resources={"shop://a": "x"}, prompts={"p": "y"}
        )
        sessions = HttpSessions(cast("Any", server))
        opened = await sessions.answer(HttpRequest("POST", "/", {}, INITIALIZE))
        for line in data.split(b"\n"):
            await sessions.answer(HttpRequest("POST", "/", dict(opened.headers), line))
            await sessions.answer(HttpRequest("POST", "/", {}, line))
        sent: list[Any] = []

        async def respond(method: str, params: dict[str, Any]) -> Any:
            return {"method": method, **params}

        peer = Peer(sent.append, respond)
        asking = asyncio.ensure_future(peer.request("tools/list"))
        await asyncio.sleep(0)
        for line in data.split(b"\n"):
            try:
                peer.receive(msgspec.json.decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
        for _ in range(8):
            await asyncio.sleep(0)
        peer.close()
        await asyncio.gather(asking, return_exceptions=True)

    yield lambda: _run(talk)

    async def serve() -> None:
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        for line in data.split(b"\n"):
            if b"tool" not in line and b"\\" not in line:  # no tool is called
                lines.put_nowait(line)
        lines.put_nowait(None)
        await serve_lines(lines, BytesIO())

    yield lambda: _run(serve)


INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",'
    b'"capabilities":{"sampling":{}},"clientInfo":{"name":"c","version":"1"}}}'
)


def _posts() -> Iterator[bytes]:
    """Yield a request to each provider, as its own client sends it."""
    for name in all_providers():
        for stream in (False, True):
            request = msgspec.structs.replace(_REQUEST, stream=stream, model="m")
            built = load_dialect(name).build_request(request, "http://localhost", "k")
            target = built.path if not built.query else f"{built.path}?{built.query}"
            lines = [f"{built.method} {target} HTTP/1.1", "host: localhost"]
            lines += [f"{key}: {value}" for key, value in built.headers.items() if key != "host"]
            lines.append(f"content-length: {len(built.body)}")
            yield "\r\n".join([*lines, "", ""]).encode() + built.body


def _streams() -> Iterator[bytes]:
    """Yield a response of each provider, as a body and as a stream."""
    from offbook.exchange import ToolCall

    reply = Reply((Text("Hello."), ToolCall("call_1", "find", {"id": 7})))
    for name in all_providers():
        dialect = load_dialect(name)
        for stream in (False, True):
            encoded = dialect.encode(reply, msgspec.structs.replace(_REQUEST, stream=stream))
            yield b"".join(encoded.chunks) if encoded.chunks else encoded.body


TARGETS: dict[str, Target] = {
    "playbook": Target(playbook, ("tests/fossils/*playbook.yaml", "tests/one_playbook.yaml")),
    "scenario": Target(scenario, ("examples/scenarios/*.yaml", "tests/fossils/*scenario.yaml")),
    "cassette": Target(
        cassette, ("tests/fossils/*.cassette.yaml", "tests/sources/cassette/fossils/*")
    ),
    "trace": Target(trace, ("tests/fossils/*.trace.jsonl",)),
    "mocks": Target(mocks, ("tests/fossils/*.mocks.jsonl", "examples/scenarios/*.jsonl")),
    "packs": Target(pack, ("examples/**/*.eval.toml", "tests/fossils/*.eval.toml")),
    "goldens": Target(golden, ("fixtures/golden/*/*.jsonl", "fixtures/golden/*/*.json")),
    "specs": Target(spec, ("tests/specs/*.md",)),
    "imports": Target(imported),
    "conformance": Target(conformance),
    "patterns": Target(steps, ("examples/patterns/*.steps.yaml",)),
    "regexes": Target(regex, located=False),
    "json_rpc": Target(json_rpc, located=False),
    "http": Target(http, texts=_posts, located=False),
    "websocket": Target(websocket, located=False),
    "sse": Target(sse, texts=_streams, located=False),
}


def check_input(name: str, data: bytes) -> int:
    """Run an input of a target, and return how many of its readers accept it.

    Raise what is not an error of ours, and an error of a file that does not name it.
    """
    target, accepted = TARGETS[name], 0
    for read in target.run(data):
        try:
            read()
            accepted += 1
        except FormatError as error:
            if target.located and not error.path:
                raise AssertionError(f"an error without its file: {error}") from error
        except OffbookError:
            continue
    return accepted
