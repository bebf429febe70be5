"""A mock file as a model.

Lines without `match` are given out first, in their order, each once. Then come the lines whose
pattern fits the conversation, in the order of the file. Where nothing fits, the run fails with the
beginning of the prompt and the line that comes nearest: nothing is ever made up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ScriptMismatch, ScriptUnfinished, UsageError
from offbook.exchange.messages import (
    Image,
    RawBlock,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    find_calls,
)
from offbook.exchange.model import Reply, Usage
from offbook.sources.mocks.globs import Globs
from offbook.sources.mocks.mock_file import Mock, MockFile, parse_mocks, read_mocks
from offbook.sources.side_requests import answer_side_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.exchange.messages import AnyBlock, Message
    from offbook.exchange.model import Request

SHOWN = 200
RECEIPTS = 1000  # a server may run for days
SHARED, DEFAULT, MAIN = "shared", "default", "agent.main"


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which line answered a request, and why that one."""

    source: str
    matched: bool
    id: str = ""
    line: int = 0
    requested_scope: str = MAIN
    resolved_scope: str = ""
    consume: str = ""
    fell_through: bool = False
    remaining: int = 0


class Mocks:
    """The lines of a mock file, given out as replies: a `ModelSource`.

    `lines` is a file, or the lines themselves. A request has its scope, for files that have
    scopes, in its metadata, or belongs to `agent.main`.
    """

    def __init__(self, lines: Path | str | MockFile | Iterable[Mapping[str, Any]]) -> None:
        self.script = _read(lines)
        if not self.script.mocks:
            raise UsageError(
                "there is not a single mock", where=self.script.path, hint='write {"text": "…"}'
            )
        self.receipts: deque[Receipt] = deque(maxlen=RECEIPTS)
        self._shelves: dict[str, _Shelf] = {}
        for mock in self.script.mocks:
            self._shelves.setdefault(mock.scope, _Shelf()).add(mock)
        self._used: set[int] = set()
        self._heard = (0, "", "")
        self._left = len(self.script.mocks)
        self._calls = 0

    async def reply(self, request: Request, /) -> Reply:
        """The answer of the first line that fits; a call beside the work only takes its own."""
        text = self._hear(request)
        asked = _scope_of(request) if self.script.versioned else DEFAULT
        for scope in self._ways(asked):
            shelf = self._shelves.get(scope)
            if shelf is None:
                continue
            in_order = shelf.queue and answer_side_request(request) is None
            mock = shelf.next() if in_order else shelf.take(text)
            if mock is not None:
                return self._give(mock, text, asked)
        side_response = answer_side_request(request)
        if side_response is not None:
            return side_response
        self.receipts.append(Receipt(self.script.path, matched=False, requested_scope=asked))
        raise self._miss(text, asked)

    def _hear(self, request: Request) -> str:
        """What a pattern is held against; of a conversation that goes on, only the new is read."""
        messages = request.messages
        count, digest, text = self._heard
        length = len(messages)
        if not 0 < count <= length or messages.digest(count) != digest:
            count, text = 0, ""
        if count < length:
            more = join_values(messages[count:] if count else messages)
            text = f"{text}\n{more}" if text and more else text or more
            self._heard = (length, messages.digest(), text)
        return text

    def _ways(self, asked: str) -> tuple[str, ...]:
        if not self.script.versioned:
            return (DEFAULT,)
        return (asked, SHARED) if self.script.strict else (asked, SHARED, DEFAULT)

    def _give(self, mock: Mock, text: str, asked: str) -> Reply:
        self._used.add(mock.number)
        self._left -= not mock.sticky
        receipt = Receipt(
            self.script.path,
            matched=True,
            id=mock.id,
            line=mock.number,
            requested_scope=asked,
            resolved_scope=mock.scope,
            consume="sticky" if mock.sticky else "once",
            fell_through=mock.scope != asked,
            remaining=self._left,
        )
        self.receipts.append(receipt)
        if mock.line.error is not None:
            raise mock.line.error.error()
        usage = mock.usage
        if not mock.counted:
            usage = Usage(len(text.encode()), usage.output, usage.cache_read, usage.cache_write)
        blocks = mock.blocks
        if find_calls(blocks):
            blocks = tuple(self._name(block) for block in blocks)
        chunks = mock.line.stream_chunks or ()
        return Reply(blocks, mock.stop, usage, mock.line.model, step=mock.number, chunks=chunks)

    def _name(self, block: AnyBlock) -> AnyBlock:
        """Give a tool call that has no id one that no other call of this run has."""
        if not isinstance(block, ToolCall) or block.id:
            return block
        self._calls += 1
        return msgspec.structs.replace(block, id=f"mock_call_{self._calls}")

    @property
    def unused(self) -> list[Mock]:
        """The lines that have answered nothing yet."""
        return [mock for mock in self.script.mocks if mock.number not in self._used]

    def unfinished(self) -> ScriptUnfinished | None:
        """The error for a run in which nobody asked; lines that are left over are none."""
        if self._used:
            return None
        count = len(self.script.mocks)
        return ScriptUnfinished(
            f"the model was never asked: none of {count} line{'s' * (count != 1)} has answered",
            where=self.script.path,
            hint="does the agent find the model? its address is in the environment, see `offbook"
            " run --help`",
        )

    def _miss(self, text: str, asked: str) -> ScriptMismatch:
        shown = text[:SHOWN] + ("..." if len(text) > SHOWN else "")
        return ScriptMismatch(
            f'no mock matched prompt: "{shown}"',
            where=self.script.path,
            hint="\n".join(f"  {told}" for told in self._explain(text, asked)),
        )

    def _explain(self, text: str, asked: str) -> Iterator[str]:
        if self.script.versioned:
            yield f"asked in the scope {asked!r}"
        queue = [mock for mock in self.script.mocks if mock.glob is None]
        number = sum(mock.number in self._used for mock in queue if not mock.sticky)
        if number:
            yield f"used up: {number} line{'s' * (number != 1)} without match"
        patterns = [mock for mock in self.script.mocks if mock.glob is not None]
        waiting = [mock for mock in queue if mock.sticky or mock.number not in self._used]
        fitting = (mock for mock in patterns if mock.glob and mock.glob.fits(text))
        if found := next(fitting, None) or next(iter(waiting), None):
            yield f"{found.shown} would fit, but {self._why_not(found)}"
            return
        if patterns:
            yield f"nearest: {_nearest(text, patterns).shown}"
        yield f"fix: add a line, such as {_suggest(text, asked if self.script.versioned else '')}"

    def _why_not(self, mock: Mock) -> str:
        if mock.number in self._used and not mock.sticky:
            return "it was for once, and is used up"
        return f"it belongs to the scope {mock.scope!r}"


