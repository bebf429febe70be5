"""The server, against bare Node `http` and `@copilotkit/aimock`, in the same run.

The figure is the CPU time of the server's process for each request (by the kernel's scheduler),
with a client of raw sockets on the other core. All servers answer from a file of mocks (bare Node
from a constant), of which the last line matches. The servers take turns for several rounds, and
the median counts. aimock is installed once, in a cache folder; without npm, the budgets that need
it are reported as not measured.

All requests differ, as those of an agent do, except where a case repeats one. One history grows
turn by turn, as an agent's does, and one arrives as a whole.

Budgets: at most a quarter of aimock's CPU for a chat reply, for a stream of 20 events and for a
history of 109 kB; a sixth with 1,000 lines; less than bare Node; 1,000 lines at most 1.15 times
one; an endpoint in less than 1 ms; the first 20 calls 5 times faster than aimock's, and its start
too; less than 60 MB after a soak.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count, repeat
from pathlib import Path
from typing import Any

HERE = Path(__file__)
AIMOCK = "@copilotkit/aimock@1.43.0"
CLIENTS = 32
ROUNDS = 9
BLANK = "000000"
NUMBERS = count()
TURNS = 32
GROWTH = CLIENTS * TURNS * 2  # each asks twice a turn
TEXT = " ".join(f"word{number:02}" for number in range(20))

NODE = """
const http = require("http");
const text = process.argv[1];
const words = text.split(" ");
const base = {id: "chatcmpl-1", created: 1700000000, model: "m"};
const chat = JSON.stringify({...base, object: "chat.completion", choices: [{index: 0,
  message: {role: "assistant", content: text, refusal: null}, finish_reason: "stop"}],
  usage: {prompt_tokens: 1, completion_tokens: 1, total_tokens: 2}});
const chunk = (delta, finish) => "data: " + JSON.stringify({...base,
  object: "chat.completion.chunk", choices: [{index: 0, delta, finish_reason: finish}]}) + "\\n\\n";
const events = [chunk({role: "assistant", content: ""}, null),
  ...words.map((word) => chunk({content: word}, null)), chunk({}, "stop"), "data: [DONE]\\n\\n"];
http.createServer((request, answer) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    const body = JSON.parse(Buffer.concat(parts));
    if (body.stream) {
      answer.writeHead(200, {"content-type": "text/event-stream"});
      for (const event of events) answer.write(event);
      answer.end();
    } else {
      answer.writeHead(200, {"content-type": "application/json",
        "content-length": Buffer.byteLength(chat)});
      answer.end(chat);
    }
  });
}).listen(0, "127.0.0.1", function () { console.log(this.address().port); });
"""


# ------------------------------------------------------------------------------ requests


def make_history(prompt: str, turns: int) -> list[dict[str, Any]]:
    """Return the messages of an agent's history."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        call = {"id": f"call_{turn}", "type": "function"}
        call["function"] = {"name": "read", "arguments": json.dumps({"path": f"/a/{turn}.py"})}  # type: ignore[assignment] - JSON
        messages += [
            {"role": "user", "content": f"{prompt}: {f'look at file {turn} ' * 8}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"line {turn}\n" * 300},
            {"role": "assistant", "content": "The file is as expected."},
        ]
    return messages


def request(prompt: str, *, stream: bool = False, history: int = 0) -> bytes:
    """Render a request for a chat completion, after a history of `history` turns."""
    message = {"role": "user", "content": f"{prompt} and {BLANK}"}
    return render([*make_history(prompt, history), message], stream=stream, tools=bool(history))


def render(messages: list[dict[str, Any]], *, stream: bool = False, tools: bool = False) -> bytes:
    """Render a request as a client sends it."""
    body: dict[str, Any] = {"model": "m", "messages": messages}
    if tools:
        schema = {"type": "object", "properties": {"path": {"type": "string"}}}
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": f"tool{n}", "description": "x" * 200, "parameters": schema},
            }
            for n in range(20)
        ]
    if stream:
        body["stream"] = True
    sent = json.dumps(body).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\naccept: application/json\r\n"
        f"authorization: Bearer x\r\ncontent-type: application/json\r\n"
        f"content-length: {len(sent)}\r\n\r\n"
    )
    return head.encode() + sent


def vary(sent: bytes) -> Iterator[bytes]:
    """Yield a request for ever, each time with another number in it."""
    before, after = sent.split(BLANK.encode())
    for number in NUMBERS:
        yield b"%b%06d%b" % (before, number, after)


def grow(prompt: str, turns: int) -> Iterator[bytes]:
    """Yield the requests of growing conversations, one for each connection."""
    messages = make_history(prompt, turns)
    messages[0]["content"] += BLANK
    lengths = [n for n, message in enumerate(messages, 1) if message["role"] in {"user", "tool"}]
    requests = [render(messages[:n], tools=True).split(BLANK.encode()) for n in lengths]
    while True:
        numbers = [next(NUMBERS) for _ in range(CLIENTS)]
        for before, after in requests:
            for number in numbers:
                yield b"%b%06d%b" % (before, number, after)


