"""Events for programs that watch a run: one JSON object a line, written as they are emitted.

    with LiveEvents(file) as live, use_variable(live_listener, live.write):
        ...  # every hub that is created here writes its events, with a correlation id

A line is written before the emitter goes on: nothing is lost when the process ends.
Secrets are masked, as in a trace.
"""

from __future__ import annotations

import fcntl
import os
import threading
from typing import TYPE_CHECKING, Self

from offbook.errors import RunError
from offbook.secrets import hide_bytes, known_secret_bytes
from offbook.trace.recorder import encode_event

if TYPE_CHECKING:
    from offbook.trace.events import Event


class LiveEvents:
    """Writes events to file descriptors. Forked processes and threads may share it."""

    def __init__(self, *files: int) -> None:
        import tempfile  # late: most runs are not watched

        # Of each file the rest of a line whose writing was interrupted.
        self._unwritten = dict.fromkeys(files, b"")
        self._known = known_secret_bytes()
        self._lock = threading.RLock()
        self._processes = tempfile.TemporaryFile()  # noqa: SIM115 - locked by one process at a time

    def write(self, event: Event) -> None:
        """Write one event; do nothing after the end."""
        with self._lock:
            if not self._unwritten:
                return
            line = hide_bytes(encode_event(event), self._known) + b"\n"
            fcntl.lockf(self._processes, fcntl.LOCK_EX)
            try:
                for file in [*self._unwritten]:
                    self._write(file, line)
            finally:
                fcntl.lockf(self._processes, fcntl.LOCK_UN)

    def _write(self, file: int, line: bytes) -> None:
        self._unwritten[file] += line
        try:
            while rest := self._unwritten[file]:
                self._unwritten[file] = rest[os.write(file, rest) :]
        except BrokenPipeError:  # the reader has seen enough: the run goes on
            del self._unwritten[file]
        except OSError as error:
            del self._unwritten[file]
            reason = error.strerror or str(error)
            raise RunError(f"cannot write the events: {reason}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._unwritten.clear()
        self._processes.close()