class _Shelf:
    """The lines of one scope that are left."""

    def __init__(self) -> None:
        self.queue: deque[Mock] = deque()
        self._patterns: dict[int, Mock] = {}
        self._globs: Globs | None = None

    def add(self, mock: Mock) -> None:
        if mock.glob is None:
            self.queue.append(mock)
        else:
            self._patterns[mock.number] = mock

    def next(self) -> Mock:
        """The next line in order."""
        return self.queue[0] if self.queue[0].sticky else self.queue.popleft()

    def take(self, text: str) -> Mock | None:
        """The first line that fits."""
        if self._globs is None:
            found = self._patterns.items()
            self._globs = Globs((place, mock.glob) for place, mock in found if mock.glob)
        for place in self._globs.fitting(text):
            mock = self._patterns.get(place)
            if mock is not None:
                if not mock.sticky:
                    del self._patterns[place]
                return mock
        return None


def join_values(messages: Iterable[Message]) -> str:
    """All that is said in these messages, one value a line: what a pattern is held against.

    Roles and the names, ids and arguments of tools are part of it; the system prompt, the tools
    offered and the model are not.
    """
    return "\n".join([part for message in messages for part in _values(message) if part])


def _values(message: Message) -> Iterable[str]:
    if len(message.blocks) == 1 and isinstance(message.blocks[0], Text):  # as most have
        return (message.blocks[0].text, message.role)
    return _spell(message)


def _spell(message: Message) -> Iterator[str]:
    for block in message.blocks:
        if isinstance(block, (Text, Thinking, ToolResult)):
            yield block.text
        elif isinstance(block, Image):
            yield block.url
        elif isinstance(block, RawBlock):
            yield from _strings(block.data)
    yield message.role
    for block in message.blocks:
        if isinstance(block, ToolResult):
            yield block.call_id
        elif isinstance(block, ToolCall):
            yield from _strings(block.arguments)
            yield block.id
            yield block.name


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for key in sorted(fields):
            yield from _strings(fields[key])
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _strings(item)


def _read(lines: Path | str | MockFile | Iterable[Mapping[str, Any]]) -> MockFile:
    if isinstance(lines, MockFile):
        return lines
    if isinstance(lines, (str, Path)):
        return read_mocks(lines)
    if isinstance(lines, Mapping) or not isinstance(lines, Iterable):
        kind = type(cast("object", lines)).__name__
        raise UsageError(
            f"mocks are a file or a list of lines, not {kind}", hint='write Mocks([{"text": "…"}])'
        )
    return parse_mocks("\n".join(msgspec.json.encode(line).decode() for line in lines), "mocks")


def _scope_of(request: Request) -> str:
    return str(request.metadata.get("scope", MAIN))


def _nearest(text: str, mocks: list[Mock]) -> Mock:
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(text[: 4 * SHOWN])

    def likeness(mock: Mock) -> float:
        literal = (mock.line.match or "").replace("*", "")
        matcher.set_seq1(literal)
        return sum(block.size for block in matcher.get_matching_blocks()) / (len(literal) or 1)

    return max(mocks[:SHOWN], key=likeness)


def _suggest(text: str, scope: str) -> str:
    words = text.split("\n", 1)[0][:40]
    about = {"id": "…", "scope": scope, "consume": "once"} if scope else {}
    return msgspec.json.encode({**about, "match": f"*{words}*", "text": "…"}).decode()
