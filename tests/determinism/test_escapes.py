"""The ways out of a run in this process: each is closed, or named on the page on determinism.

Each escape connects to a server of this test, by an address that is not one of loopback. Where it
is closed, nothing arrives and the run fails, although the agent swallows the refusal.
"""

from __future__ import annotations

import ctypes
import gc
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.util import spawnv_passfds
from pathlib import Path
from threading import Event, Thread

import pytest

from offbook import drive, say, when
from offbook.determinism import block_network
from offbook.errors import ConnectionBlocked, IsolationError
from offbook.exchange import Reply, Request

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "determinism.md"
PRELUDE = """
import os, socket, sys, threading, time
HOST = "::ffff:127.0.0.1"
URL = f"http://[{HOST}]:{PORT}/"
CHILD = f"import socket; socket.create_connection(({HOST!r}, {PORT}))"
def go():
    socket.create_connection((HOST, PORT), 5).close()
def wait(start):
    done = threading.Event()
    def run(*_):
        try:
            go()
        except Exception:
            pass  # of a thread: pytest would report it in the test that runs by then
        finally:
            done.set()
    start(run)
    done.wait(300)
"""
CLOSED = {
    # sockets
    "create_connection": "go()",
    "connect": "socket.socket(socket.AF_INET6).connect((HOST, PORT))",
    "connect_ex": "socket.socket(socket.AF_INET6).connect_ex((HOST, PORT))",
    "a socket that does not block": """
s = socket.socket(socket.AF_INET6); s.setblocking(False); s.connect_ex((HOST, PORT))""",
    "a duplicate": "socket.socket(socket.AF_INET6).dup().connect((HOST, PORT))",
    "a subclass of the C type": """
import _socket
_socket.socket(_socket.AF_INET6).connect((HOST, PORT))""",
    "a datagram": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendto(b'', (HOST, PORT))",
    "sendmsg": """
socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).sendmsg([b''], [], 0, (HOST, PORT))""",
    "getaddrinfo": "socket.getaddrinfo('offbook.invalid', 443)",
    "getaddrinfo of the C module": "import _socket; _socket.getaddrinfo('offbook.invalid', 443)",
    "gethostbyname": "socket.gethostbyname('offbook.invalid')",
    "gethostbyname_ex": "socket.gethostbyname_ex('offbook.invalid')",
    "gethostbyaddr": "socket.gethostbyaddr('offbook.invalid')",
    "gethostbyaddr of an address": "socket.gethostbyaddr('192.0.2.1')",
    "getnameinfo": "socket.getnameinfo(('192.0.2.1', 80), 0)",
    "getfqdn": "socket.getfqdn('192.0.2.1')",
    "a socket of whole packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "a raw socket": "socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).sendto(b'', (HOST, 0))",
    "a query for a name by hand": """
query = b"\\0\\0\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\1a\\7invalid\\0\\0\\1\\0\\1"
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(query, ("192.0.2.53", 53))""",
    "fast open": """
socket.socket(socket.AF_INET6).sendto(b"", socket.MSG_FASTOPEN, (HOST, PORT))""",
    "another interpreter": """
import importlib
for name in ("_interpreters", "_xxsubinterpreters"):
    try:
        module = importlib.import_module(name)
    except ImportError:
        continue
    other = module.create()
    module.run_string(other, f"import socket; socket.create_connection(({HOST!r}, {PORT}))")
    break""",
    "a loop of another thread": """
import asyncio
wait(lambda run: threading.Thread(
    target=lambda: asyncio.run(asyncio.to_thread(run))).start())""",
    "a file descriptor": """
here = socket.socket(socket.AF_INET6)
socket.fromfd(here.fileno(), socket.AF_INET6, socket.SOCK_STREAM).connect((HOST, PORT))""",
    # libraries
    "http.client": "import http.client; http.client.HTTPConnection(HOST, PORT).connect()",
    "urllib": "import urllib.request; urllib.request.urlopen(URL)",
    "urllib3": "import urllib3; urllib3.PoolManager(retries=False).request('GET', URL)",
    "requests": "import requests; requests.get(URL, timeout=9)",
    "httpx": "import httpx; httpx.get(URL)",
    "aiohttp": """
import asyncio, aiohttp
async def ask():
    async with aiohttp.ClientSession() as session:
        await session.get(URL)
asyncio.run(ask())""",
    "asyncio": "import asyncio; asyncio.run(asyncio.open_connection(HOST, PORT))",
    "an ssl socket": """
import ssl
s = ssl.create_default_context().wrap_socket(socket.socket(socket.AF_INET6), server_hostname="x")
s.connect((HOST, PORT))""",
    "smtplib": "import smtplib; smtplib.SMTP(HOST, PORT)",
    "ftplib": "import ftplib; ftplib.FTP().connect(HOST, PORT)",
    "xmlrpc": "import xmlrpc.client; xmlrpc.client.ServerProxy(URL).call()",
    "a log handler": """
import logging.handlers
logging.handlers.SocketHandler(HOST, PORT).makeSocket()""",
    # threads and contexts
    "a thread": "wait(lambda run: threading.Thread(target=run).start())",
    "a timer": "wait(lambda run: threading.Timer(0, run).start())",
    "a thread pool": """
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor().submit(go).result()""",
    "a thread pool of multiprocessing": """
from multiprocessing.pool import ThreadPool
with ThreadPool(1) as pool:
    pool.apply(go)""",
    "_thread": "import _thread; wait(lambda run: _thread.start_new_thread(run, ()))",
    "a thread of a thread": """
import _thread
wait(lambda run: _thread.start_new_thread(lambda: _thread.start_new_thread(run, ()), ()))""",
    "an empty context": "import contextvars; contextvars.Context().run(go)",
    "an empty context in a thread": """
import contextvars
wait(lambda run: threading.Thread(target=contextvars.Context().run, args=[run]).start())""",
    "a task in an empty context": """
import asyncio, contextvars
async def ask():
    async def connect():
        go()
    await asyncio.create_task(connect(), context=contextvars.Context())
asyncio.run(ask())""",
    "to_thread": "import asyncio; asyncio.run(asyncio.to_thread(go))",
    "a finalizer": """
class Closing:
    def __del__(self):
        go()
Closing()""",
    # processes
    "subprocess": "import subprocess; subprocess.run([sys.executable, '-c', CHILD])",
    "subprocess with an environment": """
import subprocess
subprocess.run([sys.executable, "-c", CHILD], env={"PATH": os.environ["PATH"]})""",
    "subprocess of a shell": """
import subprocess
subprocess.run(f"curl -s '{URL}'", shell=True)""",
    "os.popen": """
with os.popen(f"curl -s '{URL}'") as output:
    output.read()""",
    "os.system": "os.system(f\"curl -s '{URL}'\")",
    "os.spawnv": "os.spawnv(os.P_WAIT, sys.executable, [sys.executable, '-c', CHILD])",
    "os.spawnve": "os.spawnve(os.P_WAIT, sys.executable, [sys.executable, '-c', CHILD], {})",
    "os.posix_spawn": """
pid = os.posix_spawn(sys.executable, [sys.executable, "-c", CHILD], os.environ)
os.waitpid(pid, 0)""",
    "fork and exec": """
pid = os.fork()
if not pid:
    try:
        os.execv(sys.executable, [sys.executable, "-c", CHILD])
    finally:
        os._exit(1)
os.waitpid(pid, 0)""",
    "a subprocess of asyncio": """
import asyncio
async def ask():
    await (await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD)).wait()
asyncio.run(ask())""",
    # the C library
    "connect by ctypes": "import ctypes; ctypes.CDLL(None).connect",
    "system by ctypes": "import ctypes; ctypes.CDLL(None).system(b'true')",
}
# The names by which the page has them.
DOCUMENTED = ("uvloop", "gRPC", "pycurl", "curl_cffi", "C extension", "env -i")


