"""No connection leaves the machine while the network is blocked; the error has the line."""

import asyncio
import socket
import subprocess
import sys
import threading
import urllib.error
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from errno import ECONNREFUSED
from types import SimpleNamespace
from urllib.request import urlopen

import httpx
import pytest
import requests

from offbook.determinism import (
    AuditHook,
    NetworkGuard,
    block_network,
    is_ip_address,
    is_this_machine,
)
from offbook.errors import ConnectionBlocked, IsolationError

FAR = ("192.0.2.1", 443)  # reserved for documentation: never assigned
NAMED = ("offbook.invalid", 443)


def connect_by_number():
    with socket.socket() as sock:
        sock.connect(FAR)


def connect_by_name():
    with socket.socket() as sock:
        sock.connect(NAMED)


def connect_ex():
    with socket.socket() as sock:
        sock.connect_ex(NAMED)


def look_up():
    socket.getaddrinfo(*NAMED)


def look_up_with_gethostbyname():
    socket.gethostbyname(NAMED[0])


def look_up_with_gethostbyaddr():
    socket.gethostbyaddr(NAMED[0])


def send_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"hello", FAR)


def send_a_datagram_by_name():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"hello", NAMED)


def send_a_message():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendmsg([b"hello"], [], 0, FAR)


def is_allowed(address: tuple[str, int] = FAR) -> bool:
    """Return whether a connection is allowed; a datagram socket sends nothing when it connects."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(address)
        except IsolationError:
            return False
        except OSError:  # no route from this machine
            return True
    return True


CONNECTIONS = [
    connect_by_number,
    connect_by_name,
    connect_ex,
    look_up,
    look_up_with_gethostbyname,
    look_up_with_gethostbyaddr,
    send_a_datagram,
    send_a_datagram_by_name,
    send_a_message,
]


@pytest.mark.parametrize("connect", CONNECTIONS)
def test_every_connection_is_refused_with_its_line(connect: Callable[[], None]):
    with block_network() as guard, pytest.raises(IsolationError) as refusal:
        connect()
    assert refusal.value.where.startswith(f"{__file__}:")
    assert refusal.value.where.endswith(f" in {connect.__name__}")
    assert "not this machine" in str(refusal.value)
    assert refusal.value in guard.refused


LIBRARIES = {
    "urllib": (lambda: urlopen("http://offbook.invalid/"), urllib.error.URLError),
    "httpx": (lambda: httpx.get("http://offbook.invalid/"), httpx.ConnectError),
    "requests": (
        lambda: requests.get("http://offbook.invalid/", timeout=9),
        requests.ConnectionError,
    ),
    "socket": (lambda: socket.create_connection(FAR), ConnectionRefusedError),
}


@pytest.mark.parametrize("get, error", LIBRARIES.values(), ids=LIBRARIES)
def test_a_library_handles_a_refusal_as_a_refused_connection(
    get: Callable[[], object], error: type[Exception]
):
    with block_network() as guard, pytest.raises(error):
        get()
    assert len(guard.refused) == 1


def test_a_proxy_on_this_machine_is_refused(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setenv("HTTPS_PROXY", f"http://localhost:{port}")
        with block_network() as guard:
            assert not is_allowed(("127.0.0.1", port))
    assert f"the proxy 127.0.0.1:{port}" in guard.refused[0].what


IN_A_THREAD = """
import socket, threading
from offbook.determinism.network_guard import block_network

threading.excepthook = lambda _: None
with block_network() as guard:
    thread = threading.Thread(target=socket.create_connection, args=[("192.0.2.1", 80)])
    thread.start()
    thread.join()
