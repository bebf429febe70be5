"""The file format of a cassette: interactions, each a normalized request and its response.

    interactions:
      - id: 2
        request:
          hat: builder
          prompt_hash: sha256:…
          prompt_preview: Now refund it.
          head: 1                # same model, system prompt, tools and options as interaction 1
          after: 1               # the conversation of interaction 1 with its reply, followed by
          messages:
            - user: Now refund it.
        response:
          output: Done.

An agent repeats the whole conversation in each request. The file stores only the new messages:
`after` names the interaction whose conversation, reply included, comes first; `again` names one
whose conversation comes first without its reply (a retry, for example).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ModelError
from offbook.exchange.messages import AnyBlock, Message, Text
from offbook.exchange.model import Reply, StopReason, Tool, Usage
from offbook.secrets import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable

FORMAT = "offbook.cassette"
VERSION = 1
MAIN_HAT = "main"
ANY_HASH = "sha256:..."  # matches every request: only the order of the interactions counts
PREVIEW_LENGTH = 100
MAX_SHIFTED_CHUNKS = 1000
_SHORT_ROLES = {"system", "user", "assistant", "tool"}
_CHUNK = re.compile(r"(\d+)(?:@(\d+(?:\.\d+)?))?")


class RecordedRequest(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A normalized request.

    A request to a model has `messages`; the input of a command-line agent is a `prompt` instead.
    """

    hat: str = MAIN_HAT
    prompt_hash: str
    prompt_preview: str = ""  # for readers only: never compared
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
        """One line that identifies the request for a reader, also without a stored preview."""
        last_text = self.messages[-1].text if self.messages else ""
        return self.prompt_preview or preview(" ".join((self.prompt or last_text).split()))


