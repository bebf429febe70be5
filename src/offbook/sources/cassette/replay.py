"""How far a replay has come: in memory, or in a file beside the run.

A command-line agent may be started anew for each of its turns, and several processes may replay
for one run: whoever takes an interaction notes it in the file, under its lock, so that no reply is
given twice. A process that dies between two replies leaves the notes of those it gave.
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
from offbook.exchange.model import Request, can_relay
from offbook.sources.cassette.format import (
    MAIN_HAT,
    RecordedResponse,
    reply_from_response,
    shift_chunks,
)
from offbook.sources.cassette.journal import load_cassette, locked
from offbook.sources.cassette.mismatch import UnmatchedRequest, explain_mismatch
from offbook.sources.cassette.normalize import (
    Normalizer,
    merge_rules,
    number_call_ids,
    request_as_json,
    restore_roots,
)
from offbook.sources.side_requests import answer_side_request
from offbook.trace.events import Verdict
from offbook.trace.redaction import RedactionRules, parse_redaction_rules

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from offbook.exchange.model import ModelSource, Reply
    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.trace.hub import Hub


# --- How far a replay has come: in memory, or in a file beside the run.


class ReplayCursor:
    """The numbers of the interactions that were given already."""

    def __init__(self, path: Path | None = None, *, cassette: str = "") -> None:
        self.taken: set[int] = set()
        self._alone = nullcontext(self.taken)
        self._path = path
        self._cassette = cassette
        self._read = 0
        self._file: int | None = None

    def turn(self) -> AbstractContextManager[set[int]]:
        """Decide what to give while nobody else does; what others gave meanwhile is known."""
        return self._alone if self._path is None else self._share(self._path)

    @contextmanager
    def _share(self, path: Path) -> Generator[set[int]]:
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
            self._file = os.open(path, flags, 0o600)
        with locked(self._file):
            self._catch_up(self._file)
            yield self.taken

    def take(self, number: int) -> None:
        """Note that this interaction is given; inside a turn."""
        self.taken.add(number)
        if self._file is not None:
            self._read += os.write(self._file, b"%d\n" % number)

    def _catch_up(self, file: int) -> None:
        size = os.fstat(file).st_size
        if not size:
            self._read = os.write(file, f"{self._cassette}\n".encode())
            return
        if size <= self._read:
            return
        os.lseek(file, self._read, os.SEEK_SET)
        raw = os.read(file, size - self._read)
        lines = raw.decode("utf-8", "replace").split("\n")
        if not self._read and lines.pop(0) != self._cassette:
            raise FormatError(
                "this cursor belongs to another cassette, or to an earlier state of it",
                path=self._path or "",
                hint="remove the file to begin at the first interaction",
            )
        self.taken.update(int(line) for line in lines if line.isdigit())
        self._read = size

    def close(self) -> None:
        """Let go of the file; a second time is nothing."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


# --- Gives back what was recorded: a source that never asks anybody.

SHOWN = 5
REPLAYED = "cassette replayed"


class ReplaySummary(msgspec.Struct, frozen=True):
    """What came of a replay."""

    interactions_replayed: int
    interactions_passthrough: int
    interactions_unused: int
    drifted: int
    reordered: int
    cost_dollars: float = 0.0


class RequestHashes(msgspec.Struct, frozen=True):
    """A request, by all that it says, and by its prompt alone where that is asked for."""

    request: str
    prompt: str

    def of(self, entry: Entry) -> str:
        """The hash to compare with that of a recorded request."""
        return self.prompt if entry.prompted else self.request


