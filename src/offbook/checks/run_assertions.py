"""Assertions about a run: its end, its cost and output, its files, and the loop of its hats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import msgspec

from offbook.checks.assertion import Assertion, AssertionResult, CountAssertion
from offbook.checks.context import (
    CheckContext,
    Collector,
    NoData,
    OutputMatch,
    Requirement,
    TopicMatch,
)
from offbook.errors import UsageError, counted, did_you_mean, require_known, signal_name
from offbook.files import read_document, resolve_within
from offbook.secrets import MASK, outgoing
from offbook.trace.agent_output import payload_text, text_field
from offbook.trace.events import (
    EXIT_CODES,
    ITERATION,
    PROCESS_EXIT,
    PROCESS_OUTPUT,
    PUBLISH,
    REQUEST,
    RUN_START,
    TERMINATION,
    TERMINATION_ALIASES,
    WORKSPACE_FILES,
    Event,
    Verdict,
    canonical_termination,
    topic_matches,
)
from offbook.trace.matching import compile_pattern

LIMIT_REACHED = 2  # the exit code of a loop that neither succeeded nor failed
# Topics and hats shown of a long loop.
MAX_SHOWN = 200
# Ours, and Ralph's.
SCRATCHPADS = (".agent/scratchpad.md", ".ralph/agent/scratchpad.md")
CONTEXT_CHARACTERS = 40
MAX_NEIGHBOURS = 20


# --- The end, the cost and the output


class ExitCode(Assertion, frozen=True, tag="exit_code"):
    """The process exited with this code; after a signal, the code is the negated signal number."""

    expected: int
    value_fields: ClassVar[tuple[str, ...]] = ("expected",)
    needs: ClassVar[tuple[str, ...]] = ("exit_code",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = context.exit_code
        return AssertionResult(actual == self.expected, self.expected, actual)


class TerminationReason(Assertion, frozen=True, tag="termination_reason"):
    """The loop ended for this reason, in any of its spellings."""

    expected: str
    needs: ClassVar[tuple[str, ...]] = ("reason",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if canonical_termination(self.expected) is None:
            raise UsageError(
                f"unknown termination reason {self.expected!r}",
                hint=did_you_mean(self.expected, {*EXIT_CODES, *TERMINATION_ALIASES}),
            )

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected = canonical_termination(self.expected)
        return AssertionResult(context.reason == expected, expected, context.reason)


class Duration(Assertion, frozen=True, tag="duration"):
    """The run took at most this long."""

    max_secs: float
    needs: ClassVar[tuple[str, ...]] = ("seconds",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual = context.require("seconds")
        return AssertionResult(actual <= self.max_secs, {"max_secs": self.max_secs}, actual)


class CostWithin(Assertion, frozen=True, tag="cost_within"):
    """The run cost at most this much."""

    max_dollars: float
    needs: ClassVar[tuple[str, ...]] = ("cost",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        actual, bounds = context.require("cost"), {"max_dollars": self.max_dollars}
        return AssertionResult(actual <= self.max_dollars, bounds, actual)


class ModelCalls(CountAssertion, frozen=True, kw_only=True, tag="model_calls"):
    """The run, or one `agent` of it, sent this number of requests to the model."""

    agent: str | None = None
    needs: ClassVar[tuple[str, ...]] = ("model_calls",)

    @property
    def title(self) -> str:
        return super().title if self.agent is None else f"{self.agent}: {super().title}"

    def evaluate(self, context: CheckContext) -> AssertionResult:
        every = context.require("model_calls")
        return self.compare(every if self.agent is None else context.model_calls_of(self.agent))


class OutputAssertion(Assertion, frozen=True):
    """The pattern matches what was written to a stream."""

    pattern: str
    stream: ClassVar[str]
    title_fields: ClassVar[tuple[str, ...]] = ("pattern",)

    def requires(self) -> list[Requirement]:
        return [(OutputMatch, (self.stream, self.pattern))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        output = context.get(OutputMatch, self.stream, self.pattern)
        matched = output.matched
        if not output.captured:
            raise NoData("the run has no output")
        if output.truncated and not matched:
            raise NoData(
                "the output was too large to be kept: the pattern may match the rest of it"
            )
        return AssertionResult(matched, self.pattern, output.tail)


class StdoutContains(OutputAssertion, frozen=True, tag="stdout_contains"):
    """The pattern matches the standard output."""

    stream: ClassVar[str] = "stdout"


class StderrContains(OutputAssertion, frozen=True, tag="stderr_contains"):
    """The pattern matches the standard error."""

    stream: ClassVar[str] = "stderr"


# --- The loop: iterations, published events and hats


class Iterations(CountAssertion, frozen=True, tag="iterations"):
    """The loop had this number of iterations."""

    needs: ClassVar[tuple[str, ...]] = ("iterations",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return self.compare(context.require("iterations"))


class EventOccurred(Assertion, frozen=True, tag="event_occurred"):
    """An event of this topic was published, with a payload that matches the pattern."""

    topic: str
    payload_pattern: str | None = None
    title_fields: ClassVar[tuple[str, ...]] = ("topic", "payload_pattern")
    needs: ClassVar[tuple[str, ...]] = ("topics",)

    def requires(self) -> list[Requirement]:
        return [*super().requires(), (TopicMatch, (self.topic, self.payload_pattern))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        pattern = self.payload_pattern
        match = context.get(TopicMatch, self.topic, pattern)
        if not match.count:
            similar = did_you_mean(self.topic, set(context.topics))
            message = f"{self.topic!r} was never published; {similar}"
            return AssertionResult(False, self.topic, message=message)
        if pattern is None:
            return AssertionResult(ok=True, expected=self.topic, actual=match.count)
        payloads = [payload_text(data.get("payload")) for data in match.samples]
        return AssertionResult(match.matched, pattern, payloads, context={"topic": self.topic})


class EventSequence(Assertion, frozen=True, tag="event_sequence"):
    """These topics were published in this order, possibly with others in between."""

    topics: list[str]
    title_fields: ClassVar[tuple[str, ...]] = ("topics",)
    needs: ClassVar[tuple[str, ...]] = ("topics",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected, topics = self.topics, context.topics
        shown = topics if len(topics) <= MAX_SHOWN else [*topics[:MAX_SHOWN], "…"]
        # Taking the first match of each topic is optimal for a subsequence, and linear.
        published = enumerate(topics)
        pairs: list[tuple[int, int]] = []
        for number, pattern in enumerate(expected):
            match = next((at for at, topic in published if topic_matches(pattern, topic)), None)
            if match is None:
                from offbook.trace.matching import align_names  # for failures only

                after = f" after {expected[number - 1]!r}" if number else ""
                message = f"{pattern!r} was not published{after}"
                limit = (pairs[-1][0] if pairs else 0) + MAX_SHOWN
                rows = align_names(expected, topics[:limit], pairs)
                rows = [row if row.expected else row._replace(ok=True) for row in rows]
                return AssertionResult(False, expected, shown, message, rows=rows)
            pairs.append((match, number))
        return AssertionResult(ok=True, expected=expected, actual=shown)


class EventCount(CountAssertion, frozen=True, kw_only=True, tag="event_count"):
    """This number of events of this topic was published."""

    topic: str
    title_fields: ClassVar[tuple[str, ...]] = ("topic",)
    needs: ClassVar[tuple[str, ...]] = ("topics",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # Counted before matching: a glob is matched once per topic, not once per event.
        published = Counter(context.topics)
        count = sum(n for topic, n in published.items() if topic_matches(self.topic, topic))
        return self.compare(count, {"topic": self.topic, "published": dict(published)})


class NoEvent(Assertion, frozen=True, tag="no_event"):
    """No event of this topic was published, while other events were."""

    topic: str
    title_fields: ClassVar[tuple[str, ...]] = ("topic",)
    # Without any event the bus was not recorded, and the absence of one means nothing.
    needs: ClassVar[tuple[str, ...]] = ("topics",)

    def requires(self) -> list[Requirement]:
        return [*super().requires(), (TopicMatch, (self.topic,))]

    def evaluate(self, context: CheckContext) -> AssertionResult:
        match = context.get(TopicMatch, self.topic)
        return AssertionResult(not match.count, f"no {self.topic}", match.samples)


class HatSequence(Assertion, frozen=True, tag="hat_sequence"):
    """The iterations had exactly these hats, in this order."""

    hats: list[str]
    title_fields: ClassVar[tuple[str, ...]] = ("hats",)
    needs: ClassVar[tuple[str, ...]] = ("hats",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        expected, hats = self.hats, context.hats
        if hats == expected:
            return AssertionResult(True, expected, hats)
        from offbook.trace.matching import align_in_order, align_names  # for failures only

        # The alignment takes time and memory of actual x expected.
        shown = hats[: len(expected) + MAX_SHOWN]
        pairs = align_in_order(len(shown), len(expected), lambda a, e: shown[a] == expected[e])
        rows = align_names(expected, shown, pairs)
        return AssertionResult(False, expected, hats, "the hats differ", rows=rows)


class HatTransition(Assertion, frozen=True, tag="hat_transition", rename={"source": "from"}):
    """An iteration of one hat was followed directly by an iteration of the other."""

    source: str
    to: str
    title_fields: ClassVar[tuple[str, ...]] = ("source", "to")
    needs: ClassVar[tuple[str, ...]] = ("hats",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        # Two iterations with the same hat are not a transition.
        transitions = [f"{a} -> {b}" for a, b in pairwise(context.hats) if a != b]
        expected = f"{self.source} -> {self.to}"
        distinct = {"transitions": list(dict.fromkeys(transitions))}
        return AssertionResult(expected in transitions, expected, transitions, context=distinct)


class IterationCount(CountAssertion, frozen=True, kw_only=True, tag="iteration_count"):
    """This number of iterations had this hat."""

    hat: str
    title_fields: ClassVar[tuple[str, ...]] = ("hat",)
    needs: ClassVar[tuple[str, ...]] = ("hats",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        hats = context.hats
        return self.compare(hats.count(self.hat), {"hats": dict(Counter(hats))})


# --- The end of the loop, which has to be a success, a limit, or expected


def judge_loop_end(context: CheckContext, verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Return the verdict on a loop that failed, or whose agent crashed or did nothing.

    None is needed if an assertion expected that end, or failed because of it.
    """
    return [] if any(map(_decides_end, verdicts)) else context.get(LoopEnd).judge()


