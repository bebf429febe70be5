"""What a cassette holds: interactions, each a request as it was normalised and its response.

    interactions:
      - id: 2
        request:
          hat: builder
          prompt_hash: sha256:…
          prompt_preview: Now refund it.
          head: 1                # the model, system prompt, tools and options of interaction 1
          after: 1               # the conversation with the reply to interaction 1, and then
          messages:
            - user: Now refund it.
        response:
          output: Done.

Each request repeats the conversation so far; the file does not. `after` names the interaction
after whose reply it goes on, `again` the one whose own messages it begins with.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import AnyBlock, Message, Text
from offbook.exchange.model import Reply, StopReason, Tool, Usage

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = "offbook.cassette"
VERSION = 1
MAIN_HAT = "main"
ANY_HASH = "sha256:..."  # the hash of a request that nobody wrote down: only its turn counts
ROLES = {"system", "user", "assistant", "tool"}
PREVIEW = 100
MOVED = 1000
_PIECE = re.compile(r"(\d+)(?:@(\d+(?:\.\d+)?))?")


class RecordedRequest(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A request, normalised.

    A conversation has `messages`; what a command-line agent was given has a `prompt` instead.
    """

    hat: str = MAIN_HAT
    prompt_hash: str
    prompt_preview: str = ""
    prompt: str | None = None
    dialect: str = ""
    stream: bool = False
    head: int | None = None
    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    parameters: dict[str, Any] = {}
    after: int | None = None
    again: int | None = None
    messages: tuple[Message, ...] = ()

    @property
    def title(self) -> str:
        """What was asked, for the eye; also where somebody wrote no preview."""
        last = self.messages[-1].text if self.messages else ""
        return self.prompt_preview or preview(" ".join((self.prompt or last).split()))


