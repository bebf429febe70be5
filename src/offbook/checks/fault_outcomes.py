"""The agent's reaction to each injected fault, from the evidence in its trace.

survived    the agent went on, and lost nothing
retried     the same request was sent again, and answered
reported    the agent ended with an error, or its answer or a tool result quotes the error
swallowed   the answer is a damaged reply or empty, or the agent went on with a damaged reply
looped      the same request was sent again more than ten times
unknown     the trace does not show it

An answer in other words may report the failure or hide it. The trace cannot show which: words
such as "failed" occur in both, in one language of many. So the outcome is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.determinism.faults import OTHER_RESULTS
from offbook.errors import counted
from offbook.secrets import excerpt
from offbook.trace.agent_output import output_text
from offbook.trace.events import (
    AGENT_END,
    AGENT_ERROR,
    ASIDE,
    FAULT,
    HOST_CALL,
    PROCESS_EXIT,
    PROCESS_OUTPUT,
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
WITH_A_RESULT = {"tool_slow", *OTHER_RESULTS}
# Faults after which the agent has all it needs to go on.
HARMLESS = DELIVERED | WITH_A_RESULT | {"host_slow"}
PROCESS_EVENTS = {PROCESS_OUTPUT, PROCESS_EXIT}
# The message of the fault, or the class of an exception: APIConnectionError.
_QUOTED_ERROR = re.compile(r"injected fault|\b[A-Z]\w*(?:Error|Exception|Timeout|Fault)\b")


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


def gave_up(events: Iterable[Event]) -> bool:
    """Return whether the agent may have ended because of a fault, and left the rest of a script.

    After any other fault it has no excuse: it went on, or got the whole reply.
    """
    every = list(events)
    return any(
        _Evidence(every, position).gave_up()
        for position, event in enumerate(every)
        if event.event == FAULT
    )


def judge_faults(events: Iterable[Event]) -> Verdict:
    """Return the verdict on a run with faults.

    Without a fault, and with an outcome that is unknown, there is no data.
    """
    outcomes = find_outcomes(events)
    if not outcomes:
        return Verdict(CHECK, "no_data", "no fault was injected")
    counts = Counter(one.outcome for one in outcomes)
    bad = [str(one) for one in outcomes if one.outcome in BAD]
    unknown = [str(one) for one in outcomes if one.outcome == "unknown"]
    status = "fail" if bad else "no_data" if unknown else "pass"
    message = "\n".join(bad or unknown) or summarize(outcomes)
    return Verdict(CHECK, status, message, actual=dict(counts))


def summarize(outcomes: Sequence[FaultOutcome]) -> str:
    """Return the counts in one line: `3 faults: 2 retried, 1 reported`."""
    counts = Counter(one.outcome for one in outcomes)
    parts = [f"{count} {outcome}" for outcome, count in counts.most_common()]
    total = counted(len(outcomes), "fault")
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

    def gave_up(self) -> bool:
        if self._data["kind"] in HARMLESS:
            return bool(self._error())
        prompt = self._after[: self._end_of_prompt()]
        return not any(event.event == REQUEST or self._is_retry(event) for event in prompt)

    # --- The model

    def _is_retry(self, event: Event) -> bool:
        digest = self._data.get("request")
        if event.event == REQUEST:
            return event.data["after"] == digest
        return event.event == ASIDE and event.data.get("request") == digest

    def _of_request(self, retries: int) -> tuple[Outcome, str]:
        times = counted(retries, "time")
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
        if reply is not None and any(self._continues(event) for event in self._after):
            return "swallowed", "the agent went on with a damaged reply"
        end = self._end_of_prompt()
        if any(e.event == REQUEST and not self._is_retry(e) for e in self._after[:end]):
            return "survived", "the agent went on with another request"
        if any(event.event == REQUEST for event in self._after[end:]):
            return "unknown", "the trace does not have the answer to this prompt"
        return self._of_answer("" if reply is None else _reply_text(reply))

    def _continues(self, event: Event) -> bool:
        """Return whether a request has another reply where the damaged one was."""
        if event.event != REQUEST or event.data["before"] != self._data["request"]:
            return False
        new = msgspec.to_builtins(event.data["new"])
        return bool(new) and new[0]["role"] == "assistant"

    def _end_of_prompt(self) -> int:
        """Return the number of events until the prompt or the process of the fault ended."""
        ends = {AGENT_END, PROCESS_EXIT}
        return next((n + 1 for n, e in enumerate(self._after) if e.event in ends), len(self._after))

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
        answer = self._answer() or ""
        if text and (text == answer or (text in answer and self._data["kind"] != "duplicate")):
            return "the answer has the whole reply"
        return ""

    def _of_answer(self, reply: str) -> tuple[Outcome, str]:
        """Return the outcome that the answer shows; `reply` is the text that was damaged."""
        answer = self._answer()
        if answer is None:
            return "unknown", "the trace does not have the answer of the agent"
        shown = _shorten(answer)
        if not answer.strip():
            return "swallowed", "the run ended without an error, with an empty answer"
        if reply.startswith(answer):
            return "swallowed", f"the answer is the beginning of the reply: {shown}"
        if _has_a_part_twice(answer, reply):
            return "swallowed", f"the answer has a part of the reply twice: {shown}"
        if _QUOTED_ERROR.search(answer):
            return "reported", f"the answer quotes the error: {shown}"
        return "unknown", f"the run ended without an error, with the answer {shown}"

    # --- Tools and the host

    def _of_tool(self) -> tuple[Outcome, str]:
        result = next((event for event in self._after if self._is_result(event)), None)
        if result is None:
            error = self._error()
            return ("reported", error) if error else ("unknown", "the call has no result")
        text, failed = str(result.data.get("content", "")), result.data.get("is_error")
        if self._data["kind"] in WITH_A_RESULT and not failed:
            return "survived", "the call has a result"
        if failed or _QUOTED_ERROR.search(text):
            return "reported", "the model got the error as the result"
        if failed is False:
            return "swallowed", f"the model got a result without the error: {_shorten(text)}"
        return "unknown", f"the result does not quote the error: {_shorten(text)}"

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
        slow = self._data["kind"] == "host_slow"
        if not slow and any("error" not in one for one in same):
            return "retried", "the same call was made again"
        if error := self._error():
            return "reported", error
        results = [event.data for event in self._after if event.event == TOOL_RESULT]
        if slow:
            # The tool that made the call is the next with a result.
            failed = any(result.get("is_error") for result in results[:1])
            return ("reported", "the tool failed") if failed else ("survived", "the run went on")
        if any("injected fault" in str(result.get("content", "")) for result in results):
            return "reported", "the model got the error in a result"
        answer = self._answer()
        if answer is not None and _QUOTED_ERROR.search(answer):
            return "reported", f"the answer quotes the error: {_shorten(answer)}"
        return "unknown", "the trace does not show what became of the error"

    # --- The end of the run

    def _error(self) -> str:
        """Return the error with which the agent or the run ended, or an empty text."""
        for event in self._after:
            if event.event == AGENT_ERROR:
                text = event.data.get("error") or event.data.get("message") or "an error"
                return f"the agent ended with {_shorten(str(text))}"
        last = self._after[: self._end_of_prompt()][-1:]
        if last and last[0].event == PROCESS_EXIT and last[0].data.get("code"):
            return f"the process ended with exit code {last[0].data['code']}"
        if self._end is not None and not self._end.data.get("ok"):
            return f"the run ended with {_shorten(str(self._end.data.get('error', '')))}"
        return ""

    def _answer(self) -> str | None:
        """Return the output of the run, or what its process printed after the fault."""
        output: Any = None if self._end is None else self._end.data.get("output")
        if isinstance(output, str):
            return output
        events = self._after[: self._end_of_prompt()]
        if not any(event.event in PROCESS_EVENTS for event in events):
            return None
        outputs = filter(None, map(output_text, events))
        return "".join(text for stream, text in outputs if stream == "stdout").strip()


def _reply_text(reply: Event) -> str:
    blocks = msgspec.to_builtins(reply.data.get("blocks", ()))
    return "".join(block.get("text", "") for block in blocks if block.get("type") == "text")


def _has_a_part_twice(answer: str, reply: str) -> bool:
    """Return whether the answer is the reply with one part repeated at once."""
    more = len(answer) - len(reply)
    return more > 0 and any(
        answer == reply[:end] + reply[end - more : end] + reply[end:]
        for end in range(more, len(reply) + 1)
    )


def _shorten(text: str, length: int = 100) -> str:
    return repr(excerpt(" ".join(text.split()), length))
