"""Requests of tools to other servers are recorded once, and replayed with the servers closed."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import sys
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar, cast

import aiohttp
import httpx
import pytest
import requests
import trustme

from offbook import Cassette, Playbook, Recording, call, drive, say, session, when
from offbook.errors import CheckFailed, ReplayMismatch
from offbook.runs import Rehearsal, TerminalCommand
from offbook.sources.cassette import load_cassette
from tests.forked import forked_command
from tests.subjects.frameworks.test_tool_runners import openai_loop

DRIVE, SESSION = cast("Any", drive), cast("Any", session)
FIND = [when("Go", [*(call("find_order", {"number": n}) for n in (7, 8, 7)), say("Done.")])]
KEY = "sk-live-0123456789abcdefghijklmnop"


class Orders(BaseHTTPRequestHandler):
    """A service that returns something else each time."""

    seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.seen.append(self.path)
        number = self.path.rpartition("/")[2].partition("?")[0]
        body = json.dumps({"order": int(number), "seen": len(self.seen)}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("set-cookie", f"session={KEY}")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        """Do nothing."""


@pytest.fixture
def shop() -> Iterator[ThreadingHTTPServer]:
    Orders.seen = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Orders)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server
    close(server)


def close(server: ThreadingHTTPServer) -> None:
    server.shutdown()
    server.server_close()


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


def with_httpx(url: str) -> str:
    return httpx.get(url, headers={"authorization": f"Bearer {KEY}"}).text


def with_requests(url: str) -> str:
    return requests.get(url, headers={"authorization": f"Bearer {KEY}"}, timeout=60).text


def with_urllib(url: str) -> str:
    with urllib.request.urlopen(url) as response:  # noqa: S310 - the URL of this test
        return response.read().decode()


def with_async_httpx(url: str) -> str:
    async def get() -> str:
        async with httpx.AsyncClient() as client:
            return (await client.get(url)).text

    return asyncio.run(get())


def with_aiohttp(url: str) -> str:
    async def get() -> str:
        async with aiohttp.ClientSession() as client, client.get(url) as response:
            return await response.text()

    return asyncio.run(get())


CLIENTS: dict[str, Callable[[str], str]] = {
    "httpx": with_httpx,
    "async httpx": with_async_httpx,
    "requests": with_requests,
    "urllib": with_urllib,
    "aiohttp": with_aiohttp,
}


def in_loop(get: Callable[[str], str], url: str) -> Any:
    def agent(prompt: str) -> str:
        return openai_loop(prompt, lambda given: get(f"{url}/orders/{given['number']}"))

    return partial(DRIVE, agent)


def in_session(get: Callable[[str], str], url: str) -> Any:
    def extension(api: Any) -> None:
        @api.tool("find_order")
        def find_order(params: Any, _: Any) -> str:  # pyright: ignore[reportUnusedFunction]
            return get(f"{url}/orders/{params['number']}")

    return partial(SESSION, extension_factories=[extension])


AGENTS = {f"a loop, {name}": partial(in_loop, client) for name, client in CLIENTS.items()}
AGENTS["a session, requests"] = partial(in_session, with_requests)


def url_of(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_port}"


def record(rehearse: Any, path: Path, tracks: str = "model,http") -> None:
    playbook = Playbook()
    playbook.load(*FIND)
    with Recording(playbook, path, tracks=tracks) as source, rehearse(source=source) as rehearsal:
        rehearsal.run("Go")


def replay(rehearse: Any, path: Path, tracks: str = "model,http") -> Cassette:
    tape = Cassette(path, tracks=tracks)
    with rehearse(source=tape) as rehearsal:
        rehearsal.run("Go")
    return tape


@pytest.mark.parametrize("name", AGENTS)
def test_requests_are_replayed_without_their_server(
    name: str, shop: ThreadingHTTPServer, tmp_path: Path
):
    rehearse = AGENTS[name](url_of(shop))
    record(rehearse, tmp_path / "tape.yaml")
    assert Orders.seen == ["/orders/7", "/orders/8", "/orders/7"]
    close(shop)
    for _ in range(2):
        assert replay(rehearse, tmp_path / "tape.yaml").verdict().status == "pass"
    assert len(Orders.seen) == 3


def test_a_tape_has_no_keys_of_requests(shop: ThreadingHTTPServer, tmp_path: Path):
    record(in_loop(with_httpx, f"{url_of(shop)}"), tmp_path / "tape.yaml")
    text = (tmp_path / "tape.yaml").read_text()
    assert KEY not in text
    first = next(http for item in load_cassette(tmp_path / "tape.yaml") for http in item.http)
    assert (first.method, first.status) == ("GET", 200)
    assert first.headers == {"content-type": "application/json"}
    assert json.loads(first.content) == {"order": 7, "seen": 1}


def test_another_request_is_the_first_difference(shop: ThreadingHTTPServer, tmp_path: Path):
    url = url_of(shop)
    record(in_loop(with_requests, url), tmp_path / "tape.yaml")
    with pytest.raises(ReplayMismatch) as raised:
        replay(in_loop(lambda asked: with_requests(f"{asked}?all=1"), url), tmp_path / "tape.yaml")
    message = str(raised.value)
    assert "Replay mismatch at interaction 1 (track: http): a request was not recorded" in message
    assert f"Recorded: GET {url}/orders/7\nGot:      GET {url}/orders/7?all=1" in message
    assert len(Orders.seen) == 3


def test_a_request_that_is_not_sent_fails(shop: ThreadingHTTPServer, tmp_path: Path):
    url = url_of(shop)
    seen: list[str] = []

    def get(asked: str) -> str:
        seen.append(with_urllib(asked))
        with_urllib(f"{asked}?again=1")
        return seen[-1]

    record(in_loop(get, url), tmp_path / "tape.yaml")
    with pytest.raises(CheckFailed, match="never sent: 3 of its requests"):
        replay(in_loop(with_urllib, url), tmp_path / "tape.yaml")


def test_a_request_that_failed_fails_again(shop: ThreadingHTTPServer, tmp_path: Path):
    def get(asked: str) -> str:
        try:
            return with_urllib(asked)
        except OSError:
            return "no answer"

    rehearse = in_loop(get, url_of(shop))
    close(shop)
    record(rehearse, tmp_path / "tape.yaml")
    statuses = [http.status for item in load_cassette(tmp_path / "tape.yaml") for http in item.http]
    assert statuses == [0, 0, 0]
    assert replay(rehearse, tmp_path / "tape.yaml").verdict().status == "pass"


def test_requests_of_replayed_tools_do_not_happen(shop: ThreadingHTTPServer, tmp_path: Path):
    rehearse = in_session(with_requests, url_of(shop))
    record(rehearse, tmp_path / "tape.yaml", "all")
    close(shop)
    assert replay(rehearse, tmp_path / "tape.yaml", "all").summary().tools_replayed == 3
    assert replay(rehearse, tmp_path / "tape.yaml").verdict().status == "pass"


COMMAND = """
import json, os, sys, urllib.request
def post(url, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    return json.load(urllib.request.urlopen(request))
order = urllib.request.urlopen(sys.argv[1] + "/orders/7").read().decode()
messages = [{"role": "user", "content": order}]
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
print(post(url, {"model": "m", "messages": messages})["choices"][0]["message"]["content"])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 needs no set-up on Linux only")
def test_requests_of_a_command_are_replayed_through_its_proxy(tmp_path: Path):
    Orders.seen = []
    server = ThreadingHTTPServer(("127.0.0.2", 0), Orders)
    Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "agent.py").write_text(COMMAND)
    url = f"http://127.0.0.2:{server.server_port}"

    def run(source: Any) -> None:
        command = TerminalCommand([sys.executable, str(tmp_path / "agent.py"), url], echo=False)
        with Rehearsal(command, source=source) as rehearsal:
            rehearsal.run("")

    playbook = Playbook()
    playbook.load(when("order", [say("Done.")]))
    with Recording(playbook, tmp_path / "tape.yaml", tracks="model,http") as source:
        run(source)
    close(server)
    assert Orders.seen == ["/orders/7"]
    tape = Cassette(tmp_path / "tape.yaml", tracks="model,http")
    run(tape)
    assert tape.verdict().status == "pass"


