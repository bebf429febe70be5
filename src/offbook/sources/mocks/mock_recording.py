"""Writes the replies of a source to a mock file, one a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import ModelError, UsageError
from offbook.exchange.messages import Text, Thinking
from offbook.exchange.model import can_relay
from offbook.files import write_atomic
from offbook.secrets import hide_secrets
from offbook.sources.matching import answer_prewarm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.model import ModelSource, Reply, Request

PRIVATE = 0o600  # replies may contain confidential text: readable by their owner only


class MockRecording:
    """A source that records the replies of another one; the file is complete after each reply.

        recording = MockRecording(Live(), "answers.jsonl")

    The lines answer in the order in which they were recorded. They have no `match`, as requests
    are not recorded; to compare the requests of a later run too, record a cassette.
    """

    def __init__(self, source: ModelSource, path: Path | str, *, replace: bool = False) -> None:
        self.path = Path(path)
        self.lines: list[dict[str, Any]] = []
        self.interrupted = False  # a stream ended too early
        self.relays = can_relay(source)
        self._source = source
        self._awaited: dict[str, dict[str, Any]] = {}  # recorded calls without a result, by id
        if self.path.exists() and not replace:
            raise UsageError(
                "the file already exists",
                where=str(path),
                hint="choose another name, or overwrite it with --replace",
            )

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the source; record it, or the provider's error."""
        if (prewarm := answer_prewarm(request)) is not None:
            return prewarm
        for result in request.results:
            self._awaited.pop(result.call_id, {}).pop("unanswered", None)
        try:
            reply = await self._source.reply(request)
        except ModelError as error:
            if error.interrupted:  # an exchange without an end is not recorded
                self.interrupted = True
            else:
                self._record(render_error_line(error))
            raise
        line = render_reply_line(reply, ids=True)
        for call in line.get("tool_calls", ()):
            # Until the result comes: the agent may end with this call.
            call["unanswered"] = True
            self._awaited[call["id"]] = call
        self._record(line)
        return reply

    def _record(self, line: dict[str, Any]) -> None:
        self.lines.append(line)
        write_mock_file(self.path, self.lines)


def write_mock_file(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Write a mock file, with secrets replaced."""
    texts = (hide_secrets(msgspec.json.encode(line).decode()) for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "".join(f"{text}\n" for text in texts), mode=PRIVATE)


def render_error_line(error: ModelError) -> dict[str, Any]:
    """Return a provider's error as a mock line."""
    return {"error": {"status": error.status, "category": error.category, "message": error.message}}


def render_reply_line(
    reply: Reply, *, provider: str = "", counted: bool = True, ids: bool = False
) -> dict[str, Any]:
    """Return a reply as a mock line.

    With `ids` it keeps the ids of the tool calls and the chunks of the text; with `counted` the
    token counts.
    """
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
    # The format requires that the chunks add up to the text, which joins several blocks by lines.
    if ids and len(reply.chunks) > 1 and "".join(reply.chunks) == line["text"]:
        line["stream_chunks"] = reply.chunks
    # The other reasons follow from the content.
    if reply.stop not in {"stop", "tool_use"}:
        line["stop_reason"] = reply.stop
    if reply.model:
        line["model"] = reply.model
    if provider:
        line["provider"] = provider
    if counted:
        line |= {"input_tokens": reply.usage.input, "output_tokens": reply.usage.output}
    return line
