"""The tracks of a tape besides the model: executions of tools, answers of people, and HTTP.

`TrackRecorder` and `HttpRecorder` write them; `ToolReplay`, `PeopleReplay` and `HttpReplay` answer
from them.

An item is answered by the first equal recorded one that is left: a tool by one with the same input,
that of the same call first; a request by one with the same method, URL and body. So tools that run
at the same time may end in any order. What was not recorded ends the replay, as a request to the
model does. The headers of requests, which have keys and cookies, are neither stored nor compared.
"""

from __future__ import annotations

import os
from base64 import b64decode, b64encode
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

import msgspec

from offbook.determinism.run_context import watch_audit_events
from offbook.errors import ReplayMismatch, counted
from offbook.exchange.dialects.dialect import HttpResponse
from offbook.exchange.messages import to_sorted_json
from offbook.exchange.people import Allow, Deny
from offbook.exchange.tool_track import RecordedException, ToolEnd, running_tool
from offbook.sources.cassette.format import (
    RecordedAnswer,
    RecordedHttp,
    RecordedTool,
    hide_roots,
    restore_roots,
)
from offbook.sources.cassette.mismatch import (
    describe_differences,
    describe_track_mismatch,
    find_differences,
)
from offbook.trace.matching import similarity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from offbook.exchange.model import Reply
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.exchange.tool_track import HttpCall, HttpTrack, ToolRun, ToolTrack
    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.sources.cassette.format import Normalizer, RecordedFile
    from offbook.sources.cassette.journal import Journal
    from offbook.trace.redaction import Redaction

MAX_LISTED = 5
RECORD_AGAIN = "record the tape again"

ItemT = TypeVar("ItemT", RecordedTool, RecordedAnswer, RecordedHttp)


# ---------------------------------------------------------------------------------- recording


class TrackRecorder:
    """Writes executions and answers to the journal, each with the interaction that it follows.

    With `known`, the tools of a tape that is extended, executions that it has are answered. `inner`
    are the tools of the recorded source, if that is a replay itself. `effects` are what tools do
    in addition to their result.
    """

    def __init__(
        self,
        journal: Journal,
        normalizer: Normalizer,
        redaction: Redaction,
        *,
        known: ToolReplay | None = None,
        inner: ToolTrack | None = None,
        effects: ToolEffects | None = None,
    ) -> None:
        self._effects = effects
        self.replays = known is not None or (inner is not None and inner.replays)
        self._known = known
        self._inner = inner
        self._journal = journal
        self._normalizer = normalizer
        self._redaction = redaction
        self._calls: dict[str, int] = {}  # the interaction that made each call
        self._latest = 0
        self._latest_outside = 0  # of the agent itself: a replayed tool sends no requests
        self._lock = Lock()

    def note_reply(self, reply: Reply, interaction: int) -> None:
        """Note the calls of a reply: their executions follow it."""
        with self._lock:
            self._latest = max(self._latest, interaction)
            if running_tool.get() is None:
                self._latest_outside = max(self._latest_outside, interaction)
            self._calls |= {call.id: interaction for call in reply.calls}

    @property
    def _before(self) -> int:
        """The interaction that what happens now follows."""
        return self._latest_outside if running_tool.get() is None else self._latest

    def find(self, run: ToolRun, /) -> ToolEnd | None:
        """Return how an execution that is on the tape ended; None to run the tool."""
        if self._known is not None and (known := self._known.find_known(run)) is not None:
            return known
        end = None if self._inner is None or not self._inner.replays else self._inner.find(run)
        if end is not None and not end.real:
            self.add(run, end)
        return end

    @property
    def failure(self) -> Exception | None:
        """The first execution that the recorded source has no end of."""
        return None if self._inner is None else self._inner.failure

    def add(self, run: ToolRun, end: ToolEnd, /) -> None:
        """Write an execution."""
        value = msgspec.to_builtins((end.result, end.error), enc_hook=repr)
        (result, error), roots = hide_roots(self._redaction.value(value), self._normalizer.roots)
        with self._lock:
            after = self._calls.get(run.call_id, self._before)
            recorded = RecordedTool(
                tool=run.tool,
                call=run.call_id,
                input=self._normalizer.clean_value(msgspec.to_builtins(run.input, enc_hook=repr)),
                result=result,
                error=error and msgspec.convert(error, RecordedException),
                type=end.type,
                exact=end.exact,
                real=end.real,
                before=not after,
                roots=roots,
                effects=self._take_effects(run.tool),
            )
            self._journal.add_track(after, recorded)

    def add_http(self, http: RecordedHttp) -> None:
        """Write a request to another server."""
        with self._lock:
            self._journal.add_track(self._before, http)

    def add_file(self, file: RecordedFile) -> None:
        """Write a file that a command changed."""
        with self._lock:
            self._journal.add_track(self._latest, file)

    def _take_effects(self, tool: str) -> tuple[str, ...]:
        if self._effects is None:
            return ()
        cleaned = (self._normalizer.clean_text(effect) for effect in self._effects.take(tool))
        return tuple(dict.fromkeys(cleaned))

    def add_answer(self, question: PersonQuestion, answer: Answer) -> None:
        """Write an answer of a person."""
        given = _answer_fields(answer)
        text, tool, asked = question.text, question.tool, msgspec.to_builtins(question.input)
        with self._lock:
            recorded = RecordedAnswer(
                question=self._normalizer.clean_text(text),
                tool=tool,
                input=self._normalizer.clean_value(asked),
                inside=running_tool.get() or "",
                **self._redaction.value(given),
            )
            self._journal.add_track(self._before, recorded)


