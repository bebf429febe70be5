"""Two requests that mean the same have the same hash: what never stays the same is evened out.

Evened out are secrets, time stamps, UUIDs and the ids of calls, the workspace and temporary
folders, line ends and white space; and whatever the redactions of a cassette name. A request is
kept as `tidy` leaves it, which people can still read; the hash also squeezes its white space.
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
    TMP,
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

REVISION = 2
DEFAULTS: dict[str, str | bool] = {"$TIMESTAMP": True, "$UUID": True, "tmp": TMP}
# Options that name the asker or the transport and change nothing about the answer.
VOLATILE = {
    "client_metadata",
    "metadata",
    "prompt_cache_key",
    "safety_identifier",
    "stream",
    "stream_options",
    "user",
}
REMEMBERED = 50_000
START = b""
PREFIX = "sha256:"
HEAVY = 4096

_encode = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode
_LINES = re.compile(r"[ \t]+$", re.MULTILINE)
_INDEX = re.compile(r"\[\s*-?\d")


class RequestSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a request says beside the conversation."""

    model: str = ""
    system: str = ""
    tools: tuple[Tool, ...] = ()
    parameters: dict[str, Any] = {}


class ConversationDigest(msgspec.Struct, frozen=True):
    """A conversation up to some point: its digest, its length, and the ids that it has named."""

    digest: bytes = START
    length: int = 0
    ids: dict[str, str] = {}


