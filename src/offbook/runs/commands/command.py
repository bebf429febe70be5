"""Runs a command to its end, and ends all that it started, wherever that went."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING

from offbook.errors import DeadlineExceeded, UsageError
from offbook.subjects.process import GRACE, MARK, PATIENCE, kill_marked

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import Path

DEADLINE = 600.0
KEPT = 64 * 1024
INTERRUPTED = 130


def run_command(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline: float,
    *,
    keep: int = 0,
    echo: bool = True,
    cwd: Path | None = None,
) -> tuple[int, str]:
    """Its exit code, and the beginning of what it printed if that is to be kept."""
    mark = uuid.uuid4().hex
    try:
        process = subprocess.Popen(  # noqa: S603 - it is what was asked for
            command,
            env={**environment, MARK: mark},
            cwd=cwd,
            stdout=subprocess.PIPE if keep else None,
            start_new_session=True,
        )
    except OSError as error:
        raise UsageError(f"cannot be started: {error.strerror}", where=command[0]) from error
    said: list[bytes] = []
    reader = threading.Thread(target=_tee, args=(process.stdout, said, keep, echo), daemon=True)
    reader.start()
    try:
        with _stoppable():
            code = process.wait(deadline)
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(
            f"the command still ran after {deadline:g} s", where=command[0]
        ) from error
    except KeyboardInterrupt:
        code = INTERRUPTED
        _ask_to_end(process)
    finally:
        _end_tree(process, mark)
        reader.join(1)
        if process.stdout is not None:
            process.stdout.close()
    return code, b"".join(said).decode(errors="replace")


@contextmanager
def _stoppable() -> Generator[None]:
    """Whoever ends us ends the command as well: for it, to be stopped is to be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ask_to_end(process: subprocess.Popen[bytes]) -> None:
    """Give it a moment to clean up: Ctrl-C is not heard in a session of its own."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGINT)
    with suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
        process.wait(GRACE)


def _end_tree(process: subprocess.Popen[bytes], mark: str) -> None:
    """End the command and whatever it started and left behind, also outside of its group."""
    for _ in range(PATIENCE):
        if not kill_marked(process.pid, mark):
            break
        time.sleep(0.01)
    process.wait()


def _tee(pipe: IO[bytes] | None, said: list[bytes], keep: int, echo: bool) -> None:  # noqa: FBT001 - a thread's
    """Show what the command prints, and keep the beginning of it."""
    kept = lost = 0
    while pipe is not None and (part := os.read(pipe.fileno(), 8192)):
        if echo:
            sys.stdout.buffer.write(part)
            sys.stdout.buffer.flush()
        said.append(part[: keep - kept])
        kept += len(said[-1])
        lost += len(part) - len(said[-1])
    if lost:
        said.append(f"\n… {lost:,} bytes more were printed\n".encode())