def _answer_fields(answer: Answer) -> dict[str, Any]:
    """Return an answer as the fields of a recorded one."""
    if isinstance(answer, Allow):
        return {"decision": "allow", "params": answer.params and dict(answer.params)}
    if isinstance(answer, Deny):
        return {"decision": "deny", "reason": answer.reason}
    return {"answer": msgspec.to_builtins(answer, enc_hook=repr)}


class HttpRecorder:
    """Writes requests and responses; `inner` is the track of a recorded source that replays."""

    def __init__(
        self,
        add: Callable[[RecordedHttp], None],
        normalizer: Normalizer,
        redaction: Redaction,
        inner: HttpTrack | None = None,
    ) -> None:
        self.replays = inner is not None and inner.replays
        self._add = add
        self._normalizer = normalizer
        self._redaction = redaction
        self._inner = inner

    @property
    def failure(self) -> Exception | None:
        """The first request that the recorded source has no response to."""
        return None if self._inner is None else self._inner.failure

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the response of the recorded source, if that is a replay."""
        found = None if self._inner is None else self._inner.find(call)
        if found is not None:
            self.add(call, found)
        return found

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Write a request and its response."""
        try:
            content, data = self._redaction.text(response.body.decode()), ""
        except UnicodeDecodeError:
            content, data = "", b64encode(response.body).decode()
        self._add(
            RecordedHttp(
                method=call.method,
                url=self._normalizer.clean_text(call.url),
                body=self._normalizer.clean_text(_body_text(call)),
                status=response.status,
                headers={k: self._redaction.text(v) for k, v in response.headers.items()},
                content=content,
                data=data,
                inside=running_tool.get() or "",
            )
        )


def _body_text(call: HttpCall) -> str:
    try:
        return call.body.decode()
    except UnicodeDecodeError:
        return b64encode(call.body).decode()


# --------------------------------------------------------------------------- effects of tools

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT
CHANGES = {"os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.truncate", "shutil.rmtree"}
PROCESSES = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}
EVENTS = {"open", "socket.connect", "ctypes.dlsym", *CHANGES, *PROCESSES}
MAX_EFFECTS = 20  # of one execution


