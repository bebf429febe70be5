"""Gives back what was recorded: a source that never asks anybody.

The requests of a hat are answered in the order in which they were recorded. With `strict`, each
must also be the request that was recorded; without, only its turn counts. Conversations that ran
side by side when they were recorded may come in any order: that is chance, not meaning.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import (
    FormatError,
    ReplayMismatch,
    ScriptExhausted,
    ScriptUnfinished,
    UsageError,
)
from offbook.exchange.relay import relays
from offbook.exchange.request import Request
from offbook.sources.auxiliary import stand_in
from offbook.sources.cassette.cursor import Cursor
from offbook.sources.cassette.format import MAIN, Answered, move_chunks, read_reply
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.mismatch import Asking, explain
from offbook.sources.cassette.normal import Normal, count_ids, merge_rules, show_roots, view
from offbook.trace.redaction import Rules, read_rules
from offbook.trace.verdicts import Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from offbook.exchange.reply import Reply
    from offbook.exchange.source import ModelSource
    from offbook.sources.cassette.index import Entry
    from offbook.sources.cassette.tape import Tape
    from offbook.trace.hub import Hub

SHOWN = 5
REPLAYED = "cassette replayed"


class Summary(msgspec.Struct, frozen=True):
    """What came of a replay."""

    interactions_replayed: int
    interactions_passthrough: int
    interactions_unused: int
    drifted: int
    reordered: int
    cost_dollars: float = 0.0


class Hashes(msgspec.Struct, frozen=True):
    """A request, by all that it says, and by its prompt alone where that is asked for."""

    request: str
    prompt: str

    def of(self, entry: Entry) -> str:
        """The hash to compare with that of a recorded request."""
        return self.prompt if entry.prompted else self.request


class Replay:
    """A cassette as a `ModelSource`.

    `passthrough` answers what was not recorded, and each time counts; without one such a request
    fails, and so does every later one. `cursor` is a file that remembers how far the run has
    come, for agents that are started more than once. `redactions` are added to those of the
    cassette; `roots` are folders that have another place in every run. `again` is told when it
    does not fit: the command that records anew, where {number} is the interaction's. `timed`
    streams take as long as they did, where they go over a wire.
    """

    def __init__(  # noqa: PLR0913 - the options of a replay
        self,
        cassette: Path | str | Tape,
        *,
        strict: bool = True,
        passthrough: ModelSource | None = None,
        redactions: Rules | Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
        cursor: Path | None = None,
        hub: Hub | None = None,
        again: str = "",
        timed: bool = False,
    ) -> None:
        self.tape = load(Path(cassette)) if isinstance(cassette, (str, Path)) else cassette
        self.failure: Exception | None = None
        self.passed: list[str] = []
        self.drifted: list[int] = []
        self.reordered: list[int] = []
        self.strict = strict
        self._passthrough = passthrough
        self.relays = relays(passthrough)
        self._hub = hub
        self._again = again
        self.timed = timed
        rules = merge_rules(read_rules(self.tape.header.redactions), redactions)
        self._normal = Normal(rules, roots=roots)
        self._hashes = self.tape.hashes(self._normal)
        self._cursor = Cursor(cursor, cassette=self.tape.digest)
        with self._cursor.turn():  # one of another cassette is refused before anything starts
            pass
        self._queues: dict[str, deque[Entry]] = {}
        self._equals: dict[tuple[str, str], list[Entry]] = {}
        for entry in self.tape.entries:
            key = (entry.hat, self._hashes[entry.number - 1])
            self._queues.setdefault(entry.hat, deque()).append(entry)
            self._equals.setdefault(key, []).append(entry)
        self._prompted = any(entry.prompted for entry in self.tape.entries)
        self._times = self._conversation_times()
        self._given = 0
        if not self.tape.entries:
            raise FormatError(
                "there is nothing to replay: the cassette has no interactions",
                path=self.tape.path,
                hint=f"record it: offbook record {self.tape.path} -- COMMAND",
            )

    # --------------------------------------------------------------------------- answering

    async def reply(self, request: Request, /) -> Reply:
        """What was answered when this was recorded."""
        if (aside := stand_in(request)) is not None and not self._knows(request):
            return aside
        entry = self.take(request)
        if entry is None:
            assert self._passthrough is not None  # noqa: S101 - or there would have been an error
            return await self._passthrough.reply(request)
        response = self._answer(entry)
        return read_reply(
            response, number=entry.number, role="" if entry.hat == MAIN else entry.hat
        )

    def _knows(self, request: Request) -> bool:
        """Whether a call beside the agent's work was recorded, too."""
        with self._cursor.turn() as taken:
            return self._find(hat_of(request), self._hash(request), taken) is not None

    def take(self, request: Request) -> Entry | None:
        """The interaction that answers this request, from now on given; None to pass it on."""
        return self._choose(hat_of(request), self._hash(request), request)

    def next_number(self, request: Request) -> int:
        """The number of the interaction whose turn it is; 0 where there is none left."""
        with self._cursor.turn() as taken:
            queue = _without(self._queues.get(hat_of(request)), taken)
            return queue[0].number if queue else 0

    def output(self, prompt: str, hat: str = MAIN) -> Answered | None:
        """What a command answered to a prompt; None where it has to be asked for real."""
        hashes = Hashes("", self._normal.hash_prompt(prompt))
        entry = self._choose(hat, hashes, prompt)
        return None if entry is None else self._answer(entry)

    def _hash(self, request: Request) -> Hashes:
        try:
            return Hashes(
                self._normal.hash_request(request),
                self._normal.hash_prompt(request.prompt) if self._prompted else "",
            )
        except UsageError:
            with self.tape.blaming():
                raise

    def _choose(self, hat: str, hashes: Hashes, asked: Request | str) -> Entry | None:
        if self.failure is not None:
            raise self.failure
        with self._cursor.turn() as taken:
            entry = self._find(hat, hashes, taken)
            if entry is not None:
                self._cursor.take(entry.number)
                self._given += 1
                return entry
            if self._passthrough is None:
                self.failure = self._miss(hat, hashes, asked, taken)
                raise self.failure
        hash_ = hashes.request or hashes.prompt
        self.passed.append(hash_)
        self._tell(
            "cassette.passthrough", request=len(self.passed) + self._given, hat=hat, hash=hash_
        )
        return None

    def _find(self, hat: str, hashes: Hashes, taken: set[int]) -> Entry | None:
        queue = _without(self._queues.get(hat), taken)
        if not queue:
            return None
        expected = queue[0]
        if self._agree(expected, hashes):
            return expected
        equal = self._find_equal(hat, hashes, queue, taken)
        if equal is not None:
            self.reordered.append(equal.number)
            self._tell("cassette.reordered", interaction=equal.number, hat=hat)
            return equal
        if self.strict:
            return None
        self.drifted.append(expected.number)
        recorded = self._hashes[expected.number - 1]
        told = {"recorded": recorded, "hash": hashes.of(expected)}
        self._tell("cassette.drift", interaction=expected.number, hat=hat, **told)
        return expected

    def _find_equal(
        self, hat: str, hashes: Hashes, queue: deque[Entry], taken: set[int]
    ) -> Entry | None:
        """The same request further on, if all before it ran beside its conversation."""
        for hash_ in filter(None, (hashes.request, hashes.prompt)):
            known = self._equals.get((hat, hash_), ())
            equal = next((entry for entry in known if entry.number not in taken), None)
            if equal is not None and all(
                self._side_by_side(earlier, equal)
                for earlier in queue
                if earlier.number < equal.number and earlier.number not in taken
            ):
                return equal
        return None

    def _agree(self, entry: Entry, hashes: Hashes) -> bool:
        """Whether the hashes are the same; one that people have shortened ends in dots."""
        recorded, hash_ = self._hashes[entry.number - 1], hashes.of(entry)
        if recorded.endswith("..."):
            return bool(hash_) and hash_.startswith(recorded[:-3])
        return recorded == hash_

    def _answer(self, entry: Entry) -> Answered:
        response = self.tape.answer(entry)
        if not response.roots or not self._normal.roots:
            return response
        value = msgspec.to_builtins(response)
        show = partial(show_roots, names=response.roots, roots=self._normal.roots)
        shown = msgspec.convert(show(value), Answered)
        chunks = move_chunks(response.chunks, response.text, shown.text, show)
        return msgspec.structs.replace(shown, chunks=chunks)

    def _tell(self, event: str, **data: Any) -> None:
        if self._hub is not None:
            self._hub.emit(event, data)

    # ------------------------------------------------------------------------------ order

    def _conversation_times(self) -> dict[int, tuple[float, float]]:
        """By its first interaction, when a conversation began and ended, if that is known."""
        times: dict[int, tuple[float, float]] = {}
        for entry in self.tape.entries:
            if entry.at is None:
                continue
            root = self.tape.roots[entry.id]
            begin, end = times.get(root, (entry.at, entry.at))
            times[root] = min(begin, entry.at), max(end, entry.at + entry.took)
        return times

    def _side_by_side(self, one: Entry, other: Entry) -> bool:
        first, second = self.tape.roots[one.id], self.tape.roots[other.id]
        if first == second or first not in self._times or second not in self._times:
            return False
        (begin, end), (start, stop) = self._times[first], self._times[second]
        return begin < stop and start < end

    # ----------------------------------------------------------------------------- failing

    def _miss(self, hat: str, hashes: Hashes, asked: Request | str, taken: set[int]) -> Exception:
        queue = _without(self._queues.get(hat), taken)
        expected = queue[0] if queue else None
        like = expected or self.tape.entries[-1]
        if isinstance(asked, str) or like.prompted:
            prompt = asked if isinstance(asked, str) else asked.prompt
            body: dict[str, Any] = {"prompt": self._normal.tidy(prompt)}
        else:
            ids: dict[str, str] = {}
            messages = [count_ids(message, ids) for message in asked.messages]
            kept = [self._normal.message(m, at) for at, m in enumerate(messages)]
            body = view(self._normal.head(asked), kept)
        asking = Asking(hat, hashes.of(like), body)
        error = explain(self.tape, self._hashes, taken, self._normal, asking, expected, self._again)
        if expected is None and hat in self._queues:
            return ScriptExhausted(error.what)
        return error

    @property
    def left(self) -> list[Entry]:
        """The interactions that nobody has asked for."""
        with self._cursor.turn() as taken:
            return [entry for entry in self.tape.entries if entry.number not in taken]

    def unfinished(self) -> ScriptUnfinished | None:
        """Why the cassette is not played to its end, or nothing."""
        left = self.left
        if not left:
            return None
        shown = [f"    {self._line(entry)}" for entry in left[:SHOWN]]
        more = len(left) - SHOWN
        do = f"  do: find out why the agent asked less, or offbook cassette trim {self.tape.path}"
        return ScriptUnfinished(
            f"cassette not fully replayed: {len(left)} of {len(self.tape)} interactions unused",
            where=str(self.tape.path),
            hint="\n".join((*shown, *([f"    ... +{more} more"] if more > 0 else []), do)),
        )

    def _line(self, entry: Entry) -> str:
        asked = self.tape.read(entry).request
        return f"{entry.number}. (hat: {entry.hat}) {asked.title}".rstrip()

    def verdict(self) -> Verdict:
        """Whether all was replayed, and as it was recorded."""
        summary = msgspec.to_builtins(self.summary())
        if self.failure is not None:
            return Verdict(REPLAYED, "fail", str(self.failure), context=summary)
        unfinished = self.unfinished()
        if unfinished is not None:
            status = "fail" if self.strict else "warn"
            return Verdict(REPLAYED, status, str(unfinished), context=summary)
        if self.passed or self.drifted:
            message = (
                f"{len(self.passed)} requests went to the real model, "
                f"{len(self.drifted)} differed from the recording"
            )
            return Verdict(REPLAYED, "warn", message, context=summary)
        return Verdict(REPLAYED, "pass", context=summary)

    def summary(self) -> Summary:
        """The numbers of this replay."""
        return Summary(
            len(self._cursor.taken),
            len(self.passed),
            len(self.left),
            len(self.drifted),
            len(self.reordered),
        )

    def check_task(self, task: str) -> None:
        """Refuse to replay a recording of another task."""
        recorded = self.tape.header.metadata.get("task")
        if isinstance(recorded, str) and self._normal.hash_prompt(
            recorded
        ) != self._normal.hash_prompt(task):
            raise ReplayMismatch(
                "the task is not the recorded one",
                where=str(self.tape.path),
                hint=f"  recorded: {recorded}\n  given:    {task}",
            )

    def close(self) -> None:
        """Let go of the cursor; a second time is nothing."""
        self._cursor.close()


def hat_of(request: Request) -> str:
    """The hat that whoever asks wears, as far as that is known."""
    hat = request.metadata.get("hat") or request.metadata.get("role")
    return hat if isinstance(hat, str) and hat else MAIN


def _without(queue: deque[Entry] | None, taken: set[int]) -> deque[Entry]:
    """The queue, its beginning rid of what was taken."""
    if queue is None:
        return deque()
    while queue and queue[0].number in taken:
        queue.popleft()
    return queue
