"""The hat loop: an agent is called again and again, and events decide which hat it wears.

A hat is a role with topics that it subscribes to. Each iteration takes the pending events of one
hat, prompts the agent with them, and publishes the events that the agent answered with. The loop
ends when the agent says the completion promise, or when a limit is reached. The rules follow the
orchestrator Ralph, whose presets run here unchanged.

    loop = HatLoop("preset.yml", agent=Command("my-agent"))       # or without one: the model itself
    offbook.drive(loop, source=Mocks("answers.jsonl")).run("Add error handling")
"""

from __future__ import annotations

import asyncio
import codecs
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from offbook.checks.expected_files import FileStates
from offbook.errors import DeadlineExceeded, ModelError, OffbookError
from offbook.files import convert, parse_json
from offbook.runs.agents import ModelAgent
from offbook.subjects.subject import PlainSubject
from offbook.trace.agent_output import OutputScanner, output_text, payload_text, scan_output
from offbook.trace.events import (
    AGENT_PARTS,
    EXIT_CODES,
    PROCESS_EXIT,
    REPLY,
    UNSET,
    IterationData,
    LoopStartData,
    ProcessOutputData,
    PublishData,
    TerminationData,
    WorkspaceFilesData,
    topic_matches,
)
from offbook.workflows.presets import RALPH, Hat, Preset, read_preset

if TYPE_CHECKING:
    from offbook.exchange.model import ToolAliases
    from offbook.subjects.subject import ModelAccess, RunContext, Subject
    from offbook.trace.events import Event, Verdict

RESUME = "task.resume"
START_TOPICS = ("task.start", RESUME)
HUMAN = "human."  # prefix of the topics that a person publishes
GUIDANCE, GUIDANCE_ACK = "human.guidance", "human.guidance.ack"
# Topics that may be published again and again without making the loop stale.
UNCOUNTED = {RESUME, "task.complete"}
GRACE_SECONDS = 3.0  # for an agent to stop its processes after its deadline
STALE_LIMIT = 3  # identical events in a row
ABANDON_LIMIT = 3  # times that one task is blocked
THRASHING_LIMIT = 3  # abandoned tasks that are dispatched again
MALFORMED_LIMIT = 3  # unreadable events in a row
COMPLEXITY_LIMIT = 10.0
EXIT_CODE = "exit_code"  # the category of an error that only fails the iteration: of a mock
SUMMARY = "iteration.summary"  # an agent reports its cost in `cost_usd`
TURN_EVENTS = ("process.*", REPLY, SUMMARY)
MAX_PAYLOAD = 8 * 1024 * 1024
REQUIRED_EVIDENCE = {
    "build.done": ("tests", "lint", "typecheck", "audit", "coverage", "duplication"),
    "review.done": ("tests", "build"),
}

# The files through which an agent and Ralph communicate, relative to the working directory.
CONTROL_FOLDER = ".ralph"
EVENT_FILES = (".ralph/events.jsonl", ".agent/events.jsonl")
CURRENT_EVENTS = ".ralph/current-events"  # contains the path of one more event file
REQUEST_FILES = {
    "Stopped": ".ralph/stop-requested",
    "RestartRequested": ".ralph/restart-requested",
}
TASK_FILE = ".ralph/agent/tasks.jsonl"
CURRENT_LOOP = ".ralph/current-loop-id"
SCRATCHPAD = ".agent/scratchpad.md"
CLOSED_STATUSES = {"closed", "failed"}


class BusEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event on the bus; `target` names the only hat that receives it."""

    topic: str
    payload: str = ""
    source: str | None = None
    target: str | None = None


class HatBus:
    """The pending events of each hat."""

    def __init__(self, hats: Mapping[str, Hat]) -> None:
        self._hats = hats
        self._pending: dict[str, list[BusEvent]] = {}
        self._human: list[BusEvent] = []

    def route(self, event: BusEvent) -> list[str]:
        """Add an event to the pending events of its receivers, and return their names."""
        # A person's message goes to the next hat, and does not decide which one that is.
        if event.topic.startswith(HUMAN) and event.target is None:
            self._human.append(event)
            return [HUMAN]
        if event.target is not None:
            receivers = [event.target] if event.target in self._hats else []
        else:
            # A hat that subscribes to everything receives only events without another receiver.
            receivers = [name for name, hat in self._hats.items() if _subscribes(hat, event.topic)]
            receivers = receivers or [n for n, hat in self._hats.items() if "*" in hat.topics]
            receivers = sorted(receivers) or [RALPH]
        for name in receivers:
            self._pending.setdefault(name, []).append(event)
        return receivers

    def next_hat(self) -> str | None:
        """Return the next hat: those with work in progress before new starts, then by name."""
        waiting = sorted(self._pending)
        in_progress = [
            name
            for name in waiting
            if any(
                event.topic not in START_TOPICS and not event.topic.endswith(".start")
                for event in self._pending[name]
            )
        ]
        return (in_progress or waiting or [None])[0]

    def take(self, hat: str) -> list[BusEvent]:
        """Remove and return the pending events of this hat and the messages of a person."""
        human, self._human = self._human, []
        return [*self._pending.pop(hat, []), *human]


def _subscribes(hat: Hat, topic: str) -> bool:
    return any(pattern != "*" and topic_matches(pattern, topic) for pattern in hat.topics)


class _Task(msgspec.Struct, frozen=True):
    """A line of the agents' task file."""

    id: str
    title: str
    status: str
    loop_id: str | None = None


class CompletionGates:
    """The conditions for a completion promise to end the loop, in Ralph's order."""

    def __init__(self, preset: Preset, cwd: Path) -> None:
        self._limits = preset.event_loop
        self._check_tasks = preset.memories.enabled
        self._cwd = cwd
        self._published: set[str] = set()
        self._guidance: list[str] = []

    def on_event(self, event: BusEvent) -> None:
        """Note a published event."""
        self._published.add(event.topic)
        if event.topic == GUIDANCE:
            self._guidance.append(event.payload)
        elif event.topic == GUIDANCE_ACK:
            self._guidance.clear()

    def reason_to_continue(self) -> str:
        """Return the reason why the loop is not complete, for the next prompt, or ""."""
        missing = [topic for topic in self._limits.required_events if topic not in self._published]
        if missing:
            return f"not complete yet: missing events {', '.join(missing)}"
        if self._guidance:
            guidance = "\n".join(f"- {text}" for text in self._guidance)
            return f"not complete yet: follow this, and publish {GUIDANCE_ACK}:\n{guidance}"
        if self._limits.persistent:
            return "the loop is persistent and continues: look for new tasks, or wait for guidance"
        open_tasks = self._open_tasks() if self._check_tasks else []
        if open_tasks:
            return f"not complete yet: close or fail these tasks: {', '.join(open_tasks)}"
        return ""

    def _open_tasks(self) -> list[str]:
        """Return the open tasks of this loop; like Ralph, skip lines that are not tasks."""
        task_file = self._cwd / TASK_FILE
        if not task_file.is_file():
            return []
        loop_file = self._cwd / CURRENT_LOOP
        loop_id = loop_file.read_text("utf-8", "replace").strip() if loop_file.is_file() else ""
        open_tasks: list[str] = []
        for line in task_file.read_bytes().split(b"\n"):
            try:
                task = msgspec.json.decode(line, type=_Task)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                continue
            if task.status not in CLOSED_STATUSES and (not loop_id or task.loop_id == loop_id):
                open_tasks.append(f"{task.id} {task.title}")
        return open_tasks


class LoopOutcome(msgspec.Struct, frozen=True):
    """The end of a loop."""

    reason: str
    iterations: int
    seconds: float

    @property
    def exit_code(self) -> int:
        """The exit code of this reason."""
        return EXIT_CODES[self.reason]