class ToolEffects:
    """Collects the effects of the tools that run, by the name of the tool.

    Effects are the files, processes and connections that Python reports. A replay returns the
    result of a tool without them, so a tape lists them. Native code is not seen, except for the
    functions that ctypes looks up.
    """

    def __init__(self) -> None:
        self._effects: dict[str, dict[str, None]] = {}
        self.stop: Callable[[], object] = watch_audit_events(EVENTS, self._observe)

    def _observe(self, event: str, args: tuple[Any, ...]) -> None:
        tool = running_tool.get()
        if tool is None or (effect := _describe_effect(event, args)) is None:
            return
        found = self._effects.setdefault(tool, {})
        if len(found) < MAX_EFFECTS:
            found[effect] = None

    def take(self, tool: str) -> tuple[str, ...]:
        """Return the effects of a tool since the last time."""
        return tuple(self._effects.pop(tool, ()))


def _describe_effect(event: str, args: tuple[Any, ...]) -> str | None:
    """Return an audit event as an effect; None if it only reads."""
    first = args[0] if args else ""
    if event == "open":
        mode, flags = args[1], args[2]
        writes = {*mode} & {*"wax+"} if mode else flags & WRITE_FLAGS
        path = "" if isinstance(first, int) else _event_text(first)
        return f"wrote {path}" if writes and path and "__pycache__" not in path else None
    if event in CHANGES:
        verb = {"os.mkdir": "created", "os.rename": "renamed", "os.truncate": "wrote"}
        return f"{verb.get(event, 'removed')} {_event_text(first)}"
    if event in PROCESSES:
        command = args[1] if event == "subprocess.Popen" else first
        is_list = isinstance(command, (list, tuple))
        words = [_event_text(word) for word in cast("list[Any]", command)] if is_list else []
        words = words or _event_text(command).split()
        return f"started the process {Path(words[0]).name if words else ''}"
    if event == "socket.connect":
        address = cast("tuple[Any, ...]", args[1]) if isinstance(args[1], tuple) else ()
        return f"connected to {address[0]}:{address[1]}" if address else None
    return f"called {args[1]} in native code"


def _event_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


# --------------------------------------------------------------------------------- replaying


class Taped(NamedTuple, Generic[ItemT]):
    """An item of a track: its number there, the interaction that it follows, and its key."""

    number: int
    entry: Entry
    item: ItemT
    key: bytes


class TrackReplay(Generic[ItemT]):
    """The items of one track of a tape, each of which is taken once.

    Equal items have the same `compared` fields, apart from what the redactions of the tape name.
    """

    replays = True
    track = ""

    def __init__(
        self,
        file: CassetteFile,
        entries: list[Entry],
        normalizer: Normalizer,
        items_of: Callable[[Entry], Iterable[ItemT]],
    ) -> None:
        self.failure: Exception | None = None
        self.ended = False  # the run has left the tape: what is not on it happens for real
        self._file = file
        self._normalizer = normalizer
        self._taken: set[int] = set()
        self._lock = Lock()
        items = [(entry, item) for entry in entries for item in items_of(entry)]
        self._taped = [
            Taped[ItemT](number, entry, item, self._key(item))
            for number, (entry, item) in enumerate(items, 1)
        ]

    def _key(self, item: ItemT) -> bytes:
        return to_sorted_json(self._normalizer.comparable(item.compared))

    def __len__(self) -> int:
        return len(self._taped)

    @property
    def answered(self) -> int:
        """The number of items that were taken."""
        return len(self._taken)

    @property
    def unused(self) -> list[Taped[ItemT]]:
        """The recorded items that did not happen."""
        return [taped for taped in self._taped if taped.number not in self._taken]

    def _equal(self, asked: ItemT) -> list[Taped[ItemT]]:
        """Return the recorded items that are equal and left, in the order in which to take them."""
        key = self._key(asked)
        return [taped for taped in self.unused if taped.key == key]

    def take(self, asked: ItemT) -> ItemT | None:
        """Return the recorded item that is equal, now used; None if there is none."""
        with self._lock:
            taped = next(iter(self._equal(asked)), None)
            if taped is None:
                return None
            self._taken.add(taped.number)
            return taped.item

    def take_or_fail(self, asked: ItemT) -> ItemT | None:
        """Return the recorded item, or None after the end of the tape; otherwise raise for good."""
        if self.failure is not None:
            raise self.failure
        if (found := self.take(asked)) is not None or self.ended:
            return found
        self.failure = self.explain(asked)
        raise self.failure

    def explain(self, asked: ItemT) -> ReplayMismatch:
        """Return the error for an item that is not on the tape."""
        raise NotImplementedError

    def _nearest(self, asked: ItemT, candidates: list[Taped[ItemT]]) -> Taped[ItemT] | None:
        def closeness(taped: Taped[ItemT]) -> float:
            return similarity(taped.item.title, asked.title)

        return max(candidates, key=closeness, default=None)

    def _mismatch(
        self,
        fact: str,
        recorded: str,
        asked: ItemT,
        nearest: Taped[ItemT] | None,
        *,
        fix: str = RECORD_AGAIN,
        compare: bool = True,
    ) -> ReplayMismatch:
        differences: list[str] = []
        if nearest is not None and compare:
            found = find_differences(nearest.item.compared, asked.compared)
            differences = [*describe_differences([*found])]
        number = None if nearest is None else nearest.entry.number
        text = describe_track_mismatch(
            self.track, fact, recorded, asked.title, differences, number=number, fix=fix
        )
        return ReplayMismatch(text, where=str(self._file.path))

    def describe_unused(self) -> list[str]:
        """Return a line for each of the first items that did not happen."""
        lines = [f"    {describe_item(taped)}" for taped in self.unused]
        more = len(lines) - MAX_LISTED
        return [*lines[:MAX_LISTED], *([f"    ... +{more} more"] if more > 0 else [])]


