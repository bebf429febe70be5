"""The loop: put on a hat, let the agent act, publish what it said, and see whether it is over."""

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
from offbook.subjects.loop.backend import Acted, Backend, SourceBackend
from offbook.subjects.loop.bus import Bus, Published
from offbook.subjects.loop.config import RALPH, Hat, Preset, read_preset
from offbook.subjects.loop.gates import Gates
from offbook.trace.events import ITERATION, LOOP_START, PROCESS_OUTPUT, PUBLISH, TERMINATION
from offbook.trace.outputs import find_tags, keeps_promise, payload_text
from offbook.trace.terminations import EXIT_CODES
from offbook.trace.topics import matches

if TYPE_CHECKING:
    from offbook.subjects.subject import Reach, Stage
    from offbook.trace.verdicts import Verdict

GRACE = 3.0  # for a backend to end what it began when its time is over
RESUME = "task.resume"
UNCOUNTED = {RESUME, "task.complete"}  # what may be said again and again
STALE = 3
THRASHING = 3
ABANDON = 3
MALFORMED = 3
EVENTS = (".ralph/events.jsonl", ".agent/events.jsonl")
MARKER = ".ralph/current-events"
SCRATCHPAD = ".agent/scratchpad.md"
STOP, RESTART = ".ralph/stop-requested", ".ralph/restart-requested"
EVIDENCE = {
    "build.done": ("tests", "lint", "typecheck", "audit", "coverage", "duplication"),
    "review.done": ("tests", "build"),
}
SIMPLE = 10.0


