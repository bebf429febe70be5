"""A signal wakes an event loop at once.

Python runs the handler of a signal between two bytecodes of the main thread. A signal that arrives
just before the loop waits for its next event does not end the wait, nor does one that the kernel
delivers to another thread: the handler would run at the next event, which may be a deadline of
minutes. asyncio prevents this only for the handlers of `loop.add_signal_handler`.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Generator


class SignalWakeup:
    """A pipe to which a signal writes a byte, and which the loop reads."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._reader, self._writer = os.pipe()
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)
        loop.add_reader(self._reader, os.read, self._reader, 4096)

    @contextmanager
    def active(self) -> Generator[None]:
        """Let signals wake the loop in this block; without effect outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            current = signal.set_wakeup_fd(before)
            if current != self._writer:  # the agent has set its own, as `add_signal_handler` does
                signal.set_wakeup_fd(current)

    def close(self) -> None:
        """Close the pipe."""
        self._loop.remove_reader(self._reader)
        os.close(self._reader)
        os.close(self._writer)
