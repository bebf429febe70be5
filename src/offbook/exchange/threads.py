"""Conversations that the provider keeps: a request names the reply it goes on from."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from offbook.exchange.messages import JSON
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request


KEPT = 1024  # a server may run for days


class Threads:
    """The latest exchanges of one run, by the id of their reply."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[str, tuple[Request, Reply]] = OrderedDict()
        self._callers: OrderedDict[str, Reply] = OrderedDict()

    @property
    def count(self) -> int:
        """How many exchanges are kept."""
        return len(self._exchanges)

    def remember(self, reply_id: str, request: Request, reply: Reply) -> None:
        """Keep an exchange under this id, and as the latest of its conversation, if it has one."""
        exchanges = self._exchanges
        exchanges[reply_id] = (request, reply)
        if conversation := request.metadata.get("conversation"):
            exchanges.pop(conversation, None)  # the latest is forgotten last
            exchanges[conversation] = (request, reply)
        while len(exchanges) > KEPT:
            exchanges.popitem(last=False)
        if calls := reply.calls:
            self._callers.update((call.id, reply) for call in calls)
            while len(self._callers) > KEPT:
                self._callers.popitem(last=False)

    def recall(self, reply_id: str) -> tuple[Request, Reply] | None:
        """The exchange with this id, if there was one."""
        return self._exchanges.get(reply_id)

    def caller(self, call_id: str) -> Reply | None:
        """The reply that made this tool call, if it is one of this run's."""
        return self._callers.get(call_id)

    def find_call(self, name: str, arguments: JSON, taken: Container[str]) -> str | None:
        """The id of the first such call that is not taken: some clients send none of them back."""
        for call_id, reply in self._callers.items():
            if call_id not in taken:
                for call in reply.calls:
                    if (call.id, call.name, call.arguments) == (call_id, name, arguments):
                        return call_id
        return None