def _decides_end(verdict: Verdict) -> bool:
    """Return whether an assertion found the failed end that it expects, or failed itself."""
    name = verdict.check.partition(" ")[0]
    if name not in {"exit_code", "termination_reason"}:
        return False
    code = verdict.expected if name == "exit_code" else EXIT_CODES.get(verdict.expected)
    return code != 0 or not verdict.holds


class LoopEnd(Collector):
    """How the loop of a workspace ended, and whether its agent did anything."""

    # What an agent does: it prints, asks its model, publishes, or changes files.
    activity = (PROCESS_OUTPUT, REQUEST, PUBLISH, WORKSPACE_FILES)
    event_names = (RUN_START, ITERATION, PROCESS_EXIT, TERMINATION, *activity)

    def __init__(self) -> None:
        self._is_loop = False
        self._iterations = 0
        self._crashes: list[str] = []
        self._is_active = False
        self._reason = ""
        self._exit_code: object = None

    def on_event(self, event: Event) -> None:
        data = event.data
        if event.event == RUN_START:
            # The process of an external loop is the subject itself, and has its own verdict.
            self._is_loop = data.get("subject") == "loop"
        elif event.event == ITERATION:
            self._iterations += 1
        elif event.event == TERMINATION:
            self._reason = text_field(event, "reason")
            self._exit_code = data.get("exit_code", EXIT_CODES.get(self._reason))
        elif event.event != PROCESS_EXIT:
            # Before the first iteration, the loop itself publishes its start and lists all files.
            self._is_active |= self._iterations > 0
        elif isinstance(code := data.get("code"), int) and code:
            killed = f"was killed by {signal_name(-code)}"
            end = killed if code < 0 else f"failed with exit code {code}"
            self._crashes.append(f"the agent {end} in iteration {self._iterations}")

    def judge(self) -> list[Verdict]:
        """Return the verdict on an end that is neither a success nor a limit."""
        if not self._is_loop or not self._reason:
            return []  # of a run that was killed, no assertion has data
        end = f"the loop ended with {self._reason}, exit code {self._exit_code}"
        hint = f"fix: expect it: {{type: termination_reason, expected: {self._reason}}}"
        what = missing = ""
        if self._crashes:
            others = len(self._crashes) - 1
            what = self._crashes[0] + (f", and in {others} more" if others else "")
            if self._exit_code == 0:
                hint = "fix: let the agent exit with 0: the loop itself succeeded"
        elif not self._iterations:
            missing = "no iteration"
        elif self._exit_code not in {0, LIMIT_REACHED}:
            what = end
        elif not self._is_active:
            missing = "no output, event, file or request of the agent"
        if missing:
            return [Verdict("agent_end", "no_data", f"no data: {missing}, {end}\n{hint}")]
        return [Verdict("agent_end", "fail", f"{what}\n{hint}")] if what else []


