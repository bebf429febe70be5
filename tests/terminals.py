"""Commands in a real terminal: a pseudo-terminal of the kernel, driven key by key."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.forked import forked_command

SECONDS = 300  # of a busy machine
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """An `offbook` command whose standard streams are a terminal that it controls."""

    def __init__(self, *args: object, cwd: Path, **variables: str) -> None:
        self._master, slave = pty.openpty()
        kept = {name: value for name, value in os.environ.items() if name not in {"CI", "NO_COLOR"}}
        self._process = subprocess.Popen(
            forked_command("-m", "offbook", *args),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=cwd,
            env={**kept, "TERM": "xterm-256color", **variables},
            start_new_session=True,
            # without a controlling terminal, Ctrl-C would send no signal
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - no threads yet
        )
        os.close(slave)
        self.raw = ""
        self._read_until = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._master)

    @property
    def text(self) -> str:
        """Everything that was printed, without colours."""
        return CONTROL_SEQUENCE.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, pattern: str) -> None:
        """Wait until a text that matches is printed after the last expected one."""
        deadline = time.monotonic() + SECONDS
        while (found := re.compile(pattern).search(self.text, self._read_until)) is None:
            if not self._read(deadline - time.monotonic()):
                raise AssertionError(f"never printed {pattern!r}:\n{self.text}")
        self._read_until = found.end()

    def press(self, key: str, *, prompt: str) -> None:
        """Wait for a prompt and until the command reads single keys, then send one."""
        self.expect(prompt)
        deadline = time.monotonic() + SECONDS
        while termios.tcgetattr(self._master)[3] & termios.ICANON:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the command reads no key:\n{self.text}")
            self._read(0.01)
        os.write(self._master, key.encode())

    def enter(self, line: str, *, prompt: str) -> None:
        """Wait for a prompt, then type a line."""
        self.expect(prompt)
        os.write(self._master, f"{line}\n".encode())

    def end(self) -> int:
        """Wait for the end of the command and return its exit code."""
        while self._read(SECONDS):
            pass
        return self._process.wait(SECONDS)

    def _read(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], max(0, seconds))[0]:
            return False
        try:
            chunk = os.read(self._master, 65_536)
        except OSError as error:  # Linux: the command has closed the terminal
            if error.errno != errno.EIO:
                raise
            return False
        self.raw += chunk.decode(errors="replace")
        with suppress(ProcessLookupError):
            self._process.poll()
        return bool(chunk)