class Client:
    """Sends requests over several connections, with as little parsing as possible."""

    def __init__(self, port: int, clients: int = CLIENTS) -> None:
        self._sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(clients)]
        for connection in self._sockets:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, sent: Iterator[bytes], ending: tuple[bytes, ...], count: int) -> None:
        """Send `count` requests; a response is complete when it has one of the endings."""
        for _ in range(max(1, count // len(self._sockets))):
            for connection in self._sockets:
                connection.sendall(next(sent))
            for connection in self._sockets:
                response = connection.recv(65536)
                while not response.endswith(ending):
                    more = connection.recv(65536)
                    if not more:
                        raise SystemExit(f"the server closed after {response[:300]!r}")
                    response += more

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()


# ------------------------------------------------------------------------------ servers


def ready(process: subprocess.Popen[bytes]) -> int:
    """Return the port, which our servers print when they listen."""
    assert process.stdout is not None
    return int(process.stdout.readline())


@contextmanager
def started(*command: str, port: int = 0) -> Generator[tuple[int, int]]:
    """Start a server on the first core; yield its process id and its port."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    with suppress(OSError):
        os.sched_setaffinity(process.pid, {0})
    try:
        yield process.pid, wait_for(port) if port else ready(process)
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> int:
    """Return the port once a server listens on it."""
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            return port


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(lines: int) -> Any:
    """Start our server as a process."""
    return started(sys.executable, str(HERE), "serve", str(lines))


def node() -> Any:
    """Start bare Node: it parses the body and responds with constant bytes."""
    return started("node", "-e", NODE, TEXT)


def aimock(folder: Path, lines: int) -> Any:
    """Start aimock; its chunks have as many characters as our words."""
    fixtures = folder / f"fixtures-{lines}.json"
    entries = [
        {"match": {"userMessage": prompt(n)}, "response": {"content": TEXT}} for n in range(lines)
    ]
    fixtures.write_text(json.dumps({"fixtures": entries}))
    port = free_port()
    program = folder / "node_modules" / ".bin" / "llmock"
    options = ["--port", str(port), "--fixtures", str(fixtures), "--chunk-size", "7"]
    return started("node", str(program), *options, port=port)


def install_aimock(folder: Path) -> bool:
    """Install aimock with npm if needed; return whether it is available."""
    if (folder / "node_modules" / ".bin" / "llmock").exists():
        return True
    if shutil.which("npm") is None:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    command = ("npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), AIMOCK)
    return subprocess.run(command, check=False, capture_output=True, timeout=300).returncode == 0


# -------------------------------------------------------------------------- measurements


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process with its threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def resident(pid: int) -> float:
    """Return the resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


SSE_END = (b"0\r\n\r\n",)
JSON_END = (b"}", *SSE_END)  # of a plain body, and of a chunked one


def compare(
    servers: dict[str, tuple[int, int]],
    requests: Callable[[], Iterator[bytes]],
    ending: tuple[bytes, ...],
    count: int,
) -> dict[str, float]:
    """Return the CPU microseconds a request of each server: the median of the rounds."""
    spent: dict[str, list[float]] = {name: [] for name in servers}
    for turn in range(ROUNDS + 1):  # the first one warms up
        for name, (pid, port) in servers.items():
            client = Client(port)  # a new one each time: Node closes connections after 5 s
            client.ask(requests(), ending, CLIENTS if turn else count)
            sent, before = requests(), cpu(pid)
            client.ask(sent, ending, count)
            spent[name] += [(cpu(pid) - before) / count * 1e6] * bool(turn)
            client.close()
    return {name: statistics.median(costs) for name, costs in spent.items()}


def first_calls(start: Callable[[], Any]) -> tuple[float, float]:
    """Return the milliseconds until the first response, and the median of the next 19."""
    sent = vary(request(prompt(0)))
    begun = time.perf_counter()
    with start() as (_, port):
        client = Client(port, 1)
        client.ask(sent, JSON_END, 1)
        first = (time.perf_counter() - begun) * 1e3
        calls: list[float] = []
        for _ in range(19):
            time.sleep(0.002)
            start_time = time.perf_counter()
            client.ask(sent, JSON_END, 1)
            calls.append((time.perf_counter() - start_time) * 1e3)
        client.close()
    return first, statistics.median(calls)


def endpoint_cost() -> float:
    """Return the milliseconds to mount and close a run, in the same process."""
    from offbook.sources.server.server import Server
    from offbook.trace.hub import Hub

    with Server() as server:
        begun = time.perf_counter()
        for _ in range(200):
            server.mount(mocks(1), hub=Hub()).close()
        return (time.perf_counter() - begun) / 200 * 1e3


# --------------------------------------------------------------------------- our server


def prompt(number: int) -> str:
    """Return the prompt that a line matches."""
    return f"hello {number:04}"


def mocks(lines: int) -> Any:
    """Return mocks with this number of lines, each with its own prompt."""
    from offbook.sources.mocks.mocks import Mocks

    return Mocks([{"match": f"*{prompt(n)}*", "text": TEXT} for n in range(lines)])


def serve(lines: int) -> None:
    """Serve until killed; keep the last thousand events, as aimock does."""
    from offbook.sources.server.server import Server
    from offbook.trace.hub import Hub

    hub = Hub()
    hub.subscribe(deque[Any](maxlen=1000).append)
    with Server() as server:
        server.mount(mocks(lines), run="", hub=hub)
        print(server.port, flush=True)
        time.sleep(1e6)


def main() -> int:
    """Measure, print, and return 1 if a budget is exceeded."""
    with suppress(OSError):
        os.sched_setaffinity(0, {1})
    broken = 0

    def report(name: str, figure: str, *, holds: bool | None) -> None:
        nonlocal broken
        broken += holds is False
        verdict = {True: "ok", False: "OVER BUDGET", None: "not measured"}[holds]
        print(f"{name:44} {figure:40} {verdict}", flush=True)

    folder = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "offbook-bench"
    peer = install_aimock(folder)
    chat, stream = request(prompt(0)), request(prompt(0), stream=True)
    chats, streams = request(prompt(999)), request(prompt(999), stream=True)
    history = request(prompt(0), history=TURNS)
    cases: list[tuple[str, int, Callable[[], Iterator[bytes]], tuple[bytes, ...], int, int]] = [
        ("chat reply", 1, lambda: vary(chat), JSON_END, 2000, 4),
        ("  the same again and again", 1, lambda: repeat(chat), JSON_END, 2000, 4),
        ("stream of 20 events", 1, lambda: vary(stream), SSE_END, 1500, 4),
        ("chat reply, 1,000 lines", 1000, lambda: vary(chats), JSON_END, 2000, 6),
        ("stream, 1,000 lines", 1000, lambda: vary(streams), SSE_END, 1500, 6),
        ("history that grows to 109 kB", 1, lambda: grow(prompt(0), TURNS), JSON_END, GROWTH, 4),
        ("history of 109 kB, all new", 1, lambda: vary(history), JSON_END, 400, 4),
    ]
    costs: dict[str, float] = {}
    for name, lines, requests, ending, number, part in cases:
        with ours(lines) as mine, node() as bare:
            servers = {"ours": mine, "node": bare}
            if peer:
                with aimock(folder, lines) as other:
                    costs_by_server = compare(
                        {**servers, "aimock": other}, requests, ending, number
                    )
            else:
                costs_by_server = compare(servers, requests, ending, number)
            costs[name] = costs_by_server["ours"]
            memory = resident(mine[0])
        shown = "  ".join(f"{server} {value:.1f}" for server, value in costs_by_server.items())
        report(name, f"{shown} µs", holds=True)
        if peer:
            ratio = costs_by_server["aimock"] / costs_by_server["ours"]
            report("  below aimock", f"{ratio:.1f} times, of {part}", holds=ratio >= part)
        else:
            report("  below aimock", "npm is not available", holds=None)
        if "history" not in name:
            ratio = costs_by_server["node"] / costs_by_server["ours"]
            report("  below bare Node", f"{ratio:.2f} times", holds=ratio >= 1)
        report("  resident memory after it", f"{memory:.0f} MB", holds=memory < 60)
    for name in ("chat reply", "stream"):
        base = costs["stream of 20 events" if name == "stream" else name]
        ratio = costs[f"{name}, 1,000 lines"] / base
        report(f"{name}: 1,000 lines to one", f"{ratio:.2f} times", holds=ratio <= 1.15)
    millis = endpoint_cost()
    report("an endpoint, mounted and closed", f"{millis:.3f} ms", holds=millis < 1)
    first, calls = best_start(lambda: ours(1))
    if peer:
        theirs, their_calls = best_start(lambda: aimock(folder, 1))
        report(
            "start to first answer",
            f"{first:.0f} ms, aimock {theirs:.0f}",
            holds=first < theirs,
        )
        ratio = their_calls / calls
        report("calls 2 to 20", f"{calls:.2f} ms, aimock {their_calls:.2f}", holds=ratio >= 5)
    else:
        report("start to first answer", f"{first:.0f} ms", holds=None)
        report("calls 2 to 20", f"{calls:.2f} ms", holds=None)
    return 1 if broken else 0


def best_start(start: Callable[[], Any]) -> tuple[float, float]:
    """Return the medians of five starts."""
    starts = [first_calls(start) for _ in range(5)]
    return statistics.median(f for f, _ in starts), statistics.median(c for _, c in starts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(int(sys.argv[2]))
    sys.exit(main())
