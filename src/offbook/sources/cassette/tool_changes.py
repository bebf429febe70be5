"""Tools that are not deterministic: the same calls of the model, run twice with the real tools.

The results are read from the requests of the agent, so this works for every framework, and for
commands. Values that a replay ignores, such as timestamps, are no difference.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import CheckFailed
from offbook.sources.cassette.format import collapse_whitespace, number_call_ids
from offbook.sources.cassette.replay import Cassette
from offbook.sources.cassette.tape_results import ComparedTools, ToolChange

if TYPE_CHECKING:
    from offbook.exchange.messages import Message
    from offbook.exchange.model import ModelSource, Reply, Request

    Results = dict[tuple[str, int], str]  # by the call and how often it was made before


class WatchedReplay(Cassette):
    """A replay by position that notes the results of the tools."""

    def __init__(self, tape: Cassette) -> None:
        options = tape.track_options
        options["tracks"] = [track for track in options["tracks"] if track not in {"tools", "http"}]
        super().__init__(tape.file, strict=False, **options)
        self.continued = True  # the comparison shows what was not replayed
        self._noted: set[str] = set()
        self.results: Results = {}

    async def reply(self, request: Request, /) -> Reply:
        """Return the recorded reply, and note the results that the request has."""
        ids: dict[str, str] = {}
        numbered = [number_call_ids(message, ids) for message in request.messages]
        cleaned = [self._normalizer.clean_message(m, index) for index, m in enumerate(numbered)]
        if (digest := repr(cleaned)) not in self._noted:  # a retry has the same results
            self._noted.add(digest)
            _note(self.results, cleaned)
        return await super().reply(request)


def compare_tools(tape: Cassette, run: Callable[[ModelSource], object]) -> ComparedTools:
    """Run an agent twice with the model of a tape and its real tools; compare the results."""
    recorded: Results = {}
    noted: set[str] = set()
    for entry in tape.file.entries:
        messages = tape.file.messages(entry)
        if (digest := repr(messages)) not in noted:
            noted.add(digest)
            _note(recorded, messages)
    runs: list[Results] = []
    for _ in range(2):
        source = WatchedReplay(tape)
        run(source)
        runs.append(source.results)
    first, second = runs
    calls = {**recorded, **first, **second}
    if not first and not second:
        raise CheckFailed(
            "no tool returned a result in the two runs, so none was compared",
            where=str(tape.file.path),
            hint="use a tape of an agent with tools",
        )
    changes = [
        ToolChange(call[0], recorded.get(call), first.get(call), second.get(call))
        for call in calls
        if not recorded.get(call) == first.get(call) == second.get(call)
    ]
    return ComparedTools(len(calls), tuple(changes))


def _note(results: Results, messages: Iterable[Message]) -> None:
    """Add the results at the end of a conversation, those that are new in its request."""
    counts: Counter[str] = Counter(call for call, _ in results)
    for call, text in _latest_results(list(messages)):
        results[call, counts[call]] = text
        counts[call] += 1


def _latest_results(messages: list[Message]) -> Iterator[tuple[str, str]]:
    calls: dict[str, str] = {}
    for call in (call for message in messages for call in message.calls):
        arguments = msgspec.json.encode(call.arguments, order="sorted", enc_hook=repr).decode()
        calls[call.id] = f"{call.name} {arguments}"
    start = max((n for n, m in enumerate(messages) if m.role == "assistant"), default=-1)
    for result in (result for message in messages[start + 1 :] for result in message.results):
        name = calls.get(result.call_id, result.name or result.call_id)
        yield name, collapse_whitespace(result.text)
