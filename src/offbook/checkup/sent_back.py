"""What an agent sent back to the model: the calls without a result, and the results it forgot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.trace.events import REPLY, REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from offbook.exchange.model import Request
    from offbook.runs.run import Run
    from offbook.sources.playbook.actions import Call


def find_dropped_calls(run: Run, calls: Mapping[str, Call]) -> list[str]:
    """Return the tools of the calls that no later request of their conversation has a result of.

    `calls` are those of the model, by id. An agent that says something new in place of a result,
    such as a message of the user, has dropped none. Calls of a cut reply do not count.
    """
    requests = _list_requests(run)
    dropped: list[str] = []
    for reply in run.events.named(REPLY):
        if reply.data.get("stop") == "length" or "fault" in reply.data:
            continue
        made = [key for key in _read_calls(reply.data) if not _is_last(calls.get(key))]
        asked = next((r for r in requests if r.exchange == reply.data.get("exchange")), None)
        if asked is None or not made:
            continue
        later = [r for r in requests if r.seq > reply.seq and r.key == asked.key]
        if not later:
            continue
        answered = set[str]().union(*(r.results for r in later))
        missing = [calls[key].tool for key in made if key not in answered and key in calls]
        if missing and (len(missing) < len(made) or later[0].digest == asked.digest):
            dropped += missing
    return [*dict.fromkeys(dropped)]


def find_lost_results(run: Run) -> list[str]:
    """Return the tools whose results a request had, and a later one of its conversation has not."""
    lost: dict[str, None] = {}
    had: dict[tuple[str, ...], dict[str, str]] = {}
    for request in _list_requests(run):
        known = had.setdefault(request.key, {})
        lost.update(dict.fromkeys(n for key, n in known.items() if key not in request.results))
        known.update(request.results)
    return [*lost]


class _Sent:
    """A request: its exchange, its conversation, and its results with the names of their tools."""

    def __init__(self, seq: int, data: Any, request: Request) -> None:
        self.seq = seq
        self.exchange = data.get("exchange")
        self.digest = data.get("after")
        first = next((m.text for m in request.messages if m.role == "user"), "")
        self.key = (request.system, first, *(tool.name for tool in request.tools))
        names = {call.id: call.name for message in request.messages for call in message.calls}
        self.results = {
            result.call_id: names.get(result.call_id) or result.name or "a tool"
            for message in request.messages
            for result in message.results
        }


def _list_requests(run: Run) -> list[_Sent]:
    events = run.events.named(REQUEST)
    pairs = zip(events, run.requests, strict=False)
    return [_Sent(event.seq, event.data, request) for event, request in pairs if request.tools]


def _read_calls(data: Any) -> Iterator[str]:
    for block in data.get("blocks", ()):
        if block.get("type") == "tool_call":
            yield str(block.get("id"))


def _is_last(call: Call | None) -> bool:
    return call is not None and call.unanswered
