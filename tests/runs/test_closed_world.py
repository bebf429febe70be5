"""A command whose model is scripted reaches nothing else, and its run names what it tried."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from errno import ECONNREFUSED
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from offbook import Playbook, say, when
from offbook.errors import IsolationError, UsageError
from offbook.exchange import Reply, Request, Text, all_providers
from offbook.runs import CommandResult, Rehearsal, record_command, run_command
from offbook.sources.cassette import Recording
from offbook.sources.live import Live
from offbook.sources.server import Server
from tests.runs.echo_subject import Echo

VALUE = "sk-of-the-user-0123456789"
PRINT_ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"
ASK = """
import json, os, urllib.request
body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body)).read()
"""


def run_python(
    code: str, variables: Mapping[str, str] = {}, *, allow: tuple[str, ...] = ()
) -> CommandResult:
    """Run Python code against a script of one turn."""
    source = Playbook()
    source.load(when("Hi", [say("Hello.")]))
    environment = {**os.environ, **variables}
    command = [sys.executable, "-c", code]
    return run_command(source, command, echo=False, environment=environment, allow=allow)


def environment_of(**variables: str) -> dict[str, str]:
    """Return the environment of a command in which the user has these variables."""
    result = run_python(ASK + PRINT_ENVIRONMENT, variables)
    result.raise_failure()
    return json.loads(result.output)


KEYS = {
    name
    for provider in all_providers().values()
    for keys in (
        *(provider.client_env, provider.replaced_env, provider.key_variables),
        *(client.keys for client in provider.host_clients.values()),
    )
    for name in keys
    if name.endswith(("_KEY", "_TOKEN"))
}


def test_no_key_of_a_model_is_passed_to_a_command():
    environment = environment_of(**dict.fromkeys(KEYS, VALUE))
    assert {name: environment[name] for name in KEYS} == dict.fromkeys(KEYS, "offbook")


def test_another_variable_of_the_user_is_passed_to_a_command():
    assert environment_of(STRIPE_API_KEY=VALUE)["STRIPE_API_KEY"] == VALUE


@pytest.fixture(scope="module")
def plain_environment() -> dict[str, str]:
    return environment_of()


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL", "GOOGLE_GEMINI_BASE_URL", "GROQ_BASE_URL"),
        *("MISTRAL_API_BASE", "CO_API_URL", "TOGETHER_BASE_URL", "OPENROUTER_API_BASE"),
        *("OLLAMA_HOST", "DEEPSEEK_API_BASE", "XAI_API_BASE", "CEREBRAS_BASE_URL"),
    ],
)
def test_the_base_url_of_each_provider_is_that_of_the_script(
    plain_environment: dict[str, str], name: str
) -> None:
    assert plain_environment[name].startswith("http://127.0.0.1:")


def test_the_path_of_a_run_cannot_be_guessed(plain_environment: dict[str, str]):
    paths = [
        env["ANTHROPIC_BASE_URL"].partition("/s/")[2]
        for env in (plain_environment, environment_of())
    ]
    assert paths[0] != paths[1]
    assert min(map(len, paths)) >= 16


@pytest.mark.parametrize("name", ["AZURE_OPENAI_ENDPOINT", "ANTHROPIC_VERTEX_BASE_URL"])
def test_a_base_url_that_selects_a_provider_is_replaced_and_not_set(
    plain_environment: dict[str, str], name: str
) -> None:
    assert name not in plain_environment
    assert environment_of(**{name: "https://gateway.example"})[name].startswith("http://127.0.0.1:")


# --- The proxy


@contextmanager
def serve_page() -> Generator[int]:
    """Serve a page on a port of this machine."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"a page")

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 - the name of the original

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


WEBSOCKET = """
import json
from websockets.sync.client import connect
# Without pings: whatever arrives would wake a connection that waits.
with connect("wss://api.openai.com/v1/responses", ping_interval=None) as socket:
    for _ in range(3):
        socket.send(json.dumps({"type": "response.create", "model": "m", "input": "Hi"}))
        while json.loads(socket.recv(timeout=30))["type"] != "response.completed":
            pass
"""


