"""Replays a cassette: a source that returns recorded replies and never calls a model.

    source = Cassette("tests/refund.yaml")

Each hat has a queue: its requests are answered in the order of the recording. A strict replay
also compares each request with the recorded one; a loose replay only follows the order.
Independent conversations may be replayed in any order: which of them came first in the recording
may be chance.
"""

from __future__ import annotations

import os
import shlex
from collections import deque
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from offbook.capability import load
from offbook.errors import (
    FormatError,
    ReplayMismatch,
    ScriptExhausted,
    ScriptMismatch,
    ScriptUnfinished,
    UsageError,
    counted,
)
from offbook.exchange.model import Request, can_relay
from offbook.exchange.people import ask_source
from offbook.files import wait_for_lock
from offbook.sources.cassette.cassette_file import journal_path, open_cassette_file
from offbook.sources.cassette.file_tracks import FileReplay
from offbook.sources.cassette.format import (
    MAIN_HAT,
    Normalizer,
    RecordedResponse,
    merge_rules,
    number_call_ids,
    parse_tracks,
    reply_from_response,
    request_as_json,
    restore_roots,
    shift_chunks,
)
from offbook.sources.cassette.mismatch import (
    UnmatchedRequest,
    explain_mismatch,
    format_numbers,
    record_again,
    recorded_body,
)
from offbook.sources.cassette.tracks import HttpReplay, PeopleReplay, ToolReplay
from offbook.sources.matching import answer_side_request
from offbook.trace.events import (
    DriftData,
    EventData,
    ForkData,
    PassthroughData,
    ReorderedData,
    TapeData,
    Verdict,
)
from offbook.trace.hub import Hub, current_hub
from offbook.trace.redaction import RedactionRules, parse_redaction_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from datetime import timedelta

    from offbook.determinism.frozen_time import RunClock
    from offbook.exchange.model import ModelSource, Reply
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.sources.cassette.format import RecordedClock, Tracks
    from offbook.sources.cassette.tape_results import ComparedTools, ShrunkTape

MAX_LISTED = 5
VERDICT_NAME = "cassette replayed"


class ReplaySummary(msgspec.Struct, frozen=True):
    """The numbers of a replay."""

    interactions_replayed: int
    interactions_passthrough: int
    interactions_unused: int
    drifted: int
    reordered: int
    cost_dollars: float = 0.0
    tools_replayed: int | msgspec.UnsetType = msgspec.UNSET
    tools_unused: int | msgspec.UnsetType = msgspec.UNSET


class RequestHashes(msgspec.Struct, frozen=True):
    """The hashes of a request: of all of it, and of its prompt alone if the cassette needs that."""

    request: str
    prompt: str

    def comparable_to(self, entry: Entry) -> str:
        """Return the hash to compare with that of a recorded request."""
        return self.prompt if entry.prompt_only else self.request


