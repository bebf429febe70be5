"""A mock file as a model.

Lines without a `match` answer first, in order, each once. After them the first line whose pattern
matches the conversation answers. Without a match the run fails with the beginning of the prompt
and the nearest line: a reply is never made up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import ScriptMismatch, ScriptUnfinished, UsageError
from offbook.exchange.dialects.dialect import RecentCache
from offbook.exchange.messages import ToolCall, find_calls
from offbook.exchange.model import Usage
from offbook.secrets import outgoing
from offbook.sources.matching import (
    AwaitedResults,
    PatternQueue,
    answer_side_request,
    encode_text,
    join_values,
    make_call_id,
    refuse_unscripted,
    run_at_provider,
)
from offbook.sources.mocks.mock_file import Mock, MockFile, parse_mocks, read_mocks
from offbook.trace.events import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.exchange.messages import AnyBlock
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.sources.mocks.mock_recording import MockRecording


PROMPT_LIMIT = 200
RECEIPTS = 1000  # a server may run for days
HISTORIES = 8  # long ones of new conversations, likewise
SHORT_HISTORY = 8  # messages: their text is joined faster than it is found
LONG_HISTORY = 16
SHARED, DEFAULT, MAIN = "shared", "default", "agent.main"


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

    at_once = True

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
        # The line of each answer, or None, the requested scope and the lines that remained.
        self._answers: deque[tuple[Mock | None, str, int]] = deque(maxlen=RECEIPTS)
        self._scopes: dict[str, PatternQueue[Mock]] = {}
        for mock in self.file.mocks:
            self._scopes.setdefault(mock.scope, PatternQueue[Mock]()).add(mock)
        self._used: set[int] = set()
        self._remaining = len(self.file.mocks)
        self._call_count = 0
        self._awaited_results: AwaitedResults[Mock] = AwaitedResults()
        # The text of recent conversations by their digest, the latest last.
        self._texts: RecentCache[str, str] = RecentCache()
        self._shared: dict[str, str] = {}  # likewise, of new ones without their last message

    @staticmethod
    def record(source: ModelSource, path: Path | str, *, replace: bool = False) -> MockRecording:
        """Return a source that writes the replies of another one to a new mock file."""
        from offbook.sources.mocks.mock_recording import MockRecording  # a script needs none

        return MockRecording(source, path, replace=replace)

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line; it is checked as a line of a file."""
        number = self.file.mocks[-1].number + 1
        # Empty lines before it give it its number.
        text = "\n" * (number - 1) + msgspec.json.encode(line).decode()
        [mock] = parse_mocks(text, self.file.path).mocks
        self.file = msgspec.structs.replace(self.file, mocks=(*self.file.mocks, mock))
        self._scopes.setdefault(mock.scope, PatternQueue[Mock]()).add(mock)
        self._remaining += 1

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the first line that matches the request."""
        if self._awaited_results:
            self._awaited_results.receive(request.results)
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
        self._answers.append((None, requested, 0))
        shown = outgoing(text)[:PROMPT_LIMIT] + ("..." if len(text) > PROMPT_LIMIT else "")
        raise ScriptMismatch(
            f'no mock matched prompt: "{shown}"',
            where=self.file.path,
            hint="\n".join(f"  {line}" for line in self._explain_miss(text, requested)),
        )

    def _match_text(self, request: Request) -> str:
        """Return the text that patterns match; of a growing conversation only read the new part."""
        messages = request.messages
        if len(messages) <= SHORT_HISTORY:
            return join_values(messages.to_list())
        known = messages.longest_prefix(self._texts)
        text = self._texts.remove(messages.digest(known)) or "" if known else ""
        # Several questions may follow on one long history.
        if not known and len(messages) > LONG_HISTORY:
            known = len(messages) - 1
            text = self._shared.get(messages.digest(known), "")
            if not text:
                text = self._shared[messages.digest(known)] = join_values(messages[:known])
                if len(self._shared) > HISTORIES:
                    del self._shared[next(iter(self._shared))]
        if more := join_values(messages[known:] if known else messages):
            text = f"{text}\n{more}" if text else more
        self._texts.add(messages.digest(), text)
        return text

    def _answer(self, mock: Mock, text: str, requested: str, request: Request) -> Reply:
        self._used.add(mock.number)
        self._remaining -= not mock.sticky
        self._answers.append((mock, requested, self._remaining))
        if mock.line.error is not None:
            raise mock.line.error.to_model_error()
        refuse_unscripted(request)
        reply = mock.reply
        if not mock.has_input_tokens:  # then a token is a byte of the conversation
            size = len(text) if text.isascii() else len(encode_text(text))
            usage = reply.usage
            usage = Usage(size, usage.output, usage.cache_read, usage.cache_write)
            reply = msgspec.structs.replace(reply, usage=usage)
        return self._add_calls(reply, mock, request) if mock.has_calls else reply

    def _add_calls(self, reply: Reply, mock: Mock, request: Request) -> Reply:
        """Return a reply with its calls, and wait for their results."""
        parts = [part for block in reply.blocks for part in self._complete_call(block, request)]
        calls = find_calls(blocks := tuple(parts))
        unanswered = {call.name for call in mock.line.tool_calls if call.unanswered}
        for call in calls:
            if call.name not in unanswered:
                self._awaited_results[call.id] = (call.name, mock)
        # A call that the provider ran does not end the message.
        stop = "stop" if reply.stop == "tool_use" and not calls else reply.stop
        return msgspec.structs.replace(reply, blocks=blocks, stop=stop)

    def _complete_call(self, block: AnyBlock, request: Request) -> tuple[AnyBlock, ...]:
        """Return a call with an id that is unique in this run, or as the provider runs it."""
        if not isinstance(block, ToolCall):
            return (block,)
        if not block.id:
            self._call_count += 1
            call_id = make_call_id(request, self._call_count)
            block = msgspec.structs.replace(block, id=call_id)
        return run_at_provider(request, block) or (block,)

    @property
    def receipts(self) -> list[Receipt]:
        """The latest answers, the last one at the end."""
        return [self._make_receipt(*answer) for answer in self._answers]

    def _make_receipt(self, mock: Mock | None, requested: str, remaining: int) -> Receipt:
        if mock is None:
            return Receipt(self.file.path, matched=False, requested_scope=requested)
        return Receipt(
            self.file.path,
            matched=True,
            id=mock.id,
            line=mock.number,
            requested_scope=requested,
            resolved_scope=mock.scope,
            consume="sticky" if mock.sticky else "once",
            fell_through=mock.scope != requested,
            remaining=remaining,
        )

    @property
    def unused(self) -> list[Mock]:
        """The lines that have not answered a request yet."""
        return [mock for mock in self.file.mocks if mock.number not in self._used]

    def verdicts(self) -> list[Verdict]:
        """Return a failed verdict if a line has not answered a request, and if none has."""
        if not self.unused:
            return []
        found = [] if self._used else [Verdict("model called", "fail", str(self.unfinished()))]
        message = f"never used: LLM mock {'; '.join(mock.label for mock in self.unused)}"
        labels = [mock.label for mock in self.unused]
        return [*found, Verdict("mocks used", "fail", message, actual=labels)]

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
        for _, mock in self._awaited_results.values():
            where, fix = f"{self.file.path}:{mock.number}", 'add "unanswered": true to the call'
            return self._awaited_results.error(where, f"line {mock.number}", fix)
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
    from offbook.trace.matching import similarity

    shown = text[: 4 * PROMPT_LIMIT]

    def nearness(mock: Mock) -> float:
        return similarity((mock.line.match or "").replace("*", ""), shown)

    return max(mocks[:PROMPT_LIMIT], key=nearness)