def test_each_message_of_a_websocket_over_tls_is_answered_when_it_arrives():
    source = Playbook()
    source.load(when("Hi", [say("Hello.")] * 3))
    command = [sys.executable, "-c", WEBSOCKET]
    result = run_command(source, command, echo=False, environment={**os.environ})
    assert (result.exit_code, result.failure) == (0, None), result.output


CONNECT = """
import urllib.request
try:
    urllib.request.urlopen({url!r}).read()
except OSError:
    pass
"""
TRIED = {
    "a tunnel": ("https://api.unknown.example/v1", "api.unknown.example:443"),
    "a tunnel to a port": ("https://api.unknown.example:8443/v1", "api.unknown.example:8443"),
    "a plain request": ("http://api.unknown.example/v1", "api.unknown.example:80"),
    "an address": ("http://192.0.2.1:9/", "192.0.2.1:9"),
    "an address of IPv6": ("http://[2001:db8::1]:9/", "[2001:db8::1]:9"),
}


@pytest.mark.parametrize("url, destination", TRIED.values(), ids=TRIED)
def test_a_refused_destination_fails_the_run_although_the_command_goes_on(
    url: str, destination: str
) -> None:
    result = run_python(CONNECT.format(url=url) + ASK)
    assert result.exit_code == 0
    assert isinstance(result.failure, IsolationError)
    assert f"tried to reach {destination}" in str(result.failure)
    assert result.refused == [destination]
    assert [v.status for v in result.verdicts if v.check == "nothing leaves the machine"] == [
        "fail"
    ]


MAPPED = "[::ffff:127.0.0.1]"  # a server of this test, by an address that is not one of loopback
WAYS = {
    "a plain request": "print(urllib.request.urlopen('http://{address}/').read().decode())",
    "a tunnel": """
from http.client import HTTPConnection
connection = HTTPConnection(os.environ["HTTP_PROXY"].removeprefix("http://"))
connection.set_tunnel("{address}")
connection.request("GET", "/")
print(connection.getresponse().read().decode())
""",
}


@pytest.mark.parametrize("code", WAYS.values(), ids=WAYS)
def test_an_allowed_destination_is_reached(code: str) -> None:
    with serve_page() as port:
        address = f"{MAPPED}:{port}"
        result = run_python(ASK + code.format(address=address), allow=(address,))
        refused = run_python(ASK + code.format(address=address))
    assert (result.ok, result.output, result.refused) == (True, "a page\n", [])
    assert refused.refused == [address]


def test_a_server_of_this_machine_is_reached():
    with serve_page() as port:
        code = f"print(urllib.request.urlopen('http://127.0.0.1:{port}/').read().decode())"
        result = run_python(ASK + code)
    assert (result.ok, result.output) == (True, "a page\n")


NO_REQUEST = {
    "nothing": ("", "tried: no other host"),
    "another host": (CONNECT.format(url="https://unknown.example/"), "tried: unknown.example:443"),
}


@pytest.mark.parametrize("code, tried", NO_REQUEST.values(), ids=NO_REQUEST)
@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_run_without_a_request_says_what_was_set_and_tried(
    code: str, tried: str, exit_code: int
) -> None:
    failure = str(run_python(f"{code}\nraise SystemExit({exit_code})").failure)
    assert "no request arrived at the model\n  set: OPENAI_BASE_URL" in failure
    assert tried in failure


def test_the_destinations_are_in_the_json_of_a_run():
    result = run_python(CONNECT.format(url="https://api.unknown.example/v1") + ASK)
    assert result.as_json()["refused"] == ["api.unknown.example:443"]


# --- Clients without a setting for the base URL: the proxy answers for the host that they name

