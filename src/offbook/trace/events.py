"""One event a line: what happened, when, and in which order.

Names
    _meta.*                      the trace, the run, iterations, termination
    model.request|reply|error    what was asked of the model, what it answered
    model.aside                  what was answered without asking it
    tool.call|result|blocked     what the agent did with it
    session.* agent.* turn.*     where the agent's own loop stands
    ui.*                         what people were shown and asked
    host.* step.* handoff bus.* cell.* process.* ux.* fault.*   what other subjects tell
    check.verdict                what somebody thought of it
"""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = "offbook.trace"
VERSION = 1

HEADER = "_meta.trace"
RUN_START = "_meta.run_start"
RUN_END = "_meta.run_end"
LOOP_START = "_meta.loop_start"
ITERATION = "_meta.iteration"
TERMINATION = "_meta.termination"
REQUEST = "model.request"
REPLY = "model.reply"
ERROR = "model.error"
ASIDE = "model.aside"
TOOL_CALL = "tool.call"
TOOL_RESULT = "tool.result"
TOOL_BLOCKED = "tool.blocked"
AGENT_START = "agent.start"
AGENT_END = "agent.end"
AGENT_ERROR = "agent.error"
PUBLISH = "bus.publish"
PROCESS_START = "process.start"
PROCESS_OUTPUT = "process.output"
PROCESS_EXIT = "process.exit"
TERMINAL_WRITE = "ux.terminal.write"
VERDICT = "check.verdict"


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that happened.

    `ts` is in milliseconds since 1970; `seq` counts the events of a trace; `id`, `context` and
    `parent` are there where they carry meaning.
    """

    ts: int
    event: str
    data: dict[str, Any] = {}
    seq: int = 0
    id: str = ""
    context: dict[str, Any] = {}
    parent: str = ""


def header(ts: int, **about: Any) -> Event:
    """The first line of a trace: its format and version."""
    return Event(ts, HEADER, {"format": FORMAT, "version": VERSION, **about})
