"""The other tracks of a tape: the executions of tools, and the answers of people.

`TrackRecorder` writes them, `ToolReplay` and `PeopleReplay` answer from them.

An execution is answered by the first recorded one of the same tool with the same input, that of
the same call first. So tools that run at the same time may end in any order. One that was not
recorded ends the replay, as a request to the model does.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from offbook.errors import ReplayMismatch, counted
from offbook.exchange.people import Allow, Deny
from offbook.exchange.tool_track import RecordedException, ToolEnd, running_tool
from offbook.sources.cassette.format import (
    RecordedAnswer,
    RecordedTool,
    hide_roots,
    restore_roots,
)
from offbook.sources.cassette.mismatch import describe_differences, find_differences
from offbook.trace.matching import similarity

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.exchange.model import Reply
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.exchange.tool_track import ToolRun, ToolTrack
    from offbook.sources.cassette.cassette_file import CassetteFile, Entry
    from offbook.sources.cassette.format import Normalizer, RecordedFile, RecordedHttp
    from offbook.sources.cassette.journal import Journal
    from offbook.sources.cassette.tool_effects import ToolEffects
    from offbook.trace.redaction import Redaction

MAX_LISTED = 5


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
        if self._known is not None and (found := self._known.take(run)) is not None:
            return self._known.restore(found)
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
            self._journal.add_tool(after, recorded)

    def add_http(self, http: RecordedHttp) -> None:
        """Write a request to another server."""
        with self._lock:
            self._journal.add_http(self._before, http)

    def add_file(self, file: RecordedFile) -> None:
        """Write a file that a command changed."""
        with self._lock:
            self._journal.add_file(self._latest, file)

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
            self._journal.add_answer(self._before, recorded)


class TapedTool(NamedTuple):
    """An execution on a tape: its number there, the interaction that it follows, and its key."""

    number: int
    entry: Entry
    tool: RecordedTool
    key: bytes


class ToolReplay:
    """Answers executions from a tape.

    `is_due` says whether the model has made the calls of an interaction: no tool runs before.
    """

    replays = True

    def __init__(
        self,
        file: CassetteFile,
        entries: list[Entry],
        normalizer: Normalizer,
        is_due: Callable[[Entry], bool] = lambda _: True,
    ) -> None:
        self.failure: Exception | None = None
        self.ended = False  # the run has left the tape: tools that are not on it run for real
        self._file = file
        self._normalizer = normalizer
        self._is_due = is_due
        self._taken: set[int] = set()
        self._lock = Lock()
        self._tools: list[TapedTool] = []
        for entry in entries:
            for tool in file.read(entry).tools:
                key = self._key(tool.tool, tool.input)
                self._tools.append(TapedTool(len(self._tools) + 1, entry, tool, key))

    def _key(self, tool: str, given: Any) -> bytes:
        compared = self._normalizer.comparable({"tool": tool, "input": given})
        return msgspec.json.encode(compared, order="sorted")

    def __len__(self) -> int:
        return len(self._tools)

    @property
    def answered(self) -> int:
        """The number of executions that were answered."""
        return len(self._taken)

    @property
    def unused(self) -> list[TapedTool]:
        """The recorded executions that did not happen."""
        return [taped for taped in self._tools if taped.number not in self._taken]

    def find(self, run: ToolRun, /) -> ToolEnd | None:
        """Return how the execution ended on the tape; raise if it is not on it."""
        if self.failure is not None:
            raise self.failure
        if (taped := self.take(run)) is not None:
            return self.restore(taped)
        if self.ended:
            return None
        self.failure = self._explain(run)
        raise self.failure

    def take(self, run: ToolRun) -> TapedTool | None:
        """Return the recorded execution for this one, now used; None if there is none."""
        key = self._key(run.tool, msgspec.to_builtins(run.input, enc_hook=repr))
        with self._lock:
            equal = [taped for taped in self.unused if taped.key == key and self._may_run(taped)]
            same_call = [taped for taped in equal if taped.tool.call == run.call_id]
            taped = next(iter([*same_call, *equal]), None)
            if taped is not None:
                self._taken.add(taped.number)
            return taped

    def _may_run(self, taped: TapedTool) -> bool:
        return not taped.tool.call or self._is_due(taped.entry)

    def restore(self, taped: TapedTool) -> ToolEnd:
        """Return the end of a recorded execution, with the folders of this run."""
        tool = taped.tool
        end = ToolEnd(tool.result, tool.error, tool.type, tool.exact, tool.real)
        if not tool.roots:
            return end
        plain = restore_roots(msgspec.to_builtins(end), tool.roots, self._normalizer.roots)
        return msgspec.convert(plain, ToolEnd)

    def add(self, run: ToolRun, end: ToolEnd, /) -> None:
        """Do nothing: a replay writes nothing."""

    # ------------------------------------------------------------------------------- errors

    def _explain(self, run: ToolRun) -> ReplayMismatch:
        """Return the error for an execution that is not on the tape."""
        given = self._normalizer.clean_value(msgspec.to_builtins(run.input, enc_hook=repr))
        asked = RecordedTool(tool=run.tool, input=given)
        same = [taped for taped in self._tools if taped.tool.tool == run.tool]
        left = [taped for taped in same if taped.number not in self._taken]
        due = [taped for taped in left if self._may_run(taped)]
        nearest = max(
            due or left, key=lambda taped: similarity(taped.tool.title, asked.title), default=None
        )
        differences: list[str] = []
        if nearest is not None and not due:
            fact = f"{run.tool} ran before the model called it"
            recorded = f"{nearest.tool.title}, after interaction {nearest.entry.number}"
        elif nearest is not None:
            fact = f"{run.tool} ran with another input"
            recorded = nearest.tool.title
            found = [*find_differences(nearest.tool.input, given, "$.input")]
            differences = [*describe_differences(found)]
        elif same:
            fact = f"{run.tool} ran more often than recorded"
            recorded = f"{counted(len(same), 'execution')}, all replayed"
        else:
            fact = f"no execution of {run.tool} was recorded"
            recorded = ", ".join(dict.fromkeys(t.tool.tool for t in self._tools)) or "none"
        at = "" if nearest is None else f" at interaction {nearest.entry.number}"
        fix = "record the tape again, or replay the track model only, with the real tools"
        lines = [
            f"Replay mismatch{at} (track: tools): {fact}",
            f"Recorded: {recorded}",
            f"Got:      {asked.title}",
            *differences,
            f"Fix, if the change is intended: {fix}",
        ]
        return ReplayMismatch("\n".join(lines), where=str(self._file.path))

    def describe_unused(self) -> list[str]:
        """Return a line for each of the first executions that did not happen."""
        unused = self.unused
        lines = [f"    {t.tool.title} (after interaction {t.entry.number})" for t in unused]
        more = len(lines) - MAX_LISTED
        return [*lines[:MAX_LISTED], *([f"    ... +{more} more"] if more > 0 else [])]


# ------------------------------------------------------------------------------------- people


def _answer_fields(answer: Answer) -> dict[str, Any]:
    """Return an answer as the fields of a recorded one."""
    if isinstance(answer, Allow):
        return {"decision": "allow", "params": answer.params and dict(answer.params)}
    if isinstance(answer, Deny):
        return {"decision": "deny", "reason": answer.reason}
    return {"answer": msgspec.to_builtins(answer, enc_hook=repr)}


class PeopleReplay:
    """Answers the questions to people from a tape, each by the first equal one that is left.

    With `tools`, the tools are replayed, too: what one asks is answered only if it runs again.
    """

    def __init__(
        self, file: CassetteFile, entries: list[Entry], normalizer: Normalizer, *, tools: bool
    ) -> None:
        self._file = file
        self._normalizer = normalizer
        self._tools = tools
        self._left = [(entry, item) for entry in entries for item in file.read(entry).people]
        self.recorded = bool(self._left)

    def _key(self, text: str, tool: str, given: Any) -> Any:
        return self._normalizer.comparable({"text": text, "tool": tool, "input": given})

    @property
    def unused(self) -> list[str]:
        """The questions that were not asked."""
        left = (pair for pair in self._left if not (self._tools and pair[1].inside))
        return [f"{answer.title} (after interaction {e.number})" for e, answer in left]

    def answer(self, question: PersonQuestion) -> Answer:
        """Return the recorded answer, or raise if the question is not on the tape."""
        given = msgspec.to_builtins(question.input, enc_hook=repr)
        key = self._key(question.text, question.tool, given)
        for pair in self._left:
            recorded = pair[1]
            if self._key(recorded.question, recorded.tool, recorded.input) == key:
                self._left.remove(pair)
                if recorded.decision == "allow":
                    return Allow(recorded.params)
                return Deny(recorded.reason) if recorded.decision else recorded.answer
        raise self._explain(question, given)

    def _explain(self, question: PersonQuestion, given: Any) -> ReplayMismatch:
        """Return the error for a question that is not on the tape."""
        asked = RecordedAnswer(
            question=self._normalizer.clean_text(question.text),
            tool=question.tool,
            input=self._normalizer.clean_value(given),
        )
        nearest = max(
            self._left, key=lambda pair: similarity(pair[1].title, asked.title), default=None
        )
        place, recorded, differences = "", "no other question", list[str]()
        if nearest is not None:
            entry, known = nearest
            place, recorded = f" at interaction {entry.number}", known.title
            old, new = (
                {"question": each.question, "tool": each.tool, "input": each.input}
                for each in (known, asked)
            )
            differences = [*describe_differences([*find_differences(old, new)])]
        lines = [
            f"Replay mismatch{place} (track: people): the question was not recorded",
            f"Recorded: {recorded}",
            f"Got:      {asked.title}",
            *differences,
            "Fix, if the change is intended: record the tape again",
        ]
        return ReplayMismatch("\n".join(lines), where=str(self._file.path))