GROQ = "https://api.groq.com/openai/v1/chat/completions"
BODY = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
CURL = ("curl", "-sS", "-d", BODY)
FETCH = f"""
fetch(process.argv[1], {{method: "POST", body: {BODY!r}}})
    .then((response) => response.text()).then(console.log)
"""
AIOHTTP = f"""
import asyncio, sys, aiohttp
async def ask():
    async with aiohttp.ClientSession() as session:
        reply = await session.post(sys.argv[1], data={BODY!r})
        print(await reply.text())
asyncio.run(ask())
"""
OPENAI = """
import sys, openai
client = openai.OpenAI(base_url=sys.argv[1].removesuffix("/chat/completions"), api_key="none")
reply = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])
print(reply.choices[0].message.content)
"""
JAVA = """
import java.net.URI;
import java.net.http.*;
public class Ask {
    public static void main(String[] words) throws Exception {
        var body = HttpRequest.BodyPublishers.ofString(words[1]);
        var request = HttpRequest.newBuilder(URI.create(words[0])).POST(body).build();
        var client = HttpClient.newHttpClient();
        System.out.println(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
"""


def post_with(module: str, call: str) -> tuple[str, ...]:
    return (sys.executable, "-c", f"import sys, {module}; print({call})")


CLIENTS = {
    "curl": CURL,
    "fetch of Node": ("node", "-e", FETCH),
    "urllib": post_with(
        "urllib.request", f"urllib.request.urlopen(sys.argv[1], {BODY!r}.encode()).read()"
    ),
    "requests": post_with("requests", f"requests.post(sys.argv[1], {BODY!r}).text"),
    "httpx": post_with("httpx", f"httpx.post(sys.argv[1], content={BODY!r}).text"),
    "aiohttp, which reads no proxy": (sys.executable, "-c", AIOHTTP),
    "a fixed base URL of openai": (sys.executable, "-c", OPENAI),
    # without the second compiler: it compiles itself and the program for one request
    "Java": ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "Ask.java"),
}


