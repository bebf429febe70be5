"""Records cassettes: a source in front of another one that stores each request and its reply.

    with Recording(Live(), "tests/refund.yaml") as source:
        ...

Requests are stored normalized, and no secret is stored. A process that dies loses nothing: each
finished exchange is in the journal of the cassette at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any, Self

import msgspec

from offbook.determinism.run_context import Clock, SystemClock
from offbook.errors import ModelError, UsageError, counted
from offbook.exchange.model import Reply, can_relay
from offbook.exchange.people import ask_source
from offbook.exchange.tool_track import running_tool
from offbook.sources.cassette.file_tracks import FileRecorder
from offbook.sources.cassette.format import (
    ANY_HASH,
    MAIN_HAT,
    CassetteTitle,
    ConversationDigest,
    Interaction,
    Normalizer,
    RecordedClock,
    RecordedRequest,
    RecordedResponse,
    hide_roots,
    merge_rules,
    number_call_ids,
    parse_tracks,
    preview,
    response_from_error,
    response_from_reply,
    shift_chunks,
)
from offbook.sources.cassette.journal import Journal, load_cassette, merge_left_journal
from offbook.sources.cassette.maintenance import replace_interaction
from offbook.sources.cassette.replay import Cassette, request_hat
from offbook.sources.cassette.tracks import HttpRecorder, ToolEffects, ToolReplay, TrackRecorder
from offbook.sources.matching import answer_prewarm
from offbook.trace.events import TapeData
from offbook.trace.redaction import Redaction, RedactionRules, parse_redaction_rules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from offbook.determinism.frozen_time import RunClock
    from offbook.exchange.model import ModelSource, Request, Usage
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.sources.cassette.cassette_file import CassetteFile
    from offbook.sources.cassette.format import Tracks
    from offbook.trace.events import Verdict

    Price = Callable[[str, Usage], float | None]

MILLION = 1_000_000


class RecordingSummary(msgspec.Struct, frozen=True):
    """The numbers of a recording."""

    cassette_path: str
    cassette_name: str
    interactions: int
    total_tokens: int
    cost_dollars: float | None
    duration_secs: float
    interrupted: bool = False
    replayed: int = 0


# --------------------------------------------------------------------------------- the clock
# The time of the agent does not change between two interactions, and is then that of the end of the
# last one. So it is the same in each replay, however long the agent and the model take.


def open_clock(
    source: ModelSource, existing: CassetteFile | None, started_ms: int
) -> ClockRecorder | None:
    """Return the clock of a recording: that of the tape it extends or replays, or a new one."""
    if existing is not None and len(existing):
        clock = existing.header.clock
        return None if clock is None else ClockRecorder(clock)
    if isinstance(source, Cassette) and (inner := source.clock_track) is not None:
        return ClockRecorder(source.recorded_clock, inner)
    offset = datetime.fromtimestamp(started_ms / 1000).astimezone().utcoffset() or timedelta()
    return ClockRecorder(RecordedClock(started_ms, randbits(32), int(offset.total_seconds())))


class ClockRecorder:
    """The clock of a recording; `inner` is that of a recorded source that replays."""

    def __init__(self, recorded: RecordedClock, inner: RunClock | None = None) -> None:
        self.clock = recorded.open()
        self.recorded = recorded
        self._inner = inner
        self._inner_second = 0.0
        self._ended_ms = 0

    def time_interaction(self, started_ms: int, duration_ms: float) -> int:
        """Move the clock to the end of an interaction; return its start on this clock."""
        if self._inner is not None:  # the interaction is on another tape, or follows a fork of it
            second, before = self._inner.second, self._inner_second
            self._inner_second = second
            started_ms = self._ended_ms
            if second != before:
                ended_ms = round(second * 1000) - self.recorded.start_ms
                started_ms = max(0, ended_ms - int(duration_ms))
        self.move_to(started_ms + duration_ms)
        return started_ms

    def move_to(self, ended_ms: float) -> None:
        """Move the clock to the end of an interaction."""
        self._ended_ms = max(self._ended_ms, int(ended_ms))
        self.clock.move_to(self.recorded.second(ended_ms))


# ----------------------------------------------------------------------------- the recording


class Recording:
    """A source that stores its exchanges in a cassette.

    An existing cassette is refused, unless the recording is to `append` to it or to `replace`
    it. Appending extends it: requests that it has are answered from it, new ones are recorded.
    `redactions` are stored in the cassette; `roots` are folders that have another path in every
    run, and are stored as placeholders. `price` returns the cost of a reply, if known. `tracks`
    are recorded: the model, and with `"all"` or `"model,tools,people,http,clock,files"` also the
    tools that the agent runs in this process, the answers of people, requests to other servers,
    the time and the random values of the agent, and the files that a command changes.
    """

    def __init__(  # noqa: PLR0913 - the options of a recording
        self,
        source: ModelSource,
        cassette: Path | str,
        *,
        redactions: RedactionRules | Mapping[str, Any] | None = None,
        roots: Mapping[str, Path] | None = None,
        append: bool = False,
        replace: bool = False,
        backend: str = "",
        task: str = "",
        price: Price | None = None,
        clock: Clock | None = None,
        tracks: Tracks = "model",
    ) -> None:
        self.path = Path(cassette)
        self._recorded = recorded = parse_tracks(tracks)
        if "model" not in recorded:
            raise UsageError("a recording has the track 'model'", hint="write tracks='model,tools'")
        self.interrupted = False
        self.relays = can_relay(source)
        self._source = source
        self._price = price
        self._task = task
        self._clock = clock or SystemClock()
        self._started_ms = self._clock.millis()
        self._offset_ms = 0
        with suppress(OSError):  # not writable for us: the journal explains it
            merge_left_journal(self.path)
        existing = load_cassette(self.path) if self.path.exists() and not replace else None
        if existing is not None and len(existing) and not append:
            raise UsageError(
                f"the cassette already has a recording of {counted(len(existing), 'interaction')}",
                where=str(self.path),
                hint="append to it, replace it, or choose another name",
            )
        stored = parse_redaction_rules(existing.header.redactions if existing else None)
        rules = merge_rules(stored, redactions)
        self._normalizer = Normalizer(rules, roots=roots)
        # A reply is stored for the agent to read: the user's patterns are redacted in it, values
        # that only vary from run to run stay.
        own = {name: rule for name, rule in rules.patterns.items() if isinstance(rule, str)}
        self._redaction = Redaction(RedactionRules({**own}))
        self._timing: ClockRecorder | None = None
        if "clock" in recorded:
            self._timing = open_clock(source, existing, self._started_ms)
        title = CassetteTitle(
            self.path.name,
            datetime.fromtimestamp(self._started_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            backend,
            self._normalizer.fingerprint,
            {name: rule for name, rule in msgspec.to_builtins(rules).items() if rule},
            _stored_tracks(recorded, self._timing),
            self._timing and self._timing.recorded,
        )
        self._journal = Journal(self.path, title, fresh=replace)
        # Known conversations by their digest: how a request can refer to one, and to which.
        self._conversations: dict[bytes, tuple[str, int]] = {}
        self._settings_ids: dict[bytes, int] = {}
        self._last_id = 0
        self._responses: list[RecordedResponse] = []
        self._known: Cassette | None = None
        if existing is not None and len(existing):
            self._known = Cassette(existing, redactions=redactions, roots=roots, passthrough=source)
            # New interactions come after the known ones: they did not overlap in time.
            ends = ((entry.started_ms or 0) + entry.duration_ms for entry in existing.entries)
            self._offset_ms = math.ceil(max(ends)) + 1
            digests = existing.conversation_digests(self._normalizer)
            for identity, (before_reply, after_reply) in digests.items():
                self._conversations[before_reply.digest] = ("again", identity)
                self._conversations[after_reply.digest] = ("after", identity)
            for entry in existing.entries:
                self._last_id = max(self._last_id, entry.id)
                if entry.head is None and entry.has_request:
                    digest = self._normalizer.settings_digest(existing.read(entry).request)
                    self._settings_ids.setdefault(digest, entry.id)
        self._effects = ToolEffects() if "tools" in recorded else None
        self._records_people = "people" in recorded
        known = None
        if self._known is not None and "tools" in (file := self._known.file).header.tracks:
            known = ToolReplay(file, file.entries, self._normalizer, self._known.is_used)
        self._tracks = TrackRecorder(
            self._journal,
            self._normalizer,
            self._redaction,
            known=known,
            inner=getattr(source, "tool_track", None),
            effects=self._effects,
        )
        self.tool_track = self._tracks if "tools" in recorded else None
        self.file_track: FileRecorder | None = None
        if "files" in recorded:
            self.file_track = FileRecorder(self._tracks.add_file, self._normalizer, self.path)
        self.http_track: HttpRecorder | None = None
        if "http" in recorded:
            inner = getattr(source, "http_track", None)
            add = self._tracks.add_http
            self.http_track = HttpRecorder(add, self._normalizer, self._redaction, inner)

    @property
    def clock_track(self) -> RunClock | None:
        """The time and the random values of the agent, if they are recorded."""
        return None if self._timing is None else self._timing.clock

    @property
    def tape(self) -> TapeData:
        """What this recording writes, for the trace."""
        return TapeData(str(self.path), list(self._recorded), recorded=True)

    # --------------------------------------------------------------------------- recording

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply of the source, and store it; the errors of a provider are stored too."""
        if self.file_track is not None:
            self.file_track.note()
        if self._known is not None and (entry := self._known.take(request)) is not None:
            if self._timing is not None:
                self._timing.move_to((entry.started_ms or 0) + entry.duration_ms)
            reply = self._known.replay(entry)
            self._tracks.note_reply(reply, entry.id)
            return reply
        if (prewarmed := answer_prewarm(request)) is not None:
            return prewarmed
        if self._journal.failure is not None:  # do not pay for a reply that cannot be stored
            raise self._journal.failure
        self._last_id += 1
        identity, start = self._last_id, time.perf_counter()
        started_ms = self._clock.millis() - self._started_ms + self._offset_ms
        try:
            reply = await self._source.reply(request)
        except BaseException as error:
            if isinstance(error, ModelError) and not error.interrupted:
                response = response_from_error(error, duration=_milliseconds_since(start))
                self._record(identity, started_ms, request, response)
            else:  # an exchange without an end is not an interaction
                self.interrupted = True
            raise
        cost = self._price(reply.model or request.model, reply.usage) if self._price else None
        response = response_from_reply(reply, duration=_milliseconds_since(start), cost=cost)
        self._record(identity, started_ms, request, response)
        self._tracks.note_reply(reply, identity)
        return reply

    @property
    def has_people(self) -> bool:
        """Whether the source has answers of people."""
        return getattr(self._source, "has_people", False)

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Return the answer of the source to a question, and store it."""
        answer = await ask_source(self._source, question)
        if self._records_people:
            self._tracks.add_answer(question, answer)
        return answer

    def verdicts(self) -> list[Verdict]:
        """Return the verdicts of a replay that is recorded, such as that of a fork."""
        return self._source.verdicts() if isinstance(self._source, Cassette) else []

    def record_output(
        self, prompt: str | None, response: RecordedResponse, *, hat: str = MAIN_HAT
    ) -> None:
        """Store the response of a command to a prompt, which is None if it is not known."""
        self._last_id += 1
        request = RecordedRequest(hat=hat, prompt_hash=ANY_HASH)
        if prompt is not None:
            text = self._normalizer.clean_text(prompt)
            hash_ = self._normalizer.hash_prompt(prompt)
            request = RecordedRequest(
                hat=hat, prompt_hash=hash_, prompt_preview=preview(text), prompt=text
            )
        started_ms = self._clock.millis() - self._started_ms + self._offset_ms
        self._store(self._last_id, started_ms, request, response)
        self._tracks.note_reply(Reply(response.reply_blocks), self._last_id)

    def _record(
        self, identity: int, started_ms: int, request: Request, response: RecordedResponse
    ) -> None:
        recorded, conversation = self._normalize_request(request, identity)
        if self._timing is not None:
            started_ms = self._timing.time_interaction(started_ms, response.duration_ms)
        inside = (running_tool.get() or "") if self.tool_track is not None else ""
        self._store(identity, started_ms, recorded, response, inside)
        self._conversations.setdefault(conversation.digest, ("again", identity))
        if response.error is None:
            after = self._normalizer.extend_with_reply(conversation, response.reply_blocks)
            self._conversations[after.digest] = ("after", identity)

    def _normalize_request(
        self, request: Request, identity: int
    ) -> tuple[RecordedRequest, ConversationDigest]:
        """Return a request as it is stored, only with what the cassette does not have yet."""
        # Find the longest beginning of the conversation that is in the cassette.
        conversation = ConversationDigest(ids={})
        reference: dict[str, int] = {}
        known = 0
        for count, message in enumerate(request.messages, 1):
            conversation = self._normalizer.extend(conversation, (message,))
            if (target := self._conversations.get(conversation.digest)) is not None:
                reference, known = {target[0]: target[1]}, count
        ids: dict[str, str] = {}
        numbered = [number_call_ids(message, ids) for message in request.messages]
        messages = tuple(
            self._normalizer.clean_message(message, index)
            for index, message in enumerate(numbered[known:], known)
        )
        # Store the settings once, with the first request that has them.
        digest = self._normalizer.settings_digest(request)
        settings: dict[str, Any] = {"head": self._settings_ids.get(digest)}
        if settings["head"] is None:
            self._settings_ids[digest] = identity
            settings = msgspec.structs.asdict(self._normalizer.settings(request))
        recorded = RecordedRequest(
            hat=request_hat(request),
            prompt_hash=self._normalizer.combine(digest, conversation),
            prompt_preview=preview(
                self._normalizer.clean_text(request.latest_prompt or request.prompt)
            ),
            dialect=str(request.metadata.get("dialect", "")),
            stream=request.stream,
            messages=messages,
            **reference,
            **settings,
        )
        return recorded, conversation

    def _store(
        self,
        identity: int,
        started_ms: int,
        request: RecordedRequest,
        response: RecordedResponse,
        inside: str = "",
    ) -> None:
        value = self._redaction.value(msgspec.to_builtins(response, enc_hook=repr))
        hidden, roots = hide_roots(value, self._normalizer.roots)
        stored = msgspec.convert({**hidden, "roots": roots}, RecordedResponse)

        def hide(text: str) -> str:
            return str(hide_roots(self._redaction.text(text), self._normalizer.roots)[0])

        chunks = shift_chunks(response.chunks, response.text, stored.text, hide)
        stored = msgspec.structs.replace(stored, chunks=chunks)
        interaction = Interaction(
            id=identity, at_ms=started_ms, inside=inside, request=request, response=stored
        )
        self._journal.add(identity, interaction)
        self._responses.append(stored)

    # ------------------------------------------------------------------------------- ending

    def close(self, metadata: Mapping[str, Any] | None = None) -> RecordingSummary:
        """Write the cassette and return the numbers of the recording. Idempotent."""
        fields = dict(metadata or {})
        if self._task:
            fields.setdefault("task", self._normalizer.clean_text(self._task))
        if self.interrupted:
            fields["interrupted"] = True
        clock = self.clock_track
        if clock is not None and clock.processes is not None:
            fields["clock_processes"] = clock.processes
        if self.file_track is not None and self.file_track.truncated:
            fields["files_truncated"] = True
        hidden, _ = hide_roots(self._redaction.value(fields), self._normalizer.roots)
        self._stop_watching()
        self._journal.close(hidden)
        return self.summary()

    def discard(self) -> None:
        """Store nothing; an existing cassette stays as it was."""
        self._stop_watching()
        self._journal.discard()

    def _stop_watching(self) -> None:
        if self._effects is not None:
            self._effects.stop()

    def summary(self) -> RecordingSummary:
        """Return the numbers of this recording."""
        costs = [r.cost_dollars for r in self._responses if r.cost_dollars is not None]
        return RecordingSummary(
            str(self.path),
            self.path.stem,
            len(self._responses),
            sum(response.tokens for response in self._responses),
            # Without a price the cost is unknown, which is not the same as zero.
            round(sum(costs), 8) if costs else None,
            round((self._clock.millis() - self._started_ms) / 1000, 3),
            self.interrupted,
            self._known.summary().interactions_replayed if self._known is not None else 0,
        )

    @property
    def unused(self) -> list[int]:
        """The numbers of the interactions that an extended cassette has, but no request used."""
        return [entry.number for entry in self._known.unused] if self._known is not None else []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.interrupted = self.interrupted or isinstance(
            error, (KeyboardInterrupt, asyncio.CancelledError)
        )
        self.close()


def _stored_tracks(recorded: tuple[str, ...], timing: ClockRecorder | None) -> tuple[str, ...]:
    """Return the tracks of a new tape; one without a clock that is extended gets none."""
    tracks = tuple(track for track in recorded if track != "clock" or timing is not None)
    return tracks if len(recorded) > 1 else ()


def _milliseconds_since(start: float) -> float:
    millis = (time.perf_counter() - start) * 1000
    return round(millis) if millis >= 10 else round(millis, 1)  # noqa: PLR2004 - a digit is enough


def price_table(prices: Iterable[tuple[str, float, float]]) -> Price:
    """Return a price function from (model, dollars per million input tokens, per output)."""
    known = {model: (input_price, output_price) for model, input_price, output_price in prices}

    def price(model: str, usage: Usage) -> float | None:
        if model not in known:
            return None
        input_price, output_price = known[model]
        return (usage.input * input_price + usage.output * output_price) / MILLION

    return price


class Rerecording:
    """A replay that calls the real model for one interaction, and stores the new reply.

    The cassette changes at the end of the block, and only if the run did not fail.
    """

    def __init__(self, cassette: Path, number: int, live: ModelSource) -> None:
        file = load_cassette(cassette)
        file.find(number)
        self._path = cassette
        self._number = number
        self._live = live
        self._replay = Cassette(file, strict=False)
        self._temporary = cassette.with_name(f".{cassette.name}.rerecorded")
        self.recorded = self.interrupted = False
        self.outdated = file.continuations(file.entries[number - 1])

    async def reply(self, request: Request, /) -> Reply:
        """Return the recorded reply, or for the chosen interaction a new one."""
        if self._replay.next_number(request) != self._number:
            return await self._replay.reply(request)
        # One new answer does not belong among answers that were given with the old settings.
        changed = self._replay.changed_settings(request, self._number)
        if changed and len(self._replay.file) > 1:
            raise UsageError(
                f"{', '.join(changed)} changed since the recording, so that all "
                f"{len(self._replay.file)} interactions are outdated, not only {self._number}",
                where=str(self._path),
                hint="record all of them again: use --replace in place of --only",
            )
        self._replay.take(request)
        rules = self._replay.file.header.redactions
        with Recording(self._live, self._temporary, redactions=rules, replace=True) as recording:
            try:
                return await recording.reply(request)
            finally:
                self.interrupted = recording.interrupted
                self.recorded = not self.interrupted

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Replace the old interaction by the new one, unless the run failed."""
        if self.recorded and kind is None:
            (new,) = load_cassette(self._temporary)
            entry = self._replay.file.entries[self._number - 1]
            # The id and the start keep the references of other interactions and their order.
            # What follows it on the other tracks stays, and so does the time of the agent.
            old = self._replay.file.read(entry)
            response = new.response
            if self._replay.file.header.clock is not None:
                response = msgspec.structs.replace(response, duration_ms=entry.duration_ms)
            new = msgspec.structs.replace(
                old,
                id=entry.id,
                at_ms=entry.started_ms,
                request=new.request,
                response=response,
            )
            replace_interaction(self._path, self._number, new)
        self._temporary.unlink(missing_ok=True)
