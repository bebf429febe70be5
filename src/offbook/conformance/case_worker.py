"""A process that runs one case after another, and ends all processes of each.

`conformance_cli.py` starts one for each job. It is the subreaper of its cases (Linux): a process
that a case leaves behind becomes its child, whatever it did to its group or its session, and is
killed before the next case starts. Elsewhere the process group of a case is killed. One process for
many cases, because starting one for each would take as long as the case itself.

Requests and replies are marshalled. The end of the socket, for whatever reason, kills the case and
ends the worker.
"""

from __future__ import annotations

import marshal
import os
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, NamedTuple

from offbook.subjects.process_tree import PR_SET_CHILD_SUBREAPER, SIGKILL, descendants, reap, send

CHUNK = 65_536
EXIT_CHECK = 0.02  # seconds between two looks at a process, where the system cannot tell us
KILL_TIME = 5.0
DRAIN_TIME = 0.5  # seconds for the last output of processes that were killed


class CaseExit(NamedTuple):
    """The end of a case; `error` is set if its command could not be started."""

    code: int
    stdout: bytes
    stderr: bytes
    seconds: float
    timed_out: bool = False
    too_long: bool = False
    leaked: int = 0
    error: str = ""


def send_message(channel: socket.socket, message: Any) -> None:
    """Send a value to the other side."""
    channel.sendall(marshal.dumps(message))


def receive_message(channel: socket.socket) -> Any:
    """Return the next value, or None at the end; there is one at a time."""
    with channel.makefile("rb") as stream, suppress(EOFError, OSError):
        return marshal.load(stream)  # noqa: S302 - our own process wrote it
    return None


def main() -> None:
    """Run the cases that arrive until the socket ends."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    subreaper = False
    if sys.platform == "linux":
        from ctypes import CDLL

        subreaper = CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    while (request := receive_message(channel)) is not None:
        reply = run_case(channel, *request, subreaper=subreaper)
        try:
            send_message(channel, tuple(reply))
        except OSError:  # the other side has ended
            return


def run_case(
    channel: socket.socket,
    command: list[str],
    timeout: float,
    max_output: int,
    *,
    subreaper: bool,
) -> CaseExit:
    """Run a command until it exits or reaches a limit, and kill what it started."""
    started = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - the command of the user, without a shell
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        return CaseExit(127, b"", b"", 0.0, error=f"cannot run {command[0]!r}: {error.strerror}")
    assert process.stdout is not None  # noqa: S101 - for the type checker
    assert process.stderr is not None  # noqa: S101
    streams = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    out, err = streams.values()
    handle = _exit_handle(process.pid)
    watched = {*streams, channel.fileno(), *([handle] if handle is not None else [])}
    room = max_output
    timed_out = False
    # The command may close its pipes and run on, or exit while a child holds them.
    while process.poll() is None and room >= 0 and not timed_out:
        left = started + timeout - time.monotonic()
        pause = left if handle is not None else min(left, EXIT_CHECK)
        ready, _, _ = select.select(watched, [], [], max(0.0, pause))
        timed_out = not ready and time.monotonic() >= started + timeout
        for fd in ready:
            if fd == channel.fileno():  # a request comes only after our reply: this is the end
                _kill_tree(process, subreaper=subreaper)
                sys.exit()
            if fd in streams:
                data = os.read(fd, CHUNK)
                streams[fd] += data
                room -= len(data)
                if not data:
                    watched.discard(fd)
    seconds = time.monotonic() - started
    code, leaked = _kill_tree(process, subreaper=subreaper)
    # What was written before the end is still in the pipes.
    open_pipes = {fd for fd in streams if fd in watched}
    while room >= 0 and open_pipes:
        ready, _, _ = select.select(open_pipes, [], [], DRAIN_TIME)
        for fd in ready:
            data = os.read(fd, CHUNK)
            streams[fd] += data
            room -= len(data)
            if not data:
                open_pipes.discard(fd)
        if not ready:
            break  # a process that escaped holds the pipe
    for stream in (process.stdout, process.stderr):
        stream.close()
    if handle is not None:
        os.close(handle)
    del out[max_output:], err[max_output:]
    return CaseExit(code, bytes(out), bytes(err), seconds, timed_out, room < 0, leaked)


def _exit_handle(pid: int) -> int | None:
    """Return a file that becomes readable when the process ends, if the system has such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _kill_tree(process: subprocess.Popen[bytes], *, subreaper: bool) -> tuple[int, int]:
    """Kill what is left of a case; return the exit code and the number of processes it left."""
    leaked: set[int] = set()
    code = process.poll()
    if code is None or not subreaper:
        send(os.killpg, process.pid, SIGKILL)
    if code is None:
        code = process.wait()
    give_up = time.monotonic() + KILL_TIME
    # Almost always no child is left, and this ends at once.
    while subreaper and -1 not in reap() and time.monotonic() < give_up:
        send(os.killpg, process.pid, SIGKILL)
        for pid, _ in descendants():
            leaked.add(pid)
            send(os.kill, pid, SIGKILL)
        time.sleep(0.001)
    return code, len(leaked)


if __name__ == "__main__":
    main()
