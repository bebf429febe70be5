"""A process has a home and a deadline of its own, and leaves no descendant behind."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import UsageError
from offbook.secrets import MASK, hide_secrets
from offbook.subjects import process
from offbook.subjects.process import OutputCollector, ProcessResult, isolated_env, run_process
from offbook.trace.hub import Hub

LINGER = "import time,sys\nprint('up', flush=True)\ntime.sleep(60)\n"


async def run(tmp_path: Path, code: str, deadline: float = 20, stdin: bytes = b"") -> ProcessResult:
    command = [sys.executable, "-c", code]
    env = isolated_env(tmp_path / "home")
    return await run_process(command, cwd=tmp_path, env=env, deadline=deadline, stdin=stdin)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    return state not in {"Z", "X"}


async def test_it_tells_what_was_said_and_how_it_ended(tmp_path: Path):
    code = "import sys; print(input()); print('bad', file=sys.stderr); sys.exit(3)"
    ended = await run(tmp_path, code, stdin=b"hello\n")
    assert (ended.code, ended.stdout, ended.stderr) == (3, "hello\n", "bad\n")
    assert not ended.timed_out
    assert not ended.leaked


async def test_a_sign_that_comes_in_two_pieces_is_told_as_one(tmp_path: Path):
    code = "import os; os.write(1, b'x' + 'é'.encode() * 100_000)"  # a pipe holds 64 kB
    hub, told = Hub(), list[str]()
    hub.subscribe(lambda event: told.append(event.data.get("text", "")))
    command, env = [sys.executable, "-c", code], isolated_env(tmp_path / "home")
    ended = await run_process(command, cwd=tmp_path, env=env, deadline=20, hub=hub)
    assert "".join(told) == ended.stdout == "x" + "é" * 100_000


async def test_home_and_temporary_folder_are_its_own_and_our_secrets_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-children")
    code = "import os; print(os.environ['HOME'], os.environ['TMPDIR'], sorted(os.environ))"
    ended = await run(tmp_path, code)
    assert str(tmp_path / "home") in ended.stdout
    assert "OPENAI_API_KEY" not in ended.stdout


async def test_a_deadline_ends_it_with_what_it_had_said(tmp_path: Path):
    ended = await run(tmp_path, LINGER, deadline=1.5)
    assert ended.timed_out
    assert ended.code < 0
    assert ended.stdout == "up\n"


async def test_a_grandchild_that_ignores_the_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE", 0.2)
    code = (
        "import subprocess,sys,time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal,time;"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN);print(1,flush=True);time.sleep(60)'],"
        " stdout=subprocess.PIPE)\n"
        "child.stdout.readline(); print(child.pid, flush=True); time.sleep(60)\n"
    )
    ended = await run(tmp_path, code, deadline=3)
    assert ended.timed_out
    assert not alive(int(ended.stdout))


async def test_a_child_that_left_the_group_is_ended_and_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "GRACE", 0.2)
    code = (
        "import subprocess,sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time;time.sleep(60)'],"
        " start_new_session=True)\n"
        "print(child.pid, flush=True)\n"
    )
    ended = await run(tmp_path, code)
    pid = int(ended.stdout)
    assert ended.code == 0
    assert ended.leaked == (pid,)
    assert not alive(pid)


async def test_more_than_there_is_room_for_is_cut_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(process, "MAX_OUTPUT", 1000)
    ended = await run(tmp_path, "import sys; sys.stdout.buffer.write(b'\\xff\\x00' * 5000)")
    assert ended.truncated
    assert len(ended.stdout) == 1000


@pytest.mark.parametrize("pause", [0.0, 0.05])
async def test_the_hub_hears_it_live_and_in_its_order_however_busy_the_loop_is(
    tmp_path: Path, pause: float
):
    hub = Hub()
    heard: list[str] = []
    hub.subscribe(lambda event: heard.append(event.event))

    def hinder() -> None:
        time.sleep(pause)
        if "process.exit" not in heard:
            asyncio.get_running_loop().call_soon(hinder)

    if pause:
        hinder()
    env = isolated_env(tmp_path / "home")
    await run_process(["echo", "x"], cwd=tmp_path, env=env, deadline=20, hub=hub)
    assert heard == ["process.start", "process.output", "process.exit"]


WORDS = (
    "the key is sk-proj-aB3dE5gH7jK9mN1pQ3sT5vW7yZ, keep it\n"
    "-----BEGIN RSA PRIVATE KEY-----\nMIIaB3dE5\ngH7jK9mN1\n-----END RSA PRIVATE KEY-----\n"
    "password: hunter2 é and no line end"
)


@given(st.lists(st.integers(1, len(WORDS.encode()) - 1), max_size=12))
def test_no_secret_is_told_in_pieces_however_it_comes(cuts: list[int]):
    heard: list[str] = []
    hub = Hub()
    hub.subscribe(lambda event: heard.append(event.data["text"]))
    said, raw, places = OutputCollector(hub), WORDS.encode(), sorted({0, *cuts})
    for begin, end in zip(places, [*places[1:], None], strict=True):
        said.pipe_data_received(1, raw[begin:end])
    said.flush()
    assert "".join(heard) == said.text(1) == WORDS
    hidden = "".join(hide_secrets(text) for text in heard)
    assert hidden == f"the key is {MASK}, keep it\n{MASK}\npassword: {MASK} é and no line end"


async def test_a_command_that_is_not_there_is_told_at_once(tmp_path: Path):
    with pytest.raises(UsageError, match="command not found: 'claud-code-x'"):
        await run_process(["claud-code-x"], cwd=tmp_path, env=isolated_env(tmp_path), deadline=5)