class Cassette:
    """A cassette as a `ModelSource`.

    `passthrough` answers requests that were not recorded; without it such a request fails, and
    so does every later one. `cursor` is a file that remembers the position, for agents that are
    started more than once in a run. `redactions` are added to those of the cassette; `roots` are
    folders that have another path in every run. `record_command` is shown after a mismatch;
    {number} in it is replaced by the number of the interaction. A `timed` replay streams chunks
    with the recorded delays when it is served over a wire. A recording that is older than
    `max_age` is refused. At the end of a rehearsal all interactions must be used, unless the
    cassette is `continued` by another one.

    Of a tape, `tracks` are replayed. With `"model"`, the tools run for real. With `"all"`, tools
    return what they returned in the recording, and their own code does not run. With `"tools"`,
    `passthrough` is the model. The replay ends after the interaction `until`: `passthrough`
    answers the requests after it, and without one the next request stops the run. `fork` is short
    for that.
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
        record_command: str = "",
        timed: bool = False,
        max_age: timedelta | None = None,
        tracks: Tracks = "model",
        until: int | None = None,
    ) -> None:
        is_path = isinstance(cassette, (str, Path))
        self.file = _open(Path(cassette)) if is_path else cassette
        self.failure: Exception | None = None
        self.passed_through: list[str] = []
        self.drifted: list[int] = []
        self.reordered: list[int] = []
        self.strict = strict
        self._passthrough = passthrough
        self.relays = can_relay(passthrough)
        self._hub = hub
        self.continued = cursor is not None
        self._record_command = record_command
        self.timed = timed
        rules = merge_rules(parse_redaction_rules(self.file.header.redactions), redactions)
        self._normalizer = Normalizer(rules, roots=roots)
        self._hashes = self.file.hashes(self._normalizer)
        self._cursor = ReplayCursor(cursor, cassette=self.file.digest)
        with self._cursor.turn():  # refuse the cursor of another cassette before the agent starts
            pass
        self._tracks = self._choose_tracks(tracks)
        self._until = self._check_until(until)
        self.forked = False  # a request came after the last interaction of the replay
        self._queues: dict[str, deque[Entry]] = {}
        self._by_hash: dict[tuple[str, str], list[Entry]] = {}
        until = len(self.file) if self._until is None else self._until
        self._later = {self._hashes[e.number - 1] for e in self.file.entries[until:]}
        for entry in self.entries:
            key = (entry.hat, self._hashes[entry.number - 1])
            self._queues.setdefault(entry.hat, deque()).append(entry)
            self._by_hash.setdefault(key, []).append(entry)
        self._require_tracks()
        self.tool_track = self._open_tools() if "tools" in self._tracks else None
        self.http_track: HttpReplay | None = None
        self.clock_track: RunClock | None = None
        if "clock" in self._tracks:
            self.clock_track = self.recorded_clock.open()
        self._people: PeopleReplay | None = None
        replayed, entries = "tools" in self._tracks, self.entries
        if "http" in self._tracks:
            self.http_track = HttpReplay(self.file, entries, self._normalizer, tools=replayed)
        if "people" in self._tracks:
            self._people = PeopleReplay(self.file, entries, self._normalizer, tools=replayed)
        self.file_track: FileReplay | None = None
        if "files" in self._tracks and self._until is None:  # a fork changes other files
            self.file_track = FileReplay(self.file, entries, self._normalizer)
        self._needs_prompt_hash = any(entry.prompt_only for entry in self.file.entries)
        self._replayed = 0
        if max_age is not None:
            self._check_age(max_age)
        if not self.file.entries:
            raise FormatError(
                "nothing to replay: the cassette has no interactions",
                path=self.file.path,
                hint=f"record it: offbook record {shlex.quote(str(self.file.path))} -- COMMAND",
            )

    def _choose_tracks(self, tracks: Tracks) -> tuple[str, ...]:
        """Return the tracks to replay; all are those that the tape has."""
        stored = self.file.header.tracks
        return stored if tracks == "all" and stored else parse_tracks(tracks)

    def _require_tracks(self) -> None:
        stored = self.file.header.tracks or ("model",)
        for track in self._tracks:
            if track not in stored:
                raise UsageError(
                    f"the cassette has no track {track!r}, only {', '.join(stored)}",
                    where=str(self.file.path),
                    hint="record it with tracks='all' (offbook record --tracks all)",
                )

    @property
    def recorded_clock(self) -> RecordedClock:
        """The clock of the tape."""
        if (clock := self.file.header.clock) is None:
            raise FormatError("the tape has the track 'clock', but no clock", path=self.file.path)
        return clock

    def _open_tools(self) -> ToolReplay:
        if "model" in self._tracks:
            return ToolReplay(self.file, self.entries, self._normalizer, self.is_used)
        return ToolReplay(self.file, self.file.entries, self._normalizer)

    def _check_until(self, until: int | None) -> int | None:
        if "model" not in self._tracks:
            if self._passthrough is None or until is not None:
                raise UsageError(
                    "the track 'tools' alone has no model",
                    where=str(self.file.path),
                    hint="give one: passthrough=Live(), or a playbook",
                )
            return 0
        if until is not None:
            self.file.find(until)
        return until

    @property
    def entries(self) -> list[Entry]:
        """The interactions that are replayed: all of them, or those before a fork.

        What a tool asked the model is part of the tool, if that is replayed.
        """
        entries = self.file.entries[: self._until]
        return [e for e in entries if not e.inside] if "tools" in self._tracks else entries

    def fork(self, step: int, source: ModelSource) -> Cassette:
        """Return a replay of the first interactions, up to this one, that `source` continues.

        The agent runs from the beginning. The tracks are those of this replay; after the fork, the
        tools run for real.

            drive(agent, source=Cassette("run.yaml", tracks="all").fork(39, Live())).run("Go on")
        """
        return Cassette(
            self.file,
            strict=self.strict,
            passthrough=source,
            hub=self._hub,
            record_command=self._record_command,
            timed=self.timed,
            until=step,
            **self.track_options,
        )

    def shrink(self, test: Callable[[ModelSource], object], output: Path | str) -> ShrunkTape:
        """Write the shortest tape with which a test still fails in the same way.

        The test gets a source, runs the agent with it and raises an exception. Interactions are
        left out as long as the exception is the same. The tracks are those of this replay.

            def refund(source):
                assert drive(agent, source=source).run("Refund order 7").output == "Refunded."

            Cassette("run.yaml", tracks="all").shrink(refund, "short.yaml")
        """
        # By name: it builds on this class.
        failure_of = load("offbook.sources.cassette.rerunning:failure_of")
        shrink_tape = load("offbook.sources.cassette.rerunning:shrink_tape")
        return shrink_tape(self, failure_of(test), Path(output))

    def compare_tools(self, run: Callable[[ModelSource], object]) -> ComparedTools:
        """Run an agent twice with the recorded model and its real tools; compare the results.

        `run` gets a source and runs the agent with it. A call whose result differs is a change:
        between the two runs, the tool is not deterministic.
        """
        return load("offbook.sources.cassette.rerunning:compare_tools")(self, run)

    @property
    def track_options(self) -> dict[str, Any]:
        """The options of another replay of the same tracks with the same redactions."""
        rules, roots = self._normalizer.rules, self._normalizer.roots
        return {"tracks": self._tracks, "redactions": rules, "roots": roots}

    @property
    def recording_options(self) -> dict[str, Any]:
        """The options of a recording of the same tracks as this tape."""
        tracks = self.file.header.tracks or ("model",)
        return {**self.track_options, "tracks": tracks}

    @property
    def tape(self) -> TapeData:
        """What this replay answers from, for the trace."""
        return TapeData(str(self.file.path), list(self._tracks), recorded=False)

    @property
    def diverged(self) -> bool:
        """True if the run left the tape."""
        return self._first_failure is not None

    @property
    def _first_failure(self) -> Exception | None:
        for part in (self, self.tool_track, self.http_track):
            if part is not None and part.failure is not None:
                return part.failure
        return None

    def is_used(self, entry: Entry) -> bool:
        """Return whether an interaction was replayed."""
        return entry.number in self._cursor.used

    # ------------------------------------------------------------------------------ replies

    async def reply(self, request: Request, /) -> Reply:
        """Return the recorded reply to this request."""
        side_reply = answer_side_request(request)
        if side_reply is not None:
            # A client's own calls, for titles and the like, are replayed only if recorded.
            with self._cursor.turn() as used:
                entry, _ = self._match(request_hat(request), self._hash(request), used)
            if entry is None:
                return side_reply
        entry = self.take(request)
        if entry is None:
            assert self._passthrough is not None  # noqa: S101 - otherwise take() has raised
            return await self._passthrough.reply(request)
        return self.replay(entry)

    @property
    def at_once(self) -> bool:
        """Whether no reply waits."""
        return self._passthrough is None

    @property
    def has_people(self) -> bool:
        """Whether the tape, or the source behind it, has answers of people."""
        if self._people is not None and not self.forked:
            return len(self._people) > 0
        return getattr(self._passthrough, "has_people", False)

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the recorded answer of a person to a question of the agent."""
        if self._people is not None and not self.forked:
            return self._people.answer(question)
        if self._passthrough is not None:
            return await ask_source(self._passthrough, question)
        raise ScriptMismatch(
            f"the agent asked a person {question}, and Cassette has no answers",
            hint="record and replay the track people: tracks='all'",
        )

    def replay(self, entry: Entry) -> Reply:
        """Return the reply of an interaction, or raise the error that was recorded."""
        role = "" if entry.hat == MAIN_HAT else entry.hat
        return reply_from_response(self._response(entry), number=entry.number, role=role)

    def reply_to_prompt(self, prompt: str, hat: str = MAIN_HAT) -> RecordedResponse | None:
        """Return the recorded response of a command to a prompt; None to run it for real."""
        hashes = RequestHashes("", self._normalizer.hash_prompt(prompt))
        entry = self._choose(hat, hashes, prompt)
        return None if entry is None else self._response(entry)

    def take(self, request: Request) -> Entry | None:
        """Return the interaction for this request and mark it as used; None to pass it through."""
        return self._choose(request_hat(request), self._hash(request), request)

    def next_number(self, request: Request) -> int:
        """Return the number of the next interaction for this request's hat; 0 at the end."""
        with self._cursor.turn() as used:
            queue = self._remaining(request_hat(request), used)
            return queue[0].number if queue else 0

    def changed_settings(self, request: Request, number: int) -> list[str]:
        """Return the settings (`model`, `tools`, …) that differ from a recorded request."""
        entry = self.file.entries[number - 1]
        if not entry.has_request or entry.prompt_only:
            return []
        recorded = recorded_body(self.file, entry, self._normalizer)
        current = request_as_json(self._normalizer.settings(request), ())
        names = [name for name in {**recorded, **current} if name != "messages"]
        return [name for name in names if recorded.get(name) != current.get(name)]

    def _hash(self, request: Request) -> RequestHashes:
        try:
            return RequestHashes(
                self._normalizer.hash_request(request),
                # Importers store what a person wrote: clients add other texts to it.
                self._normalizer.hash_prompt(request.latest_prompt)
                if self._needs_prompt_hash
                else "",
            )
        except UsageError:
            with self.file.locate_redaction_errors():
                raise

    def read_response(self, entry: Entry) -> RecordedResponse:
        """Return a recorded response, with the placeholders of its folders."""
        return self.file.read_response(entry)

    def _response(self, entry: Entry) -> RecordedResponse:
        response = self.read_response(entry)
        if not response.roots:
            return response
        restore = partial(restore_roots, names=response.roots, roots=self._normalizer.roots)
        restored = msgspec.convert(restore(msgspec.to_builtins(response)), RecordedResponse)
        chunks = shift_chunks(response.chunks, response.text, restored.text, restore)
        return msgspec.structs.replace(restored, chunks=chunks)

    # --------------------------------------------------------------- choosing an interaction

    def _choose(self, hat: str, hashes: RequestHashes, request: Request | str) -> Entry | None:
        """Return the matching interaction, now used; None to pass through; raise on a mismatch."""
        # After one mismatch the agent is on another path: a later match would be chance.
        if (failure := self._first_failure) is not None:
            raise failure
        with self._cursor.turn() as used:
            entry, kind = self._match(hat, hashes, used)
            if entry is not None:
                self._cursor.take(entry.number)
                self._replayed += 1
                self._move_clock(entry)
            elif self._is_fork(hat, hashes, used):
                self._note_fork(request)
            elif self._passthrough is None or self._until is not None:
                self.failure = self.explain(hat, hashes, request, used)
                raise self.failure
        if entry is None:
            if self._until is None:
                hash_ = hashes.request or hashes.prompt
                self.passed_through.append(hash_)
                count = len(self.passed_through) + self._replayed
                self._emit(PassthroughData(count, hat, hash_))
        elif kind == "reordered":
            self.reordered.append(entry.number)
            self._emit(ReorderedData(entry.number, hat))
        elif kind == "drifted":
            self.drifted.append(entry.number)
            recorded, hash_ = self._hashes[entry.number - 1], hashes.comparable_to(entry)
            self._emit(DriftData(entry.number, hat, recorded, hash_))
        return entry

    def _move_clock(self, entry: Entry) -> None:
        """Let the time of the run be that at the end of an interaction."""
        if self.clock_track is not None:
            ended = (entry.started_ms or 0) + entry.duration_ms
            self.clock_track.move_to(self.recorded_clock.second(ended))

    def _is_fork(self, hat: str, hashes: RequestHashes, used: set[int]) -> bool:
        """Return whether a request comes after the last interaction that is replayed."""
        if self._until is None:
            return False
        # Of two conversations at once, one may be past the fork before the other.
        return not self._remaining(hat, used) or hashes.request in self._later

    def _note_fork(self, request: Request | str) -> None:
        """Note where the run leaves the tape; stop it if nothing continues it."""
        if not self.forked and self._until:
            self._emit(ForkData(str(self.file.path), self._until))
            # A playbook finds its turn by the prompt, which is in the past.
            if (join := getattr(self._passthrough, "join", None)) is not None:
                join(request)
        self.forked = True
        for track in (self.tool_track, self.http_track):
            if track is not None and self._until:
                track.ended = True
        if self.clock_track is not None:
            self.clock_track.run_on()
        if self._passthrough is None:
            self.failure = ScriptExhausted(
                f"the replay ends after interaction {self._until}", where=str(self.file.path)
            )
            raise self.failure

    def _match(
        self, hat: str, hashes: RequestHashes, used: set[int]
    ) -> tuple[Entry | None, Literal["reordered", "drifted"] | None]:
        """Return the interaction for a request, and how it deviates. Changes nothing."""
        queue = self._remaining(hat, used)
        if not queue:
            return None, None

        # 1. The next interaction of this hat, if its hash is that of the request. People shorten
        #    hashes in a cassette that they write by hand: "sha256:ab12...", or "sha256:..." for
        #    any request.
        expected = queue[0]
        recorded, hash_ = self._hashes[expected.number - 1], hashes.comparable_to(expected)
        if recorded.endswith("..."):
            if hash_ and hash_.startswith(recorded[:-3]):
                return expected, None
        elif recorded == hash_:
            return expected, None

        # 2. The same request further on in the queue, if the conversation that it continues was
        #    replayed. Independent conversations are matched by what they ask: which one came first
        #    may have been chance. Prompts of commands, which run one after the other, keep their
        #    order.
        candidates = self._by_hash.get((hat, hashes.request), ())
        equal = next((entry for entry in candidates if entry.number not in used), None)
        if equal is not None and self._is_due(equal, used):
            return equal, "reordered"

        # 3. A loose replay returns the next interaction whatever the request says. A strict one
        #    has no reply.
        return (None, None) if self.strict else (expected, "drifted")

    def _remaining(self, hat: str, used: set[int]) -> deque[Entry]:
        """Return the queue of a hat without the used interactions at its beginning."""
        queue = self._queues.get(hat, deque())
        while queue and queue[0].number in used:
            queue.popleft()
        return queue

    def _is_due(self, entry: Entry, used: set[int]) -> bool:
        """Return whether all replies that the request of this interaction contains were given."""
        while (before := entry.after or entry.again) is not None:
            earlier = self.file.entry_by_id(before)
            if entry.after is not None and earlier.number not in used:
                return False
            entry = earlier  # `again` repeats a request without its reply
        return True

    def _emit(self, data: EventData) -> None:
        if (hub := self._hub or current_hub.get()) is not None:
            hub.emit_data(data)

    # ------------------------------------------------------------------------------- errors

    def explain(
        self, hat: str, hashes: RequestHashes, request: Request | str, used: set[int]
    ) -> Exception:
        """Return the error for a request that was not recorded."""
        queue = self._remaining(hat, used)
        expected = queue[0] if queue else None
        sample = expected or self.file.entries[-1]
        if isinstance(request, str) or sample.prompt_only:
            text = request if isinstance(request, str) else request.latest_prompt
            body: dict[str, Any] = {"prompt": self._normalizer.clean_text(text)}
            prompt = ""
        else:
            prompt = self._normalizer.clean_text(request.latest_prompt)
            ids: dict[str, str] = {}
            numbered = [number_call_ids(message, ids) for message in request.messages]
            messages = [self._normalizer.clean_message(m, i) for i, m in enumerate(numbered)]
            body = request_as_json(self._normalizer.settings(request), messages)
        error = explain_mismatch(
            self.file,
            self._hashes,
            used,
            self._normalizer,
            UnmatchedRequest(hat, hashes.comparable_to(sample), body, prompt),
            expected,
            self._record_command,
        )
        exhausted = expected is None and hat in self._queues
        return ScriptExhausted(error.what) if exhausted else error

    @property
    def unused(self) -> list[Entry]:
        """The interactions that were not replayed."""
        with self._cursor.turn() as used:
            return [entry for entry in self.entries if entry.number not in used]

    def unfinished(self) -> ScriptUnfinished | None:
        """Return an error if interactions are left over, otherwise None."""
        unused = self.unused
        if not unused:
            return None
        lines: list[str] = []
        for entry in unused[:MAX_LISTED]:
            title = self.file.read(entry).request.title
            lines.append(f"    {entry.number}. (hat: {entry.hat}) {title}".rstrip())
        if len(unused) > MAX_LISTED:
            lines.append(f"    ... +{len(unused) - MAX_LISTED} more")
        numbers = format_numbers([entry.number for entry in unused])
        lines.append(
            "  fix: find out why the agent sent fewer requests, or remove the unused ones: "
            f"offbook cassette edit {shlex.quote(str(self.file.path))} --trim {numbers}"
        )
        return ScriptUnfinished(
            f"cassette not fully replayed: {len(unused)} of {len(self.entries)} "
            "interactions unused",
            where=str(self.file.path),
            hint="\n".join(lines),
        )

    def _check_age(self, limit: timedelta) -> None:
        recorded = self.file.recorded
        command = record_again(self.file, "--replace", self._record_command)
        if recorded is None:
            raise UsageError(
                "the age of the recording is unknown: it has no line `# recorded: DATE`",
                where=str(self.file.path),
                hint=f"record it again: {command}",
            )
        age = datetime.now(UTC) - recorded
        if age > limit:
            raise UsageError(
                f"the recording is {age.days} days old, the limit is {limit}",
                where=str(self.file.path),
                hint=f"record it again: {command}",
            )

    def check_task(self, task: str) -> None:
        """Refuse to replay the recording of another task."""
        recorded = self.file.header.metadata.get("task")
        if not isinstance(recorded, str):
            return
        expected, got = map(self._normalizer.hash_prompt, (recorded, task))
        if expected != got:
            raise ReplayMismatch(
                "the task differs from the recorded one",
                where=str(self.file.path),
                hint=f"  expected: {recorded} ({expected})\n  got:      {task} ({got})",
            )

    # ------------------------------------------------------------------------------ results

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts at the end of a rehearsal, also those of the source of a fork."""
        if self.continued:
            return []
        verdicts = [self.verdict()]
        # A playbook has an error in place of verdicts.
        verdicts += getattr(self._passthrough, "verdicts", tuple)()
        if (error := getattr(self._passthrough, "unfinished", lambda: None)()) is not None:
            verdicts.append(Verdict("playbook consumed", "fail", str(error)))
        return verdicts

    def verdict(self) -> Verdict:
        """Return whether everything was replayed as it was recorded."""
        summary = msgspec.to_builtins(self.summary())
        if (failure := self._first_failure) is not None:
            return Verdict(VERDICT_NAME, "fail", str(failure), context=summary)
        unfinished = self.unfinished()
        if unfinished is not None:
            status = "fail" if self.strict else "warn"
            return Verdict(VERDICT_NAME, status, str(unfinished), context=summary)
        if (problem := self.judge_tracks()) is not None:
            return Verdict(VERDICT_NAME, "fail", problem, context=summary)
        if self._until and not self.forked and self._passthrough is not None:
            message = f"the agent ended at interaction {self._until}: the fork was never reached"
            return Verdict(VERDICT_NAME, "fail", message, context=summary)
        if self.passed_through or self.drifted:
            message = (
                f"{counted(len(self.passed_through), 'request')} went to the real model, "
                f"{len(self.drifted)} differed from the recording"
            )
            return Verdict(VERDICT_NAME, "warn", message, context=summary)
        if self.file_track is not None and (files := self.file_track.not_compared):
            message = f"{counted(files, 'file')} of the tape not compared: no command was run"
            return Verdict(VERDICT_NAME, "warn", message, context=summary)
        return Verdict(VERDICT_NAME, "pass", context=summary)

    def judge_tracks(self) -> str | None:
        """Return what is left of the tools and the people of a tape, or None."""
        differing_file = None if self.file_track is None else self.file_track.judge()
        return self._judge_tools() or self._judge_people() or self._judge_http() or differing_file

    def _judge_tools(self) -> str | None:
        """Return what is wrong with the executions of tools at the end, or None."""
        tools = self.tool_track
        if tools is None:
            return None
        if "model" not in self._tracks:  # another model may call fewer tools
            return None if tools.answered else "no tool was answered from the tape"
        if not tools.unused:
            return None
        fact = f"tape not fully replayed: {len(tools.unused)} of {len(tools)} executions of tools"
        fix = "  fix: find out why the agent ran fewer tools, or record the tape again"
        return "\n".join([f"{fact} did not happen", *tools.describe_unused(), fix])

    def _judge_people(self) -> str | None:
        if self._people is None or "model" not in self._tracks or not self._people.never_asked:
            return None
        return "tape not fully replayed: never asked: " + "; ".join(self._people.never_asked)

    def _judge_http(self) -> str | None:
        if self.http_track is None or "model" not in self._tracks or not self.http_track.unused:
            return None
        fact = f"tape not fully replayed: never sent: {len(self.http_track.unused)} of its requests"
        return "\n".join([fact, *self.http_track.describe_unused()])

    def summary(self) -> ReplaySummary:
        """Return the numbers of this replay."""
        summary = ReplaySummary(
            len(self._cursor.used),
            len(self.passed_through),
            len(self.unused),
            len(self.drifted),
            len(self.reordered),
        )
        if (tools := self.tool_track) is None:
            return summary
        return msgspec.structs.replace(
            summary, tools_replayed=tools.answered, tools_unused=len(tools.unused)
        )

    def close(self) -> None:
        """Close the cursor file. Idempotent."""
        self._cursor.close()


def _open(path: Path) -> CassetteFile:
    if journal_path(path).exists():
        from offbook.sources.cassette.journal import load_cassette  # a recorder was killed, or runs

        return load_cassette(path)
    return open_cassette_file(path)


def request_hat(request: Request) -> str:
    """Return the hat of the agent that sent a request, as far as it is known."""
    hat = request.metadata.get("hat") or request.metadata.get("role")
    return hat if isinstance(hat, str) and hat else MAIN_HAT


class ReplayCursor:
    """The position of a replay: the numbers of the interactions that were used.

    It is in memory, or in a file. A command-line agent may be started again for each turn, and
    several processes may replay for one run: each one notes its interactions in the file, under
    its lock, so that no reply is given twice. A process that dies leaves its notes behind.
    """

    def __init__(self, path: Path | None, *, cassette: str) -> None:
        self.used: set[int] = set()
        self._unshared = nullcontext(self.used)
        self._path = path
        self._cassette = cassette
        self._bytes_read = 0
        self._file: int | None = None

    def turn(self) -> AbstractContextManager[set[int]]:
        """Enter a choice that no other process can make at the same time."""
        return self._unshared if self._path is None else self._shared_turn(self._path)

    @contextmanager
    def _shared_turn(self, path: Path) -> Generator[set[int]]:
        if self._file is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        with wait_for_lock(self._file):
            self._read_new(self._file, path)
            yield self.used

    def _read_new(self, file: int, path: Path) -> None:
        """Read the notes that other processes have added."""
        size = os.fstat(file).st_size
        if not size:
            self._bytes_read = os.write(file, f"{self._cassette}\n".encode())
            return
        # A process that was forked shares the position in the file.
        os.lseek(file, self._bytes_read, os.SEEK_SET)
        raw = os.read(file, size)
        lines = raw.split(b"\n")
        if not self._bytes_read and lines.pop(0) != self._cassette.encode():
            raise FormatError(
                "the cursor belongs to another cassette, or to an earlier version of it",
                path=path,
                hint="remove the file to start at the first interaction",
            )
        self.used.update(int(line) for line in lines if line.isdigit())
        self._bytes_read += len(raw)

    def take(self, number: int) -> None:
        """Mark an interaction as used; only inside a turn."""
        self.used.add(number)
        if self._file is not None:
            self._bytes_read += os.write(self._file, b"%d\n" % number)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
