"""Clients beside the matrix, in several languages: none has a base URL, some read no proxy.

    python -m tests.matrix.further_clients plain|sealed NAME…

runs them against a script and prints a line of JSON for each run. A client asks a host that nobody
has, and the host of a model.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from offbook import Playbook, say, when
from offbook.runs import run_command
from tests.matrix.homes import CLIENTS_FOLDER, HOMES

SOURCES = Path(__file__).parent / "further"
MODEL = "api.openai.com"
PATH = "/v1/chat/completions"
BODY = '{"model": "m", "messages": [{"role": "user", "content": "Hi"}]}'
HEAD = r"POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %s\r\nConnection: close\r\n\r\n%s"
PRINT = f'printf \'{HEAD}\' "$PATH_" "$HOST_" ${{#BODY_}} "$BODY_"'
GO_PROGRAM = CLIENTS_FOLDER / "ask-go"


@dataclass(frozen=True)
class Client:
    """A client: the words of its command, before the URL and the body of a request.

    One that reads no proxy gets out of a plain command; one that is not `driven` is refused, as it
    trusts certificates of its own or speaks HTTP/2 only.
    """

    name: str
    words: tuple[str, ...]
    package: str = ""  # of Debian, if its program is not part of a system
    home_name: str = ""
    way_out: str = ""  # the words of the page on determinism, if it reads no proxy
    driven: bool = True
    program: str = ""  # what it needs, if its command is a shell's
    module_test: tuple[str, ...] = ()  # a command that fails without a module that it needs

    @property
    def reads_proxy(self) -> bool:
        """Return whether it stays behind the proxy as a plain command."""
        return not self.way_out

    def find_missing(self) -> str:
        """Return what is not installed, and how to install it."""
        home = HOMES.get(self.home_name)
        if home is not None and not home.ready:
            return home.describe_missing()
        program = self.program or self.words[0]
        found = shutil.which(program) is not None
        if found and self.module_test:
            found = not subprocess.run(
                self.module_test, capture_output=True, check=False
            ).returncode
        hint = f" (Debian: apt-get install {self.package})" if self.package else ""
        return "" if found else f"{self.name} is not installed{hint}"

    def host_elsewhere(self) -> str:
        """Return a host that is not a model's, and names this client."""
        return f"{self.name.replace(' ', '-').replace('.', '-').lower()}.unknown.example"


def _python(name: str, *options: str, home_name: str = "", **more: Any) -> Client:
    home = HOMES.get(home_name)
    python = sys.executable if home is None else home.python
    words = (python, *options, str(SOURCES / "ask.py"), name)
    return Client(f"python {name}", words, home_name=home_name, **more)


def _node(name: str, home_name: str = "", **more: Any) -> Client:
    folder = SOURCES if not home_name else HOMES[home_name].folder
    return Client(
        f"node {name}", ("node", str(folder / "ask.mjs"), name), "nodejs", home_name, **more
    )


def _shell(name: str, connection: str, package: str) -> Client:
    return Client(name, ("bash", "-c", connection), package, way_out=name, program=name)


def _source(name: str) -> str:
    return str(SOURCES / name)


CLIENTS = [
    Client("curl", ("sh", "-c", 'curl -sS -m 20 -d "$2" "$1"', "curl"), "curl", program="curl"),
    Client(
        "wget", ("sh", "-c", 'wget -qO- -t1 --post-data="$2" "$1"', "wget"), "wget", program="wget"
    ),
    Client("go", (str(GO_PROGRAM),), "golang-go", program="go"),
    Client("ruby", ("ruby", _source("ask.rb")), "ruby"),
    Client(
        "php curl",
        ("php", _source("ask_curl.php")),
        "php-curl",
        module_test=("php", "-r", "exit(extension_loaded('curl') ? 0 : 1);"),
    ),
    Client("php streams", ("php", _source("ask_stream.php")), "php-cli", way_out="streams of PHP"),
    Client(
        "perl HTTP.Tiny",
        ("perl", _source("ask_tiny.pl")),
        "libio-socket-ssl-perl",
        module_test=("perl", "-MIO::Socket::SSL", "-e1"),
    ),
    Client(
        "perl LWP",
        ("perl", _source("ask_lwp.pl")),
        "libwww-perl",
        module_test=("perl", "-MLWP::UserAgent", "-e1"),
    ),
    # without the second compiler: it compiles itself and the program for one request
    Client(
        "java",
        ("java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", _source("Ask.java")),
        "default-jdk-headless",
    ),
    _node("https"),
    _node("tls"),
    _node("http2", driven=False),
    *(_node(name, "node-http") for name in ("axios", "got", "undici", "superagent")),
    *(_python(name) for name in ("http_client", "urllib3", "streams", "aiohttp")),
    *(_python(name) for name in ("uvloop", "aiohttp_uvloop")),
    _python("raw", "-I", way_out="`-I`"),
    *(_python(name, home_name="http") for name in ("tornado", "httplib2", "niquests", "curl_cffi")),
    _python("pycurl", home_name="http", driven=False),
    Client(
        "curl without variables",
        ("sh", "-c", 'env -i "$(command -v curl)" -sSk -m 20 -d "$2" "$1"', "curl"),
        "curl",
        way_out="env -i",
        program="curl",
    ),
    _shell("bash", f"exec 3<>/dev/tcp/$HOST_/80; {PRINT} >&3; cat <&3", ""),
    _shell("openssl", f"{PRINT} | openssl s_client -quiet -connect $HOST_:443", "openssl"),
    _shell("socat", f"{PRINT} | socat -t 20 - OPENSSL:$HOST_:443,verify=0", "socat"),
]


@dataclass(frozen=True)
class Outcome:
    """A run of a client: whether the script answered, and what was refused."""

    client: str
    sealed: bool
    host: str
    answered: bool
    refused: list[str]


def build_go() -> None:
    """Compile the program in Go, where it is installed."""
    if shutil.which("go") is not None:
        CLIENTS_FOLDER.mkdir(parents=True, exist_ok=True)
        build = ["go", "build", "-o", str(GO_PROGRAM), _source("ask.go")]
        subprocess.run(build, check=True, timeout=600)


def run_client(client: Client, host: str, *, sealed: bool) -> Outcome:
    """Run a client against a script of one turn."""
    source = Playbook()
    source.load(when("Hi", [say("Hello.")]))
    words = [*client.words, f"https://{host}{PATH}", BODY]
    environment = {**os.environ, "HOST_": host, "PATH_": PATH, "BODY_": BODY}
    result = run_command(
        source, words, echo=False, environment=environment, sealed=sealed, stdin=b""
    )
    return Outcome(client.name, sealed, host, "Hello." in result.output, result.refused)


def run_clients(clients: Sequence[Client], *, sealed: bool) -> Iterator[Outcome]:
    """Run each client; one that reads no proxy asks no model as a plain command."""
    for client in clients:
        hosts = [client.host_elsewhere()]
        hosts += [MODEL] if sealed or client.reads_proxy else []
        for host in hosts:
            yield run_client(client, host, sealed=sealed)


if __name__ == "__main__":
    mode, *names = sys.argv[1:]
    chosen = [client for client in CLIENTS if client.name in names]
    for outcome in run_clients(chosen, sealed=mode == "sealed"):
        print(json.dumps(vars(outcome)), flush=True)