class RecordedError(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a provider answered instead of a reply."""

    message: str
    status: int = 500
    category: str = ""
    retry_after: float | None = None
    details: dict[str, str] = {}


class RecordedResponse(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A response. `output` is what was said, `blocks` are there where words are not all.

    `chunks` are the lengths of the pieces in which a text was streamed, each with the
    milliseconds before it: "5@120 7@3". `roots` are the folders named in it, such as WORKSPACE.
    `files` are what a command left in its folder: whole texts by their paths, null where it
    removed one.
    """

    output: str | None = None
    blocks: tuple[AnyBlock, ...] = ()
    stop: StopReason = "stop"
    exit_code: int = 0
    error: RecordedError | None = None
    model: str = ""
    id: str = ""
    tokens: int = 0
    usage: Usage = Usage()
    cost_dollars: float | None = None
    duration_ms: float = 0
    chunks: str = ""
    roots: tuple[str, ...] = ()
    files: dict[str, str | None] = {}

    @property
    def said(self) -> tuple[AnyBlock, ...]:
        """The blocks of the reply."""
        return self.blocks if self.output is None else (Text(self.output),)

    @property
    def text(self) -> str:
        """All words of the reply, as they are streamed."""
        return "".join(block.text for block in self.said if isinstance(block, Text))


class Interaction(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """One exchange; `at_ms` is when it began, counted from the start of the recording."""

    id: int = 0
    at_ms: int | None = None
    request: RecordedRequest
    response: RecordedResponse


class CassetteHeader(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """All of a cassette but its interactions.

    `hashed` names the normalisation by which the hashes were made.
    """

    format: str = FORMAT
    version: int = 0
    hashed: str = ""
    redactions: dict[str, Any] = {}
    interactions: None = None
    metadata: dict[str, Any] = {}


def expand_short_messages(value: Any) -> Any:
    """An interaction as it stands in the file, its short messages written out."""
    item = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    held = item.get("request")
    request = cast("dict[str, Any]", held if isinstance(held, dict) else {})
    messages = request.get("messages")
    if not isinstance(messages, list):
        return cast("Any", value)
    whole = [_expand(message) for message in cast("list[Any]", messages)]
    return {**item, "request": {**request, "messages": whole}}


def _expand(message: Any) -> Any:
    if isinstance(message, dict) and len(cast("dict[str, Any]", message)) == 1:
        ((role, text),) = cast("dict[str, Any]", message).items()
        if role in ROLES and isinstance(text, str):
            return {"role": role, "blocks": [{"type": "text", "text": text}]}
    return cast("Any", message)


def interaction_to_dict(interaction: Interaction) -> dict[str, Any]:
    """An interaction as it stands in the file."""
    written = cast("dict[str, Any]", msgspec.to_builtins(interaction, enc_hook=repr))
    request = written["request"]
    if "messages" in request:
        request["messages"] = [_shorten(message) for message in request["messages"]]
    return written


def _shorten(message: dict[str, Any]) -> dict[str, Any]:
    blocks = message.get("blocks", ())
    if len(blocks) == 1 and blocks[0]["type"] == "text":
        return {message["role"]: blocks[0]["text"]}
    return message


def response_from_reply(
    reply: Reply, *, duration: float, cost: float | None = None
) -> RecordedResponse:
    """A reply as a response."""
    only = reply.blocks[0] if len(reply.blocks) == 1 else None
    worded = isinstance(only, Text)
    return RecordedResponse(
        output=only.text if isinstance(only, Text) else None,
        blocks=() if worded else reply.blocks,
        stop=reply.stop,
        model=reply.model,
        id=reply.id,
        tokens=reply.usage.input + reply.usage.output,
        usage=reply.usage,
        cost_dollars=cost,
        duration_ms=duration,
        chunks=format_chunks(reply.chunks, reply.delays),
    )


def response_from_error(error: ModelError, *, duration: float) -> RecordedResponse:
    """A provider's error as a response."""
    failure = RecordedError(
        error.message, error.status, error.category, error.retry_after, error.details
    )
    return RecordedResponse(error=failure, stop="error", duration_ms=duration)


def reply_from_response(response: RecordedResponse, *, number: int, role: str) -> Reply:
    """The reply that a response holds; its error is raised."""
    if response.error is not None:
        told = response.error
        raise ModelError(
            told.message,
            status=told.status,
            category=told.category,
            retry_after=told.retry_after,
            details=told.details,
        )
    blocks = response.said
    chunks, delays = parse_chunks(response.chunks, response.text)
    return Reply(
        blocks,
        response.stop,
        response.usage,
        response.model,
        response.id,
        number,
        role,
        chunks,
        delays,
    )


def format_chunks(chunks: tuple[str, ...], delays: tuple[float, ...]) -> str:
    """The pieces of a stream as lengths and waits."""
    waits = (*delays, *(0.0,) * (len(chunks) - len(delays)))
    pieces = zip(chunks, waits, strict=False)
    return " ".join(f"{len(chunk)}@{wait:g}" if wait else str(len(chunk)) for chunk, wait in pieces)


def parse_chunks(written: str, text: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The pieces of this text; none where they are of another, which somebody has edited since."""
    pieces = _PIECE.findall(written)
    lengths = [int(length) for length, _ in pieces]
    if not pieces or sum(lengths) != len(text):
        return (), ()
    chunks: list[str] = []
    at = 0
    for length in lengths:
        chunks.append(text[at : at + length])
        at += length
    return tuple(chunks), tuple(float(wait or 0) for _, wait in pieces)


def shift_chunks(written: str, before: str, after: str, change: Callable[[str], str]) -> str:
    """The pieces of a text that was changed, cut where they were cut before.

    A cut inside of what was replaced is left out, and so are all where they are too many to try.
    """
    pieces = _PIECE.findall(written)
    if before == after or len(pieces) > MOVED:
        return written
    moved: list[str] = []
    at, cut, wait = 0, 0, 0.0
    for length, took in pieces:
        cut += int(length)
        wait += float(took or 0)
        part = after if cut == len(before) else change(before[:cut])
        if len(part) > at and after.startswith(part):
            moved.append(f"{len(part) - at}@{wait:g}" if wait else str(len(part) - at))
            at, wait = len(part), 0.0
    return " ".join(moved)


def preview(text: str) -> str:
    """The beginning of a prompt, for the eye."""
    return text if len(text) <= PREVIEW else f"{text[: PREVIEW - 1]}…"
