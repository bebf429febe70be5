"""A mock file as a model.

Lines without a `match` answer first, in order, each once. After them the first line whose pattern
matches the conversation answers. Without a match the run fails with the beginning of the prompt
and the nearest line: a reply is never made up.
"""

from __future__ import annotations

from collections import Counter, deque
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
from offbook.exchange.providers import make_call_id
from offbook.secrets import outgoing, word_finder
from offbook.sources.mocks.mock_file import Mock, MockFile, parse_mocks, read_mocks
from offbook.sources.side_requests import answer_side_request
from offbook.trace.events import Verdict
from offbook.trace.text_patterns import Glob

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.exchange.messages import AnyBlock, Message
    from offbook.exchange.model import Request

PROMPT_LIMIT = 200
RECEIPTS = 1000  # a server may run for days
CONVERSATIONS = 128  # side by side, whose text is kept from request to request
SHARED, DEFAULT, MAIN = "shared", "default", "agent.main"
UNINDEXED = 8  # fewer patterns are tried one by one: the index gains nothing before
WORD_LENGTH = 12  # longer words are cut: rare enough, and the search stays small


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """The line that answered a request, and the scopes that led to it."""

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
    """The lines of a mock file as replies: a `ModelSource`.

        Mocks("mocks.jsonl")
        Mocks([{"match": "*refund*", "text": "Refunded."}])

    For a file with scopes, the scope of a request is in its metadata; the default is `agent.main`.
    """

    def __init__(self, lines: Path | str | MockFile | Iterable[Mapping[str, Any]]) -> None:
        if isinstance(lines, MockFile):
            self.file = lines
        elif isinstance(lines, (str, Path)):
            self.file = read_mocks(lines)
        elif isinstance(lines, Mapping) or not isinstance(lines, Iterable):
            kind = type(cast("object", lines)).__name__
            raise UsageError(
                f"mocks must be a file or a list of lines, got {kind}",
                hint='write Mocks([{"text": "…"}])',
            )
        else:
            # Through the text, so that lines in Python are checked as strictly as a file.
            text = "\n".join(msgspec.json.encode(line).decode() for line in lines)
            self.file = parse_mocks(text, "mocks")
        if not self.file.mocks:
            raise UsageError("no mock lines", where=self.file.path, hint='write {"text": "…"}')
        self.receipts: deque[Receipt] = deque(maxlen=RECEIPTS)
        self._scopes: dict[str, _Scope] = {}
        for mock in self.file.mocks:
            self._scopes.setdefault(mock.scope, _Scope()).add(mock)
        self._used: set[int] = set()
        self._remaining = len(self.file.mocks)
        self._call_count = 0
        # The calls whose results have not come back yet: the line and the tool, by id.
        self._awaited_results: dict[str, tuple[Mock, str]] = {}
        # The text of recent conversations by their digest, the latest last.
        self._texts: dict[str, str] = {}

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line; it is checked as a line of a file."""
        number = self.file.mocks[-1].number + 1
        # Empty lines before it give it its number.
        text = "\n" * (number - 1) + msgspec.json.encode(line).decode()
        [mock] = parse_mocks(text, self.file.path).mocks
        self.file = msgspec.structs.replace(self.file, mocks=(*self.file.mocks, mock))
        self._scopes.setdefault(mock.scope, _Scope()).add(mock)
        self._remaining += 1

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the first line that matches the request."""
        if self._awaited_results:
            for result in request.results:
                _, tool = self._awaited_results.get(result.call_id, (None, ""))
                # The id alone is not enough: the agent may have changed the call in its history.
                if result.name in {"", tool}:
                    self._awaited_results.pop(result.call_id, None)
        text = self._match_text(request)
        requested, scopes = DEFAULT, (DEFAULT,)
        if self.file.versioned:
            requested = str(request.metadata.get("scope", MAIN))
            scopes = (requested, SHARED) if self.file.strict else (requested, SHARED, DEFAULT)
        for name in scopes:
            scope = self._scopes.get(name)
            if scope is None:
                continue
            # A side request (a title, a probe) takes a line that matches it, but none in order:
            # those are for the agent's work.
            in_order = scope.queue and answer_side_request(request) is None
            mock = scope.next() if in_order else scope.take(text)
            if mock is not None:
                return self._answer(mock, text, requested, request)
        side_reply = answer_side_request(request)
        if side_reply is not None:
            return side_reply
        self.receipts.append(Receipt(self.file.path, matched=False, requested_scope=requested))
        shown = outgoing(text)[:PROMPT_LIMIT] + ("..." if len(text) > PROMPT_LIMIT else "")
        raise ScriptMismatch(
            f'no mock matched prompt: "{shown}"',
            where=self.file.path,
            hint="\n".join(f"  {line}" for line in self._explain_miss(text, requested)),
        )

    def _match_text(self, request: Request) -> str:
        """Return the text that patterns match; of a growing conversation only read the new part."""
        messages = request.messages
        known = messages.longest_prefix(self._texts)
        text = self._texts.pop(messages.digest(known), "")
        if more := join_values(messages[known:]):
            text = f"{text}\n{more}" if text else more
        self._texts[messages.digest()] = text
        if len(self._texts) > CONVERSATIONS:
            del self._texts[next(iter(self._texts))]
        return text

    def _answer(self, mock: Mock, text: str, requested: str, request: Request) -> Reply:
        self._used.add(mock.number)
        self._remaining -= not mock.sticky
        self.receipts.append(
            Receipt(
                self.file.path,
                matched=True,
                id=mock.id,
                line=mock.number,
                requested_scope=requested,
                resolved_scope=mock.scope,
                consume="sticky" if mock.sticky else "once",
                fell_through=mock.scope != requested,
                remaining=self._remaining,
            )
        )
        if mock.line.error is not None:
            raise mock.line.error.to_model_error()
        usage = mock.usage
        if not mock.has_input_tokens:  # then a token is a byte of the conversation
            size = len(text) if text.isascii() else len(_encode(text))
            usage = Usage(size, usage.output, usage.cache_read, usage.cache_write)
        blocks = mock.blocks
        if find_calls(blocks):
            blocks = tuple(self._with_call_id(block, request) for block in blocks)
            unanswered = {call.name for call in mock.line.tool_calls if call.unanswered}
            for call in find_calls(blocks):
                if call.name not in unanswered:
                    self._awaited_results[call.id] = (mock, call.name)
        chunks = mock.line.stream_chunks or ()
        return Reply(blocks, mock.stop, usage, mock.line.model, step=mock.number, chunks=chunks)

    def _with_call_id(self, block: AnyBlock, request: Request) -> AnyBlock:
        """Give a tool call without an id one that is unique in this run."""
        if not isinstance(block, ToolCall) or block.id:
            return block
        self._call_count += 1
        return msgspec.structs.replace(block, id=make_call_id(request, self._call_count))

    @property
    def unused(self) -> list[Mock]:
        """The lines that have not answered a request yet."""
        return [mock for mock in self.file.mocks if mock.number not in self._used]

    def verdicts(self) -> list[Verdict]:
        """Return a failed verdict if a line has not answered a request."""
        if not self.unused:
            return []
        message = f"never used: LLM mock {'; '.join(mock.label for mock in self.unused)}"
        return [Verdict("mocks used", "fail", message, actual=[m.label for m in self.unused])]

    def unfinished(self) -> ScriptUnfinished | None:
        """Return the error for a run without any request, or for a result that never came back.

        Unused lines are a verdict, since a run may allow them.
        """
        if self._used:
            return self.missing_result()
        count = len(self.file.mocks)
        return ScriptUnfinished(
            f"the model received no request: 0 of {count} mock line{'s' * (count != 1)} used",
            where=self.file.path,
            hint="check that the agent reads the model's address from the environment, see"
            " `offbook run --help`",
        )

    def missing_result(self) -> ScriptUnfinished | None:
        """Return the error for a call whose result never came back, or None."""
        for mock, tool in self._awaited_results.values():
            return ScriptUnfinished(
                f"the result of call {tool} never came back",
                where=f"{self.file.path}:{mock.number}",
                hint="let the agent run the tool and send the result with its next request; if it"
                ' ends with this call, add "unanswered": true to the call',
            )
        return None

    def _explain_miss(self, text: str, requested: str) -> Iterator[str]:
        """Yield the lines of the hint: the nearest line, and one to add."""
        if self.file.versioned:
            yield f"scope of the request: {requested!r}"
        queue = [mock for mock in self.file.mocks if mock.glob is None]
        used = sum(mock.number in self._used for mock in queue if not mock.sticky)
        if used:
            yield f"used up: {used} line{'s' * (used != 1)} without match"
        patterns = [mock for mock in self.file.mocks if mock.glob is not None]
        candidates = [mock for mock in patterns if mock.glob and mock.glob.matches(text)]
        candidates += [mock for mock in queue if mock.sticky or mock.number not in self._used]
        if candidates:
            mock = candidates[0]
            if mock.number in self._used and not mock.sticky:
                yield f"{mock.label} matches, but is used up: it answers once"
            else:
                yield f"{mock.label} matches, but belongs to the scope {mock.scope!r}"
            return
        if patterns:
            yield f"nearest: {_nearest(text, patterns).label}"
        keys = {"id": "…", "scope": requested, "consume": "once"} if self.file.versioned else {}
        pattern = f"*{outgoing(text.split(chr(10), 1)[0])[:40]}*"
        line = msgspec.json.encode({**keys, "match": pattern, "text": "…"}).decode()
        yield f"fix: add a line, such as {line}"