class RecordedError(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The error that a provider returned in place of a reply."""

    message: str
    status: int = 500
    category: str = ""
    retry_after: float | None = None
    details: dict[str, str] = {}


class RecordedResponse(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A response: `output` for a reply of one text, `blocks` for every other reply.

    `chunks` are the lengths of the streamed chunks, each with the milliseconds before it:
    "5@120 7@3". `roots` are the placeholders of folders in the response, such as WORKSPACE.
    `files` are the files that a command changed: whole texts by path, null for a removed file.
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
    # Lengths and not the texts: the text is stored once, and stays easy to edit.
    chunks: str = ""
    roots: tuple[str, ...] = ()
    files: dict[str, str | None] = {}

    @property
    def reply_blocks(self) -> tuple[AnyBlock, ...]:
        """The blocks of the reply, however it is stored."""
        return self.blocks if self.output is None else (Text(self.output),)

    @property
    def text(self) -> str:
        """The text of the reply as it is streamed."""
        return "".join(block.text for block in self.reply_blocks if isinstance(block, Text))


class Interaction(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """One request and its response; `at_ms` is its start, counted from that of the recording."""

    id: int = 0
    at_ms: int | None = None
    request: RecordedRequest
    response: RecordedResponse


class CassetteTitle(msgspec.Struct, frozen=True, omit_defaults=True):
    """The top of a new cassette: comments for people, and the rules of its hashes."""

    name: str
    recorded: str = ""
    backend: str = ""
    hashed: str = ""
    redactions: dict[str, Any] = {}


class CassetteHeader(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """All keys of a cassette except its interactions.

    `hashed` is the fingerprint of the rules by which the stored hashes were computed.
    """

    format: str = FORMAT
    version: int = 0
    hashed: str = ""
    redactions: dict[str, Any] = {}
    interactions: None = None
    metadata: dict[str, Any] = {}


# ---------------------------------------------------------------------------- short messages


def expand_short_messages(value: Any) -> Any:
    """Return an interaction from the file with `user: hello` expanded to a whole message."""
    item = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    field = item.get("request")
    request = cast("dict[str, Any]", field if isinstance(field, dict) else {})
    messages = request.get("messages")
    if not isinstance(messages, list):
        return cast("Any", value)  # the conversion to a struct reports what is wrong
    expanded: list[Any] = []
    for message in cast("list[Any]", messages):
        if isinstance(message, dict) and len(cast("dict[str, Any]", message)) == 1:
            ((role, text),) = cast("dict[str, Any]", message).items()
            if role in _SHORT_ROLES and isinstance(text, str):
                expanded.append({"role": role, "blocks": [{"type": "text", "text": text}]})
                continue
        expanded.append(message)
    return {**item, "request": {**request, "messages": expanded}}


def interaction_to_dict(interaction: Interaction) -> dict[str, Any]:
    """Return an interaction as it is written to the file, with short messages."""
    item = cast("dict[str, Any]", msgspec.to_builtins(interaction, enc_hook=repr))
    request = item["request"]
    if "messages" in request:
        messages: list[dict[str, Any]] = []
        for message in request["messages"]:
            blocks = message.get("blocks", ())
            is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
            messages.append({message["role"]: blocks[0]["text"]} if is_text else message)
        request["messages"] = messages
    return item


# ------------------------------------------------------------------------------------ replies


def response_from_reply(
    reply: Reply, *, duration: float, cost: float | None = None
) -> RecordedResponse:
    """Return a reply as a response to store."""
    only_block = reply.blocks[0] if len(reply.blocks) == 1 else None
    is_text = isinstance(only_block, Text)
    return RecordedResponse(
        output=only_block.text if isinstance(only_block, Text) else None,
        blocks=() if is_text else reply.blocks,
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
    """Return a provider's error as a response to store."""
    recorded = RecordedError(
        error.message, error.status, error.category, error.retry_after, error.details
    )
    return RecordedResponse(error=recorded, stop="error", duration_ms=duration)


def reply_from_response(response: RecordedResponse, *, number: int, role: str) -> Reply:
    """Return the stored reply, or raise the stored error."""
    if response.error is not None:
        error = response.error
        raise ModelError(
            error.message,
            status=error.status,
            category=error.category,
            retry_after=error.retry_after,
            details=error.details,
        )
    chunks, delays = parse_chunks(response.chunks, response.text)
    return Reply(
        response.reply_blocks,
        response.stop,
        response.usage,
        response.model,
        response.id,
        number,
        role,
        chunks,
        delays,
    )


# ------------------------------------------------------------------------------------- chunks


def format_chunks(chunks: tuple[str, ...], delays: tuple[float, ...]) -> str:
    """Return the chunks of a stream as lengths and delays: "5@120 7"."""
    padded = (*delays, *(0.0,) * (len(chunks) - len(delays)))
    pairs = zip(chunks, padded, strict=False)
    return " ".join(
        f"{len(chunk)}@{delay:g}" if delay else f"{len(chunk)}" for chunk, delay in pairs
    )


def parse_chunks(written: str, text: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the chunks of this text and their delays.

    If the lengths do not add up, the text was edited after the recording: return no chunks.
    """
    pairs = _CHUNK.findall(written)
    lengths = [int(length) for length, _ in pairs]
    if not pairs or sum(lengths) != len(text):
        return (), ()
    chunks: list[str] = []
    start = 0
    for length in lengths:
        chunks.append(text[start : start + length])
        start += length
    return tuple(chunks), tuple(float(delay or 0) for _, delay in pairs)


def shift_chunks(written: str, before: str, after: str, change: Callable[[str], str]) -> str:
    """Return the chunks for `after`, the text that `change` made from `before`.

    Each cut moves with the text around it. A cut inside a replaced part is dropped. The cost
    grows with the number of chunks times the length, so very long streams keep their old chunks.
    """
    pairs = _CHUNK.findall(written)
    if before == after or len(pairs) > MAX_SHIFTED_CHUNKS:
        return written
    shifted: list[str] = []
    start, cut, delay = 0, 0, 0.0
    for length, waited in pairs:
        cut += int(length)
        delay += float(waited or 0)
        part = after if cut == len(before) else change(before[:cut])
        # A part that is not a prefix of the result ends inside a replacement.
        if len(part) > start and after.startswith(part):
            size = len(part) - start
            shifted.append(f"{size}@{delay:g}" if delay else f"{size}")
            start, delay = len(part), 0.0
    return " ".join(shifted)


def preview(text: str) -> str:
    """Return the beginning of a prompt."""
    return excerpt(text, PREVIEW_LENGTH)