# --- HTTPS of the tools of a command

ORDER = "https://shop.test/orders/7"
AIOHTTP = f"""
import aiohttp, asyncio
async def get():
    async with aiohttp.ClientSession() as client, client.get("{ORDER}") as response:
        print(await response.text())
asyncio.run(get())
"""
TOOLS = {
    "curl": ["curl", "-sS", ORDER],
    "aiohttp": [sys.executable, "-c", AIOHTTP],  # it does not use HTTPS_PROXY
    "node": ["node", "-e", f"fetch('{ORDER}').then(r => r.text()).then(console.log)"],
}
TOOL_AGENT = """
import json, os, subprocess, sys, urllib.request
order = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=True).stdout
body = {"model": "m", "messages": [{"role": "user", "content": order}]}
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
headers = {"content-type": "application/json"}
urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)).read()
"""


@pytest.fixture
def secure_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """A server with TLS, which this process finds by the name shop.test."""
    Orders.seen = []
    authority: Any = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("shop.test").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Orders)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, daemon=True).start()
    connect = socket.create_connection

    def find(address: tuple[str, int], *args: Any, **options: Any) -> socket.socket:
        found = ("127.0.0.1", server.server_port) if address[0] == "shop.test" else address
        return connect(found, *args, **options)

    monkeypatch.setattr(socket, "create_connection", find)
    yield server
    close(server)


@pytest.mark.parametrize("name", TOOLS)
def test_https_of_the_tools_of_a_command_is_replayed_without_the_server(
    name: str, secure_shop: ThreadingHTTPServer, tmp_path: Path
):
    if shutil.which(TOOLS[name][0]) is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "agent.py").write_text(TOOL_AGENT)

    def run(source: Any, *allow: str) -> None:
        command = [*forked_command(tmp_path / "agent.py"), *TOOLS[name]]
        subject = TerminalCommand(command, echo=False)
        with Rehearsal(subject, source=source, allow=allow) as rehearsal:
            rehearsal.run("")

    playbook = Playbook()
    playbook.load(when("order", [say("Done.")]))
    with Recording(playbook, tmp_path / "tape.yaml", tracks="model,http") as source:
        run(source, "shop.test")
    assert Orders.seen == ["/orders/7"]
    close(secure_shop)
    tape = Cassette(tmp_path / "tape.yaml", tracks="model,http")
    run(tape)
    assert tape.verdict().status == "pass"
    assert tape.http_track is not None
    assert tape.http_track.unused == []
