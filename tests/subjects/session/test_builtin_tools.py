"""The built-in tools: bash, read, write and edit."""

import asyncio
import os
import select
import signal
from pathlib import Path
from typing import Any

import pytest

from offbook import call, say, session, when
from offbook.subjects.session import Context, run_bash, tools

JSON = dict[str, Any]


def run_tool(
    tmp_path: Path, tool: str, params: JSON, *, invalid: bool = False
) -> tuple[str, bool, Any]:
    """Run a tool in this folder; return its text, its error flag and its details."""
    with session(cwd=tmp_path) as t:
        t.run(when("x", [call(tool, params, invalid=invalid), say("ok")]))
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
def test_bash_returns_the_output_and_the_exit_code(
    tmp_path: Path, command: str, text: str, code: int
):
    expected = (text, bool(code), {"exit_code": code})
    assert run_tool(tmp_path, "bash", {"command": command}) == expected


def test_bash_runs_in_the_working_directory(tmp_path: Path):
    text, _, _ = run_tool(tmp_path, "bash", {"command": "pwd; touch here"})
    assert text.strip() == str(tmp_path.resolve())
    assert (tmp_path / "here").exists()


def test_bash_truncates_long_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tools, "MAX_TEXT", 10)
    text, _, _ = run_tool(tmp_path, "bash", {"command": "printf 123456789012345"})
    assert text == "1234567890\n(5 more characters)"


def has_exited(pid: int) -> bool:
    """Return True if a process exits within 10 seconds; a signal may take some time."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], 10)[0])
    finally:
        os.close(process)


def test_bash_kills_background_processes_without_waiting(tmp_path: Path):
    text, is_error, _ = run_tool(tmp_path, "bash", {"command": "sleep 1000 & echo $!"})
    assert not is_error
    assert has_exited(int(text))


def test_bash_kills_the_process_group_on_timeout(tmp_path: Path):
    command = "echo $$; (sleep 1000 & echo $!; wait)"
    text, is_error, details = run_tool(tmp_path, "bash", {"command": command, "timeout": 0.3})
    assert is_error
    assert details == {"timeout": 0.3}
    *pids, last = text.split("\n", 2)
    assert last.strip() == "(timed out after 0.3 s)"
    assert all(has_exited(int(pid)) for pid in pids)


@pytest.mark.parametrize("when_", ["while it starts", "while it runs"])
async def test_bash_kills_the_process_group_when_cancelled(tmp_path: Path, when_: str):
    os.mkfifo(tmp_path / "pipe")
    unused: Any = None
    context = Context(tmp_path, unused, {}, unused)
    command = "sleep 1000 & echo $$ $! > pipe; wait"
    task = asyncio.ensure_future(run_bash({"command": command}, context))
    if when_ == "while it starts":
        for _ in range(4):
            await asyncio.sleep(0)
        pids = (tmp_path / "pipe").read_text()  # blocks the loop, so it is not notified
    else:
        pids = await asyncio.to_thread((tmp_path / "pipe").read_text)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert all(has_exited(int(pid)) for pid in pids.split())


def test_bash_reports_a_signal_as_a_negative_exit_code(tmp_path: Path):
    text, is_error, details = run_tool(tmp_path, "bash", {"command": "kill -9 $$"})
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
def test_read_returns_a_file_or_a_range_of_lines(tmp_path: Path, params: JSON, text: str):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    assert run_tool(tmp_path, "read", {"path": "a.txt", **params})[0] == text


@pytest.mark.parametrize(
    "tool, params, expected",
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
def test_file_errors_are_error_results(tmp_path: Path, tool: str, params: JSON, expected: str):
    (tmp_path / "folder").mkdir()
    (tmp_path / "raw").write_bytes(b"\xff")
    (tmp_path / "a.txt").write_text("aa aa")
    text, is_error, details = run_tool(tmp_path, tool, params)
    assert is_error
    assert expected in text
    assert details["path"].startswith(str(tmp_path.resolve()))


def test_write_creates_folders_and_reports_the_size(tmp_path: Path):
    text, is_error, _ = run_tool(tmp_path, "write", {"path": "a/b/c.txt", "content": "über"})
    assert (text, is_error) == ("wrote 5 bytes to a/b/c.txt", False)
    assert (tmp_path / "a/b/c.txt").read_text(encoding="utf-8") == "über"


def test_edit_replaces_a_text_that_occurs_once(tmp_path: Path):
    (tmp_path / "a.txt").write_text("one two three")
    text, is_error, _ = run_tool(tmp_path, "edit", {"path": "a.txt", "old": "two", "new": "2"})
    assert (text, is_error) == ("edited a.txt", False)
    assert (tmp_path / "a.txt").read_text() == "one 2 three"


@pytest.mark.parametrize(
    "before, old, new, after",
    [
        (b"a\r\nb\r\nc\r\n", "b", "B", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "A\nB\n", b"A\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "b\nB", b"a\r\nb\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\n", "a\r\nb", "A\r\nB", b"A\r\nB\r\n"),
        (b"a\r\nb\nc\n", "b\nc", "B\nC", b"a\r\nB\nC\n"),
        (b"a\nb\n", "b", "B\nC", b"a\nB\nC\n"),
    ],
    ids=["in a line", "over lines", "new lines", "as they are", "mixed", "no carriage return"],
)
def test_edit_keeps_the_line_ends(tmp_path: Path, before: bytes, old: str, new: str, after: bytes):
    (tmp_path / "a.txt").write_bytes(before)
    run_tool(tmp_path, "edit", {"path": "a.txt", "old": old, "new": new})
    assert (tmp_path / "a.txt").read_bytes() == after


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
def test_invalid_parameters_are_error_results(tmp_path: Path, tool: str, params: JSON):
    text, is_error, _ = run_tool(tmp_path, tool, params, invalid=True)
    assert is_error
    assert f"Validation failed for tool '{tool}'" in text


@pytest.mark.parametrize(
    "tool, params",
    [
        ("bash", {"command": "echo a\0b"}),
        ("read", {"path": "a\0b"}),
        ("write", {"path": "a\0b", "content": "x"}),
        ("edit", {"path": "a\0b", "old": "x", "new": "y"}),
    ],
)
def test_a_nul_byte_in_a_parameter_is_an_error_result(tool: str, params: dict[str, str]):
    with session() as t:
        run = t.run(when("x", [call(tool, params), say("ok")]))
        (result,) = run.results(tool)
    assert result.is_error
    assert "null byte" in result.text


def test_the_tool_bash_runs_bash():
    with session() as t:
        run = t.run(when("x", [call("bash", {"command": "[[ a == a ]] && echo $0"}), say("ok")]))
        assert run.results("bash")[0].text == "bash\n"