def _nearest(text: str, mocks: list[Mock]) -> Mock:
    """Return the line whose pattern shares the largest part with the text."""
    from difflib import SequenceMatcher  # only here: saves 1 ms at start-up

    matcher = SequenceMatcher(autojunk=False)
    matcher.set_seq2(text[: 4 * PROMPT_LIMIT])

    def similarity(mock: Mock) -> float:
        literal = (mock.line.match or "").replace("*", "")
        matcher.set_seq1(literal)
        return sum(block.size for block in matcher.get_matching_blocks()) / (len(literal) or 1)

    return max(mocks[:PROMPT_LIMIT], key=similarity)


class _Scope:
    """The remaining lines of one scope."""

    def __init__(self) -> None:
        self.queue: deque[Mock] = deque()
        self._patterns: dict[int, Mock] = {}
        self._index: GlobIndex | None = None

    def add(self, mock: Mock) -> None:
        if mock.glob is None:
            self.queue.append(mock)
        else:
            self._patterns[mock.number] = mock
            self._index = None

    def next(self) -> Mock:
        """Return the next line in order."""
        return self.queue[0] if self.queue[0].sticky else self.queue.popleft()

    def take(self, text: str) -> Mock | None:
        """Return the first line whose pattern matches; remove it if it answers once."""
        if self._index is None:  # built with the first request: a file may be only linted
            entries = self._patterns.items()
            self._index = GlobIndex((number, mock.glob) for number, mock in entries if mock.glob)
        for number in self._index.find(text):
            mock = self._patterns.get(number)
            if mock is not None:
                if not mock.sticky:
                    del self._patterns[number]
                return mock
        return None