def drive_client(command: tuple[str, ...], url: str, folder: Path) -> CommandResult:
    """Run a client with this URL against a script of one turn."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    words = [*command, url]
    if command[0] == "java":
        (folder / "Ask.java").write_text(JAVA)
        words.append(BODY)
    source = Playbook()
    source.load(when("Hi", [say("Hello.")]))
    return run_command(source, words, echo=False, cwd=folder)


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_without_a_base_url_is_answered_by_the_script(
    client: tuple[str, ...], tmp_path: Path
) -> None:
    result = drive_client(client, GROQ, tmp_path)
    assert (result.failure, result.refused) == (None, [])
    assert "Hello." in result.output


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_client_reaches_no_other_host(client: tuple[str, ...], tmp_path: Path) -> None:
    result = drive_client(client, "https://unknown.example/chat/completions", tmp_path)
    assert set(result.refused) == {"unknown.example:443"}
    assert "tried: unknown.example:443" in str(result.failure)


class Upstream:
    """A model that says hello."""

    async def reply(self, _: Request) -> Reply:
        return Reply((Text("Hello."),))


@pytest.mark.parametrize("variable, path", [("GROQ_BASE_URL", ""), ("GROQ_API_BASE", "/openai/v1")])
def test_a_request_to_a_host_is_recorded_from_that_host(
    variable: str, path: str, tmp_path: Path
) -> None:
    with Server() as server:
        upstream = server.mount(Upstream())
        environment = {variable: upstream.url + path, "GROQ_API_KEY": "none", "OPENAI_API_KEY": ""}
        recording = Recording(Live(environment=environment), tmp_path / "c.yaml")
        result, summary = record_command(recording, [*CURL, GROQ], echo=False)
    assert (result.failure, summary.interactions, upstream.received) == (None, 1, 1)
    assert "Hello." in result.output


def test_a_key_is_sent_to_its_own_host_only(tmp_path: Path):
    live = Live(environment={"OPENAI_API_KEY": "none"})
    url = "https://gateway.openai.azure.com/chat/completions"
    recording = Recording(live, tmp_path / "c.yaml")
    with pytest.raises(UsageError, match=r"unknown key for gateway\.openai\.azure\.com"):
        record_command(recording, [*CURL, url], echo=False)


def test_the_certificates_of_a_run_are_deleted_with_it():
    folder = Path(environment_of()["SSL_CERT_DIR"])
    assert folder.is_absolute()
    assert not folder.exists()


def test_without_certificates_the_host_of_a_model_is_refused_with_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("offbook.sources.server.proxy.find_authority", lambda: None)
    result = drive_client(CLIENTS["curl"], GROQ, tmp_path)
    assert result.refused == ["api.groq.com:443"]
    assert "pip install 'offbook[proxy]'" in str(result.failure)


# --- Sealed: a network namespace

needs_namespace = pytest.mark.usefixtures("namespace")
# Nothing of the environment is left, and no certificate is checked.
BARE_CURL = ("env", "-i", shutil.which("curl") or "curl", "-sSk", "--max-time", "20")


@pytest.fixture(scope="module")
def namespace() -> None:
    """Skip a test where no network namespace can be made."""
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-Urn", "true"], check=False).returncode:
        pytest.skip("no network namespaces here")


def run_sealed(*command: str, allow: tuple[str, ...] = ()) -> CommandResult:
    source = Playbook()
    source.load(when("Hi", [say("Hello.")]))
    return run_command(source, command, echo=False, sealed=True, allow=allow)


@needs_namespace
def test_a_sealed_client_that_knows_no_proxy_is_answered_by_the_script():
    result = run_sealed(*BARE_CURL, "-d", BODY, GROQ)
    assert (result.failure, result.refused) == (None, [])
    assert "Hello." in result.output


@needs_namespace
@pytest.mark.parametrize(
    "url, destination",
    [
        ("https://unknown.example/", "unknown.example:443"),
        ("http://unknown.example/", "unknown.example:80"),
        ("http://192.0.2.1/", "192.0.2.1:80"),
        ("http://unknown.example:5432/", "unknown.example"),  # its name was looked up
    ],
)
def test_a_destination_of_a_sealed_client_is_listed(url: str, destination: str) -> None:
    result = run_sealed(*BARE_CURL, url)
    assert destination in result.refused
    assert not result.ok


@needs_namespace
def test_a_sealed_command_has_its_own_loopback():
    with serve_page() as port:
        code = f"import socket; print(socket.socket().connect_ex(('127.0.0.1', {port})))"
        result = run_sealed(sys.executable, "-c", ASK + code)
    assert (result.failure, result.output) == (None, f"{ECONNREFUSED}\n")


@needs_namespace
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_an_allowed_port_of_this_machine_is_reached_from_a_sealed_command(name: str) -> None:
    with serve_page() as port:
        url = f"http://{name}:{port}/"
        code = f"{ASK}print(urllib.request.urlopen({url!r}).read().decode())"
        result = run_sealed(sys.executable, "-c", code, allow=(f"{name}:{port}",))
    assert (result.failure, result.output) == (None, "a page\n")


@needs_namespace
def test_an_allowed_port_is_that_of_this_machine_only():
    with serve_page() as port:
        url = f"http://192.0.2.1:{port}/"
        result = run_sealed(*BARE_CURL, url, allow=(f"127.0.0.1:{port}",))
    assert (result.output, result.refused) == ("", [f"192.0.2.1:{port}"])


@needs_namespace
def test_an_allowed_port_without_a_server_is_a_refused_connection():
    with serve_page() as port:
        pass
    result = run_sealed(*BARE_CURL, f"http://127.0.0.1:{port}/", allow=(f"127.0.0.1:{port}",))
    assert (result.output, result.refused) == ("", [])


def test_a_command_that_cannot_be_sealed_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tree = tmp_path / "tree.py"
    tree.write_text("import os, sys\nos.write(int(sys.argv[2]), b'error seal 1\\n')\n")
    monkeypatch.setattr("offbook.subjects.process.TREE", str(tree))
    with pytest.raises(UsageError, match="cannot seal 'true': Operation not permitted"):
        run_sealed("true")


def test_a_subject_without_processes_cannot_be_sealed():
    with pytest.raises(UsageError, match="cannot seal echo"):
        Rehearsal(Echo(), sealed=True)