# --- Files


class FileExists(Assertion, frozen=True, tag="file_exists"):
    """The file exists."""

    path: str
    title_fields: ClassVar[tuple[str, ...]] = ("path",)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_folder_itself(self.path)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        path = context.resolve(self.path)
        kind = "a folder" if path.is_dir() else "a file" if path.exists() else "missing"
        details = {"path": self.path, "there": _list_neighbours(path)}
        return AssertionResult(path.exists(), self.path, kind, context=details)


class FileContains(Assertion, frozen=True, tag="file_contains"):
    """The pattern matches the content of the file."""

    path: str
    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        return _search_file(context, self.path, self.pattern)


class FileNotContains(Assertion, frozen=True, tag="file_not_contains"):
    """The file exists and the pattern does not match its content."""

    path: str
    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("path", "pattern")

    def evaluate(self, context: CheckContext) -> AssertionResult:
        pattern = compile_pattern(self.pattern)
        text = _read_text(context.resolve(self.path), self.path)
        if isinstance(text, AssertionResult):
            return text
        passed = pattern.search(text) is None
        match = ""
        if not passed:
            # In the masked text: half a secret at the edge is not recognised any more.
            shown = outgoing(text)
            span = pattern.search(shown)
            match = MASK  # the pattern matches a secret itself
            if span is not None:
                start = max(0, span[0] - CONTEXT_CHARACTERS)
                match = shown[start : span[1] + CONTEXT_CHARACTERS]
        return AssertionResult(passed, f"no {self.pattern}", match, context={"path": self.path})