class Outcome(msgspec.Struct, frozen=True):
    """How a loop ended."""

    reason: str
    iterations: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code that goes with the reason."""
        return EXIT_CODES[self.reason]


class Loop:
    """A subject whose prompt is a task: it is worked on until the promise is kept, or a limit met.

    A promise that is kept on the last allowed iteration counts: the loop is complete.
    """

    name = "loop"
    reach: Reach = "call"
    tells = True

    def __init__(
        self,
        preset: Path | str | Mapping[str, Any] | Preset | None = None,
        *,
        backend: Callable[[Stage], Backend] | Backend | None = None,
    ) -> None:
        self._preset = read_preset(preset)
        self._wanted = backend
        self.outcome: Outcome | None = None

    def tools(self) -> None:
        """Whatever its agent has."""

    def commands(self) -> tuple[str, ...]:
        """None."""
        return ()

    def verdicts(self) -> tuple[Verdict, ...]:
        """None of its own."""
        return ()

    async def open(self, stage: Stage, /) -> None:
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
        self.outcome = await _Running(self._stage, self._backend, self._preset).run(text)


class _Row(msgspec.Struct, frozen=True):
    """A line of an events file."""

    topic: str
    payload: Any = None
    target: str | None = None


class _Running:
    """One task being worked on."""

    def __init__(self, stage: Stage, backend: Backend, preset: Preset) -> None:
        self._hub = stage.hub
        self._cwd = stage.cwd
        self._signs = stage.cwd / ".ralph"
        self._backend = backend
        self._hats: dict[str, Hat] = dict(preset.hats or {})
        self._limits = preset.event_loop
        self._bus = Bus(self._hats)
        self._gates = Gates(preset, stage.cwd)
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

    async def run(self, task: str) -> Outcome:
        limits = self._limits
        start = time.monotonic()
        self._hub.emit(
            LOOP_START,
            {"prompt_file": "", "max_iterations": limits.max_iterations, "ux_mode": "cli"},
        )
        iterations = 0
        try:
            self._publish(Published(limits.starting_event, task))
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
        prompt = compose(task, hat, self._hats.get(hat), pending, self._cwd)
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
        self._publish(Published(f"{hat}.exhausted", "", hat))
        return True

    def _take_in(self, acted: Acted, hat: str) -> None:
        self._tell(acted, hat)
        self._failures = self._failures + 1 if acted.exit_code else 0
        if acted.timed_out:
            return  # its last words were cut off, and promise nothing
        published = [Published(t.topic, t.payload, hat, t.target) for t in find_tags(acted.output)]
        published += self._read_events(hat)
        promise = self._limits.completion_promise
        said = keeps_promise(acted.output, promise)
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

    def _tell(self, acted: Acted, hat: str) -> None:
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
            self._publish(Published(RESUME, reason, hat))
        self._completed = not reason

    def _publish_default(self, hat: str) -> None:
        default = self._hats[hat].default_publishes if hat in self._hats else ""
        if default == self._limits.completion_promise:
            default = RESUME
        if default:
            self._publish(Published(default, "", hat))

    def _confine(self, event: Published, hat: str) -> Published:
        """A hat that must keep to its topics has violated its scope with any other."""
        worn = self._hats.get(hat)
        limits = self._limits
        free = {limits.completion_promise, limits.cancellation_promise}
        if not limits.enforce_hat_scope or worn is None or event.topic in free:
            return event
        if any(matches(topic, event.topic) for topic in worn.publishes):
            return event
        why = f"{event.topic}: {event.payload}"
        return msgspec.structs.replace(event, topic=f"{hat}.scope_violation", payload=why)

    def _weigh(self, event: Published) -> Published:
        """Backpressure: work that is said to be done without its evidence is blocked instead."""
        if not self._limits.backpressure or event.topic not in EVIDENCE:
            return event
        lacking = find_lacking(event)
        if not lacking:
            return event
        why = f"no evidence of {', '.join(lacking)}\n{event.payload}"
        topic = f"{event.topic.partition('.')[0]}.blocked"
        return msgspec.structs.replace(event, topic=topic, payload=why)

    def _publish(self, event: Published) -> None:
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

    def _is_orphan(self, event: Published, names: list[str]) -> bool:
        """Whether no hat listens for an event, though there are hats, and it ends nothing."""
        limits = self._limits
        ends = {limits.completion_promise, limits.cancellation_promise}
        alone = not self._hats or RALPH in self._hats
        return names == [RALPH] and not alone and event.topic not in ends

    def _count_block(self, event: Published) -> None:
        task = event.payload.partition("\n")[0]
        blocks = self._blocked[task] = self._blocked.get(task, 0) + 1
        if blocks == ABANDON:
            self._abandoned.add(task)
            self._publish(Published("build.task.abandoned", task, event.source))

    def _sizes(self) -> dict[str, int]:
        places = ((name, self._cwd / name) for name in self._logs())
        return {name: place.stat().st_size if place.is_file() else 0 for name, place in places}

    def _logs(self) -> tuple[str, ...]:
        """The files in which events are: also the one that Ralph's marker names, if it is here."""
        marker = self._cwd / MARKER
        if not self._signs.is_dir() or not marker.is_file():
            return EVENTS
        named = marker.read_text(encoding="utf-8", errors="replace").strip()
        inside = (self._cwd / named).resolve().is_relative_to(self._cwd.resolve())
        return (*EVENTS, named) if named and named not in EVENTS and inside else EVENTS

    def _read_events(self, hat: str) -> list[Published]:
        """What the agent wrote into the events file since the last time."""
        found: list[Published] = []
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

    def _read_line(self, line: str, number: int, hat: str) -> list[Published]:
        try:
            row = convert(parse_json(line), _Row)
            event = Published(row.topic, payload_text(row.payload), hat, row.target)
        except OffbookError as error:
            self._malformed += 1
            self._hub.emit("event.malformed", {"line": number, "error": f"Line {number}: {error}"})
            return []
        self._malformed = 0
        return [event]

    def _end(self, reason: str, iterations: int, seconds: float) -> Outcome:
        outcome = Outcome(reason, iterations, seconds)
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


def find_lacking(event: Published) -> list[str]:
    """The evidence that a piece of work is said to be done without."""
    lacking = [what for what in EVIDENCE[event.topic] if f"{what}: pass" not in event.payload]
    if event.topic == "build.done":
        found = re.search(r"complexity: *(\d+(?:\.\d+)?)", event.payload)
        if found is None or float(found[1]) > SIMPLE:
            lacking.append("complexity")
    return lacking


def compose(task: str, hat: str, worn: Hat | None, pending: list[Published], cwd: Path) -> str:
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
