"""Where replies come from: the one protocol that every model, real or scripted, speaks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request


@runtime_checkable
class ModelSource(Protocol):
    """Answers requests.

    A source raises `ModelError` for what a provider would answer with an error status, and any
    other exception only when the run itself must fail (a script that does not fit, say).
    """

    async def reply(self, request: Request, /) -> Reply:
        """The model's answer to this request."""
        ...