class Silent:
    """A model that is never asked."""

    async def reply(self, request: Request) -> Reply:
        raise AssertionError(request)


@contextmanager
def listening() -> Generator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def arrived(server: socket.socket) -> bool:
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def drive_escape(escape: str, port: int) -> None:
    """Drive an agent that tries a way out, and swallows the refusal."""

    def agent(_: str) -> str:
        with suppress(Exception):
            exec(PRELUDE + escape, {"PORT": port, "__name__": "agent"})  # noqa: S102 - the escape
        return "done"

    with drive(agent, source=Silent()) as rehearsal:
        with pytest.raises(IsolationError, match="a connection was refused and the agent cont"):
            rehearsal.run("Go")
        assert rehearsal.events.named("isolation.refused")


@pytest.mark.parametrize("escape", CLOSED.values(), ids=CLOSED)
@pytest.mark.filterwarnings("ignore")  # an exception in a thread or in a finalizer is one
def test_an_escape_is_closed_and_fails_the_run(escape: str) -> None:
    with listening() as server:
        drive_escape(escape, server.getsockname()[1])
        assert not arrived(server)
    gc.collect()  # the sockets of the escape, here, where their warnings are ignored


AT_EXIT = """
import atexit, socket, sys
from offbook import drive, say, when
PORT = int(sys.argv[1])
def go():
    socket.create_connection(("::ffff:127.0.0.1", PORT))
def agent(_):
    atexit.register(go)
drive(agent, auto_assert=False).run(when("Go", [say("never")]))
"""