def describe_item(taped: Taped[ItemT]) -> str:
    """Return a recorded item, and where it is, for a reader."""
    return f"{taped.item.title} (after interaction {taped.entry.number})"


class ToolReplay(TrackReplay[RecordedTool]):
    """Answers executions from a tape.

    `is_due` says whether the model has made the calls of an interaction: no tool runs before.
    """

    track = "tools"

    def __init__(
        self,
        file: CassetteFile,
        entries: list[Entry],
        normalizer: Normalizer,
        is_due: Callable[[Entry], bool] = lambda _: True,
    ) -> None:
        self._is_due = is_due
        super().__init__(file, entries, normalizer, lambda entry: file.read(entry).tools)

    def find(self, run: ToolRun, /) -> ToolEnd | None:
        """Return how the execution ended on the tape; raise if it is not on it."""
        return self._restore(self.take_or_fail(_describe_run(run)))

    def find_known(self, run: ToolRun) -> ToolEnd | None:
        """Return how the execution ended on the tape; None if it is not on it."""
        return self._restore(self.take(_describe_run(run)))

    def _is_due_now(self, taped: Taped[RecordedTool]) -> bool:
        return not taped.item.call or self._is_due(taped.entry)

    def _equal(self, asked: RecordedTool) -> list[Taped[RecordedTool]]:
        """Return those that are due, that of the same call first."""
        equal = [taped for taped in super()._equal(asked) if self._is_due_now(taped)]
        return sorted(equal, key=lambda taped: taped.item.call != asked.call)

    def _restore(self, tool: RecordedTool | None) -> ToolEnd | None:
        """Return the end of a recorded execution, with the folders of this run."""
        if tool is None:
            return None
        end = ToolEnd(tool.result, tool.error, tool.type, tool.exact, tool.real)
        if not tool.roots:
            return end
        plain = restore_roots(msgspec.to_builtins(end), tool.roots, self._normalizer.roots)
        return msgspec.convert(plain, ToolEnd)

    def add(self, run: ToolRun, end: ToolEnd, /) -> None:
        """Do nothing: a replay writes nothing."""

    def explain(self, asked: RecordedTool) -> ReplayMismatch:
        """Return the error for an execution that is not on the tape."""
        name = asked.tool
        asked = RecordedTool(tool=name, input=self._normalizer.clean_value(asked.input))
        same = [taped for taped in self._taped if taped.item.tool == name]
        left = [taped for taped in same if taped.number not in self._taken]
        due = [taped for taped in left if self._is_due_now(taped)]
        nearest = self._nearest(asked, due or left)
        if nearest is not None and not due:
            fact = f"{name} ran before the model called it"
            recorded = f"{nearest.item.title}, after interaction {nearest.entry.number}"
        elif nearest is not None:
            fact, recorded = f"{name} ran with another input", nearest.item.title
        elif same:
            fact = f"{name} ran more often than recorded"
            recorded = f"{counted(len(same), 'execution')}, all replayed"
        else:
            fact = f"no execution of {name} was recorded"
            recorded = ", ".join(dict.fromkeys(t.item.tool for t in self._taped)) or "none"
        fix = f"{RECORD_AGAIN}, or replay the track model only, with the real tools"
        return self._mismatch(fact, recorded, asked, nearest, fix=fix, compare=bool(due))


