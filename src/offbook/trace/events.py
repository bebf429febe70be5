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

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.trace.hub import Hub


# --- One event a line: what happened, when, and in which order.

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


def trace_header(ts: int, **about: Any) -> Event:
    """The first line of a trace: its format and version."""
    return Event(ts, HEADER, {"format": FORMAT, "version": VERSION, **about})


# --- Topics of the event bus, and the patterns that match them.


@lru_cache(maxsize=4096)
def topic_matches(pattern: str, topic: str) -> bool:
    """Whether a pattern matches a topic."""
    if pattern in {"*", topic}:
        return True
    wanted = pattern.split(".")
    given = topic.split(".")
    return len(wanted) == len(given) and all(
        part in {"*", found} for part, found in zip(wanted, given, strict=True)
    )


# --- Why a loop ended, under all the names of that reason, and the exit code that goes with it.

EXIT_CODES = {
    "CompletionPromise": 0,
    "Cancelled": 0,
    "ConsecutiveFailures": 1,
    "LoopThrashing": 1,
    "LoopStale": 1,
    "ValidationFailure": 1,
    "Stopped": 1,
    "WorkspaceGone": 1,
    "MaxIterations": 2,
    "MaxRuntime": 2,
    "MaxCost": 2,
    "RestartRequested": 3,
    "Interrupted": 130,
}
TERMINATION_ALIASES = {
    "completed": "CompletionPromise",
    "loopcomplete": "CompletionPromise",
    "timeout": "MaxRuntime",
}


def canonical_termination(reason: str) -> str | None:
    """The reason's own name, whatever spelling it was given in; None when there is none such."""
    folded = re.sub(r"[^a-z]", "", reason.lower())
    for name in EXIT_CODES:
        if folded == name.lower():
            return name
    return TERMINATION_ALIASES.get(folded)


# --- A verdict is an event too: so a stored trace can be reported without its run.

VerdictStatus = Literal["pass", "fail", "no_data", "warn", "error"]


class Verdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check found. `no_data` means that there was nothing to look at: never a pass."""

    check: str
    status: VerdictStatus
    message: str = ""
    expected: Any = None
    actual: Any = None
    context: dict[str, Any] = {}

    @property
    def holds(self) -> bool:
        """Whether a run with this verdict is still green."""
        return self.status in {"pass", "warn"}


def emit_verdict(hub: Hub, verdict: Verdict) -> Verdict:
    """Tell a verdict to whoever listens."""
    hub.emit(VERDICT, verdict_data(verdict))
    return verdict


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """A verdict as the trace tells it."""
    return msgspec.to_builtins(verdict, enc_hook=repr)


def read_verdicts(events: Iterable[Event]) -> Iterator[Verdict]:
    """The verdicts among these events."""
    for event in events:
        if event.event == VERDICT:
            yield msgspec.convert(event.data, Verdict)