class AgentTurn:
    """One prompt of the loop and what the agent did: its answer, and what its events say."""

    def __init__(self, hat: str, prompt: str) -> None:
        self.hat = hat
        self.prompt = prompt
        self.answer = ""
        self.stdout = ""
        self.exit_code = 0
        self.cost_usd: float | None = None
        self.tokens = 0
        self.seconds = 0.0
        self.timed_out = False
        self.truncated = False
        # Only the beginning of a large output is kept, but all of it is searched for events.
        self._scanner = OutputScanner(max_payload=MAX_PAYLOAD)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    @property
    def output(self) -> str:
        """The output of the agent: what it printed, or an answer that it did not print."""
        return self.stdout if self.answer.strip() in self.stdout else self.answer

    @property
    def scanned(self) -> OutputScanner:
        """The events in the output, and its last line."""
        return self._scanner if self.truncated else scan_output(self.output)

    def watch(self, stream: str, data: bytes) -> None:
        """Search the output of the agent's process."""
        if stream == "stdout":
            self._scanner.feed(self._decode(data))

    def on_event(self, event: Event) -> None:
        """Note the output, the exit, the tokens and the cost of the agent."""
        data = event.data
        if (output := output_text(event)) is not None and output[0] == "stdout":
            self.stdout += output[1]
        elif event.event == PROCESS_EXIT:
            self.exit_code = data["code"]
            self.truncated = data.get("truncated", False)
        elif event.event == REPLY:
            usage = msgspec.to_builtins(data.get("usage") or {})
            self.tokens += usage.get("input", 0) + usage.get("output", 0)
        else:
            # The last one counts: clients report the sum so far.
            cost = data.get("total_cost_usd", data.get("cost_usd"))
            self.cost_usd = self.cost_usd if cost is None else cost


