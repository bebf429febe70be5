"""The event bus: who gets what was published."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import OffbookError
from offbook.files import convert, parse_json
from offbook.runs.backends import Backend, BackendResult, SourceBackend
from offbook.trace.agent_output import has_completion_promise, parse_event_tags, payload_text
from offbook.trace.events import (
    EXIT_CODES,
    ITERATION,
    LOOP_START,
    PROCESS_OUTPUT,
    PUBLISH,
    TERMINATION,
    topic_matches,
)
from offbook.workflows.presets import RALPH, Hat, Preset, read_preset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.trace.events import Verdict


# --- The event bus: who gets what was published.

HUMAN = "human."
ENTRY = ("task.start", "task.resume")


class BusEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event on the bus."""

    topic: str
    payload: str = ""
    source: str | None = None
    target: str | None = None


class HatBus:
    """Hands events to hats: to the one that is named, else to those that listen for the topic."""

    def __init__(self, hats: Mapping[str, Hat]) -> None:
        self._hats = hats
        self._pending: dict[str, list[BusEvent]] = {}
        self._said: list[BusEvent] = []

    def route(self, event: BusEvent) -> list[str]:
        """Put an event before the hats that it is for; their names come back.

        What a person says is for whoever acts next, and decides nobody's turn.
        """
        if event.topic.startswith(HUMAN) and event.target is None:
            self._said.append(event)
            return [HUMAN]
        names = self._receivers(event)
        for name in names:
            self._pending.setdefault(name, []).append(event)
        return names

    def _receivers(self, event: BusEvent) -> list[str]:
        if event.target is not None:
            return [event.target] if event.target in self._hats else []
        named = sorted(name for name, hat in self._hats.items() if _listens(hat, event.topic))
        if named:
            return named
        open_ = sorted(name for name, hat in self._hats.items() if "*" in hat.topics)
        return open_ or [RALPH]

    def next_hat(self) -> str | None:
        """Whose turn it is: work under way goes before a new start; then by name."""
        waiting = sorted(self._pending)
        busy = [n for n in waiting if any(not _enters(e.topic) for e in self._pending[n])]
        return (busy or waiting or [None])[0]

    def take(self, hat: str) -> list[BusEvent]:
        """What waits for this hat, and what a person said; it waits no more."""
        said, self._said = self._said, []
        return [*self._pending.pop(hat, []), *said]


def _listens(hat: Hat, topic: str) -> bool:
    return any(pattern != "*" and topic_matches(pattern, topic) for pattern in hat.topics)


def _enters(topic: str) -> bool:
    return topic in ENTRY or topic.endswith(".start")


# --- What a kept promise has to pass before the loop is complete: the gates, in Ralph's order.

GUIDANCE, ACK = "human.guidance", "human.guidance.ack"
TASKS = ".ralph/agent/tasks.jsonl"
OWNER = ".ralph/current-loop-id"
OVER = {"closed", "failed"}


class _Task(msgspec.Struct, frozen=True):
    """A line of the file in which agents keep their tasks."""

    id: str
    title: str
    status: str
    loop_id: str | None = None


class CompletionGates:
    """The gates of one loop, and what has passed by them."""

    def __init__(self, preset: Preset, cwd: Path) -> None:
        self._limits = preset.event_loop
        self._tasks = preset.memories.enabled
        self._cwd = cwd
        self._seen: set[str] = set()
        self._guidance: list[str] = []

    def hear(self, event: BusEvent) -> None:
        """Something was published."""
        self._seen.add(event.topic)
        if event.topic == GUIDANCE:
            self._guidance.append(event.payload)
        elif event.topic == ACK:
            self._guidance.clear()

    def refuse(self) -> str:
        """Why the loop is not complete, to be told to the next agent; nothing when it is."""
        missing = [topic for topic in self._limits.required_events if topic not in self._seen]
        if missing:
            return f"not complete yet: {', '.join(missing)} did not come"
        if self._guidance:
            said = "\n".join(f"- {words}" for words in self._guidance)
            return f"not complete yet: heed this, and publish {ACK} first:\n{said}"
        if self._limits.persistent:
            return "the loop is persistent and goes on: look for new tasks, or wait for guidance"
        left = list(self._list_open()) if self._tasks else []
        return f"not complete yet: close or fail these tasks: {', '.join(left)}" if left else ""

    def _list_open(self) -> Iterator[str]:
        """The tasks that are not over; a line that is no task is none, as for Ralph."""
        place = self._cwd / TASKS
        if not place.is_file():
            return
        owner = self._cwd / OWNER
        mine = owner.read_text("utf-8", "replace").strip() if owner.is_file() else ""
        for line in place.read_bytes().split(b"\n"):
            try:
                task = msgspec.json.decode(line, type=_Task)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if task.status not in OVER and (not mine or task.loop_id == mine):
                yield f"{task.id} {task.title}"


