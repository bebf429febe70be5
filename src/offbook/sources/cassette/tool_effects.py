"""The effects of tools: the files, processes and connections that Python reports.

A replay returns the result of a tool without these effects, so a tape lists them. Native code is
not seen, except for the functions that ctypes looks up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from offbook.determinism.run_context import watch_audit_events
from offbook.exchange.tool_track import running_tool

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
PROCESSES = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}
EVENTS = {"open", "socket.connect", "ctypes.dlsym", *CHANGES, *PROCESSES}
MAX_EFFECTS = 20  # of one execution


class ToolEffects:
    """Collects the effects of the tools that run, by the name of the tool."""

    def __init__(self) -> None:
        self._effects: dict[str, dict[str, None]] = {}
        self.stop: Callable[[], object] = watch_audit_events(EVENTS, self._observe)

    def _observe(self, event: str, args: tuple[Any, ...]) -> None:
        tool = running_tool.get()
        if tool is None or (effect := _describe(event, args)) is None:
            return
        found = self._effects.setdefault(tool, {})
        if len(found) < MAX_EFFECTS:
            found[effect] = None

    def take(self, tool: str) -> tuple[str, ...]:
        """Return the effects of a tool since the last time."""
        return tuple(self._effects.pop(tool, ()))


def _describe(event: str, args: tuple[Any, ...]) -> str | None:
    """Return an audit event as an effect; None if it only reads."""
    first = args[0] if args else ""
    if event == "open":
        mode, flags = args[1], args[2]
        writes = {*mode} & {*"wax+"} if mode else flags & WRITE_FLAGS
        path = "" if isinstance(first, int) else _text(first)
        return f"wrote {path}" if writes and path and "__pycache__" not in path else None
    if event in CHANGES:
        verb = {"os.mkdir": "created", "os.rename": "renamed", "os.truncate": "wrote"}
        return f"{verb.get(event, 'removed')} {_text(first)}"
    if event in PROCESSES:
        command = args[1] if event == "subprocess.Popen" else first
        is_list = isinstance(command, (list, tuple))
        words = [_text(word) for word in cast("list[Any]", command)] if is_list else []
        words = words or _text(command).split()
        return f"started the process {Path(words[0]).name if words else ''}"
    if event == "socket.connect":
        address = cast("tuple[Any, ...]", args[1]) if isinstance(args[1], tuple) else ()
        return f"connected to {address[0]}:{address[1]}" if address else None
    return f"called {args[1]} in native code"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