class GlobIndex:
    """Finds the patterns that match a text, among thousands, in one pass over the text.

    Each pattern is indexed by its rarest word: a text that lacks the word cannot match. A search
    for all words at once (Aho-Corasick) selects the few patterns to try, so that a request costs
    about the same with 1,000 lines as with one (`tests/sources/server/test_growth.py`).
    """

    def __init__(self, globs: Iterable[tuple[int, Glob]]) -> None:
        self._globs = list(globs)
        self._without_word: list[int] = []
        self._by_word: list[list[int]] = []
        if len(self._globs) <= UNINDEXED:
            self._find_words = None
            return
        words = [
            {word[:WORD_LENGTH] for word in glob.pattern.replace("*", " ").split()}
            for _, glob in self._globs
        ]
        counts = Counter(word for group in words for word in group)
        entries: dict[str, list[int]] = {}
        for index, group in enumerate(words):
            if group:
                rarest = min(group, key=lambda word: (counts[word], -len(word), word))
                entries.setdefault(rarest, []).append(index)
            else:
                self._without_word.append(index)
        self._by_word = list(entries.values())
        self._find_words = word_finder(map(_encode, entries))

    def find(self, text: str) -> Iterator[int]:
        """Yield the numbers of the patterns that match, in their order."""
        candidates: Sequence[int] = range(len(self._globs))
        if self._find_words is not None:
            indexes = set(self._without_word)
            for word in {word for word, _, _ in self._find_words(_encode(text))}:
                indexes.update(self._by_word[word])
            candidates = sorted(indexes)
        for index in candidates:
            number, glob = self._globs[index]
            if glob.matches(text):
                yield number


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def join_values(messages: Iterable[Message]) -> str:
    """Return the text that a pattern is matched against: every value, one a line.

    It contains texts, roles, and the names, ids and arguments of tool calls, but not the system
    prompt, the offered tools or the model.
    """
    values: list[str] = []
    for message in messages:
        blocks = message.blocks
        if len(blocks) == 1 and isinstance(blocks[0], Text):  # most messages: spares the loops
            values += (blocks[0].text, message.role)
            continue
        for block in blocks:
            if isinstance(block, (Text, Thinking, ToolResult)):
                values.append(block.text)
            elif isinstance(block, Image):
                values.append(block.url)
            elif isinstance(block, RawBlock):
                values += _strings(block.data)
        values.append(message.role)
        for block in blocks:
            if isinstance(block, ToolResult):
                values.append(block.call_id)
            elif isinstance(block, ToolCall):
                values += (*_strings(block.arguments), block.id, block.name)
    return "\n".join(filter(None, values))


def _strings(value: object) -> Iterator[str]:
    """Yield the strings in a JSON value, objects in the order of their keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for key in sorted(fields):
            yield from _strings(fields[key])
    elif isinstance(value, (list, tuple)):
        for item in cast("list[object]", value):
            yield from _strings(item)
