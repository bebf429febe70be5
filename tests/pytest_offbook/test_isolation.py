"""A test with the fixture `offbook` is isolated, from its fixtures to its last thread."""

import os
import socket
import threading
from pathlib import Path
from textwrap import dedent

import pytest

from tests.forked import run_python
from tests.pytest_offbook.test_plugin import OPTIONS, RunTests

pytest_plugins = ["pytester"]

HEADER = """
import pytest
from offbook import call, say, when

GREET = when("Greet me", [call("bash", {"command": "echo hi"}), say("Done.")])
"""

BLOCKED = "tried to look up offbook.invalid:443, which is not this machine"


@pytest.fixture
def run_tests(pytester: pytest.Pytester) -> RunTests:
    """Return a function that writes a test file and runs it."""

    def run(code: str, *options: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=HEADER + dedent(code))
        return pytester.runpytest_inprocess(
            *OPTIONS, "-p", "no:pytest_asyncio.plugin", "-W", "default", *options
        )

    return run


def test_a_connection_in_a_fixture_is_refused(run_tests: RunTests):
    result = run_tests(
        """
        import socket

        @pytest.fixture
        def client():
            socket.create_connection(("offbook.invalid", 443))

        def test_it(client, offbook):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*ConnectionBlocked:*{BLOCKED}*"])


def test_a_refused_connection_that_a_fixture_swallows_fails_the_test(run_tests: RunTests):
    result = run_tests(
        """
        import socket

        @pytest.fixture
        def client():
            try:
                socket.create_connection(("offbook.invalid", 443))
            except OSError:
                pass

        def test_it(client, offbook):
            offbook.session(mock_tools={"bash": "hi"}).run(GREET)
        """
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"E   Failed: a connection was refused: *{BLOCKED}*"])


THREAD = """
import socket, threading

ended = threading.Event()
threads = []

def send_telemetry():
    ended.wait(300)
    try:
        socket.create_connection(("offbook.invalid", 443))
    except OSError:
        pass

def agent(prompt):
    threads.append(threading.Thread(target=send_telemetry))
    threads[0].start()

def finish():
    ended.set()
    threads[0].join()

def run_agent(offbook):
    offbook.drive(agent, auto_assert=False).run(when("Hi", [say("Hello.")]))
"""


def test_a_connection_after_the_end_of_a_test_fails_the_test(run_tests: RunTests):
    result = run_tests(
        THREAD
        + """
@pytest.fixture
def client():
    yield
    finish()

def test_it(client, offbook):
    run_agent(offbook)
"""
    )
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        [f"E   Failed: after the end of the test: *in send_telemetry: {BLOCKED}"]
    )


def test_a_connection_after_the_teardown_of_a_test_fails_the_session(run_tests: RunTests):
    result = run_tests(
        THREAD
        + """
def test_it(offbook):
    run_agent(offbook)

def test_that_runs_later():
    finish()
"""
    )
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"test_it.py::test_it: *in send_telemetry: {BLOCKED}"])


def test_an_allowed_address_can_be_reached_in_a_fixture(run_tests: RunTests):
    code = """
        import socket

        @pytest.fixture
        def client():
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
                try:
                    sock.connect(("192.0.2.1", 9))
                except ConnectionRefusedError:
                    raise
                except OSError:
                    pass  # no route from this machine

        def test_it(client, offbook):
            offbook.session(mock_tools={"bash": "hi"}).run(GREET)
        """
    run_tests(code).assert_outcomes(errors=1)
    run_tests(code, "-o", "offbook_allow=192.0.2.1:9").assert_outcomes(passed=1)


AGENTS_PROGRAM = """
import asyncio
import httpx
from agents import Agent, Runner, function_tool, trace
from offbook import call, say, when

@function_tool
def find_order(id: int) -> str:
    return "Ada"

async def program(prompt):
    with trace("refund"):
        return (await Runner.run(Agent("shop", tools=[find_order]), prompt)).final_output

def test_refund(offbook):
    run = offbook.drive(program).run(when("Refund", [call("find_order", {"id": 7}), say("Done.")]))
    assert run.output == "Done."
"""


@pytest.mark.slow
def test_openai_agents_behind_a_proxy_connect_to_nothing_during_and_after_the_test(tmp_path: Path):
    connected: list[bytes] = []

    def serve(proxy: socket.socket) -> None:
        while True:
            try:
                connection, _ = proxy.accept()
            except OSError:  # closed
                return
            with connection:
                connected.append(connection.recv(200))

    (tmp_path / "test_program.py").write_text(AGENTS_PROGRAM)
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        threading.Thread(target=serve, args=[proxy], daemon=True).start()
        url = f"http://127.0.0.1:{proxy.getsockname()[1]}"
        proxies = dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"), url)
        variables = {**os.environ, **proxies, "OPENAI_API_KEY": "sk-none"}
        variables = {n: v for n, v in variables.items() if n.lower() != "no_proxy"}
        words = ("-m", "pytest", "-q", tmp_path)
        result = run_python(*words, env=variables, cwd=tmp_path, imports=["agents"])
        proxy.shutdown(socket.SHUT_RDWR)
    assert result.returncode == 0, result.stdout + result.stderr
    assert connected == []