class Normalizer:
    """One way of normalising: rules that a user wrote, and folders known by a name.

    Without `roots`, the workspace is the folder in which this process works.
    """

    def __init__(
        self,
        rules: RedactionRules | Mapping[str, Any] | None = None,
        *,
        roots: Mapping[str, Path] | None = None,
    ) -> None:
        self.rules = merge_rules(RedactionRules(patterns=DEFAULTS), rules)
        self.roots = {
            name: root.resolve()
            for name, root in (default_roots() if roots is None else roots).items()
            if len(root.resolve().parts) > 1
        }
        self.seal = blake2b(
            _encode((REVISION, describe_redaction(self.rules))), digest_size=8
        ).hexdigest()
        self._redaction = Redaction(self.rules, roots=self.roots)
        paths = [
            path
            for path in (*self.rules.paths, *_preset_paths(self.rules.presets))
            if path.startswith(("$.messages", "$..", "$['messages'", "$[*]", "$.*"))
        ]
        self._wraps = bool(paths)
        self._counts = any(_INDEX.search(path) for path in paths)
        self._digests: dict[bytes, bytes] = {}
        self._chains: dict[str, ConversationDigest] = {}
        self._heads: dict[bytes, tuple[RequestSettings, bytes]] = {}

    # ---------------------------------------------------------------------- what is kept

    def tidy(self, text: str) -> str:
        """A text as it is kept: redacted, with plain line ends and no spaces at them."""
        return _tidy(self._redaction.text(text))

    def value(self, value: Any) -> Any:
        """A JSON value as it is kept."""
        return _each_text(_tidy, self._redaction.value(value))

    def head(self, request: Request | RecordedRequest) -> RequestSettings:
        """The head of a request as it is kept."""
        return self._head(request)[0]

    def message(self, message: Message, at: int = 0) -> Message:
        """A message, its ids counted already, as it is kept."""
        if not self._wraps and _is_text(message):
            return _change_texts(self.tidy, message)
        value = _plain(_bare(message))
        if self._wraps:
            before = [None] * at if self._counts else []
            value = self.value({"messages": [*before, value]})["messages"][-1]
        else:
            value = self.value(value)
        try:
            return msgspec.convert(value, Message)
        except msgspec.ValidationError:  # a path has blanked more than a text
            return Message(message.role, (Text(_encode(value).decode()),))

    def squeezed(self, body: dict[str, Any]) -> Any:
        """A whole request as one JSON value, as it is compared."""
        return _each_text(collapse_whitespace, self.value(body))

    # ---------------------------------------------------------------------- what is compared

    def hash_prompt(self, prompt: str) -> str:
        """The hash of a prompt: plain SHA-256 of its squeezed text."""
        return PREFIX + sha256(collapse_whitespace(self.tidy(prompt)).encode()).hexdigest()

    def hash_request(self, request: Request) -> str:
        """The hash of a request."""
        return self.seal_hash(self._head(request)[1], self.chain(request.messages))

    def chain(self, messages: History) -> ConversationDigest:
        """A whole conversation; what is known of it from an earlier request is not read again."""
        known = len(messages)
        while known and messages.digest(known) not in self._chains:
            known -= 1
        begun = self._chains[messages.digest(known)] if known else ConversationDigest(ids={})
        if known == len(messages):
            return begun
        chain = self.follow(begun, messages[known:])
        if len(self._chains) >= REMEMBERED:
            self._chains.clear()
        self._chains[messages.digest()] = chain
        return chain

    def digest_head(self, request: Request | RecordedRequest) -> bytes:
        """The digest of a head."""
        return self._head(request)[1]

    def seal_hash(self, head: bytes, chain: ConversationDigest) -> str:
        """The hash of a head and a conversation."""
        return PREFIX + sha256(head + chain.digest).hexdigest()

    def follow(
        self, chain: ConversationDigest, messages: Iterable[Message], *, counted: bool = False
    ) -> ConversationDigest:
        """The conversation after these messages; `counted` ones have their ids numbered already."""
        digest, length, ids = chain.digest, chain.length, dict(chain.ids)
        for message in messages:
            numbered = register_call_ids(message, ids) if counted else number_call_ids(message, ids)
            digest = sha256(digest + self._digest(numbered, length)).digest()
            length += 1
        return ConversationDigest(digest, length, ids)

    def follow_reply(
        self, chain: ConversationDigest, blocks: tuple[AnyBlock, ...]
    ) -> ConversationDigest:
        """The conversation after a reply."""
        return self.follow(chain, (Message("assistant", blocks),))

    def _digest(self, message: Message, at: int) -> bytes:
        raw = _encode(message)
        key = blake2b(raw, digest_size=16).digest()
        if self._counts:
            key += at.to_bytes(4, "big")
        found = self._digests.get(key)
        if found is None:
            found = sha256(_encode(_squeezed(self.message(message, at)))).digest()
            if len(self._digests) >= REMEMBERED:
                self._digests.clear()
            self._digests[key] = found
        return found

    def _head(self, request: Request | RecordedRequest) -> tuple[RequestSettings, bytes]:
        raw = _encode((request.model, request.system, request.tools, request.parameters))
        key = blake2b(raw, digest_size=16).digest()
        found = self._heads.get(key)
        if found is None:
            head = self._make_head(request)
            squeezed = _each_text(collapse_whitespace, _plain(head))
            found = head, sha256(_encode(squeezed)).digest()
            if len(self._heads) >= REMEMBERED:
                self._heads.clear()
            self._heads[key] = found
        return found

    def _make_head(self, request: Request | RecordedRequest) -> RequestSettings:
        options = {k: v for k, v in request.parameters.items() if k not in VOLATILE}
        body: dict[str, Any] = {
            **_plain(options),
            "model": request.model,
            "system": request.system,
            "tools": _plain(request.tools),
        }
        body = self.value(body)
        model, system, tools = (body.pop(name) for name in ("model", "system", "tools"))
        try:
            return RequestSettings(
                str(model), str(system), msgspec.convert(tools, tuple[Tool, ...]), body
            )
        except msgspec.ValidationError:  # a path has blanked the tools
            return RequestSettings(str(model), str(system), (), {**body, "tools": tools})


def default_roots() -> dict[str, Path]:
    """The folders that have another place in every run, as far as this process knows."""
    return {"WORKSPACE": Path.cwd()}


def merge_rules(
    first: RedactionRules, more: RedactionRules | Mapping[str, Any] | None
) -> RedactionRules:
    """Rules with others added; the same pattern twice is the later one."""
    added = parse_redaction_rules(more)
    return RedactionRules(
        {**first.patterns, **added.patterns},
        tuple(dict.fromkeys((*first.paths, *added.paths))),
        tuple(dict.fromkeys((*first.presets, *added.presets))),
    )


def _preset_paths(presets: Iterable[str]) -> list[str]:
    return [path for preset in presets if preset in PRESETS for path in PRESETS[preset][1]]


def _plain(value: object) -> Any:
    """A value as JSON has it: mappings, lists and texts."""
    return msgspec.json.decode(_encode(value))


def _squeezed(message: Message) -> Any:
    """A message as it is compared."""
    if _is_text(message):  # the short way to the same
        return _change_texts(collapse_whitespace, message)
    return _each_text(collapse_whitespace, _plain(message))