class Cassette:
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
        cassette: Path | str | CassetteFile,
        *,
        strict: bool = True,
        passthrough: ModelSource | None = None,
        redactions: RedactionRules | Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
        cursor: Path | None = None,
        hub: Hub | None = None,
        again: str = "",
        timed: bool = False,
    ) -> None:
        self.tape = load_cassette(Path(cassette)) if isinstance(cassette, (str, Path)) else cassette
        self.failure: Exception | None = None
        self.passed: list[str] = []
        self.drifted: list[int] = []
        self.reordered: list[int] = []
        self.strict = strict
        self._passthrough = passthrough
        self.relays = can_relay(passthrough)
        self._hub = hub
        self._again = again
        self.timed = timed
        rules = merge_rules(parse_redaction_rules(self.tape.header.redactions), redactions)
        self._normal = Normalizer(rules, roots=roots)
        self._hashes = self.tape.hashes(self._normal)
        self._cursor = ReplayCursor(cursor, cassette=self.tape.digest)
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
        if (side_response := answer_side_request(request)) is not None and not self._knows(request):
            return side_response
        entry = self.take(request)
        if entry is None:
            assert self._passthrough is not None  # noqa: S101 - or there would have been an error
            return await self._passthrough.reply(request)
        response = self._answer(entry)
        return reply_from_response(
            response, number=entry.number, role="" if entry.hat == MAIN_HAT else entry.hat
        )

    def _knows(self, request: Request) -> bool:
        """Whether a call beside the agent's work was recorded, too."""
        with self._cursor.turn() as taken:
            return self._find(request_hat(request), self._hash(request), taken) is not None

    def take(self, request: Request) -> Entry | None:
        """The interaction that answers this request, from now on given; None to pass it on."""
        return self._choose(request_hat(request), self._hash(request), request)

    def next_number(self, request: Request) -> int:
        """The number of the interaction whose turn it is; 0 where there is none left."""
        with self._cursor.turn() as taken:
            queue = _without(self._queues.get(request_hat(request)), taken)
            return queue[0].number if queue else 0

    def output(self, prompt: str, hat: str = MAIN_HAT) -> RecordedResponse | None:
        """What a command answered to a prompt; None where it has to be asked for real."""
        hashes = RequestHashes("", self._normal.hash_prompt(prompt))
        entry = self._choose(hat, hashes, prompt)
        return None if entry is None else self._answer(entry)

    def _hash(self, request: Request) -> RequestHashes:
        try:
            return RequestHashes(
                self._normal.hash_request(request),
                self._normal.hash_prompt(request.prompt) if self._prompted else "",
            )
        except UsageError:
            with self.tape.blaming():
                raise

    def _choose(self, hat: str, hashes: RequestHashes, asked: Request | str) -> Entry | None:
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

    def _find(self, hat: str, hashes: RequestHashes, taken: set[int]) -> Entry | None:
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
        self, hat: str, hashes: RequestHashes, queue: deque[Entry], taken: set[int]
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

    def _agree(self, entry: Entry, hashes: RequestHashes) -> bool:
        """Whether the hashes are the same; one that people have shortened ends in dots."""
        recorded, hash_ = self._hashes[entry.number - 1], hashes.of(entry)
        if recorded.endswith("..."):
            return bool(hash_) and hash_.startswith(recorded[:-3])
        return recorded == hash_

    def _answer(self, entry: Entry) -> RecordedResponse:
        response = self.tape.answer(entry)
        if not response.roots or not self._normal.roots:
            return response
        value = msgspec.to_builtins(response)
        show = partial(restore_roots, names=response.roots, roots=self._normal.roots)
        shown = msgspec.convert(show(value), RecordedResponse)
        chunks = shift_chunks(response.chunks, response.text, shown.text, show)
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

    def _miss(
        self, hat: str, hashes: RequestHashes, asked: Request | str, taken: set[int]
    ) -> Exception:
        queue = _without(self._queues.get(hat), taken)
        expected = queue[0] if queue else None
        like = expected or self.tape.entries[-1]
        if isinstance(asked, str) or like.prompted:
            prompt = asked if isinstance(asked, str) else asked.prompt
            body: dict[str, Any] = {"prompt": self._normal.tidy(prompt)}
        else:
            ids: dict[str, str] = {}
            messages = [number_call_ids(message, ids) for message in asked.messages]
            kept = [self._normal.message(m, at) for at, m in enumerate(messages)]
            body = request_as_json(self._normal.head(asked), kept)
        asking = UnmatchedRequest(hat, hashes.of(like), body)
        error = explain_mismatch(
            self.tape, self._hashes, taken, self._normal, asking, expected, self._again
        )
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
        do = f"  fix: find out why the agent asked less, or offbook cassette trim {self.tape.path}"
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

    def summary(self) -> ReplaySummary:
        """The numbers of this replay."""
        return ReplaySummary(
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


def request_hat(request: Request) -> str:
    """The hat that whoever asks wears, as far as that is known."""
    hat = request.metadata.get("hat") or request.metadata.get("role")
    return hat if isinstance(hat, str) and hat else MAIN_HAT


def _without(queue: deque[Entry] | None, taken: set[int]) -> deque[Entry]:
    """The queue, its beginning rid of what was taken."""
    if queue is None:
        return deque()
    while queue and queue[0].number in taken:
        queue.popleft()
    return queue