def _describe_run(run: ToolRun) -> RecordedTool:
    given = msgspec.to_builtins(run.input, enc_hook=repr)
    return RecordedTool(tool=run.tool, call=run.call_id, input=given)


class PeopleReplay(TrackReplay[RecordedAnswer]):
    """Answers the questions to people from a tape.

    With `tools`, the tools are replayed, too: what one asks is answered only if it runs again.
    """

    track = "people"

    def __init__(
        self, file: CassetteFile, entries: list[Entry], normalizer: Normalizer, *, tools: bool
    ) -> None:
        self._tools = tools
        super().__init__(file, entries, normalizer, lambda entry: file.read(entry).people)

    @property
    def never_asked(self) -> list[str]:
        """The questions that were not asked."""
        left = (taped for taped in self.unused if not (self._tools and taped.item.inside))
        return [describe_item(taped) for taped in left]

    def answer(self, question: PersonQuestion) -> Answer:
        """Return the recorded answer, or raise if the question is not on the tape."""
        given = msgspec.to_builtins(question.input, enc_hook=repr)
        asked = RecordedAnswer(question=question.text, tool=question.tool, input=given)
        if (recorded := self.take(asked)) is None:
            raise self.explain(asked)
        if recorded.decision == "allow":
            return Allow(recorded.params)
        return Deny(recorded.reason) if recorded.decision else recorded.answer

    def explain(self, asked: RecordedAnswer) -> ReplayMismatch:
        """Return the error for a question that is not on the tape."""
        asked = msgspec.structs.replace(
            asked,
            question=self._normalizer.clean_text(asked.question),
            input=self._normalizer.clean_value(asked.input),
        )
        nearest = self._nearest(asked, self.unused)
        recorded = "no other question" if nearest is None else nearest.item.title
        return self._mismatch("the question was not recorded", recorded, asked, nearest)


class HttpReplay(TrackReplay[RecordedHttp]):
    """Answers requests to other servers from a tape.

    Requests of tools are not on it if the tools are replayed, too: then they do not run.
    """

    track = "http"

    def __init__(
        self, file: CassetteFile, entries: list[Entry], normalizer: Normalizer, *, tools: bool
    ) -> None:
        def items_of(entry: Entry) -> list[RecordedHttp]:
            return [http for http in file.read(entry).http if not (tools and http.inside)]

        super().__init__(file, entries, normalizer, items_of)

    def find(self, call: HttpCall, /) -> HttpResponse | None:
        """Return the recorded response; raise if the request is not on the tape."""
        asked = RecordedHttp(method=call.method, url=call.url, body=_body_text(call))
        if (http := self.take_or_fail(asked)) is None:
            return None
        body = b64decode(http.data) if http.data else http.content.encode()
        return HttpResponse(http.status, dict(http.headers), body)

    def add(self, call: HttpCall, response: HttpResponse, /) -> None:
        """Do nothing: a replay writes nothing."""

    def explain(self, asked: RecordedHttp) -> ReplayMismatch:
        """Return the error for a request that is not on the tape."""
        clean = self._normalizer.clean_text
        asked = RecordedHttp(method=asked.method, url=clean(asked.url), body=clean(asked.body))
        nearest = self._nearest(asked, self.unused)
        replayed = f"{counted(len(self), 'request')}, all replayed"
        recorded = replayed if nearest is None else nearest.item.title
        return self._mismatch("a request was not recorded", recorded, asked, nearest)