def _is_text(message: Message) -> bool:
    return all(isinstance(block, Text) for block in message.blocks)


def _change_texts(change: Callable[[str], str], message: Message) -> Message:
    texts = [cast("Text", block).text for block in message.blocks]
    return Message(message.role, tuple([Text(change(text)) for text in texts]))


def collapse_whitespace(text: str) -> str:
    """A text with each run of white space as one sign: a line end if there was one in it."""
    if "\n" not in text:
        return " ".join(text.split())
    lines = (" ".join(line.split()) for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _tidy(text: str) -> str:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if " \n" in text or "\t\n" in text:
        text = _LINES.sub("", text)
    return text.strip()


def _each_text(change: Any, value: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {name: _each_text(change, held) for name, held in fields.items()}
    if isinstance(value, (list, tuple)):
        return [_each_text(change, item) for item in cast("list[Any]", value)]
    return value


def number_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """The message with its call ids numbered by their first appearance in the conversation."""
    if not any(isinstance(block, (ToolCall, ToolResult)) for block in message.blocks):
        return message
    return Message(message.role, tuple(_count(block, ids) for block in message.blocks))


def _count(block: AnyBlock, ids: dict[str, str]) -> AnyBlock:
    if isinstance(block, ToolCall):
        return msgspec.structs.replace(block, id=_number(block.id, ids))
    if isinstance(block, ToolResult):
        return msgspec.structs.replace(block, call_id=_number(block.call_id, ids))
    return block


def _number(name: str, ids: dict[str, str]) -> str:
    return ids.setdefault(name, f"call-{len(ids) + 1}")


def register_call_ids(message: Message, ids: dict[str, str]) -> Message:
    """A kept message as it is; its numbers count as named."""
    for block in message.blocks:
        if isinstance(block, ToolCall):
            ids.setdefault(block.id, block.id)
        elif isinstance(block, ToolResult):
            ids.setdefault(block.call_id, block.call_id)
    return message


def _bare(message: Message) -> Message:
    """The message without what is heavy, sealed or only for the agent itself."""
    if all(isinstance(block, (Text, ToolCall)) for block in message.blocks):
        return message
    return Message(message.role, tuple(_strip(block) for block in message.blocks))


def _strip(block: AnyBlock) -> AnyBlock:
    match block:
        case Thinking(text):
            return Thinking(text, redacted=block.redacted)
        case Image(data) if data and not data.startswith(PREFIX):
            digest = PREFIX + sha256(data.encode()).hexdigest()
            return msgspec.structs.replace(block, data=digest)
        case RawBlock(_, data):
            return msgspec.structs.replace(block, data=_each_text(_weigh, data))
        case ToolResult(content=content):
            bare = tuple(cast("Any", _strip(part)) for part in content)
            return msgspec.structs.replace(block, content=bare, details=None)
        case _:
            return block


def _weigh(text: str) -> str:
    """A text, or the hash of one that is too long to be for people: the data of a document."""
    return text if len(text) <= HEAVY else PREFIX + sha256(text.encode()).hexdigest()


def request_as_json(head: RequestSettings, messages: Iterable[Message]) -> dict[str, Any]:
    """A request as one JSON value, for people to compare."""
    written: dict[str, Any] = {"model": head.model, "system": head.system}
    written["tools"] = _plain(head.tools)
    written |= head.parameters
    written["messages"] = [_plain(message) for message in messages]
    return {name: held for name, held in written.items() if held not in ("", [], None)}


def hide_roots(value: Any, roots: Mapping[str, Path]) -> tuple[Any, tuple[str, ...]]:
    """A JSON value with folders replaced by their names, and which ones were there."""
    found: set[str] = set()

    def change(text: str) -> str:
        for name, root in roots.items():
            if str(root) in text:
                hidden = folder_pattern(str(root)).replace(f"[{name}]", text)
                if hidden != text:
                    found.add(name)
                text = hidden
        return text

    return _each_text(change, value), tuple(sorted(found))


def restore_roots(value: Any, names: Iterable[str], roots: Mapping[str, Path]) -> Any:
    """A JSON value with the names of folders replaced by where they are now."""
    places = {f"[{name}]": str(roots[name]) for name in names if name in roots}

    def change(text: str) -> str:
        for name, place in places.items():
            text = text.replace(name, place)
        return text

    return _each_text(change, value) if places else value
