"""The built-in tools work for real, and leave nothing running."""

import asyncio
import os
import select
import signal
from pathlib import Path
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.subjects.session import builtin_tools
from offbook.subjects.session.builtin_tools import run_bash
from offbook.subjects.session.hooks import Context

JSON = dict[str, Any]


def use(tmp_path: Path, tool: str, params: JSON) -> tuple[str, bool, Any]:
    """What a tool answers in this folder: its text, whether it is an error, its details."""
    with session(cwd=tmp_path) as t:
        t.run(when("x", [call(tool, params), say("ok")]))
        (result,) = t.events.tool_results
        assert not result.mocked
        return result.text, result.is_error, result.details


@pytest.mark.parametrize(
    "command, text, code",
    [
        ("echo out; echo err >&2", "out\nerr\n", 0),
        ("printf ''", "", 0),
        ("exit 3", "(exit code 3)", 3),
        ("echo no; false", "no\n\n(exit code 1)", 1),
        ("printf '\\377'", "\ufffd", 0),
        ("cat", "", 0),
    ],
    ids=["both streams", "nothing", "exit code", "words and exit code", "no text", "no input"],
)
def test_bash_tells_what_was_printed_and_how_it_ended(
    tmp_path: Path, command: str, text: str, code: int
):
    expected = (text, bool(code), {"exit_code": code})
    assert use(tmp_path, "bash", {"command": command}) == expected


def test_bash_works_in_the_folder_of_the_session(tmp_path: Path):
    text, _, _ = use(tmp_path, "bash", {"command": "pwd; touch here"})
    assert text.strip() == str(tmp_path.resolve())
    assert (tmp_path / "here").exists()


def test_bash_cuts_what_nobody_would_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(builtin_tools, "MAX_TEXT", 10)
    text, _, _ = use(tmp_path, "bash", {"command": "printf 123456789012345"})
    assert text == "1234567890\n(5 more characters)"


def gone(pid: int) -> bool:
    """Whether a process ends, or has ended: a signal takes a moment to arrive."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_bash_does_not_wait_for_what_it_left_in_the_background_and_ends_it(tmp_path: Path):
    text, is_error, _ = use(tmp_path, "bash", {"command": "sleep 1000 & echo $!"})
    assert not is_error
    assert gone(int(text))


def test_bash_ends_the_whole_group_when_its_time_is_over(tmp_path: Path):
    command = "echo $$; (sleep 1000 & echo $!; wait)"
    text, is_error, details = use(tmp_path, "bash", {"command": command, "timeout": 0.3})
    assert is_error
    assert details == {"timeout": 0.3}
    *pids, last = text.split("\n", 2)
    assert last.strip() == "(timed out after 0.3 s)"
    assert all(gone(int(pid)) for pid in pids)


@pytest.mark.parametrize("when_", ["while it starts", "while it runs"])
async def test_bash_ends_the_whole_group_when_it_is_cancelled(tmp_path: Path, when_: str):
    os.mkfifo(tmp_path / "pipe")
    nobody: Any = None
    context = Context(tmp_path, nobody, {}, nobody)
    command = "sleep 1000 & echo $$ $! > pipe; wait"
    task = asyncio.ensure_future(run_bash({"command": command}, context))
    if when_ == "while it starts":
        for _ in range(4):
            await asyncio.sleep(0)
        pids = (tmp_path / "pipe").read_text()  # the loop stands still: it cannot hear of it
    else:
        pids = await asyncio.to_thread((tmp_path / "pipe").read_text)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(gone(int(pid)) for pid in pids.split())


def test_bash_that_is_ended_by_a_signal_says_so(tmp_path: Path):
    text, is_error, details = use(tmp_path, "bash", {"command": "kill -9 $$"})
    assert (is_error, details) == (True, {"exit_code": -signal.SIGKILL})
    assert text == "(exit code -9)"


@pytest.mark.parametrize(
    "params, text",
    [
        ({}, "one\ntwo\nthree\n"),
        ({"offset": 2}, "two\nthree\n"),
        ({"offset": 2, "limit": 1}, "two\n"),
        ({"limit": 2}, "one\ntwo\n"),
        ({"offset": 9}, ""),
    ],
)
def test_read_gives_a_file_or_some_of_its_lines(tmp_path: Path, params: JSON, text: str):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert use(tmp_path, "read", {"path": "a.txt", **params})[0] == text


@pytest.mark.parametrize(
    "tool, params, says",
    [
        ("read", {"path": "none.txt"}, "none.txt: No such file or directory"),
        ("read", {"path": "folder"}, "folder: Is a directory"),
        ("read", {"path": "raw"}, "raw: not a UTF-8 text"),
        ("write", {"path": "folder", "content": "x"}, "folder: Is a directory"),
        ("write", {"path": "raw/x", "content": "x"}, "raw/x: "),
        ("edit", {"path": "none.txt", "old": "a", "new": "b"}, "none.txt: No such file"),
        ("edit", {"path": "raw", "old": "a", "new": "b"}, "raw: not a UTF-8 text"),
        ("edit", {"path": "a.txt", "old": "x", "new": "b"}, "occurs 0 times in a.txt"),
        ("edit", {"path": "a.txt", "old": "aa", "new": "b"}, "occurs 2 times in a.txt"),
        ("edit", {"path": "a.txt", "old": "", "new": "b"}, "occurs 0 times in a.txt"),
    ],
)
def test_what_a_file_tool_cannot_do_is_an_error_result(
    tmp_path: Path, tool: str, params: JSON, says: str
):
    (tmp_path / "folder").mkdir()
    (tmp_path / "raw").write_bytes(b"\xff")
    (tmp_path / "a.txt").write_text("aa aa")
    text, is_error, details = use(tmp_path, tool, params)
    assert is_error
    assert says in text
    assert details["path"].startswith(str(tmp_path.resolve()))


def test_write_makes_the_folders_and_counts_the_bytes(tmp_path: Path):
    text, is_error, _ = use(tmp_path, "write", {"path": "a/b/c.txt", "content": "über"})
    assert (text, is_error) == ("wrote 5 bytes to a/b/c.txt", False)
    assert (tmp_path / "a/b/c.txt").read_text(encoding="utf-8") == "über"


def test_edit_replaces_a_text_that_is_there_once(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one two three")
    text, is_error, _ = use(tmp_path, "edit", {"path": "a.txt", "old": "two", "new": "2"})
    assert (text, is_error) == ("edited a.txt", False)
    assert (tmp_path / "a.txt").read_text() == "one 2 three"


@pytest.mark.parametrize(
    "tool, params",
    [
        ("bash", {}),
        ("bash", {"command": 5}),
        ("bash", {"command": "ls", "timeout": 0}),
        ("bash", {"command": "ls", "cwd": "/"}),
        ("read", {"path": "a", "offset": 0}),
        ("write", {"path": "a"}),
        ("edit", {"path": "a", "old": "b"}),
    ],
)
def test_parameters_that_a_tool_does_not_take_leave_an_error_result(
    tmp_path: Path, tool: str, params: JSON
):
    text, is_error, _ = use(tmp_path, tool, params)
    assert is_error
    assert f"Validation failed for tool '{tool}'" in text
