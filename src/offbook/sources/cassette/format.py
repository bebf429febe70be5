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

A tape is a cassette with more tracks. It also has the executions of tools and the
answers of people, each with the interaction that it follows:

    version: 2
    tracks: [model, tools, people]

    interactions:
      - id: 1
        request: …
        response: …
        tools:
          - tool: refund
            call: call-7
            input: {number: 7}
            result: refunded
        people:
          - tool: refund
            input: {number: 7}
            decision: allow
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec

from offbook.errors import MAX_RETRY_AFTER, ModelError, UsageError, did_you_mean
from offbook.exchange.messages import (
    AnyBlock,
    Image,
    Message,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Reply, StopReason, Tool, Usage
from offbook.exchange.people import PersonQuestion
from offbook.exchange.tool_track import RecordedException, running_tool
from offbook.secrets import excerpt
from offbook.trace.redaction import (
    PRESETS,
    VOLATILE_OPTIONS,
    VOLATILE_PATTERNS,
    Redaction,
    RedactionRules,
    describe_redaction,
    folder_pattern,
    parse_redaction_rules,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.determinism.frozen_time import RunClock
    from offbook.exchange.messages import History
    from offbook.exchange.model import Request

    Tracks = Iterable[str] | str

FORMAT = "offbook.cassette"
VERSION = 2
MODEL_VERSION = 1  # of a cassette with the model track only
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
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] = 500
    category: str = ""
    retry_after: Annotated[float, msgspec.Meta(ge=0, le=MAX_RETRY_AFTER)] | None = None
    details: dict[str, str] = {}


class RecordedResponse(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A response: `output` for a reply of one text, `blocks` for every other reply, or an `error`.

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

    def __post_init__(self) -> None:
        if (self.output is not None) + bool(self.blocks) + (self.error is not None) == 1:
            return
        given = {"output": self.output is not None, "blocks": self.blocks, "error": self.error}
        kinds = [name for name, value in given.items() if value]
        # A recorded reply without a block has at least its duration.
        if len(kinds) > 1 or not (kinds or msgspec.to_builtins(self)):
            got = " and ".join(kinds) or "none"
            raise ValueError(f"expected one of output, blocks and error, got {got}")

    @property
    def reply_blocks(self) -> tuple[AnyBlock, ...]:
        """The blocks of the reply, however it is stored."""
        return self.blocks if self.output is None else (Text(self.output),)

    @property
    def text(self) -> str:
        """The text of the reply as it is streamed."""
        return "".join(block.text for block in self.reply_blocks if isinstance(block, Text))


class RecordedTool(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """An execution of a tool: its input, and its result or its error.

    `call` is the id of the model's call, `input` is normalized. `before` is true if the tool ran
    before the first request. `type`, `exact` and `real` are those of `ToolEnd`. `effects` are what
    the tool did besides its result, as far as Python reports it: a replay does not repeat it.
    """

    tool: str
    call: str = ""
    input: Any = None
    result: Any = None
    error: RecordedException | None = None
    type: str = ""
    exact: bool = True
    real: bool = False
    before: bool = False
    roots: tuple[str, ...] = ()
    effects: tuple[str, ...] = ()

    @property
    def compared(self) -> dict[str, Any]:
        """The fields by which a replay finds it."""
        return {"tool": self.tool, "input": self.input}

    @property
    def title(self) -> str:
        """One line that identifies the execution for a reader."""
        return preview(f"{self.tool} {_encode(self.input).decode()}")


class RecordedAnswer(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """An answer of a person to a question, or to the call of a tool with this input.

    A `decision` may have changed `params`, or a `reason`; every other answer is a value. `inside`
    is the tool that asked.
    """

    question: str = ""
    tool: str = ""
    input: Any = None
    decision: Literal["allow", "deny", ""] = ""
    params: dict[str, Any] | None = None
    reason: str = ""
    answer: Any = None
    inside: str = ""

    @property
    def compared(self) -> dict[str, Any]:
        """The fields by which a replay finds it."""
        return {"question": self.question, "tool": self.tool, "input": self.input}

    @property
    def title(self) -> str:
        """One line that identifies the question for a reader."""
        return preview(str(PersonQuestion(self.question, self.tool, self.input)))


class RecordedHttp(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A request to another server than a model, and its response.

    `body` is that of the request, normalized. The body of the response is in `content`, or in
    `data` as Base64 if it is not text. A `status` of 0 is a request that failed, with the error in
    `content`. `inside` is the tool that sent the request.
    """

    method: str
    url: str
    body: str = ""
    status: int = 200
    headers: dict[str, str] = {}
    content: str = ""
    data: str = ""
    inside: str = ""

    @property
    def compared(self) -> dict[str, Any]:
        """The fields by which a replay finds it."""
        return {"method": self.method, "url": self.url, "body": self.body}

    @property
    def title(self) -> str:
        """One line that identifies the request for a reader."""
        return preview(f"{self.method} {self.url} {self.body}".rstrip())


class RecordedFile(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """A file that a command wrote or removed in its folder.

    `text` is normalized; that of a large or binary file is its size and its hash.
    """

    file: str
    text: str = ""
    removed: bool = False


class Interaction(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """One request and its response; `at_ms` is its start, counted from that of the recording.

    `tools`, `people`, `http` and `files` are the executions, the answers, the requests to other
    servers and the changed files that follow it. `inside` is the tool that sent the request.
    """

    id: int = 0
    at_ms: int | None = None
    inside: str = ""
    request: RecordedRequest
    response: RecordedResponse
    tools: tuple[RecordedTool, ...] = ()
    people: tuple[RecordedAnswer, ...] = ()
    http: tuple[RecordedHttp, ...] = ()
    files: tuple[RecordedFile, ...] = ()


class RecordedClock(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The clock of a tape: its start in milliseconds since 1970, and the seed of random values.

    After an interaction, it shows the end of that one. `utc_offset` is that of the local time, in
    seconds.
    """

    start_ms: int
    seed: int
    utc_offset: int = 0

    def second(self, at_ms: float) -> float:
        """Return a time of the tape in seconds since 1970."""
        return (self.start_ms + int(at_ms)) / 1000

    def open(self) -> RunClock:
        """Return the clock for a run, at its start."""
        from offbook.determinism.frozen_time import PATIENCE, RunClock  # late: few tapes have it

        def name_part() -> str:  # another execution of a tool may be replayed
            return f"{tool}#{clock.steps}" if (tool := running_tool.get()) else ""

        clock = RunClock(
            self.second(0),
            seed=str(self.seed),
            utc_offset=self.utc_offset,
            patience=PATIENCE,
            part=name_part,
        )
        return clock


class CassetteTitle(msgspec.Struct, frozen=True, omit_defaults=True):
    """The top of a new cassette: comments for people, and the rules of its hashes."""

    name: str
    recorded: str = ""
    backend: str = ""
    hashed: str = ""
    redactions: dict[str, Any] = {}
    tracks: tuple[str, ...] = ()
    clock: RecordedClock | None = None


class CassetteHeader(
    msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, forbid_unknown_fields=True
):
    """All keys of a cassette except its interactions.

    `hashed` is the fingerprint of the rules by which the stored hashes were computed. `tracks` are
    those that were recorded; without any, it is the model alone.
    """

    format: str = FORMAT
    version: int = 0
    tracks: tuple[str, ...] = ()
    clock: RecordedClock | None = None
    hashed: str = ""
    redactions: dict[str, Any] = {}
    interactions: None = None
    metadata: dict[str, Any] = {}


TRACKS = ("model", "tools", "people", "http", "clock", "files")


def parse_tracks(tracks: Tracks) -> tuple[str, ...]:
    """Return the tracks of `"all"`, `"model,tools"`, or a list of them."""
    names = tracks.split(",") if isinstance(tracks, str) else [*tracks]
    names = [name.strip() for name in names if name.strip()]
    for name in names:
        if name not in (*TRACKS, "all"):
            raise UsageError(f"unknown track {name!r}", hint=did_you_mean(name, (*TRACKS, "all")))
    if not names:
        raise UsageError("no tracks", hint=f"write {', '.join(TRACKS)}, or all")
    return TRACKS if "all" in names else tuple(name for name in TRACKS if name in names)


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
    status = error.status if error.status in range(400, 600) else 500  # no provider has another
    recorded = RecordedError(
        error.message, status, error.category, error.retry_after, error.details
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
    written = response.chunks
    chunks, delays = parse_chunks(written, response.text) if written else ((), ())
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
    if not written:
        return (), ()
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


# ------------------------------------------------------------------------------- normalization
# Requests with the same meaning get the same hash. Replaced are secrets, timestamps, UUIDs, the ids
# of tool calls, the workspace and temporary folders, line ends and whitespace, and everything that
# the redactions of a cassette name.
#
# There are two forms. The *stored* form (`clean_…`) stays readable and goes into the file. The
# *compared* form also collapses whitespace; only its hash is stored.

REVISION = 2  # part of the fingerprint: raise it when equal requests would hash differently
CACHE_SIZE = 50_000
HASH_PREFIX = "sha256:"
MAX_RAW_TEXT = 4096

_encode = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode
_TRAILING_SPACE = re.compile(r"[ \t]+$", re.MULTILINE)
_LIST_INDEX = re.compile(r"\[\s*-?\d")


class RequestSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The parts of a request outside its conversation."""

    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    parameters: dict[str, Any] = {}


class ConversationDigest(msgspec.Struct, frozen=True):
    """A conversation up to some message: its digest, its length and the call ids seen so far.

    Digests are chained: that of a longer conversation is computed from that of its beginning, so
    a request costs only as much as its new messages.
    """

    digest: bytes = b""
    length: int = 0
    ids: dict[str, str] = {}


class Normalizer:
    """Normalizes requests by a user's redaction rules and by the folders of this run.

    Without `roots`, the only known folder is the working directory, as WORKSPACE.
    """

    def __init__(
        self,
        rules: RedactionRules | Mapping[str, Any] | None = None,
        *,
        roots: Mapping[str, Path] | None = None,
    ) -> None:
        self.rules = merge_rules(RedactionRules(patterns=VOLATILE_PATTERNS), rules)
        folders = {"WORKSPACE": Path.cwd()} if roots is None else roots
        self.roots = {
            name: root.resolve()
            for name, root in folders.items()
            if len(root.resolve().parts) > 1  # "/" as a root would replace every path
        }
        described = _encode((REVISION, describe_redaction(self.rules)))
        self.fingerprint = blake2b(described, digest_size=8).hexdigest()
        self._redaction = Redaction(self.rules, roots=self.roots)
        preset_paths = [path for name in self.rules.presets for path in PRESETS[name][1]]
        message_paths = [
            path
            for path in (*self.rules.paths, *preset_paths)
            if path.startswith(("$.messages", "$..", "$['messages'", "$[*]", "$.*"))
        ]
        # Without a rule for messages each one is normalized alone and plain texts take a shortcut.
        self._has_message_paths = bool(message_paths)
        self._has_indexed_paths = any(_LIST_INDEX.search(path) for path in message_paths)
        # Agents repeat their whole conversation: the caches make a request cost its new messages.
        self._message_digests: dict[bytes, bytes] = {}
        self._conversations: dict[str, ConversationDigest] = {}
        self._settings: dict[bytes, tuple[RequestSettings, bytes]] = {}
        self._last_settings: tuple[object, bytes, tuple[RequestSettings, bytes] | None]
        self._last_settings = (None, b"", None)

    # ------------------------------------------------------------------------- stored form

    def clean_text(self, text: str) -> str:
        """Return a text as it is stored: redacted, with plain line ends and no trailing spaces."""
        return _trim_lines(self._redaction.text(text))

    def clean_value(self, value: Any) -> Any:
        """Return a JSON value as it is stored."""
        return _map_texts(_trim_lines, self._redaction.value(value))

    def settings(self, request: Request | RecordedRequest) -> RequestSettings:
        """Return the settings of a request as they are stored."""
        return self._cached_settings(request)[0]

    def clean_message(self, message: Message, index: int) -> Message:
        """Return a message, whose call ids are numbered already, as it is stored."""
        if not self._has_message_paths and _is_text(message):
            return _change_texts(self.clean_text, message)
        value = _to_json(_strip_message(message))
        if self._has_message_paths:
            # A path such as $.messages[2].text must find the message at its index.
            before = [None] * index if self._has_indexed_paths else []
            value = self.clean_value({"messages": [*before, value]})["messages"][-1]
        else:
            value = self.clean_value(value)
        try:
            return msgspec.convert(value, Message)
        except msgspec.ValidationError:  # a path has replaced more than a text
            return Message(message.role, (Text(_encode(value).decode()),))

    # ----------------------------------------------------------------------- compared form

    def comparable(self, body: dict[str, Any]) -> Any:
        """Return a whole request, given as one JSON value, in the compared form."""
        return _map_texts(collapse_whitespace, self.clean_value(body))

    def hash_prompt(self, prompt: str) -> str:
        """Return the hash of a prompt: plain SHA-256 of its compared form."""
        text = collapse_whitespace(self.clean_text(prompt))
        return HASH_PREFIX + sha256(text.encode()).hexdigest()

    def hash_request(self, request: Request) -> str:
        """Return the hash of a request."""
        settings = self._cached_settings(request)[1]
        return self.combine(settings, self.digest_conversation(request.messages))

    def combine(self, settings: bytes, conversation: ConversationDigest) -> str:
        """Return the hash of a request from the digests of its settings and its conversation."""
        return HASH_PREFIX + sha256(settings + conversation.digest).hexdigest()

    def settings_digest(self, request: Request | RecordedRequest) -> bytes:
        """Return the digest of a request's settings."""
        return self._cached_settings(request)[1]

    def digest_conversation(self, messages: History) -> ConversationDigest:
        """Return the digest of a conversation; its beginning may be known from earlier requests."""
        known = len(messages)
        while known and messages.digest(known) not in self._conversations:
            known -= 1
        begun = self._conversations[messages.digest(known)] if known else ConversationDigest(ids={})
        if known == len(messages):
            return begun
        conversation = self.extend(begun, messages[known:])
        if len(self._conversations) >= CACHE_SIZE:
            self._conversations.clear()
        self._conversations[messages.digest()] = conversation
        return conversation

    def extend(
        self,
        conversation: ConversationDigest,
        messages: Iterable[Message],
        *,
        numbered: bool = False,
    ) -> ConversationDigest:
        """Return the digest after more messages, whose call ids may be `numbered` already."""
        digest, length, ids = conversation.digest, conversation.length, dict(conversation.ids)
        for message in messages:
            counted = register_call_ids(message, ids) if numbered else number_call_ids(message, ids)
            digest = sha256(digest + self._message_digest(counted, length)).digest()
            length += 1
        return ConversationDigest(digest, length, ids)

    def extend_with_reply(
        self, conversation: ConversationDigest, blocks: tuple[AnyBlock, ...]
    ) -> ConversationDigest:
        """Return the digest after a reply of the model."""
        return self.extend(conversation, (Message("assistant", blocks),))

    def _message_digest(self, message: Message, index: int) -> bytes:
        key = blake2b(_encode(message), digest_size=16).digest()
        if self._has_indexed_paths:
            key += index.to_bytes(4, "big")
        digest = self._message_digests.get(key)
        if digest is None:
            if not self._has_message_paths and _is_text(message):  # without the way through JSON
                compared: Any = _change_texts(self._compared_text, message)
            else:
                clean = self.clean_message(message, index)
                compared = _map_texts(collapse_whitespace, _to_json(clean))
            digest = sha256(_encode(compared)).digest()
            if len(self._message_digests) >= CACHE_SIZE:
                self._message_digests.clear()
            self._message_digests[key] = digest
        return digest

    def _compared_text(self, text: str) -> str:
        return collapse_whitespace(self.clean_text(text))

    def _cached_settings(self, request: Request | RecordedRequest) -> tuple[RequestSettings, bytes]:
        # Most requests have the tools of the last one, often the same object, which are long.
        small = _encode((request.model, request.system, request.parameters))
        tools, known, last = self._last_settings
        if last is not None and request.tools is tools and small == known:
            return last
        cached = self._find_settings(request)
        self._last_settings = (request.tools, small, cached)
        return cached

    def _find_settings(self, request: Request | RecordedRequest) -> tuple[RequestSettings, bytes]:
        raw = _encode((request.model, request.system, request.tools, request.parameters))
        key = blake2b(raw, digest_size=16).digest()
        cached = self._settings.get(key)
        if cached is None:
            settings = self._clean_settings(request)
            compared = _map_texts(collapse_whitespace, _to_json(settings))
            cached = settings, sha256(_encode(compared)).digest()
            if len(self._settings) >= CACHE_SIZE:
                self._settings.clear()
            self._settings[key] = cached
        return cached

    def _clean_settings(self, request: Request | RecordedRequest) -> RequestSettings:
        options = {k: v for k, v in request.parameters.items() if k not in VOLATILE_OPTIONS}
        # One flat value, so that a redaction path looks the same as in the provider's request.
        body: dict[str, Any] = {
            **_to_json(options),
            "model": request.model,
            "system": request.system,
            "tools": _to_json(request.tools),
        }
        body = self.clean_value(body)
        model, system, tools = (body.pop(name) for name in ("model", "system", "tools"))
        try:
            converted = msgspec.convert(tools, tuple[Tool, ...])
        except msgspec.ValidationError:  # a path has replaced the tools
            return RequestSettings(str(model), str(system), (), {**body, "tools": tools})
        return RequestSettings(str(model), str(system), converted, body)


def merge_rules(
    rules: RedactionRules, more: RedactionRules | Mapping[str, Any] | None
) -> RedactionRules:
    """Return two sets of rules as one; of two patterns with the same name the later one counts."""
    added = parse_redaction_rules(more)
    return RedactionRules(
        {**rules.patterns, **added.patterns},
        tuple(dict.fromkeys((*rules.paths, *added.paths))),
        tuple(dict.fromkeys((*rules.presets, *added.presets))),
    )


# --------------------------------------------------------------------------- texts and values


def collapse_whitespace(text: str) -> str:
    """Return a text with each run of whitespace as one space, or as one line end."""
    if "\n" not in text:
        return " ".join(text.split())
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _trim_lines(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if " \n" in text or "\t\n" in text:  # the search is far cheaper than the substitution
        text = _TRAILING_SPACE.sub("", text)
    return text.strip()


def _to_json(value: object) -> Any:
    """Return a value as JSON has it: mappings, lists and texts."""
    return msgspec.json.decode(_encode(value))


def _map_texts(change: Callable[[str], str], value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _map_texts(change, field) for name, field in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_map_texts(change, item) for item in cast("list[Any]", value)]
    return value


# --------------------------------------------------------------------------------- messages


def _is_text(message: Message) -> bool:
    for block in message.blocks:  # noqa: SIM110 - a generator takes three times as long
        if not isinstance(block, Text):
            return False
    return True


def _change_texts(change: Callable[[str], str], message: Message) -> Message:
    blocks: Any = message.blocks  # texts only
    return Message(message.role, tuple([Text(change(block.text)) for block in blocks]))


def number_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """Return a message with call ids numbered by first appearance; `ids` collects the numbers."""
    blocks: list[AnyBlock] = []
    numbered = False
    for block in message.blocks:
        if isinstance(block, ToolCall):
            blocks.append(msgspec.structs.replace(block, id=_number_of(block.id, ids)))
            numbered = True
        elif isinstance(block, ToolResult):
            blocks.append(msgspec.structs.replace(block, call_id=_number_of(block.call_id, ids)))
            numbered = True
        else:
            blocks.append(block)
    return Message(message.role, tuple(blocks)) if numbered else message


def register_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """Return a stored message unchanged, and note the numbers that it uses in `ids`."""
    for block in message.blocks:
        if isinstance(block, ToolCall):
            ids.setdefault(_USED + block.id, block.id)
        elif isinstance(block, ToolResult):
            ids.setdefault(_USED + block.call_id, block.call_id)
    return message


_USED = "\0"  # before a number that is used: an id of a client can look like a number


def _number_of(call_id: str, ids: dict[str, str]) -> str:
    if (number := ids.get(call_id)) is None:
        # A stored conversation has numbers only; in any other, each number has its id.
        count = len(ids) // 2 + 1
        while _USED + (number := f"call-{count}") in ids:
            count += 1
        ids[call_id] = ids[_USED + number] = number
    return number


def _strip_message(message: Message) -> Message:
    """Return a message without large data, signatures and details that only the agent reads."""
    if all(isinstance(block, (Text, ToolCall)) for block in message.blocks):
        return message
    return Message(message.role, tuple(_strip_block(block) for block in message.blocks))


def _strip_block(block: AnyBlock) -> AnyBlock:
    match block:
        case Thinking(text):  # its signature differs in every reply
            return Thinking(text, redacted=block.redacted)
        case Image(data) if data and not data.startswith(HASH_PREFIX):
            return msgspec.structs.replace(block, data=_hash_text(data))
        case RawBlock(_, data):  # the data of a document, for example, is not for people to read
            short = _map_texts(lambda t: t if len(t) <= MAX_RAW_TEXT else _hash_text(t), data)
            return msgspec.structs.replace(block, data=short)
        case ToolResult(content=content):
            stripped = tuple(cast("Any", _strip_block(part)) for part in content)
            # A format without this field leaves it unknown: the same as no error in a recording.
            failed = block.failed is True
            return msgspec.structs.replace(block, content=stripped, failed=failed, details=None)
        case _:
            return block


def _hash_text(text: str) -> str:
    return HASH_PREFIX + sha256(text.encode()).hexdigest()


def request_as_json(settings: RequestSettings, messages: Iterable[Message]) -> dict[str, Any]:
    """Return a request as one JSON value, to compare it part by part."""
    body: dict[str, Any] = {"model": settings.model, "system": settings.system}
    body["tools"] = _to_json(settings.tools)
    body |= settings.parameters
    body["messages"] = [_to_json(message) for message in messages]
    return {name: field for name, field in body.items() if field not in ("", [], None)}


# ------------------------------------------------------------------------------------ folders


def hide_roots(value: Any, roots: Mapping[str, Path]) -> tuple[Any, tuple[str, ...]]:
    """Return a JSON value with folders replaced by placeholders, and the names of those used."""
    used: set[str] = set()

    def hide(text: str) -> str:
        for name, root in roots.items():
            if str(root) in text:
                hidden = folder_pattern(str(root)).replace(f"[{name}]", text)
                if hidden != text:
                    used.add(name)
                text = hidden
        return text

    return _map_texts(hide, value), tuple(sorted(used))


def restore_roots(value: Any, names: Iterable[str], roots: Mapping[str, Path]) -> Any:
    """Return a JSON value with the placeholders of folders replaced by the folders of this run."""
    folders = {f"[{name}]": str(roots[name]) for name in names if name in roots}

    def restore(text: str) -> str:
        for placeholder, folder in folders.items():
            text = text.replace(placeholder, folder)
        return text

    return _map_texts(restore, value) if folders else value
