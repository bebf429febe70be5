"""What an agent leaves running when it returns: threads, tasks and processes.

Only an agent that did not follow its script is asked: the work is then often still to come.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from offbook.trace.events import PROCESS_EXIT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.trace.events import Event

# The idle threads of a pool wait for work; they have none.
POOLS = ("asyncio_", "AnyIO", "ThreadPoolExecutor")


def list_running() -> set[object]:
    """Return the threads of this process and the tasks of this event loop."""
    return {*threading.enumerate(), *asyncio.all_tasks()}


def describe_left_behind(before: set[object], events: Iterable[Event]) -> str:
    """Return what runs now and did not before, and the processes that had to be ended."""
    parts: list[str] = []
    for running in list_running() - before:
        if isinstance(running, threading.Thread) and not running.name.startswith(POOLS):
            parts.append(f"the thread {running.name}")
        elif isinstance(running, asyncio.Task):
            parts.append(f"the task {running.get_name()}")
    left = [pid for event in events if event.event == PROCESS_EXIT for pid in _leaked(event)]
    if left:
        parts.append(f"{len(left)} process{'es' * (len(left) != 1)} in the background, now ended")
    return ", ".join(sorted(parts))


def _leaked(event: Event) -> list[int]:
    return event.data.get("leaked") or []