class ScratchpadContains(Assertion, frozen=True, tag="scratchpad_contains"):
    """The pattern matches the scratchpad at the end of the run."""

    pattern: str
    title_fields: ClassVar[tuple[str, ...]] = ("pattern",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        for path in SCRATCHPADS:
            if context.resolve(path).is_file():
                return _search_file(context, path, self.pattern)
        raise NoData("no scratchpad found")


class SnapshotMatches(Assertion, frozen=True, tag="snapshot_matches"):
    """The files are the same as in the approved snapshot, apart from redacted values."""

    snapshot_id: str
    redactions: dict[str, Any] | None = None
    include_patterns: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    title_fields: ClassVar[tuple[str, ...]] = ("snapshot_id",)
    needs: ClassVar[tuple[str, ...]] = ("snapshots",)

    def evaluate(self, context: CheckContext) -> AssertionResult:
        from offbook.checks.expected_files import (
            Snapshot,
            capture_snapshot,
            compare_snapshots,
            redact_snapshot,
        )
        from offbook.trace.redaction import Redaction

        path = resolve_within(context.require("snapshots"), f"{self.snapshot_id}.json")
        if not path.is_file():
            # Pending snapshots wait for a review and are not suggested.
            approved = [p.stem for p in path.parent.glob("*.json")]
            require_known("no snapshot", self.snapshot_id, approved)
        root = context.resolve(".")
        redaction = Redaction(self.redactions, roots={"WORKSPACE": root})
        expected = read_document(path, Snapshot)
        actual = capture_snapshot(root, self.include_patterns, self.exclude_patterns)
        if not expected.files and not actual.files:
            raise NoData("neither the snapshot nor the workspace has a file to compare")
        # Both sides are redacted: the approved one may have been captured with other rules.
        diff = compare_snapshots(
            redact_snapshot(expected, redaction), redact_snapshot(actual, redaction)
        )
        if diff.empty:
            return AssertionResult(True, self.snapshot_id, [])
        names = [*diff.changed_files, *diff.added_files, *diff.deleted_files]
        message = f"{counted(len(names), 'file')} with differences: {', '.join(names[:10])}"
        details = {"diff": msgspec.to_builtins(diff)}
        return AssertionResult(False, self.snapshot_id, names, message, details)


def refuse_folder_itself(path: str) -> None:
    """Raise a ValueError for a path that names the folder of the run: it always exists."""
    if PurePosixPath(path) == PurePosixPath():
        raise ValueError(f"`path` {path!r} is the folder of the run, which always exists")


def _search_file(context: CheckContext, path: str, source: str) -> AssertionResult:
    pattern = compile_pattern(source)
    text = _read_text(context.resolve(path), path)
    if isinstance(text, AssertionResult):
        return text
    matched = pattern.search(text) is not None
    return AssertionResult(matched, source, outgoing(text)[:MAX_SHOWN], context={"path": path})


def _read_text(file: Path, name: str) -> str | AssertionResult:
    """Return the text of a file, or the failure if it cannot be read."""
    if file.is_dir():
        return AssertionResult(False, name, "a folder", f"{name} is a folder")
    if file.exists() and not file.is_file():  # a pipe, which could be read for ever
        return AssertionResult(False, name, message=f"{name} is not a regular file")
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        details = {"path": name, "there": _list_neighbours(file)}
        return AssertionResult(False, name, message=f"{name} is missing", context=details)
    except UnicodeDecodeError:
        return AssertionResult(False, name, message=f"{name} is not UTF-8 text")
    except OSError as error:
        return AssertionResult(False, name, message=f"{name}: {error.strerror}")


def _list_neighbours(file: Path) -> list[str]:
    """Return the names in the same folder, for a path with a typing error."""
    if not file.parent.is_dir():
        return []
    return sorted(neighbour.name for neighbour in file.parent.iterdir())[:MAX_NEIGHBOURS]
