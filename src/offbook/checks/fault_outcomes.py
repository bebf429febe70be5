"""What the agent did about each injected fault, from the evidence in its trace.

survived    the agent went on, and lost nothing
retried     the same request was sent again, and answered
reported    the agent ended with an error, or its answer or a tool result names the failure
swallowed   the run ended as if nothing had happened, or went on with a damaged reply
looped      the same request was sent again more than ten times
unknown     the trace does not show it, such as the answer of a client of `offbook serve`
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.trace.events import (
    AGENT_ERROR,
    ASIDE,
    FAULT,
    HOST_CALL,
    REPLY,
    REQUEST,
    RUN_END,
    TOOL_RESULT,
    Event,
    Verdict,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Outcome = Literal["survived", "retried", "reported", "swallowed", "looped", "unknown"]

MAX_RETRIES = 10
CHECK = "faults handled"
BAD = ("swallowed", "looped")
# Faults after which the whole reply has arrived.
DELIVERED = {"slow", "duplicate"}
# The words with which an answer or a tool result names a failure.
_FAILURE = re.compile(
    r"injected fault|error|fail|unavailable|overload|timed? ?out|rate.?limit|try again|interrupt"
    r"|incomplete|could ?n.t|could not|cannot|can.t\b|unable|sorry|connection|problem|no response",
    re.IGNORECASE,
)


class FaultOutcome(msgspec.Struct, frozen=True):
    """An injected fault and its outcome.

    `number` is that of the request or call, `name` the tool or the operation of the host.
    """

    kind: str
    place: str
    number: int
    outcome: Outcome
    evidence: str
    name: str = ""
    retries: int = 0

    def __str__(self) -> str:
        name = f" ({self.name})" if self.name else ""
        place = {"model": "request", "tool": "tool call", "host": "host call"}[self.place]
        return f"{self.kind} at {place} {self.number}{name}: {self.outcome}, {self.evidence}"


def find_outcomes(events: Iterable[Event]) -> list[FaultOutcome]:
    """Return the injected faults in order, each with its outcome."""
    every = list(events)
    return [
        _Evidence(every, position).outcome()
        for position, event in enumerate(every)
        if event.event == FAULT
    ]


def judge_faults(events: Iterable[Event]) -> Verdict:
    """Return the verdict on a run with faults; without any fault there is no data."""
    outcomes = find_outcomes(events)
    if not outcomes:
        return Verdict(CHECK, "no_data", "no fault was injected")
    counts = Counter(one.outcome for one in outcomes)
    bad = [str(one) for one in outcomes if one.outcome in BAD]
    status = "fail" if bad else "pass"
    return Verdict(CHECK, status, "\n".join(bad) or summarize(outcomes), actual=dict(counts))


def summarize(outcomes: Sequence[FaultOutcome]) -> str:
    """Return the counts in one line: `3 faults: 2 retried, 1 reported`."""
    counts = Counter(one.outcome for one in outcomes)
    parts = [f"{count} {outcome}" for outcome, count in counts.most_common()]
    total = f"{len(outcomes)} fault{'' if len(outcomes) == 1 else 's'}"
    return f"{total}: {', '.join(parts)}" if parts else "no fault was injected"


class _Evidence:
    """The events around one fault."""

    def __init__(self, events: Sequence[Event], position: int) -> None:
        fault = events[position]
        self._data = fault.data
        # Runs that share a trace, as those of a server, are told apart by their context.
        same = [event for event in events[position + 1 :] if event.context == fault.context]
        ends = (number for number, event in enumerate(same) if event.event == RUN_END)
        self._after = same[: next(ends, len(same)) + 1]
        last = self._after[-1] if self._after else None
        self._end = last if last is not None and last.event == RUN_END else None

    def outcome(self) -> FaultOutcome:
        data = self._data
        retries = 0
        if data["place"] == "model":
            retries = sum(1 for event in self._after if self._is_retry(event))
            outcome, evidence = self._of_request(retries)
        elif data["place"] == "tool":
            outcome, evidence = self._of_tool()
        else:
            outcome, evidence = self._of_host()
        return FaultOutcome(
            data["kind"],
            data["place"],
            data["number"],
            outcome,
            evidence,
            data.get("name", ""),
            retries,
        )

    # --- The model

    def _is_retry(self, event: Event) -> bool:
        digest = self._data["request"]
        if event.event == REQUEST:
            return event.data["after"] == digest
        return event.event == ASIDE and event.data.get("request") == digest

    def _of_request(self, retries: int) -> tuple[Outcome, str]:
        times = f"{retries} time{'' if retries == 1 else 's'}"
        if retries > MAX_RETRIES:
            return "looped", f"the same request was sent again {times}"
        if retries and self._last_retry_was_answered():
            return "retried", f"the same request was sent again {times}"
        if error := self._error():
            return "reported", error
        if self._end is None:
            return "unknown", "the trace has no end of the run"
        if intact := self._reply_was_used():
            return "survived", intact
        if self._data["kind"] == "slow":
            return "survived", "the run ended without an error"
        return self._of_lost_reply()

    def _of_lost_reply(self) -> tuple[Outcome, str]:
        """Return the outcome for an agent that did not get the whole reply, and ended well."""
        reply = self._reply()
        others = [e for e in self._after if e.event == REQUEST and not self._is_retry(e)]
        if others and reply is None:
            return "survived", "the agent went on with another request"
        if others:
            return "swallowed", "the agent went on with a damaged reply"
        if self._data["kind"] == "duplicate" and reply is not None:
            return self._of_changed_answer(reply)
        return self._of_answer()

    def _last_retry_was_answered(self) -> bool:
        """Return whether the last retry got a whole reply."""
        last = max(n for n, event in enumerate(self._after) if self._is_retry(event))
        later = self._after[last + 1 :]
        digest = self._data["request"]
        if any(e.event == FAULT and e.data.get("request") == digest for e in later):
            return any(
                e.event == FAULT and e.data.get("request") == digest and e.data["kind"] in DELIVERED
                for e in later
            )
        if self._after[last].event == ASIDE:
            return True
        exchange = self._after[last].data["exchange"]
        return any(e.event == REPLY and e.data["exchange"] == exchange for e in later)

    def _reply(self) -> Event | None:
        """Return the reply that the fault damaged, or None if there was none."""
        first = next((e for e in self._after if e.event in {REPLY, REQUEST}), None)
        return first if first is not None and first.event == REPLY else None

    def _reply_was_used(self) -> str:
        """Return the evidence that the agent has the whole reply, or an empty text."""
        reply = self._reply()
        if reply is None:
            return ""
        if any(e.event == REQUEST and e.data["before"] == reply.data["after"] for e in self._after):
            return "the next request has the whole reply"
        text = _reply_text(reply)
        if text and text == self._answer():
            return "the answer is the whole reply"
        return ""

    def _of_changed_answer(self, reply: Event) -> tuple[Outcome, str]:
        answer = self._answer()
        if not answer or not _reply_text(reply):
            return "unknown", "the trace does not have the answer of the agent"
        return "swallowed", f"the answer is not the reply: {_shorten(answer)}"

    def _of_answer(self) -> tuple[Outcome, str]:
        answer = self._answer()
        if answer is None:
            return "unknown", "the trace does not have the answer of the agent"
        if _FAILURE.search(answer):
            return "reported", f"the answer names a failure: {_shorten(answer)}"
        return "swallowed", f"the run ended without an error, with the answer {_shorten(answer)}"

    # --- Tools and the host

    def _of_tool(self) -> tuple[Outcome, str]:
        result = next((event for event in self._after if self._is_result(event)), None)
        if result is None:
            error = self._error()
            return ("reported", error) if error else ("unknown", "the call has no result")
        text, failed = str(result.data.get("content", "")), result.data.get("is_error")
        if _FAILURE.search(text):
            return "reported", "the model got the error as the result"
        if self._data["kind"] == "tool_slow":
            return "survived", "the call has a result"
        if failed is False:
            return "swallowed", f"the model got a result without the error: {_shorten(text)}"
        return "unknown", "the result does not name the error"

    def _is_result(self, event: Event) -> bool:
        if event.event != TOOL_RESULT:
            return False
        call_id = self._data.get("call_id")
        same_tool = event.data["tool"] == self._data["name"]
        return event.data["call_id"] == call_id if call_id else same_tool

    def _of_host(self) -> tuple[Outcome, str]:
        calls = [event.data for event in self._after if event.event == HOST_CALL]
        first = calls[0] if calls else {}
        keys = ("capability", "operation", "params")
        same = [one for one in calls[1:] if all(one.get(k) == first.get(k) for k in keys)]
        if self._data["kind"] == "host_slow":
            return ("reported", error) if (error := self._error()) else ("survived", "it went on")
        if any("error" not in one for one in same):
            return "retried", "the same call was made again"
        if error := self._error():
            return "reported", error
        results = [event for event in self._after if event.event == TOOL_RESULT]
        if any("injected fault" in str(event.data.get("content", "")) for event in results):
            return "reported", "the model got the error in a result"
        answer = self._answer()
        if answer is not None and _FAILURE.search(answer):
            return "reported", f"the answer names a failure: {_shorten(answer)}"
        return "unknown", "the trace does not show what became of the error"

    # --- The end of the run

    def _error(self) -> str:
        """Return the error with which the agent or the run ended, or an empty text."""
        for event in self._after:
            if event.event == AGENT_ERROR:
                text = event.data.get("error") or event.data.get("message") or "an error"
                return f"the agent ended with {_shorten(str(text))}"
        if self._end is not None and not self._end.data.get("ok"):
            return f"the run ended with {_shorten(str(self._end.data.get('error', '')))}"
        return ""

    def _answer(self) -> str | None:
        output: Any = None if self._end is None else self._end.data.get("output")
        return output if isinstance(output, str) else None


def _reply_text(reply: Event) -> str:
    blocks = msgspec.to_builtins(reply.data.get("blocks", ()))
    return "".join(block.get("text", "") for block in blocks if block.get("type") == "text")


def _shorten(text: str, length: int = 100) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= length else f"{text[:length]}…")
