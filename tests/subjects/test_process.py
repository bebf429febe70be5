"""The process supervisor: isolation, deadlines, output, and no descendants left."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import DeadlineExceeded, UsageError
from offbook.secrets import MASK, hide_secrets
from offbook.subjects import (
    OutputCollector,
    ProcessResult,
    isolated_env,
    process,
    process_tree,
    run_foreground,
    run_process,
)
from offbook.trace import Hub
from tests.clients import is_alive
from tests.measured_scripts import measure_script


@pytest.fixture(autouse=True)
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    script = "offbook.subjects.process_tree"
    measure_script(
        monkeypatch, tmp_path_factory.mktemp("measured"), script, f"{process.__name__}.TREE"
    )


async def run(
    tmp_path: Path, code: str, deadline: float = 300, stdin: bytes = b""
) -> ProcessResult:
    command = [sys.executable, "-c", code]
    env = isolated_env(tmp_path / "home")
    return await run_process(command, cwd=tmp_path, env=env, deadline=deadline, stdin=stdin)


async def test_the_result_has_the_output_and_the_exit_code(tmp_path: Path):
    code = "import sys; print(input()); print('bad', file=sys.stderr); sys.exit(3)"
    result = await run(tmp_path, code, stdin=b"hello\n")
    assert (result.code, result.stdout, result.stderr) == (3, "hello\n", "bad\n")
    assert not result.timed_out
    assert not result.leaked


async def test_the_variable_pwd_is_the_working_folder(tmp_path: Path):
    result = await run(tmp_path, "import os; print(os.environ['PWD'])")
    assert result.stdout == f"{tmp_path}\n"


async def test_a_character_split_between_two_chunks_is_emitted_whole(tmp_path: Path):
    code = "import os; os.write(1, b'x' + 'é'.encode() * 100_000)"  # a pipe holds 64 kB
    hub, texts = Hub(), list[str]()
    hub.subscribe(lambda event: texts.append(event.data.get("text", "")))
    command, env = [sys.executable, "-c", code], isolated_env(tmp_path / "home")
    result = await run_process(command, cwd=tmp_path, env=env, deadline=300, hub=hub)
    assert "".join(texts) == result.stdout == "x" + "é" * 100_000


async def test_the_environment_has_its_own_home_and_none_of_our_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-children")
    code = "import os; print(os.environ['HOME'], os.environ['TMPDIR'], sorted(os.environ))"
    result = await run(tmp_path, code)
    assert str(tmp_path / "home") in result.stdout
    assert "OPENAI_API_KEY" not in result.stdout


async def test_the_deadline_kills_the_process_and_keeps_its_output(tmp_path: Path):
    command = ["sh", "-c", "echo up; exec sleep 60"]  # starts in a few milliseconds
    env = isolated_env(tmp_path / "home")
    result = await run_process(command, cwd=tmp_path, env=env, deadline=5)
    assert result.timed_out
    assert result.code < 0
    assert result.stdout == "up\n"


async def test_a_grandchild_that_ignores_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE", 0.2)
    script = "trap '' TERM; sleep 60 & echo $!; trap - TERM; wait"
    command, env = ["sh", "-c", script], isolated_env(tmp_path / "home")
    result = await run_process(command, cwd=tmp_path, env=env, deadline=5)
    assert result.timed_out
    assert not is_alive(int(result.stdout))


async def test_a_child_outside_the_group_is_killed_and_reported_as_leaked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE", 0.2)
    code = (
        "import subprocess,sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time;time.sleep(60)'],"
        " start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
    )
    result = await run(tmp_path, code)
    pid = int(result.stdout)
    assert result.code == 0
    assert result.leaked == (pid,)
    assert not is_alive(pid)


async def test_output_is_cut_before_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    value = "correcthorsebatterystaple4711"
    monkeypatch.setenv("SHOP_API_KEY", value)
    monkeypatch.setattr(process, "MAX_OUTPUT", 1000)
    code = f"print('x' * 990 + ' {value[:9]}' + '{value[9:]}' + 'y' * 9000)"
    hub, texts = Hub(), list[str]()
    hub.subscribe(lambda event: texts.append(event.data["text"]), ["process.output"])
    command, env = [sys.executable, "-c", code], isolated_env(tmp_path / "home")
    result = await run_process(command, cwd=tmp_path, env=env, deadline=300, hub=hub)
    assert result.truncated
    assert (result.stdout, "".join(texts)) == ("x" * 990 + " ",) * 2


async def test_output_beyond_the_limit_is_dropped_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "MAX_OUTPUT", 1000)
    result = await run(tmp_path, "import sys; sys.stdout.buffer.write(b'\\xff\\x00' * 5000)")
    assert result.truncated
    assert len(result.stdout) == 1000


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_events_are_emitted_in_order_even_if_the_loop_is_busy(tmp_path: Path, pause: float):
    hub = Hub()
    events: list[str] = []
    hub.subscribe(lambda event: events.append(event.event))

    def block_the_loop() -> None:
        time.sleep(pause)
        if "process.exit" not in events:
            asyncio.get_running_loop().call_soon(block_the_loop)

    if pause:
        block_the_loop()
    env = isolated_env(tmp_path / "home")
    await run_process(["echo", "x"], cwd=tmp_path, env=env, deadline=300, hub=hub)
    assert events == ["process.start", "process.output", "process.exit"]


WORDS = (
    "the key is sk-proj-aB3dE5gH7jK9mN1pQ3sT5vW7yZ, keep it\n"
    "-----BEGIN RSA PRIVATE KEY-----\nMIIaB3dE5\ngH7jK9mN1\n-----END RSA PRIVATE KEY-----\n"
    "é and no line end"
)


@given(st.lists(st.integers(1, len(WORDS.encode()) - 1), max_size=12))
def test_no_secret_is_emitted_in_pieces(cuts: list[int]):
    events: list[str] = []
    hub = Hub()
    hub.subscribe(lambda event: events.append(event.data["text"]))
    output, raw, starts = OutputCollector(hub), WORDS.encode(), sorted({0, *cuts})
    for begin, end in zip(starts, [*starts[1:], None], strict=True):
        output.pipe_data_received(1, raw[begin:end])
    output.flush()
    assert "".join(events) == output.text(1) == WORDS
    hidden = "".join(hide_secrets(text) for text in events)
    assert hidden == f"the key is {MASK}, keep it\n{MASK}\né and no line end"


async def test_a_missing_command_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="command not found: 'claud-code-x'"):
        await run_process(["claud-code-x"], cwd=tmp_path, env=isolated_env(tmp_path), deadline=5)


def test_a_foreground_command_returns_its_exit_code_and_the_first_bytes_of_output(
    capfdbinary: pytest.CaptureFixture[bytes],
):
    command = [sys.executable, "-c", "import sys; print('abcdef'); sys.exit(3)"]
    kept = [
        asyncio.run(run_foreground(command, os.environ, 300)),
        asyncio.run(run_foreground(command, os.environ, 300, keep=100)),
        asyncio.run(run_foreground(command, os.environ, 300, keep=4, echo=False)),
    ]
    assert [result.code for result in kept] == [3, 3, 3]
    assert [result.stdout for result in kept] == ["", "abcdef\n", "abcd\n… 3 more bytes\n"]
    assert capfdbinary.readouterr().out == b"abcdef\nabcdef\n"


def test_the_deadline_of_a_foreground_command_kills_its_tree(tmp_path: Path):
    pid_file = tmp_path / "pid"
    script = f"setsid sleep 300 & echo $! > {pid_file}; sleep 300"
    with pytest.raises(DeadlineExceeded, match=r"still running after 5 s"):
        asyncio.run(run_foreground(["sh", "-c", script], os.environ, 5))
    assert not is_alive(int(pid_file.read_text()))


FOREGROUND = """
import asyncio, os, sys
from offbook.subjects.process import run_foreground
result = asyncio.run(run_foreground(["sh", "-c", sys.argv[1]], os.environ, 60))
print("result", result.code, result.interrupted_by, flush=True)
"""
# A shell runs a trap when its child has ended, and the whole group gets the signal.
TRAP = "trap 'echo cleaned; exit 7' INT TERM HUP; echo up; sleep 60 & wait"
IGNORE = "trap '' INT TERM HUP; echo up; sleep 60"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "script, code", [(TRAP, 7), (IGNORE, -9)], ids=["handles it", "ignores it"]
)
def test_a_signal_is_forwarded_to_a_foreground_command_and_ends_it(
    number: int, script: str, code: int
):
    command = [sys.executable, "-c", FOREGROUND, script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "up\n"
        ours.send_signal(number)
        output = ours.stdout.read()
    assert f"result {code} {number}\n" in output
    assert ("cleaned" in output) == ("cleaned" in script)
    assert ours.returncode == 0


def test_a_signal_that_does_not_interrupt_the_wait_for_the_command_is_forwarded_at_once(
    tmp_path: Path,
):
    up = tmp_path / "up"
    os.mkfifo(up)

    def send() -> None:
        up.read_bytes()
        # To this thread: the main thread goes on waiting, as after a signal just before the wait.
        signal.pthread_kill(threading.get_ident(), signal.SIGHUP)

    thread = threading.Thread(target=send)
    thread.start()
    command = ["sh", "-c", f"echo up > {up}; sleep 60"]
    result = asyncio.run(run_foreground(command, os.environ, 300))
    thread.join()
    assert (result.code, result.interrupted_by) == (-signal.SIGHUP, signal.SIGHUP)


def test_a_signal_that_does_not_interrupt_the_wait_for_a_subject_is_handled_at_once(
    tmp_path: Path,
):
    up, end = tmp_path / "up", tmp_path / "end"
    for path in (up, end):
        os.mkfifo(path)
    handled, in_time = threading.Event(), list[bool]()

    def send() -> None:
        up.read_bytes()
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        in_time.append(handled.wait(300))
        end.write_bytes(b"")

    before = signal.signal(signal.SIGUSR1, lambda _number, _frame: handled.set())
    try:
        thread = threading.Thread(target=send)
        thread.start()
        command, env = ["sh", "-c", f"echo > {up}; cat {end}"], isolated_env(tmp_path / "home")
        asyncio.run(run_process(command, cwd=tmp_path, env=env, deadline=300))
        thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert in_time == [True]


def test_the_wakeup_file_of_the_program_is_kept():
    reader, writer = socket.socketpair()
    with reader, writer:
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno())
        asyncio.run(run_foreground(["true"], os.environ, 300))
        assert signal.set_wakeup_fd(-1) == writer.fileno()
    asyncio.run(run_foreground(["true"], os.environ, 300))
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_just_after_the_end_of_the_command_keeps_its_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    started = tmp_path / "started"
    os.mkfifo(started)

    class SignalledCollector(OutputCollector):
        def __setattr__(self, name: str, value: object) -> None:
            super().__setattr__(name, value)
            if name == "send_signal" and value is not None:
                started.write_bytes(b"")  # from now on, a signal is forwarded

        def pipe_data_received(self, fd: int, data: bytes) -> None:
            super().pipe_data_received(fd, data)
            while is_alive(int(data)):
                pass
            signal.raise_signal(signal.SIGHUP)

    monkeypatch.setattr(process, "OutputCollector", SignalledCollector)
    # The process above the command ends after it.
    command = ["sh", "-c", f"cat {started}; echo $PPID; exit 3"]
    result = asyncio.run(run_foreground(command, os.environ, 300, keep=100, echo=False))
    assert (result.code, result.interrupted_by) == (3, signal.SIGHUP)


def test_a_signal_that_nothing_reads_any_more_does_not_lose_the_last_report():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(bytes([signal.SIGHUP]))
        process_tree.refuse_signals(theirs.fileno())
        process_tree.report(theirs.fileno(), "leaked")
        with pytest.raises(BrokenPipeError):
            ours.send(bytes([signal.SIGHUP]))
        theirs.close()
        assert [ours.recv(64), ours.recv(64)] == [b"leaked\n", b""]


DAEMON = "setsid sleep 300 & echo $! > {daemon}; echo > {up}; sleep 300"


def test_the_tree_is_killed_when_its_parent_ends_without_reading_its_reports(tmp_path: Path):
    daemon, up = tmp_path / "daemon", tmp_path / "up"
    os.mkfifo(up)
    command = ["sh", "-c", DAEMON.format(daemon=daemon, up=up)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel, ids = theirs.fileno(), (str(os.getpid()), str(theirs.fileno()))
        supervisor = subprocess.Popen(
            [sys.executable, "-I", "-S", process.TREE, *ids, "", "", *command], pass_fds=[channel]
        )
        theirs.close()
        up.read_bytes()
    assert supervisor.wait() == 0
    assert not is_alive(int(daemon.read_text()))
