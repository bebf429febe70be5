"""A tape whose agent runs again: the shortest one that still fails, and what its tools return.

For the shortest tape, interactions, and single calls of a reply, are left out. Each candidate is
replayed by position, because the requests after a missing interaction are others. It is kept if the
run fails in the same way. The shortest run is recorded, so its tape can be replayed strictly.

To find tools that are not deterministic, the same calls of the model are run twice with the real
tools. The results are read from the requests of the agent, so this works for every framework, and
for commands. Values that a replay ignores, such as timestamps, are no difference.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.determinism.shrinking import shrink, without_parts
from offbook.errors import (
    CheckFailed,
    OffbookError,
    RunError,
    ScriptError,
    ScriptExhausted,
    UsageError,
)
from offbook.exchange.messages import ToolCall, to_sorted_json
from offbook.files import require_new
from offbook.sources.cassette.format import collapse_whitespace, number_call_ids
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.cassette.tape_results import ComparedTools, ShrunkTape, ToolChange

if TYPE_CHECKING:
    from offbook.exchange.messages import Message
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.sources.cassette.cassette_file import Entry
    from offbook.sources.cassette.format import RecordedResponse
    from offbook.sources.cassette.replay import RequestHashes

    Failure = Callable[[ModelSource], Hashable]
    Results = dict[tuple[str, int], str]  # by the call and how often it was made before


class KeptStep(NamedTuple):
    """An interaction of the tape, and the positions of the calls that are left out of its reply."""

    number: int
    calls: int
    dropped: tuple[int, ...] = ()


Steps = tuple[KeptStep, ...]


class PartialReplay(Cassette):
    """A replay of some interactions of a tape, by position."""

    def __init__(self, tape: Cassette, steps: Steps) -> None:
        self._steps = {step.number: step for step in steps}
        super().__init__(tape.file, strict=False, **tape.track_options)
        self.continued = True  # leftovers are shortened later: they are no fault

    @property
    def entries(self) -> list[Entry]:
        """The interactions that are kept."""
        return [entry for entry in super().entries if entry.number in self._steps]

    def explain(
        self,
        hat: str,  # noqa: ARG002 - those of the base class
        hashes: RequestHashes,  # noqa: ARG002
        request: Request | str,  # noqa: ARG002
        used: set[int],  # noqa: ARG002
    ) -> Exception:
        """Return an error without a comparison, which takes longer than a run."""
        return ScriptExhausted("no interaction is left")

    def read_response(self, entry: Entry) -> RecordedResponse:
        """Return a recorded response without the calls that are left out."""
        response = super().read_response(entry)
        dropped = self._steps[entry.number].dropped
        if not dropped:
            return response
        calls = [block for block in response.blocks if isinstance(block, ToolCall)]
        lost = {id(calls[position]) for position in dropped}
        kept = tuple(block for block in response.blocks if id(block) not in lost)
        return msgspec.structs.replace(response, blocks=kept)


def shrink_tape(tape: Cassette, find_failure: Failure, output: Path) -> ShrunkTape:
    """Write the shortest tape that still shows the failure of a tape.

    `find_failure` runs the agent with a source. It returns what identifies the failure, or None if
    the run passes.
    """
    require_new(output, hint="name another file")
    steps = tuple(
        KeptStep(entry.number, sum(isinstance(b, ToolCall) for b in response.blocks))
        for entry in tape.entries
        for response in [tape.file.read_response(entry)]
    )

    def replay(kept: Steps) -> Hashable:
        if not kept:
            return None
        source = PartialReplay(tape, kept)
        failure = find_failure(source)
        return None if source.diverged else failure

    failure = replay(steps)
    if failure is None:
        raise UsageError(
            "nothing to shrink: the replay of the whole tape does not fail",
            where=str(tape.file.path),
            hint="a failure is an exit code other than 0, or an exception of the test",
        )
    kept, replays = shrink(steps, lambda some: replay(some) == failure, _shorter, _size)
    # Only a run that fails again is a tape.
    with Recording(PartialReplay(tape, kept), output, **tape.recording_options) as recording:
        repeats = find_failure(recording) == failure
        if not repeats:
            recording.discard()
    short = Cassette(output, **tape.track_options) if repeats else None
    if short is None or find_failure(short) != failure:
        raise RunError(
            "the shortest run does not repeat the failure: the agent is not deterministic",
            where=str(tape.file.path),
            hint=f"compare two runs: offbook replay {tape.file.path} --twice -- COMMAND",
        )
    return ShrunkTape(output, len(short.file), len(tape.file), replays, str(failure))


def _shorter(steps: Steps) -> Iterator[Steps]:
    yield from without_parts(steps)
    for index, step in enumerate(steps):
        left = [position for position in range(step.calls) if position not in step.dropped]
        if len(left) > 1:
            for position in left:
                fewer = step._replace(dropped=tuple(sorted((*step.dropped, position))))
                yield (*steps[:index], fewer, *steps[index + 1 :])


def _size(steps: Steps) -> int:
    calls = sum(step.calls - len(step.dropped) for step in steps)
    return len(steps) * 1000 + calls


def failure_of(test: Callable[[ModelSource], object]) -> Failure:
    """Return how a function fails: the class of its exception, and the line that raised it."""

    def find(source: ModelSource) -> Hashable:
        try:
            ended = test(source)
            if isinstance(ended, Awaitable):
                asyncio.run(_wait(cast("Awaitable[Any]", ended)))
        except ScriptError:
            return None  # the run left the tape
        except Exception as error:  # noqa: BLE001 - any exception is the failure
            return _identify(error)
        return None

    return find


async def _wait(ended: Awaitable[Any]) -> None:
    await ended


def _identify(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = "" if frame is None else f" at {frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}"
    # The errors of Offbook are raised in few places: their words tell them apart.
    words = f": {mask_numbers(error.what)}" if isinstance(error, OffbookError) else ""
    return f"{type(error).__name__}{words}{place}"


def mask_numbers(text: str) -> str:
    """Return the first line of a text, with its numbers replaced: they differ in a shorter run."""
    return re.sub(r"0x[0-9a-f]+|\d+", "#", "".join(text.splitlines()[:1]))


# ------------------------------------------------------------------------------- results of tools


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
        calls[call.id] = f"{call.name} {to_sorted_json(call.arguments).decode()}"
    start = max((n for n, m in enumerate(messages) if m.role == "assistant"), default=-1)
    for result in (result for message in messages[start + 1 :] for result in message.results):
        name = calls.get(result.call_id, result.name or result.call_id)
        yield name, collapse_whitespace(result.text)
