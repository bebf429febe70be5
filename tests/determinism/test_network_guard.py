"""Nothing leaves the machine from inside a closed border, and the line that tried is named."""

import asyncio
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from urllib.request import urlopen

import pytest

from offbook.determinism.network_guard import block_network, is_this_machine
from offbook.errors import IsolationError

FAR = ("192.0.2.1", 443)  # an address that is given to nobody
NAMED = ("offbook.invalid", 443)


def connect_by_number():
    with socket.socket() as sock:
        sock.connect(FAR)


def connect_by_name():
    with socket.socket() as sock:
        sock.connect(NAMED)


def connect_and_be_told():
    with socket.socket() as sock:
        sock.connect_ex(NAMED)


def look_up():
    socket.getaddrinfo(*NAMED)


def look_up_the_old_way():
    socket.gethostbyname(NAMED[0])


def send_a_datagram():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"hello", FAR)


def send_a_message():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendmsg([b"hello"], [], 0, FAR)


def take_aim(address: tuple[str, int] = FAR) -> bool:
    """Whether one may: for a datagram, to connect sends nothing yet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(address)
        except IsolationError:
            return False
        except OSError:  # no way there from this machine
            return True
    return True


def open_a_page():
    urlopen("http://offbook.invalid/")


WAYS_OUT = [
    connect_by_number,
    connect_by_name,
    connect_and_be_told,
    look_up,
    look_up_the_old_way,
    send_a_datagram,
    send_a_message,
    open_a_page,
]


@pytest.mark.parametrize("leave", WAYS_OUT)
def test_every_way_out_is_refused_with_the_line_that_took_it(leave: Callable[[], None]):
    with block_network() as border, pytest.raises(IsolationError) as refusal:
        leave()
    assert refusal.value.where.startswith(f"{__file__}:")
    assert refusal.value.where.endswith(f" in {leave.__name__}")
    assert "not this machine" in str(refusal.value)
    assert refusal.value in border.refused


def test_an_error_that_was_swallowed_is_still_known():
    with block_network() as border, suppress(IsolationError):
        look_up()
    assert [error.what for error in border.refused] == [
        "tried to look up offbook.invalid:443, which is not this machine"
    ]


def test_the_way_out_is_open_again_afterwards():
    with block_network():
        assert not take_aim()
    assert take_aim()


def test_this_machine_can_be_reached():
    with block_network() as border, socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(("localhost", server.getsockname()[1])):
            pass
        left, right = socket.socketpair()
        left.close()
        right.close()
    assert not border.refused


@pytest.mark.parametrize(
    "host,here",
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
    ],
)
def test_what_counts_as_this_machine(host: str, *, here: bool):
    assert is_this_machine(host) is here


@pytest.mark.parametrize(
    "allow,passes",
    [
        ("192.0.2.1", True),
        ("192.0.2.1:443", True),
        ("192.0.2.1:80", False),
        ("192.0.2.2", False),
    ],
)
def test_only_what_was_allowed_may_be_reached(allow: str, *, passes: bool):
    with block_network(allow=(allow,)):
        assert take_aim() is passes


def test_an_allowed_name_may_be_reached_at_its_address(monkeypatch: pytest.MonkeyPatch):
    def resolve(*_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", FAR)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with block_network(allow=("offbook.invalid:443",)):
        assert not take_aim()
        look_up()
        assert take_aim()
        assert not take_aim(("192.0.2.1", 80))


def test_an_inner_border_opens_no_outer_one():
    with block_network(), block_network(allow=("192.0.2.1",)):
        assert not take_aim()


def test_a_thread_of_the_run_is_inside_and_blames_whoever_started_it():
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


def test_a_thread_that_was_there_before_is_left_alone():
    begin = threading.Event()
    passed: list[bool] = []

    def bystander() -> None:
        begin.wait()
        passed.append(take_aim())

    thread = threading.Thread(target=bystander)
    thread.start()
    with block_network() as border:
        begin.set()
        thread.join()
    assert passed == [True]
    assert not border.refused


def test_a_job_for_a_pool_that_was_there_before_is_inside():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take_aim).result()
        with block_network():
            assert not pool.submit(take_aim).result()
        assert pool.submit(take_aim).result()


async def test_asyncio_is_refused_with_the_line_that_awaited():
    with block_network(), pytest.raises(IsolationError) as refusal:
        await asyncio.open_connection(*NAMED)
    assert refusal.value.where.startswith(f"{__file__}:")


async def test_a_neighbour_task_is_left_alone_while_a_task_of_the_run_is_not():
    opened, tried = asyncio.Event(), asyncio.Event()

    async def neighbour() -> bool:
        await opened.wait()
        tried.set()
        return take_aim()

    async def run() -> bool:
        with block_network():
            opened.set()
            await tried.wait()
            return await asyncio.create_task(asyncio.to_thread(take_aim))

    assert await asyncio.gather(neighbour(), run()) == [True, False]


def test_nothing_is_left_behind():
    before = (threading.Thread.start, ThreadPoolExecutor.submit, vars(socket.socket).get("connect"))
    with block_network(), block_network(allow=("offbook.invalid",)):
        assert threading.Thread.start is not before[0]
    after = (threading.Thread.start, ThreadPoolExecutor.submit, vars(socket.socket).get("connect"))
    assert after == before
