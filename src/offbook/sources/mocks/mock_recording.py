"""Records mocks: a source in front of another one, which writes each answer as a line.

The lines are given out in the order in which the answers came. They have no `match`: what was
asked is not kept. To keep that too, record a cassette.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError, UsageError
from offbook.exchange.messages import Text, Thinking
from offbook.exchange.model import can_relay
from offbook.files import write_atomic
from offbook.secrets import hide_secrets, known_secrets
from offbook.sources.side_requests import answer_prewarm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.model import ModelSource, Reply, Request

PRIVATE = 0o600


class MockRecording:
    """A source whose answers go to a mock file, which is whole after each of them."""

    def __init__(self, source: ModelSource, path: Path | str, *, replace: bool = False) -> None:
        self.path = Path(path)
        self.lines: list[dict[str, Any]] = []
        self.relays = can_relay(source)
        self._source = source
        if self.path.exists() and not replace:
            raise UsageError(
                "this file is there already",
                where=str(path),
                hint="choose another name, or begin it anew (--replace)",
            )

    async def reply(self, request: Request, /) -> Reply:
        """The source's reply, or the provider's error, each kept on its way back."""
        if (warmed := answer_prewarm(request)) is not None:
            return warmed
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            self._keep(render_error_line(error))
            raise
        self._keep(render_reply_line(reply, ids=True))
        return reply

    def _keep(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        write_mock_file(self.path, self.lines)


def write_mock_file(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write a mock file whole, and without a secret."""
    known = known_secrets()
    texts = (hide_secrets(msgspec.json.encode(line).decode(), known) for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(f"{text}\n" for text in texts), mode=PRIVATE)


def render_error_line(error: ModelError) -> dict[str, Any]:
    """A provider's error as a line."""
    told = {"status": error.status, "category": error.category, "message": error.message}
    return {"error": told}


def render_reply_line(
    reply: Reply, *, provider: str = "", counted: bool = True, ids: bool = False
) -> dict[str, Any]:
    """A reply as a line; with the ids of its calls and the pieces of its text, if they are kept."""
    line: dict[str, Any] = {
        "text": "\n".join(block.text for block in reply.blocks if isinstance(block, Text))
    }
    if reply.calls:
        line["tool_calls"] = [
            {"name": call.name, "args": call.arguments, **({"id": call.id} if ids else {})}
            for call in reply.calls
        ]
    thoughts = [block.text for block in reply.blocks if isinstance(block, Thinking) and block.text]
    if thoughts:
        line["thinking"] = "\n".join(thoughts)
    if ids and len(reply.chunks) > 1 and "".join(reply.chunks) == line["text"]:
        line["stream_chunks"] = reply.chunks
    if reply.stop not in {"stop", "tool_use"}:
        line["stop_reason"] = reply.stop
    if reply.model:
        line["model"] = reply.model
    if provider:
        line["provider"] = provider
    if counted:
        line |= {"input_tokens": reply.usage.input, "output_tokens": reply.usage.output}
    return line