class HatLoop(PlainSubject):
    """A subject whose prompt is a task: the loop works on it until it is complete or limited.

    The agent is a subject, too, opened again for each iteration. Without one, the model answers by
    itself. A promise in the last allowed iteration counts: the loop is complete. `on_turn` is
    called after each prompt of the agent.
    """

    name = "loop"

    def __init__(
        self,
        preset: Path | str | Mapping[str, Any] | Preset | None = None,
        *,
        agent: Subject | None = None,
        on_turn: Callable[[AgentTurn], None] = lambda _: None,
    ) -> None:
        self._preset = read_preset(preset)
        self._agent = agent or ModelAgent()
        self._on_turn = on_turn
        self._run: _LoopRun | None = None
        self.outcome: LoopOutcome | None = None

    @property
    def model_access(self) -> ModelAccess:
        """The way in which the agent reaches its model."""
        return self._agent.model_access

    @property
    def emits_tool_calls(self) -> bool:
        """True if the agent emits its tool calls."""
        return self._agent.emits_tool_calls

    @property
    def tool_aliases(self) -> ToolAliases:
        """The agent's own tool names, by common name."""
        return getattr(self._agent, "tool_aliases", {})

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The current hat, for all requests of the agent."""
        return {} if self._run is None else {"hat": self._run.hat}

    def verdicts(self) -> Iterable[Verdict]:
        """Return the verdicts of the agent."""
        return self._agent.verdicts()

    async def prompt(self, text: str, /) -> None:
        """Work on this task until the loop ends; the agent is opened in each iteration."""
        self._run = _LoopRun(self.context, self._agent, self._preset, self._on_turn)
        self.outcome = await self._run.run(text)


class _EventLine(msgspec.Struct, frozen=True):
    """A line of an event file."""

    topic: Annotated[str, msgspec.Meta(pattern=r"\S")]
    payload: Any = None
    target: str | None = None


class _LoopRun:
    """The state of the loop while it works on one task."""

    def __init__(
        self,
        context: RunContext,
        agent: Subject,
        preset: Preset,
        on_turn: Callable[[AgentTurn], None],
    ) -> None:
        self._context = context
        self._hub = context.hub
        self._cwd = context.cwd
        self._agent = agent
        self._on_turn = on_turn
        self.hat = RALPH
        self._hats: dict[str, Hat] = dict(preset.hats or {})
        self._limits = preset.event_loop
        self._promises = {self._limits.completion_promise, self._limits.cancellation_promise}
        self._bus = HatBus(self._hats)
        self._gates = CompletionGates(preset, context.cwd)
        self._activations: dict[str, int] = {}
        self._blocks: dict[str, int] = {}  # of each task
        self._abandoned: set[str] = set()
        self._last_event: tuple[str, str | None, str] = ("", None, "")
        self._repeats = 0
        self._failures = 0
        self._malformed = 0
        self._redispatched = 0
        self._cost = 0.0
        self._completed = False
        self._cancelled = False
        self._timed_out = False
        self._files = FileStates(self._cwd)
        # Lines of an earlier run in the same folder are not events of this one.
        self._read_bytes = {
            name: (self._cwd / name).stat().st_size
            for name in self._event_files()
            if (self._cwd / name).is_file()
        }

    async def run(self, task: str) -> LoopOutcome:
        start = time.monotonic()
        self._hub.emit_data(LoopStartData(self._limits.max_iterations))
        hats = {name: list(hat.publishes) for name, hat in self._hats.items()}
        self._hub.emit(AGENT_PARTS, {"hats": hats})
        self._emit_files()
        iterations = 0
        try:
            # The task is the payload of the first event, so assertions and judges find it.
            self._publish(BusEvent(self._limits.starting_event, task))
            while (reason := self._stop_reason(iterations, time.monotonic() - start)) is None:
                iterations += 1
                await self._iterate(iterations, task, start)
        except asyncio.CancelledError:
            # Ctrl-C: the session still gets its last event.
            self._terminate("Interrupted", iterations, time.monotonic() - start)
            raise
        except OffbookError:
            # A script that does not match: Ralph has no reason for it.
            self._terminate("ConsecutiveFailures", iterations, time.monotonic() - start)
            raise
        return self._terminate(reason, iterations, time.monotonic() - start)

    def _stop_reason(self, iterations: int, seconds: float) -> str | None:
        """Return the reason to stop now, if any; a completed loop comes before every limit."""
        limits = self._limits
        # Without the folder, the two requests cannot exist.
        controlled = (self._cwd / CONTROL_FOLDER).is_dir()
        requested = [
            (controlled and (self._cwd / name).exists(), reason)
            for reason, name in REQUEST_FILES.items()
        ]
        conditions = (
            (self._completed, "CompletionPromise"),
            (self._cancelled, "Cancelled"),
            # Before the iterations: the last allowed one may be the one that hangs.
            (self._timed_out, "MaxRuntime"),
            (iterations >= limits.max_iterations, "MaxIterations"),
            (seconds >= limits.max_runtime_seconds, "MaxRuntime"),
            (limits.max_cost_usd is not None and self._cost >= limits.max_cost_usd, "MaxCost"),
            (self._failures >= limits.max_consecutive_failures, "ConsecutiveFailures"),
            (self._redispatched >= THRASHING_LIMIT, "LoopThrashing"),
            (self._malformed >= MALFORMED_LIMIT, "ValidationFailure"),
            (self._repeats >= STALE_LIMIT, "LoopStale"),
            *requested,
            (not controlled and not self._cwd.is_dir(), "WorkspaceGone"),
        )
        return next((reason for holds, reason in conditions if holds), None)

    async def _iterate(self, number: int, task: str, start: float) -> None:
        """Run one iteration: choose a hat, prompt the agent, publish its events."""
        # 1. The hat with pending events; without any, Ralph himself plans the next step.
        hat = self._bus.next_hat() or RALPH
        config = self._hats.get(hat)
        pending = self._bus.take(hat)

        # 2. A hat that has used up its activations is not prompted; others may react to that.
        self._activations[hat] = self._activations.get(hat, 0) + 1
        limit = config.max_activations if config else None
        if limit is not None and self._activations[hat] > limit:
            self._publish(BusEvent(f"{hat}.exhausted", "", hat))
            return

        # 3. The agent answers within the rest of the time, or the time limit ends the loop.
        elapsed = time.monotonic() - start
        self._hub.emit_data(IterationData(number, int(elapsed * 1000), hat))
        turn = AgentTurn(hat, build_prompt(task, hat, config, pending, self._cwd))
        await self._prompt(turn, self._limits.max_runtime_seconds - elapsed)
        self._emit_files()

        # 4. An answer that the agent did not print goes to the trace. Output that was cut off by
        #    the time limit counts neither for its events nor for its promise.
        if turn.output and turn.output is not turn.stdout:
            self._hub.emit_data(ProcessOutputData("stdout", turn.output, hat))
        self._cost += turn.cost_usd or 0.0
        self._failures = self._failures + 1 if turn.exit_code else 0
        self._on_turn(turn)
        self._timed_out = turn.timed_out
        if turn.timed_out:
            return

        # 5. Events come from tags in the output and from the event files. Each is published after
        #    two checks: may this hat publish the topic, and does it have the evidence for it.
        scanned = turn.scanned
        events: list[BusEvent] = []
        for tag in scanned.tags:
            if tag.topic.strip():
                events.append(BusEvent(tag.topic, tag.payload, hat, tag.target))
            else:
                self._report_malformed({"error": "a tag with an empty topic"})
        events += self._read_event_files(hat)
        promise = self._limits.completion_promise
        promised = scanned.ends_with(promise)
        for position, event in enumerate(events, 1):
            # The promise may also be a topic, but only of the last event.
            promised = promised or (event.topic == promise and position == len(events))
            self._cancelled |= event.topic == self._limits.cancellation_promise
            self._publish(self._check_evidence(self._check_scope(event, hat)))

        # 6. A hat that published nothing publishes its default; that cannot complete the loop.
        if not events and not promised and config is not None and config.default_publishes:
            default = config.default_publishes
            self._publish(BusEvent(RESUME if default == promise else default, "", hat))

        # 7. A promise ends the loop if all gates are open; otherwise the reason is the next event.
        if promised:
            reason = self._gates.reason_to_continue()
            if reason:
                self._publish(BusEvent(RESUME, reason, hat))
            self._completed = not reason

    def _emit_files(self) -> None:
        written, deleted = self._files.changes()
        if written or deleted:
            self._hub.emit_data(WorkspaceFilesData(written, deleted))

    async def _prompt(self, turn: AgentTurn, seconds: float) -> None:
        """Prompt the agent, in its own process or conversation.

        An agent that ignores its deadline is cancelled after a grace period.
        """
        self.hat = turn.hat
        context = msgspec.structs.replace(
            self._context,
            deadline=seconds,
            watch=turn.watch,
            variables={"OFFBOOK_HAT": turn.hat},
        )
        stop = self._hub.subscribe(turn.on_event, TURN_EVENTS)
        start = time.monotonic()
        try:
            async with asyncio.timeout(seconds + GRACE_SECONDS):
                await self._agent.open(context)
                answer = await self._agent.prompt(turn.prompt)
            turn.answer = "" if answer is None else str(answer)
        except (TimeoutError, DeadlineExceeded):
            turn.timed_out = True
        except ModelError as error:
            if error.category != EXIT_CODE:
                raise
            turn.answer, turn.exit_code = error.message, 1
        finally:
            turn.seconds = time.monotonic() - start
            stop()
            await self._agent.close()
        # The agent has seen an HTTP error and may have continued; the run fails with its cause.
        if (failure := context.failure()) is not None:
            raise failure

    def _check_scope(self, event: BusEvent, hat: str) -> BusEvent:
        """Replace an event that its hat may not publish by a scope violation."""
        config = self._hats.get(hat)
        if not self._limits.enforce_hat_scope or config is None or event.topic in self._promises:
            return event
        if any(topic_matches(topic, event.topic) for topic in config.publishes):
            return event
        payload = f"{event.topic}: {event.payload}"
        return msgspec.structs.replace(event, topic=f"{hat}.scope_violation", payload=payload)

    def _check_evidence(self, event: BusEvent) -> BusEvent:
        """Replace finished work without evidence by a blocked event (backpressure)."""
        if not self._limits.backpressure or event.topic not in REQUIRED_EVIDENCE:
            return event
        missing = missing_evidence(event)
        if not missing:
            return event
        payload = f"no evidence of {', '.join(missing)}\n{event.payload}"
        topic = f"{event.topic.partition('.')[0]}.blocked"
        return msgspec.structs.replace(event, topic=topic, payload=payload)

    def _publish(self, event: BusEvent) -> None:
        """Emit an event, count what may end the loop, and route it to its hats."""
        # Emitted before it is routed: the trace shows the cause before its consequences.
        self._hub.emit_data(
            PublishData(
                event.topic, event.payload or UNSET, event.source or UNSET, event.target or UNSET
            )
        )
        self._gates.on_event(event)
        if event.topic not in UNCOUNTED:
            signature = (event.topic, event.source, event.payload)
            self._repeats = self._repeats + 1 if signature == self._last_event else 1
            self._last_event = signature
        task = event.payload.partition("\n")[0]  # the first line identifies a task
        if event.topic == "build.blocked":
            self._blocks[task] = self._blocks.get(task, 0) + 1
            if self._blocks[task] == ABANDON_LIMIT:
                self._abandoned.add(task)
                self._publish(BusEvent("build.task.abandoned", task, event.source))
        elif event.topic == "build.task" and task in self._abandoned:
            self._redispatched += 1
        receivers = self._bus.route(event)
        if not receivers:
            self._hub.emit("_meta.event_dropped", {"topic": event.topic, "target": event.target})
        elif (
            # No hat subscribes to it, so Ralph receives it, although he is not one of the hats.
            receivers == [RALPH]
            and self._hats
            and RALPH not in self._hats
            and event.topic not in self._promises
        ):
            self._hub.emit("event.orphaned", {"topic": event.topic, "source": event.source})

    def _event_files(self) -> tuple[str, ...]:
        """Return the event files, with the one that Ralph's marker names if it is inside."""
        marker = self._cwd / CURRENT_EVENTS
        if not marker.is_file():
            return EVENT_FILES
        named = marker.read_text(encoding="utf-8", errors="replace").strip()
        inside = (self._cwd / named).resolve().is_relative_to(self._cwd.resolve())
        if not named or named in EVENT_FILES or not inside:
            return EVENT_FILES
        return (*EVENT_FILES, named)

    def _read_event_files(self, hat: str) -> list[BusEvent]:
        """Return the events that the agent appended since the last iteration."""
        events: list[BusEvent] = []
        for name in self._event_files():
            path = self._cwd / name
            if not path.is_file():
                continue
            # Read as bytes: offsets in text would differ after a character of several bytes.
            raw, offset = path.read_bytes(), self._read_bytes.get(name, 0)
            self._read_bytes[name] = len(raw)
            text = raw[offset:].decode("utf-8-sig", "replace")
            for number, line in enumerate(text.split("\n"), raw.count(b"\n", 0, offset) + 1):
                if not line.strip():
                    continue
                try:
                    row = convert(parse_json(line), _EventLine)
                    event = BusEvent(row.topic, payload_text(row.payload), hat, row.target)
                except OffbookError as error:
                    self._report_malformed({"line": number, "error": f"Line {number}: {error}"})
                else:
                    self._malformed = 0
                    events.append(event)
        return events

    def _report_malformed(self, details: dict[str, Any]) -> None:
        """Count an event that cannot be read: the agent wrote it, so it is not raised."""
        self._malformed += 1
        self._hub.emit("event.malformed", details)

    def _terminate(self, reason: str, iterations: int, seconds: float) -> LoopOutcome:
        if reason in REQUEST_FILES:
            # As Ralph does: the request would end the next loop in this folder, too.
            with suppress(OSError):
                (self._cwd / REQUEST_FILES[reason]).unlink()
        outcome = LoopOutcome(reason, iterations, seconds)
        end = TerminationData(reason, iterations, round(seconds, 3), outcome.exit_code)
        self._hub.emit_data(end)
        return outcome


