"""Waiting for what another process does."""

import time
from collections.abc import Callable
from subprocess import Popen
from typing import Any

SECONDS = 300  # a busy machine is slow; what never happens is rare


def wait_until(condition: Callable[[], object], process: Popen[Any] | None = None) -> None:
    """Wait until the condition is true, while the process runs."""
    end = time.monotonic() + SECONDS
    while not condition():
        assert process is None or process.poll() is None, f"it ended with {process.poll()}"
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)
