"""What checks want to know of a trace, each told event by event, so that none need be kept.

A fact is asked for by its kind and what it is about: `Matching("build.*", None)`. All that the
checks of one run ask for is learnt in one reading of the trace.
"""

from __future__ import annotations

import codecs
import re
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from offbook.errors import UsageError
from offbook.trace.agent_output import output_bytes, payload_text, text_field
from offbook.trace.events import (
    ITERATION,
    PROCESS_EXIT,
    PROCESS_OUTPUT,
    PUBLISH,
    TERMINAL_WRITE,
    TERMINATION,
    TOOL_BLOCKED,
    TOOL_CALL,
    TOOL_RESULT,
    canonical_termination,
    topic_matches,
)
from offbook.trace.text_patterns import compile_pattern

if TYPE_CHECKING:
    from offbook.trace.events import Event

SHOWN = 5
TAIL = 200
BLOCK = 128 * 1024
_Decoder = codecs.getincrementaldecoder("utf-8")  # a piece may end within a sign


class Collector(Protocol):
    """Something to know of a trace."""

    names: ClassVar[tuple[str, ...]]
    marks: ClassVar[tuple[str, ...]] = ()

    def hear(self, event: Event) -> None:
        """One event that has such a name, or such a mark; they come in their order."""
        ...


class PublishedTopics(Collector):
    """The topics published, in their order, and what Ralph said of the loop at its end."""

    names = (PUBLISH,)

    def __init__(self) -> None:
        self.topics: list[str] = []
        self.summary = ""

    def hear(self, event: Event) -> None:
        topic = sys.intern(text_field(event, "topic"))
        self.topics.append(topic)
        if topic == "loop.terminate":
            self.summary = payload_text(event.data.get("payload"))

    def find(self, pattern: str) -> str | None:
        """What a pattern of ours finds in that summary."""
        found = re.search(pattern, self.summary)
        return found[1] if found else None


class TopicMatch(Collector):
    """The events of a topic: how many, the first of them, and whether a payload fits a pattern.

    What is wrong with the pattern is raised when its answer is asked for: others read on.
    """

    names = (PUBLISH,)

    def __init__(self, topic: str, pattern: str | None = None) -> None:
        self._topic = topic
        self._source = pattern
        self._found = pattern is None
        self._wrong: UsageError | None = None
        self.count = 0
        self.shown: list[dict[str, Any]] = []

    @property
    def fits(self) -> bool:
        """Whether a payload fits the pattern."""
        if self._wrong is not None:
            raise self._wrong
        return self._found

    def hear(self, event: Event) -> None:
        topic = event.data.get("topic")
        if topic != self._topic and not topic_matches(self._topic, text_field(event, "topic")):
            return
        self.count += 1
        if len(self.shown) < SHOWN:
            self.shown.append(event.data)
        if not self._found and self._wrong is None:
            self._search(payload_text(event.data.get("payload")))

    def _search(self, text: str) -> None:
        try:
            pattern = compile_pattern(self._source or "", "event_occurred.payload_pattern")
            self._found = pattern.search(text) is not None
        except UsageError as error:
            self._wrong = error


class HatHistory(Collector):
    """The hat of each iteration."""

    names = (ITERATION,)

    def __init__(self) -> None:
        self.hats: list[str] = []

    def hear(self, event: Event) -> None:
        self.hats.append(sys.intern(text_field(event, "hat")))


class Termination(Collector):
    """How the run ended, as the trace tells it."""

    names = (TERMINATION, PROCESS_EXIT)

    def __init__(self) -> None:
        self.reason: str | None = None
        self.code: int | None = None
        self.iterations: int | None = None
        self.seconds: float | None = None

    def hear(self, event: Event) -> None:
        code = event.data.get("exit_code", event.data.get("code"))
        self.code = code if isinstance(code, int) else self.code
        if event.event != TERMINATION:
            return
        reason, seconds = event.data.get("reason"), event.data.get("elapsed_secs")
        self.reason = (
            canonical_termination(reason) or reason if isinstance(reason, str) else self.reason
        )
        self.seconds = float(seconds) if isinstance(seconds, (int, float)) else self.seconds
        rounds = event.data.get("iterations")
        if self.iterations is None and isinstance(rounds, int):
            self.iterations = rounds


class TotalCost(Collector):
    """What was spent, in dollars; None where nobody said so."""

    names = ()
    marks = ("cost_dollars", "cost_usd", "total_cost_usd")

    def __init__(self) -> None:
        self.dollars: float | None = None

    def hear(self, event: Event) -> None:
        for mark in self.marks:
            told = event.data.get(mark)
            if isinstance(told, (int, float)):
                self.dollars = (self.dollars or 0.0) + float(told)


class OutputMatch(Collector):
    """Whether a pattern is found in what was written to a stream, and how that ended.

    Of the text no more is kept than what follows may still make a match of. What is wrong with
    the pattern is raised when its answer is asked for.
    """

    names = (PROCESS_OUTPUT, TERMINAL_WRITE)

    def __init__(self, stream: str, pattern: str) -> None:
        self._stream = stream
        self._source = pattern
        self._parts: list[bytes] = []
        self._size = 0
        self._most = BLOCK
        self._decode = _Decoder("replace").decode
        self._open = ""
        self._found = False
        self._wrong: UsageError | None = None
        self.tail = ""

    def hear(self, event: Event) -> None:
        part = output_bytes(event)
        if part is None or part[0] != self._stream:
            return
        raw = part[1]
        self._parts.append(raw)
        self._size += len(raw)
        if self._size > self._most:
            self._search()

    @property
    def fits(self) -> bool:
        """Whether the pattern was found."""
        self._search(final=True)
        if self._wrong is not None:
            raise self._wrong
        return self._found

    def _search(self, *, final: bool = False) -> None:
        text = self._decode(b"".join(self._parts), final)
        self._parts, self._size = [], 0
        self.tail = (self.tail + text[-TAIL:])[-TAIL:]
        if self._found or self._wrong is not None:
            return
        try:
            pattern = compile_pattern(self._source, f"{self._stream}_contains.pattern")
            whole = self._open + text
            end, kept = (len(whole), 0) if final else pattern.reach(whole)
            self._found = end > 0 and pattern.search(whole[:end]) is not None
            self._open = "" if self._found else whole[kept:]
            self._most = max(BLOCK, len(self._open))  # what is kept is not searched too often
        except UsageError as error:
            self._wrong = error


class ToolEvents(Collector):
    """What was done with tools, and what came of it."""

    names = (TOOL_CALL, TOOL_BLOCKED, TOOL_RESULT)

    def __init__(self) -> None:
        self.events: list[Event] = []

    def hear(self, event: Event) -> None:
        self.events.append(event)
