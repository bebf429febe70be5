"""Servers and their clients for the table of goals, and this group of the table alone.

The figure is the CPU time of the server's process for each request (by the kernel's scheduler),
with a client of raw sockets on the other core. Offbook and aimock reply from a file with one mock,
bare Node with a constant. Bare Python is the floor (`floors/chat_server.py`): what the work of a
reply requires, with the same event loop, parser and JSON library as Offbook's. aimock is installed
once, in a cache folder.

No request is sent twice: an agent sends none twice. One history grows turn by turn, as an agent's
does, and one arrives as a whole.
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
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

OFFBOOK = Path(sys.executable).parent / "offbook"
FLOOR = Path(__file__).parent / "floors" / "chat_server.py"
AIMOCK = "@copilotkit/aimock@1.43.0"
CLIENTS = 32
ROUNDS = 3
BLANK = "000000"
PROMPT = "hello 0000"  # the mock matches it
OK = b"HTTP/1.1 200 "
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
}).listen(+process.argv[2], "127.0.0.1");
"""

# ------------------------------------------------------------------------------ requests


def make_history(turns: int) -> list[dict[str, Any]]:
    """Return the messages of an agent's history."""
    messages: list[dict[str, Any]] = []
    for turn in range(turns):
        call = {"id": f"call_{turn}", "type": "function"}
        call["function"] = {"name": "read", "arguments": json.dumps({"path": f"/a/{turn}.py"})}  # type: ignore[assignment] - JSON
        messages += [
            {"role": "user", "content": f"{PROMPT}: {f'look at file {turn} ' * 8}"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{turn}", "content": f"line {turn}\n" * 300},
            {"role": "assistant", "content": "The file is as expected."},
        ]
    return messages


def request(*, stream: bool = False, history: int = 0) -> bytes:
    """Render a request for a chat completion, after a history of `history` turns."""
    message = {"role": "user", "content": f"{PROMPT} and {BLANK}"}
    return render([*make_history(history), message], stream=stream, tools=bool(history))


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


def grow(turns: int) -> Iterator[bytes]:
    """Yield the requests of growing conversations, one for each connection."""
    messages = make_history(turns)
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
                if not response.startswith(OK):
                    raise SystemExit(f"unexpected response {response[:300]!r}")

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()


# ------------------------------------------------------------------------------ servers


@contextmanager
def started(port: int, *command: str) -> Generator[tuple[int, int]]:
    """Start a server on the first core; yield its process id and its port."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    with suppress(OSError):
        os.sched_setaffinity(process.pid, {0})
    try:
        wait_for(port, process)
        yield process.pid, port
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Return once a server listens on the port."""
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.002)
        else:
            return
    raise SystemExit(f"the server exited with {process.returncode}: {process.args}")


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ours(folder: Path) -> Any:
    """Start `offbook serve`."""
    mocks = folder / "mocks.jsonl"
    mocks.write_text(json.dumps({"match": f"*{PROMPT}*", "text": TEXT}) + "\n")
    port = free_port()
    return started(port, str(OFFBOOK), "serve", str(mocks), "--port", str(port))


def node() -> Any:
    """Start bare Node: it parses the body and responds with constant bytes."""
    port = free_port()
    return started(port, "node", "-e", NODE, TEXT, str(port))


def bare() -> Any:
    """Start bare Python: what the same work costs without Offbook."""
    port = free_port()
    return started(port, sys.executable, str(FLOOR), PROMPT, TEXT, str(port))


def aimock(folder: Path) -> Any:
    """Start aimock; its chunks have as many characters as our words."""
    fixtures = folder / "fixtures.json"
    mock = {"match": {"userMessage": PROMPT}, "response": {"content": TEXT}}
    fixtures.write_text(json.dumps({"fixtures": [mock]}))
    port = free_port()
    program = folder / "node_modules" / ".bin" / "llmock"
    options = ["--port", str(port), "--fixtures", str(fixtures), "--chunk-size", "7"]
    return started(port, "node", str(program), *options)


def starters(folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the servers that can run here by name; aimock is installed into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    servers: dict[str, Callable[[], Any]] = {"ours": lambda: ours(folder), "bare Python": bare}
    if shutil.which("node"):
        servers["Node"] = node
        if install_aimock(folder):
            servers["aimock"] = lambda: aimock(folder)
    return servers


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
    warm_up: int,
) -> dict[str, float]:
    """Return the CPU microseconds a request of each server: the median of the rounds."""
    spent: dict[str, list[float]] = {name: [] for name in servers}
    for turn in range(ROUNDS + 1):  # the first one warms up
        for name, (pid, port) in servers.items():
            client = Client(port)  # a new one each time: Node closes connections after 5 s
            client.ask(requests(), ending, CLIENTS if turn else warm_up)
            sent, before = requests(), cpu(pid)
            client.ask(sent, ending, count)
            spent[name] += [(cpu(pid) - before) / count * 1e6] * bool(turn)
            client.close()
    return {name: statistics.median(costs) for name, costs in spent.items()}


def first_requests(start: Callable[[], Any]) -> tuple[float, float]:
    """Return the CPU milliseconds of a server until its first reply, and until the 200th."""
    sent = vary(request())
    with start() as (pid, port):
        client = Client(port, 1)
        client.ask(sent, JSON_END, 1)
        first = cpu(pid) * 1e3
        client.ask(sent, JSON_END, 199)
        whole = cpu(pid) * 1e3
        client.close()
    return first, whole


if __name__ == "__main__":
    import goals

    sys.exit(goals.main(["server", "soak"]))
