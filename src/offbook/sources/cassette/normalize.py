"""Normalization: requests with the same meaning get the same hash.

Replaced are secrets, timestamps, UUIDs, the ids of tool calls, the workspace and temporary
folders, line ends and whitespace, and everything that the redactions of a cassette name.

There are two forms. The *stored* form (`clean_…`) stays readable and goes into the file. The
*compared* form also collapses whitespace; only its hash is stored.
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import Image, Message, RawBlock, Text, Thinking, ToolCall, ToolResult
from offbook.exchange.model import Tool
from offbook.sources.cassette.format import RecordedRequest
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

    from offbook.exchange.messages import AnyBlock, History
    from offbook.exchange.model import Request

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
            clean = self.clean_message(message, index)
            if _is_text(clean):  # the same result as below, without the way through JSON
                compared: Any = _change_texts(collapse_whitespace, clean)
            else:
                compared = _map_texts(collapse_whitespace, _to_json(clean))
            digest = sha256(_encode(compared)).digest()
            if len(self._message_digests) >= CACHE_SIZE:
                self._message_digests.clear()
            self._message_digests[key] = digest
        return digest

    def _cached_settings(self, request: Request | RecordedRequest) -> tuple[RequestSettings, bytes]:
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
    return all(isinstance(block, Text) for block in message.blocks)


def _change_texts(change: Callable[[str], str], message: Message) -> Message:
    texts = [cast("Text", block).text for block in message.blocks]
    return Message(message.role, tuple([Text(change(text)) for text in texts]))


def number_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """Return a message with call ids numbered by first appearance; `ids` collects the numbers."""
    blocks: list[AnyBlock] = []
    numbered = False
    for block in message.blocks:
        if isinstance(block, ToolCall):
            number = ids.setdefault(block.id, f"call-{len(ids) + 1}")
            blocks.append(msgspec.structs.replace(block, id=number))
            numbered = True
        elif isinstance(block, ToolResult):
            number = ids.setdefault(block.call_id, f"call-{len(ids) + 1}")
            blocks.append(msgspec.structs.replace(block, call_id=number))
            numbered = True
        else:
            blocks.append(block)
    return Message(message.role, tuple(blocks)) if numbered else message


def register_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """Return a stored message unchanged, and note the numbers that it uses in `ids`."""
    for block in message.blocks:
        if isinstance(block, ToolCall):
            ids.setdefault(block.id, block.id)
        elif isinstance(block, ToolResult):
            ids.setdefault(block.call_id, block.call_id)
    return message


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