print(len(guard.refused))
"""


def test_a_thread_is_refused_also_without_the_plugin_of_pytest():
    assert subprocess.check_output([sys.executable, "-c", IN_A_THREAD], text=True) == "1\n"


def test_a_thread_is_refused_also_after_the_block():
    ended, tried = threading.Event(), list[bool]()

    def try_later():
        ended.wait(300)
        tried.append(is_allowed())

    with block_network():
        thread = threading.Thread(target=try_later)
        thread.start()
    ended.set()
    thread.join()
    assert tried == [False]
    assert is_allowed()


def test_a_thread_of_an_inner_block_is_refused_later_in_the_block_around():
    ended = threading.Event()

    def try_later() -> None:
        ended.wait(300)
        is_allowed()

    with block_network() as outer:
        with block_network() as inner:
            thread = threading.Thread(target=try_later)
            thread.start()
        ended.set()
        thread.join()
    assert (len(inner.refused), len(outer.refused)) == (0, 1)


@pytest.mark.parametrize("event", ["socket.connect", "socket.sendto", "socket.sendmsg"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_connection_that_python_announces_is_refused(event: str, family: int):
    with block_network(), pytest.raises(IsolationError, match=r"reach 192\.0\.2\.1:443"):
        sys.audit(event, SimpleNamespace(family=family), FAR)


@pytest.mark.parametrize(
    "family, address", [(socket.AF_UNIX, "/socket"), (40, FAR), (socket.AF_INET, "invalid")]
)
def test_only_an_internet_address_is_refused(family: int, address: object):
    with block_network() as guard:
        sys.audit("socket.connect", SimpleNamespace(family=family), address)
    assert not guard.refused


def test_the_result_of_an_allowed_operation_is_returned():
    with (
        block_network(allow=("offbook.invalid",)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        receiver.bind(("127.0.0.1", 0))
        assert sender.sendto(b"hello", receiver.getsockname()) == 5
        assert sender.connect_ex(receiver.getsockname()) == 0
        assert socket.getaddrinfo("127.0.0.1", 80)[0][4] == ("127.0.0.1", 80)


@pytest.mark.parametrize("host", [None, b"", "", "127.0.0.1", b"::1"])
def test_a_look_up_of_this_machine_is_allowed(host: object):
    with block_network() as guard:
        sys.audit("socket.getaddrinfo", host, 80)
    assert not guard.refused


def test_a_refusal_has_the_error_number_of_a_refused_connection():
    assert refuse(NetworkGuard()).errno == ECONNREFUSED


def test_an_error_that_was_swallowed_is_kept():
    with block_network() as guard, suppress(IsolationError):
        look_up()
    assert [error.what for error in guard.refused] == [
        "tried to look up offbook.invalid:443, which is not this machine"
    ]


def test_connections_are_allowed_after_the_block():
    with block_network():
        assert not is_allowed()
    assert is_allowed()


def test_connections_to_this_machine_are_allowed():
    with block_network() as guard, socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(("localhost", server.getsockname()[1])):
            pass
        left, right = socket.socketpair()
        left.close()
        right.close()
    assert not guard.refused


@pytest.mark.parametrize(
    "host,local",
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("localhost", True),
        ("Localhost.", True),
        ("api.localhost", True),
        ("", True),
        ("192.0.2.1", False),
        ("localhost.example", False),
        ("2001:db8::1", False),
        ("127.0.0.1.example", False),
        ("0.0.0.0", True),  # noqa: S104 - only a text
        ("::", True),
        ("::1%lo", True),
        ("::ffff:127.0.0.1", False),
        ("0", False),
    ],
)
def test_names_and_addresses_of_this_machine(host: str, *, local: bool):
    assert is_this_machine(host) is local


@pytest.mark.parametrize(
    "allow,allowed",
    [
        ("192.0.2.1", True),
        ("192.0.2.1:443", True),
        ("192.0.2.1:80", False),
        ("192.0.2.2", False),
    ],
)
def test_only_allowed_addresses_can_be_reached(allow: str, *, allowed: bool):
    with block_network(allow=(allow,)):
        assert is_allowed() is allowed


def test_an_ipv6_address_with_its_flow_and_scope_is_refused():
    with (
        block_network(),
        socket.socket(socket.AF_INET6) as sock,
        pytest.raises(ConnectionBlocked, match="2001:db8::1"),
    ):
        sock.connect(("2001:db8::1", 443, 0, 0))


def test_an_allowed_host_can_be_reached_at_its_address(monkeypatch: pytest.MonkeyPatch):
    def resolve(*_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", FAR)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with block_network(allow=("offbook.invalid:443",)):
        assert not is_allowed()
        look_up()
        assert is_allowed()
        assert not is_allowed(("192.0.2.1", 80))


def test_an_inner_guard_cannot_allow_a_host_that_the_outer_blocks():
    with block_network(), block_network(allow=("192.0.2.1",)):
        assert not is_allowed()


def test_a_thread_started_in_the_block_is_guarded():
    caught: list[IsolationError] = []

    def escape() -> None:
        try:
            socket.getaddrinfo(*NAMED)
        except IsolationError as error:
            caught.append(error)

    with block_network():
        thread = threading.Thread(target=escape)
        thread.start()
        thread.join()
    assert [error.where.rpartition(" ")[2] for error in caught] == ["escape"]


def test_a_thread_started_before_the_block_is_not_guarded():
    begin = threading.Event()
    results: list[bool] = []

    def older_thread() -> None:
        begin.wait()
        results.append(is_allowed())

    thread = threading.Thread(target=older_thread)
    thread.start()
    with block_network() as guard:
        begin.set()
        thread.join()
    assert results == [True]
    assert not guard.refused


def test_a_job_for_an_older_thread_pool_is_guarded():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(is_allowed).result()
        with block_network():
            assert not pool.submit(is_allowed).result()
        assert pool.submit(is_allowed).result()


async def test_an_asyncio_connection_is_refused_with_the_line_that_awaited():
    with block_network(), pytest.raises(IsolationError) as refusal:
        await asyncio.open_connection(*NAMED)
    assert refusal.value.where.startswith(f"{__file__}:")


async def test_another_task_is_not_guarded_but_a_task_of_the_block_is():
    opened, tried = asyncio.Event(), asyncio.Event()

    async def other_task() -> bool:
        await opened.wait()
        tried.set()
        return is_allowed()

    async def run() -> bool:
        with block_network():
            opened.set()
            await tried.wait()
            return await asyncio.create_task(asyncio.to_thread(is_allowed))

    assert await asyncio.gather(other_task(), run()) == [True, False]


def test_all_patches_are_undone():
    before = (threading.Thread.start, ThreadPoolExecutor.submit, vars(socket.socket).get("connect"))
    with block_network(), block_network(allow=("offbook.invalid",)):
        # Threads may be patched already: the mocks of a test follow it into them.
        assert vars(socket.socket).get("connect") is not before[2]
    after = (threading.Thread.start, ThreadPoolExecutor.submit, vars(socket.socket).get("connect"))
    assert after == before


@pytest.mark.parametrize(
    "address,host,port,allowed",
    [
        ("example.org:443", "example.org", 443, True),
        ("example.org:443", "example.org", 80, False),
        ("example.org:443", "example.org", None, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "www.example.org", 80, False),
        ("[2001:db8::1]:80", "2001:db8::1", 80, True),
        ("[2001:db8::1]:80", "2001:db8::1", 81, False),
        ("2001:db8::1", "2001:db8::1", 80, True),
        ("[2001:db8::1]", "2001:db8::1", 80, True),
        ("2001:db8::80", "2001:db8:", 80, False),
        (":80", "", 80, False),
    ],
)
def test_an_allowed_address_is_a_host_or_a_host_and_a_port(
    address: str, host: str, port: int | None, *, allowed: bool
):
    assert NetworkGuard((address,)).allows(host, port) is allowed


@pytest.mark.parametrize(
    "name,value,refused",
    [
        ("HTTP_PROXY", "http://localhost:3128", True),
        ("https_proxy", "http://127.0.0.1:3128", True),
        ("ALL_PROXY", "localhost:3128", True),
        ("HTTP_PROXY", "http://:3128", True),  # without a host, it is this machine
        ("all_proxy", "socks5://user:word@localhost:3128/", True),
        ("HTTP_PROXY", "http://localhost", False),
        ("HTTP_PROXY", "http://proxy.example:3128", False),
        ("HTTP_PROXY", "", False),
        ("NO_PROXY", "localhost:3128", False),
    ],
)
def test_only_a_proxy_of_the_environment_is_no_address_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, *, refused: bool
):
    for known in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(known, raising=False)
        monkeypatch.delenv(known.upper(), raising=False)
    monkeypatch.setenv(name, value)
    guard = NetworkGuard()
    with suppress(ConnectionBlocked):
        guard.check("localhost", 3128, "tried to reach")
    assert bool(guard.refused) is refused
    guard.check("localhost", 3129, "tried to reach")


def refuse(guard: NetworkGuard) -> ConnectionBlocked:
    with pytest.raises(ConnectionBlocked) as refusal:
        guard.check("example.org", 443, "tried to reach")
    return refusal.value


def test_a_late_refusal_belongs_to_the_block_around():
    outer = NetworkGuard()
    inner = NetworkGuard((), outer)
    first = refuse(inner)
    inner.open = False
    second = refuse(inner)
    assert (inner.refused, outer.refused) == ([first], [second])


def test_a_refusal_after_the_outermost_block_is_kept_or_reported():
    late: list[ConnectionBlocked] = []
    plain, of_test = NetworkGuard(), NetworkGuard(on_late=late.append)
    plain.open = of_test.open = False
    assert (plain.refused, [refuse(plain)]) == (plain.refused, plain.refused)
    error = refuse(of_test)
    assert (of_test.refused, late) == ([], [error])


def test_a_refusal_has_the_fix_of_its_block():
    def explain(host: str, port: int | None) -> str:
        return f"allow {host, port}"

    of_test, of_run = NetworkGuard(on_late=print), NetworkGuard(explain=explain)
    assert (of_test.is_of_test, of_run.is_of_test) == (True, False)
    assert refuse(of_test).hint == "allow it: allow=('example.org:443',)"
    assert refuse(of_run).hint == "allow ('example.org', 443)"
    assert refuse(of_run).what == ("tried to reach example.org:443, which is not this machine")
    assert refuse(of_run).destination == "example.org:443"


def test_a_refusal_without_a_port_names_the_host():
    with pytest.raises(ConnectionBlocked, match=r"reach example\.org, which"):
        NetworkGuard().check("example.org", None, "tried to reach")


def test_a_run_may_allow_what_the_guard_of_its_test_does_not():
    of_test = NetworkGuard(on_late=print)
    assert NetworkGuard(("example.org",), of_test).allows("example.org", 443)
    assert not NetworkGuard(("example.org",), NetworkGuard()).allows("example.org", 443)
    both = NetworkGuard(("example.org",), NetworkGuard(("example.org",)))
    assert both.allows("example.org", 443)


def test_the_addresses_of_an_allowed_host_are_allowed_in_the_block_around_too():
    outer = NetworkGuard(("example.org",))
    inner = NetworkGuard(("example.org",), outer)
    inner.add_addresses("example.org", 443, ["192.0.2.1"])
    inner.add_addresses("other.example", 443, ["192.0.2.2"])
    assert outer.allows("192.0.2.1", 443)
    assert inner.allows("192.0.2.1", 443)
    assert not inner.allows("192.0.2.2", 443)


@pytest.mark.parametrize(
    "host,address",
    [("192.0.2.1", True), ("fe80::1%eth0", True), ("example.org", False), ("", False)],
)
def test_an_ip_address_is_no_name(host: str, *, address: bool):
    assert is_ip_address(host) is address


def test_a_handler_can_be_added_twice_and_is_removed_once():
    hook, seen = AuditHook(), list[str]()

    def note(event: str, _: object) -> None:
        seen.append(event)

    stops = [hook.watch(["offbook.one", "offbook.two"], note) for _ in range(2)]
    sys.audit("offbook.one")
    assert [stop() for stop in stops[:1]] == [True]
    sys.audit("offbook.two")
    assert stops[1]() is True
    sys.audit("offbook.one")
    assert seen == ["offbook.one", "offbook.one", "offbook.two"]
    assert stops[1]() is False


def test_a_handler_that_stops_for_one_event_continues_for_another():
    hook, seen = AuditHook(), list[str]()

    def note(event: str, _: object) -> None:
        seen.append(event)

    stop_one = hook.watch(["offbook.one"], note)
    stop_two = hook.watch(["offbook.two"], note)
    assert stop_one() is True
    sys.audit("offbook.one")
    sys.audit("offbook.two")
    assert seen == ["offbook.two"]
    assert stop_two() is True


def test_a_name_and_a_port_may_be_bytes():
    with block_network() as guard:
        for host, port in (
            (b"offbook.invalid", b"443"),
            (bytearray(b"offbook.invalid"), "https"),
            (b"offb\xffok.invalid", 443),
        ):
            with pytest.raises(IsolationError):
                sys.audit("socket.getaddrinfo", host, port)
    assert [error.what for error in guard.refused] == [
        "tried to look up offbook.invalid:443, which is not this machine",
        "tried to look up offbook.invalid, which is not this machine",
        "tried to look up offb\ufffdok.invalid:443, which is not this machine",
    ]
