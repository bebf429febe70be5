"""Rebuilds the requests to a model from the events of a trace.

It needs only the digests of the events (see `instrument.py`), so it also works on a redacted trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import FormatError
from offbook.exchange.messages import EMPTY_DIGEST, History, Message
from offbook.exchange.model import Request
from offbook.trace.events import REPLY, REQUEST, UNSET
from offbook.trace.instrument import ReplyData, RequestData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.trace.events import Event


def rebuild_requests(events: Iterable[Event]) -> Iterator[Request]:
    """Yield the complete requests of a trace."""
    histories = {EMPTY_DIGEST: History()}
    heads: dict[str, RequestData] = {}
    unanswered: dict[str, History] = {}
    for event in events:
        if event.event == REQUEST:
            data = RequestData.read(event)
            if data.system is not UNSET:
                heads[data.head] = data
            head = heads.get(data.head)
            before = histories.get(data.before)
            if head is None or before is None:
                raise FormatError(
                    f"request {data.exchange} continues a conversation missing from the trace",
                    hint="earlier lines are missing or damaged",
                )
            messages = before.plus(*data.new)
            histories[data.after] = unanswered[data.exchange] = messages
            yield Request(
                messages,
                head.system or "",
                head.tools or (),
                head.model or "",
                head.parameters or {},
                data.metadata or {},
                head.stream or False,
            )
        elif event.event == REPLY:
            reply = ReplyData.read(event)
            if reply.exchange in unanswered:
                messages = unanswered.pop(reply.exchange)
                histories[reply.after] = messages.plus(Message("assistant", reply.blocks))