def test_a_connection_at_the_exit_of_the_process_is_refused():
    with listening() as server:
        port = str(server.getsockname()[1])
        ended = subprocess.run(
            [sys.executable, "-c", AT_EXIT, port], capture_output=True, text=True, check=False
        )
        assert not arrived(server)
    assert "ConnectionBlocked" in ended.stderr


@pytest.mark.parametrize("name", DOCUMENTED)
def test_a_way_that_is_open_is_named_on_the_page(name: str) -> None:
    assert name in PAGE.read_text()


REGISTERED = """
import atexit, sys
from offbook import drive, say, when
def agent(_):
    atexit.register(print, "called")
drive(agent, auto_assert=False).run(when("Go", [say("never")]))
if sys.argv[1] == "unregister":
    atexit.unregister(print)
"""


@pytest.mark.parametrize("action, output", [("keep", "called\n"), ("unregister", "")])
def test_a_function_that_was_registered_in_a_run_runs_unless_it_is_unregistered(
    action: str, output: str
) -> None:
    command = [sys.executable, "-c", REGISTERED, action]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == output


def test_a_process_of_a_run_gets_no_key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-the-user")
    seen: list[str] = []

    def agent(_: str) -> str:
        seen.append(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)  # noqa: S607
        return "done"

    with drive(agent, auto_assert=False) as rehearsal:
        rehearsal.run(when("Go", [say("never")]))
    assert "gsk-of-the-user" not in seen[0]
    assert "HTTPS_PROXY=http://127.0.0.1:" in seen[0]


# The ways to start a process that this table names are those of the standard library.
STARTS: dict[str, Callable[[list[str]], int]] = {
    "os.system": lambda command: os.system(shlex.join(command)),  # noqa: S605 # pyright: ignore[reportDeprecated]
    "os.posix_spawn": lambda command: wait(os.posix_spawn(command[0], command, os.environ)),
    "os.posix_spawnp": lambda command: wait(os.posix_spawnp(command[0], command, os.environ)),
    "multiprocessing": lambda command: wait(
        spawnv_passfds(os.fsencode(command[0]), [os.fsencode(word) for word in command], [])
    ),
}


def wait(process_id: int) -> int:
    return os.waitpid(process_id, 0)[1]


@pytest.mark.parametrize("way", STARTS)
def test_a_process_that_is_started_in_another_way_gets_no_key_either(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-the-user")
    shown = tmp_path / "environment"
    statuses: list[int] = []

    def agent(_: str) -> str:
        statuses.append(STARTS[way](["/bin/sh", "-c", f"env > {shown}; exit 3"]))
        return "done"

    with drive(agent, auto_assert=False) as rehearsal:
        rehearsal.run(when("Go", [say("never")]))
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [3]
    assert "gsk-of-the-user" not in shown.read_text()


def test_a_shell_of_a_thread_outside_of_a_run_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-the-user")
    begin, statuses = Event(), list[int]()

    def older_thread() -> None:
        begin.wait()
        command = ["sh", "-c", 'test "$GROQ_API_KEY" = gsk-of-the-user && exit 3']
        statuses.append(STARTS["os.system"](command))

    thread = Thread(target=older_thread)
    thread.start()

    def agent(_: str) -> str:
        begin.set()
        thread.join()
        return "done"

    with drive(agent, auto_assert=False) as rehearsal:
        rehearsal.run(when("Go", [say("never")]))
    assert [os.waitstatus_to_exitcode(status) for status in statuses] == [3]


NATIVE = """connect sendto sendmsg getaddrinfo gethostbyname system popen fork vfork posix_spawn
posix_spawnp execv execve execvp syscall sendmmsg gethostbyname_r getaddrinfo_a getnameinfo
res_query execl execvpe fexecve clone dlsym"""


@pytest.mark.parametrize("name", NATIVE.split())
def test_a_function_of_the_c_library_that_reaches_out_is_refused(name: str):
    library = ctypes.CDLL(None)
    with (
        block_network() as guard,
        pytest.raises(ConnectionBlocked, match=f"called {name} of the C"),
    ):
        getattr(library, name)
    assert [error.destination for error in guard.refused] == [f"{name}()"]


def test_another_function_of_the_c_library_is_not_refused():
    library = ctypes.CDLL(None)
    with block_network():
        assert library.abs(-7) == 7