# --- The loop: put on a hat, let the agent act, publish what it said, and see whether it is over.

GRACE = 3.0  # for a backend to end what it began when its time is over
RESUME = "task.resume"
UNCOUNTED = {RESUME, "task.complete"}  # what may be said again and again
STALE = 3
THRASHING = 3
ABANDON = 3
MALFORMED = 3
EVENT_FILES = (".ralph/events.jsonl", ".agent/events.jsonl")
MARKER = ".ralph/current-events"
SCRATCHPAD = ".agent/scratchpad.md"
STOP, RESTART = ".ralph/stop-requested", ".ralph/restart-requested"
REQUIRED_EVIDENCE = {
    "build.done": ("tests", "lint", "typecheck", "audit", "coverage", "duplication"),
    "review.done": ("tests", "build"),
}
SIMPLE = 10.0


class LoopOutcome(msgspec.Struct, frozen=True):
    """How a loop ended."""

    reason: str
    iterations: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code that goes with the reason."""
        return EXIT_CODES[self.reason]


class HatLoop:
    """A subject whose prompt is a task: it is worked on until the promise is kept, or a limit met.

    A promise that is kept on the last allowed iteration counts: the loop is complete.
    """

    name = "loop"
    model_access: ModelAccess = "call"
    emits_tool_calls = True

    def __init__(
        self,
        preset: Path | str | Mapping[str, Any] | Preset | None = None,
        *,
        backend: Callable[[RunContext], Backend] | Backend | None = None,
    ) -> None:
        self._preset = read_preset(preset)
        self._wanted = backend
        self.outcome: LoopOutcome | None = None

    def tools(self) -> None:
        """Whatever its agent has."""

    def commands(self) -> tuple[str, ...]:
        """None."""
        return ()

    def verdicts(self) -> tuple[Verdict, ...]:
        """None of its own."""
        return ()

    async def open(self, stage: RunContext, /) -> None:
        """Take the stage."""
        self._stage = stage
        backend = self._wanted
        if backend is None:
            self._backend: Backend = SourceBackend(stage.source)
        else:
            self._backend = backend(stage) if callable(backend) else backend

    async def close(self) -> None:
        """Nothing is left to end: an iteration ends what it starts."""

    async def prompt(self, text: str, /) -> None:
        """Work on this task until it is over."""
        self.outcome = await _LoopRun(self._stage, self._backend, self._preset).run(text)


class _EventLine(msgspec.Struct, frozen=True):
    """A line of an events file."""

    topic: str
    payload: Any = None
    target: str | None = None


class _LoopRun:
    """One task being worked on."""

    def __init__(self, stage: RunContext, backend: Backend, preset: Preset) -> None:
        self._hub = stage.hub
        self._cwd = stage.cwd
        self._signs = stage.cwd / ".ralph"
        self._backend = backend
        self._hats: dict[str, Hat] = dict(preset.hats or {})
        self._limits = preset.event_loop
        self._bus = HatBus(self._hats)
        self._gates = CompletionGates(preset, stage.cwd)
        self._worn: dict[str, int] = {}
        self._blocked: dict[str, int] = {}
        self._abandoned: set[str] = set()
        self._signature: tuple[tuple[str, str | None, str], int] = (("", None, ""), 0)
        self._failures = 0
        self._malformed = 0
        self._cost = 0.0
        self._read = self._sizes()
        self._completed = False
        self._cancelled = False
        self._redispatched = 0

    async def run(self, task: str) -> LoopOutcome:
        limits = self._limits
        start = time.monotonic()
        self._hub.emit(
            LOOP_START,
            {"prompt_file": "", "max_iterations": limits.max_iterations, "ux_mode": "cli"},
        )
        iterations = 0
        try:
            self._publish(BusEvent(limits.starting_event, task))
            while (reason := self._over(iterations, time.monotonic() - start)) is None:
                iterations += 1
                left = limits.max_runtime_seconds - (time.monotonic() - start)
                await self._iterate(iterations, task, left, start)
        except asyncio.CancelledError:
            self._end("Interrupted", iterations, time.monotonic() - start)
            raise
        except OffbookError:
            self._end("ConsecutiveFailures", iterations, time.monotonic() - start)
            raise
        return self._end(reason, iterations, time.monotonic() - start)

    def _over(self, iterations: int, seconds: float) -> str | None:
        """The reason to stop here; a kept promise goes before every limit."""
        limits = self._limits
        if self._completed:
            return "CompletionPromise"
        if self._cancelled:
            return "Cancelled"
        signs = self._signs.is_dir()
        checks = (
            (iterations >= limits.max_iterations, "MaxIterations"),
            (seconds >= limits.max_runtime_seconds, "MaxRuntime"),
            (limits.max_cost_usd is not None and self._cost >= limits.max_cost_usd, "MaxCost"),
            (self._failures >= limits.max_consecutive_failures, "ConsecutiveFailures"),
            (self._redispatched >= THRASHING, "LoopThrashing"),
            (self._malformed >= MALFORMED, "ValidationFailure"),
            (self._signature[1] >= STALE, "LoopStale"),
            (signs and (self._cwd / STOP).exists(), "Stopped"),
            (signs and (self._cwd / RESTART).exists(), "RestartRequested"),
            (not signs and not self._cwd.is_dir(), "WorkspaceGone"),
        )
        return next((reason for holds, reason in checks if holds), None)

    async def _iterate(self, n: int, task: str, left: float, start: float) -> None:
        hat = self._bus.next_hat() or RALPH
        pending = self._bus.take(hat)
        if self._is_worn_out(hat):
            return
        elapsed = int((time.monotonic() - start) * 1000)
        self._hub.emit(ITERATION, {"n": n, "elapsed_ms": elapsed, "hat": hat})
        prompt = build_prompt(task, hat, self._hats.get(hat), pending, self._cwd)
        try:
            async with asyncio.timeout(left + GRACE):
                acted = await self._backend.act(hat, prompt, left)
        except TimeoutError:
            return
        self._take_in(acted, hat)

    def _is_worn_out(self, hat: str) -> bool:
        worn = self._worn[hat] = self._worn.get(hat, 0) + 1
        limit = self._hats[hat].max_activations if hat in self._hats else None
        if limit is None or worn <= limit:
            return False
        self._publish(BusEvent(f"{hat}.exhausted", "", hat))
        return True

    def _take_in(self, acted: BackendResult, hat: str) -> None:
        self._tell(acted, hat)
        self._failures = self._failures + 1 if acted.exit_code else 0
        if acted.timed_out:
            return  # its last words were cut off, and promise nothing
        published = [
            BusEvent(t.topic, t.payload, hat, t.target) for t in parse_event_tags(acted.output)
        ]
        published += self._read_events(hat)
        promise = self._limits.completion_promise
        said = has_completion_promise(acted.output, promise)
        for at, event in enumerate(published):
            if event.topic == promise and at == len(published) - 1:
                said = True
            if event.topic == self._limits.cancellation_promise:
                self._cancelled = True
            self._publish(self._weigh(self._confine(event, hat)))
        if not published and not said:
            self._publish_default(hat)
        if said:
            self._complete(hat)

    def _tell(self, acted: BackendResult, hat: str) -> None:
        if "output" not in acted.told:
            for stream, text in (("stdout", acted.output), ("stderr", acted.stderr)):
                if text:
                    self._hub.emit(PROCESS_OUTPUT, {"stream": stream, "text": text, "hat": hat})
        if acted.cost_usd is not None:
            self._cost += acted.cost_usd
            if "cost" not in acted.told:
                self._hub.emit("iteration.summary", {"hat": hat, "cost_usd": acted.cost_usd})

    def _complete(self, hat: str) -> None:
        reason = self._gates.refuse()
        if reason:
            self._publish(BusEvent(RESUME, reason, hat))
        self._completed = not reason

    def _publish_default(self, hat: str) -> None:
        default = self._hats[hat].default_publishes if hat in self._hats else ""
        if default == self._limits.completion_promise:
            default = RESUME
        if default:
            self._publish(BusEvent(default, "", hat))

    def _confine(self, event: BusEvent, hat: str) -> BusEvent:
        """A hat that must keep to its topics has violated its scope with any other."""
        worn = self._hats.get(hat)
        limits = self._limits
        free = {limits.completion_promise, limits.cancellation_promise}
        if not limits.enforce_hat_scope or worn is None or event.topic in free:
            return event
        if any(topic_matches(topic, event.topic) for topic in worn.publishes):
            return event
        why = f"{event.topic}: {event.payload}"
        return msgspec.structs.replace(event, topic=f"{hat}.scope_violation", payload=why)

    def _weigh(self, event: BusEvent) -> BusEvent:
        """Backpressure: work that is said to be done without its evidence is blocked instead."""
        if not self._limits.backpressure or event.topic not in REQUIRED_EVIDENCE:
            return event
        lacking = missing_evidence(event)
        if not lacking:
            return event
        why = f"no evidence of {', '.join(lacking)}\n{event.payload}"
        topic = f"{event.topic.partition('.')[0]}.blocked"
        return msgspec.structs.replace(event, topic=topic, payload=why)

    def _publish(self, event: BusEvent) -> None:
        self._hub.emit(PUBLISH, msgspec.to_builtins(event))
        self._gates.hear(event)
        signature = (event.topic, event.source, event.payload)
        last, count = self._signature
        if event.topic not in UNCOUNTED:
            self._signature = (signature, count + 1 if last == signature else 1)
        if event.topic == "build.blocked":
            self._count_block(event)
        if event.topic == "build.task" and event.payload.partition("\n")[0] in self._abandoned:
            self._redispatched += 1
        names = self._bus.route(event)
        if not names:
            about = {"topic": event.topic, "target": event.target}
            self._hub.emit("_meta.event_dropped", about)
        elif self._is_orphan(event, names):
            self._hub.emit("event.orphaned", {"topic": event.topic, "source": event.source})

    def _is_orphan(self, event: BusEvent, names: list[str]) -> bool:
        """Whether no hat listens for an event, though there are hats, and it ends nothing."""
        limits = self._limits
        ends = {limits.completion_promise, limits.cancellation_promise}
        alone = not self._hats or RALPH in self._hats
        return names == [RALPH] and not alone and event.topic not in ends

    def _count_block(self, event: BusEvent) -> None:
        task = event.payload.partition("\n")[0]
        blocks = self._blocked[task] = self._blocked.get(task, 0) + 1
        if blocks == ABANDON:
            self._abandoned.add(task)
            self._publish(BusEvent("build.task.abandoned", task, event.source))

    def _sizes(self) -> dict[str, int]:
        places = ((name, self._cwd / name) for name in self._logs())
        return {name: place.stat().st_size if place.is_file() else 0 for name, place in places}

    def _logs(self) -> tuple[str, ...]:
        """The files in which events are: also the one that Ralph's marker names, if it is here."""
        marker = self._cwd / MARKER
        if not self._signs.is_dir() or not marker.is_file():
            return EVENT_FILES
        named = marker.read_text(encoding="utf-8", errors="replace").strip()
        inside = (self._cwd / named).resolve().is_relative_to(self._cwd.resolve())
        return (
            (*EVENT_FILES, named) if named and named not in EVENT_FILES and inside else EVENT_FILES
        )

    def _read_events(self, hat: str) -> list[BusEvent]:
        """What the agent wrote into the events file since the last time."""
        found: list[BusEvent] = []
        for name in self._logs():
            place = self._cwd / name
            if not place.is_file():
                continue
            raw, upto = place.read_bytes(), self._read.get(name, 0)
            self._read[name] = len(raw)
            new = raw[upto:].decode("utf-8-sig", "replace")
            for number, line in enumerate(new.split("\n"), raw.count(b"\n", 0, upto) + 1):
                if line.strip():
                    found += self._read_line(line, number, hat)
        return found

    def _read_line(self, line: str, number: int, hat: str) -> list[BusEvent]:
        try:
            row = convert(parse_json(line), _EventLine)
            event = BusEvent(row.topic, payload_text(row.payload), hat, row.target)
        except OffbookError as error:
            self._malformed += 1
            self._hub.emit("event.malformed", {"line": number, "error": f"Line {number}: {error}"})
            return []
        self._malformed = 0
        return [event]

    def _end(self, reason: str, iterations: int, seconds: float) -> LoopOutcome:
        outcome = LoopOutcome(reason, iterations, seconds)
        self._hub.emit(
            TERMINATION,
            {
                "reason": reason,
                "iterations": iterations,
                "elapsed_secs": round(seconds, 3),
                "exit_code": outcome.exit_code,
            },
        )
        return outcome


def missing_evidence(event: BusEvent) -> list[str]:
    """The evidence that a piece of work is said to be done without."""
    lacking = [
        what for what in REQUIRED_EVIDENCE[event.topic] if f"{what}: pass" not in event.payload
    ]
    if event.topic == "build.done":
        found = re.search(r"complexity: *(\d+(?:\.\d+)?)", event.payload)
        if found is None or float(found[1]) > SIMPLE:
            lacking.append("complexity")
    return lacking


def build_prompt(task: str, hat: str, worn: Hat | None, pending: list[BusEvent], cwd: Path) -> str:
    """The prompt of an iteration: the task, the hat, what happened, and what was noted down."""
    parts = [f"## Task\n{task}", f"## Hat\n{hat}"]
    if worn is not None and (worn.advice or worn.description):
        parts.append(worn.advice or worn.description)
    if pending:
        lines = [f"- {event.topic}: {event.payload}".rstrip(": ") for event in pending]
        parts.append("## Events\n" + "\n".join(lines))
    scratchpad = cwd / SCRATCHPAD
    if scratchpad.is_file():
        parts.append(f"## Scratchpad\n{scratchpad.read_text(encoding='utf-8', errors='replace')}")
    return "\n\n".join(parts)