def missing_evidence(event: BusEvent) -> list[str]:
    """Return the required evidence that the payload of a `*.done` event lacks."""
    missing = [
        name for name in REQUIRED_EVIDENCE[event.topic] if f"{name}: pass" not in event.payload
    ]
    if event.topic == "build.done":
        complexity = re.search(r"complexity: *(\d+(?:\.\d+)?)", event.payload)
        if complexity is None or float(complexity[1]) > COMPLEXITY_LIMIT:
            missing.append("complexity")
    return missing


def build_prompt(
    task: str, hat: str, config: Hat | None, pending: list[BusEvent], cwd: Path
) -> str:
    """Return the prompt of an iteration: the task, the hat, its events and the scratchpad."""
    parts = [f"## Task\n{task}", f"## Hat\n{hat}"]
    if config is not None and (config.prompt or config.description):
        parts.append(config.prompt or config.description)
    if pending:
        lines = [f"- {event.topic}: {event.payload}".rstrip(": ") for event in pending]
        parts.append("## Events\n" + "\n".join(lines))
    scratchpad = cwd / SCRATCHPAD
    if scratchpad.is_file():
        parts.append(f"## Scratchpad\n{scratchpad.read_text(encoding='utf-8', errors='replace')}")
    return "\n\n".join(parts)
