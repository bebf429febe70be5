"""What a kept promise has to pass before the loop is complete: the gates, in Ralph's order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.subjects.loop.bus import Published
    from offbook.subjects.loop.config import Preset

GUIDANCE, ACK = "human.guidance", "human.guidance.ack"
TASKS = ".ralph/agent/tasks.jsonl"
OWNER = ".ralph/current-loop-id"
OVER = {"closed", "failed"}


class _Task(msgspec.Struct, frozen=True):
    """A line of the file in which agents keep their tasks."""

    id: str
    title: str
    status: str
    loop_id: str | None = None


class Gates:
    """The gates of one loop, and what has passed by them."""

    def __init__(self, preset: Preset, cwd: Path) -> None:
        self._limits = preset.event_loop
        self._tasks = preset.memories.enabled
        self._cwd = cwd
        self._seen: set[str] = set()
        self._guidance: list[str] = []

    def hear(self, event: Published) -> None:
        """Something was published."""
        self._seen.add(event.topic)
        if event.topic == GUIDANCE:
            self._guidance.append(event.payload)
        elif event.topic == ACK:
            self._guidance.clear()

    def refuse(self) -> str:
        """Why the loop is not complete, to be told to the next agent; nothing when it is."""
        missing = [topic for topic in self._limits.required_events if topic not in self._seen]
        if missing:
            return f"not complete yet: {', '.join(missing)} did not come"
        if self._guidance:
            said = "\n".join(f"- {words}" for words in self._guidance)
            return f"not complete yet: heed this, and publish {ACK} first:\n{said}"
        if self._limits.persistent:
            return "the loop is persistent and goes on: look for new tasks, or wait for guidance"
        left = list(self._list_open()) if self._tasks else []
        return f"not complete yet: close or fail these tasks: {', '.join(left)}" if left else ""

    def _list_open(self) -> Iterator[str]:
        """The tasks that are not over; a line that is no task is none, as for Ralph."""
        place = self._cwd / TASKS
        if not place.is_file():
            return
        owner = self._cwd / OWNER
        mine = owner.read_text("utf-8", "replace").strip() if owner.is_file() else ""
        for line in place.read_bytes().split(b"\n"):
            try:
                task = msgspec.json.decode(line, type=_Task)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if task.status not in OVER and (not mine or task.loop_id == mine):
                yield f"{task.id} {task.title}"
