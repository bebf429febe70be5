"""google-genai: a chat keeps its history, and calls the functions among its tools by itself."""

from __future__ import annotations

import asyncio
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from offbook.subjects.frameworks.framework import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub


class GoogleGenAI:
    """A chat of `client.chats` or `client.aio.chats`; it goes on from what it has heard so far.

    `options` are what its `send_message` takes besides the message.
    """

    name = "google-genai"

    def __init__(self, chat: Any, options: Mapping[str, Any]) -> None:
        self._chat = chat
        self._options = options

    async def prompt(self, text: str, _hub: Hub, /) -> object:
        """Send it as the next message, from a thread where sending blocks."""
        send = self._chat.send_message
        if iscoroutinefunction(send):
            return await send(text, **self._options)
        return await asyncio.to_thread(send, text, **self._options)

    def tools(self) -> Mapping[str, Any]:
        """The functions among its tools; what the provider runs is not here to be swapped."""
        return {tool.__name__: tool for tool in self._listed() if callable(tool)}

    def _listed(self) -> list[Any]:
        return getattr(self._chat._config, "tools", None) or []  # noqa: SLF001 - kept nowhere else

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Put a function of the same signature in its place."""
        listed = self._listed()
        place = listed.index(tool)
        listed[place] = _disguise(tool, stand_in)

        def undo() -> None:
            listed[place] = tool

        return undo


def _disguise(tool: Any, stand_in: MockFunction) -> Any:
    wait = blocking(stand_in)

    @wraps(tool)
    def call(**params: Any) -> Any:
        return wait(params)

    @wraps(tool)
    async def call_async(**params: Any) -> Any:
        return await stand_in(params)

    return call_async if iscoroutinefunction(tool) else call
