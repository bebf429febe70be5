"""The tool `run`: an agent loop works on a task in a workspace.

    result = await run("flow", "Add error handling", mock_responses=["LOOP_COMPLETE"])
    result.exit_code, result.termination_reason        # 0, "CompletionPromise"

The loop is the subject of a rehearsal. Its trace is the `session.jsonl` of the workspace, outside
of the agent's folder, and the result is read from there. `record` and `replay` are in
`cassette_tools.py`: a mocked run starts sooner without.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from offbook.errors import (
    CheckFailed,
    OffbookError,
    RunError,
    ScriptError,
    ScriptExhausted,
    ScriptMismatch,
    UsageError,
    require_known,
)
from offbook.exchange.model import Usage
from offbook.files import convert
from offbook.runs.agents import BackendConfig, NoModel, open_backend
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.secrets import excerpt, extra_secrets, hide_secrets
from offbook.sources.playbook.actions import Fail, Role, Say
from offbook.sources.playbook.playbook import Playbook
from offbook.trace.agent_output import output_text
from offbook.trace.events import ITERATION, PROCESS_EXIT, TERMINATION, ProcessOutputData
from offbook.trace.hub import current_hub
from offbook.trace.reader import Trace
from offbook.workflows.hat_loop import (
    EVENT_FILES,
    EXIT_CODE,
    SUMMARY,
    AgentTurn,
    HatLoop,
)
from offbook.workflows.presets import read_preset
from offbook.workflows.workspace import Workspace, Workspaces

if TYPE_CHECKING:
    import re

    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.subjects.subject import Subject
    from offbook.trace.events import Event

ORCHESTRATORS = ("ralph",)
PROMPT_PREVIEW = 80
# The limits without an argument and without a configuration.
MAX_ITERATIONS, MAX_RUNTIME_SECS = 5, 300.0
EXAMPLE = '[{"output": "…\\nLOOP_COMPLETE"}]'

Progress = Callable[[float, float | None, str], None]
"""Receives the number of finished steps, the total if it is known, and a message."""


class RunLimits(msgspec.Struct, frozen=True):
    """The maximum number of iterations and of seconds of a run, and the faults in it."""

    iterations: int
    seconds: float
    faults: Faults | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast("Any", self.iterations), int) or self.iterations < 1:
            raise UsageError(f"max_iterations must be at least 1, got {self.iterations!r}")
        if not isinstance(cast("Any", self.seconds), (int, float)) or not self.seconds > 0:
            raise UsageError(f"max_runtime_secs must be more than 0, got {self.seconds!r}")


class LoopResult(AwaitableResult, frozen=True):
    """The result of a loop, as its session reports it."""

    exit_code: int
    termination_reason: str
    iterations: int
    elapsed_secs: float
    session_file: str
    events_count: int
    stdout: str
    stderr: str
    error: str = ""
    warnings: tuple[str, ...] = ()


def read_limits(
    workspace: Workspace,
    max_iterations: int | None,
    max_runtime_secs: float | None,
    *,
    default_iterations: int = MAX_ITERATIONS,
    faults: Faults | None = None,
) -> RunLimits:
    """Return the limits of a run: its arguments, then the configuration, then the defaults."""
    defaults = {"max_iterations": default_iterations, "max_runtime_seconds": MAX_RUNTIME_SECS}
    configured = read_preset(workspace.info.config, limits=defaults).event_loop
    return RunLimits(
        configured.max_iterations if max_iterations is None else max_iterations,
        configured.max_runtime_seconds if max_runtime_secs is None else max_runtime_secs,
        faults,
    )


def make_loop(
    workspace: Workspace,
    limits: RunLimits,
    agent: Subject | None = None,
    on_turn: Callable[[AgentTurn], None] = lambda _: None,
) -> HatLoop:
    """Return the hat loop with the workspace's configuration and these limits."""
    preset = read_preset(workspace.info.config)
    event_loop = msgspec.structs.replace(
        preset.event_loop, max_iterations=limits.iterations, max_runtime_seconds=limits.seconds
    )
    preset = msgspec.structs.replace(preset, event_loop=event_loop)
    return HatLoop(preset, agent=agent, on_turn=on_turn)


async def run_loop(
    workspace: Workspace,
    task: str,
    loop: Subject,
    limits: RunLimits,
    source: ModelSource | None = None,
    progress: Progress | None = None,
) -> LoopResult:
    """Run a loop, ours or an external one, as the subject of a rehearsal."""
    with workspace.lock():
        if not workspace.path.is_dir():
            raise UsageError(
                f"the files of the workspace {workspace.id!r} were removed",
                hint=f"fix: offbook workspace cleanup {workspace.id}, and set it up again",
            )
        warnings = archive_session(workspace)
        start = time.monotonic()
        error = ""
        rehearsal = Rehearsal(
            loop,
            source=source or NoModel(),
            cwd=workspace.path,
            trace=workspace.session,
            faults=limits.faults,
        )
        if progress is not None:

            def on_event(event: Event) -> None:
                number = event.data["n"]
                progress(number, limits.iterations, f"iteration {number}: {event.data['hat']}")

            rehearsal.hub.subscribe(on_event, ITERATION)
        try:
            await rehearsal.run(task)
        except OffbookError as problem:
            # A failed run is a result: the tools return it, and assertions can still be checked.
            error = hide_secrets(str(problem))
        finally:
            try:
                await rehearsal.dispose(failed=bool(error))
            except CheckFailed as problem:
                error = error or hide_secrets(str(problem))
            except RunError:
                # The agent changed its session: it is not evidence, and no assertion may read it.
                if workspace.session.exists():
                    workspace.session.rename(_next_session(workspace))
                raise
        if not workspace.path.is_dir():
            error = error or "the agent removed the folder of the workspace"
        elapsed = time.monotonic() - start
        # Read from the trace, not from the loop: an external one has no other result.
        reason, exit_code = "Stopped", 1
        iterations = events = 0
        output: dict[str, list[str]] = {"stdout": [], "stderr": []}
        for event in Trace(workspace.session):
            events += 1
            iterations += event.event == ITERATION
            if event.event == TERMINATION:
                reason, exit_code = event.data["reason"], event.data["exit_code"]
            exited = event.event == PROCESS_EXIT and not event.data.get("timed_out")
            if exited and (code := event.data.get("code")) and isinstance(loop, HatLoop):
                warnings = (
                    *warnings,
                    f"the agent ended with exit code {code} in iteration {iterations}",
                )
            if event.event == PROCESS_EXIT and (leaked := event.data.get("leaked")):
                pids = ", ".join(map(str, leaked))
                text = (
                    f"the agent left processes running in iteration {iterations}: {pids} (killed)"
                )
                warnings = (*warnings, text)
            if (chunk := output_text(event)) is not None:
                stream, text = chunk
                output[stream].append(text)
    if reason == "MaxRuntime":
        limit = f"the time limit of {limits.seconds:g} s was reached in iteration {iterations}"
        warnings = (*warnings, limit)
    return LoopResult(
        exit_code,
        reason,
        iterations,
        round(elapsed, 3),
        str(workspace.session),
        events,
        "".join(output["stdout"]),
        "".join(output["stderr"]),
        error,
        warnings,
    )


def archive_session(workspace: Workspace) -> tuple[str, ...]:
    """Rename an earlier session and its event files, so that two runs never mix."""
    if not workspace.session.exists():
        return ()
    archived = _next_session(workspace)
    workspace.session.rename(archived)
    # Their old lines would count as events of the next run.
    for name in EVENT_FILES:
        log = workspace.resolve(name)
        if log.is_file():
            suffix = archived.stem.removeprefix("session")
            log.rename(log.with_name(f"{log.stem}{suffix}{log.suffix}"))
    return (f"the workspace was used before: its session is kept as {archived.name}",)


def _next_session(workspace: Workspace) -> Path:
    number = 1
    while (path := workspace.folder / f"session-{number}.jsonl").exists():
        number += 1
    return path


class MockResponse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One scripted answer; `hat` and `trigger_pattern` restrict the prompts that it matches.

    One with an `exit_code` is an error of the model: the iteration fails. `stderr` is written to
    the standard error of the run.
    """

    output: str
    hat: str | None = None
    trigger_pattern: str | None = None
    exit_code: int = 0
    delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    stderr: str = ""


class MockResponses(Playbook):
    """Mock responses as a playbook: each is a role with one answer, used once.

        MockResponses([{"hat": "planner", "output": "…"}, {"output": "LOOP_COMPLETE"}])

    A prompt gets the first unused response whose `hat` and `trigger_pattern` match it. A file may
    have them below `responses`.
    """

    def __init__(self, responses: Any) -> None:
        super().__init__()
        given = cast("list[Any]", responses if isinstance(responses, list) else [responses])
        match given:
            case [{"responses": list()}]:
                responses = given[0]["responses"]
            case _:
                pass
        if not responses:
            raise UsageError("the mock backend needs mock_responses", hint=EXAMPLE)
        self._responses: list[MockResponse] = []
        self._names: list[str] = []
        for number, raw in enumerate(convert(responses, list[Any], path="mock_responses"), 1):
            where = f"mock_responses[{number}]"
            fields = {"output": raw} if isinstance(raw, str) else raw
            response = convert(fields, MockResponse, path=where)
            first = None
            if response.trigger_pattern:
                from offbook.trace.matching import compile_pattern  # few responses have one

                # Compiled here, so that an invalid pattern is reported before the run starts.
                pattern = compile_pattern(response.trigger_pattern, f"{where}.trigger_pattern")
                first = cast("re.Pattern[str]", pattern)
            code, text = response.exit_code, response.output
            answer = Fail(text or f"exit code {code}", 500, EXIT_CODE, None) if code else Say(text)
            self.load(Role(where, (answer,), first=first, hat=response.hat))
            self._responses.append(response)
            self._names.append(f"{number} (hat {response.hat})" if response.hat else f"{number}")

    async def reply(self, request: Request, /) -> Reply:
        """Return the next response that matches, or raise a ScriptError."""
        before = self.remaining_steps
        where = f"hat {request.metadata.get('hat')!r}"
        try:
            reply = await super().reply(request)
            return msgspec.structs.replace(reply, usage=Usage())  # no model counted tokens
        except ScriptError:
            # In the words of the tool: its users know no roles.
            if before:
                numbers = ", ".join(self._names[step.number - 1] for step in before)
                what = f"no mock response matches: {len(before)} remaining, numbers {numbers}"
                hint = f'the prompt begins "{excerpt(request.prompt, PROMPT_PREVIEW)}"'
                self.failure = ScriptMismatch(what, where=where, hint=hint)
            else:
                what = f"mock_exhausted: all {self.consumed} mock responses are used"
                hint = "fix: add a response, or end the last one with the completion promise"
                self.failure = ScriptExhausted(what, where=where, hint=hint)
            raise self.failure from None
        finally:
            # Used before the delay: a response that comes too late is used all the same.
            after = {step.number for step in self.remaining_steps}
            for step in before:
                if step.number not in after:
                    response = self._responses[step.number - 1]
                    self._emit_facts(response, str(request.metadata.get("hat", "")))
                    await asyncio.sleep(response.delay_ms / 1000)

    def _emit_facts(self, response: MockResponse, hat: str) -> None:
        """Emit what the process of an agent would report in addition to its answer."""
        hub = current_hub.get()
        if hub is None:
            return
        if response.stderr:
            hub.emit_data(ProcessOutputData("stderr", response.stderr, hat))
        hub.emit(SUMMARY, {"hat": hat, "cost_usd": 0.0})  # a scripted answer costs nothing


class RunResult(LoopResult, frozen=True):
    """The result of a run, with the number of used and unused mock responses."""

    mock_responses_consumed: int = 0
    mock_responses_remaining: int = 0


@sync_or_async
async def run(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    task: str,
    *,
    backend: str = "mock",
    orchestrator: str = "",
    command: Sequence[str] = (),
    playbook: str = "",
    cassette: str = "",
    max_iterations: int | None = None,
    max_runtime_secs: float | None = None,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
    faults: Mapping[str, Any] | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run the loop on a task, within limits.

    The agent is scripted (mock_responses), recorded (cassette), a command or a client. With an
    orchestrator, the loop of another program runs, and mock_responses are its model. Every
    response has to be used.

    The loop ends with exit code 0 when the last line of an answer is LOOP_COMPLETE, or the
    completion_promise of the configuration. An answer publishes events as
    `<event topic="build.done">text</event>`; the hat whose triggers match the topic is next.
    """
    workspace = Workspaces().find(workspace_id)
    plan = None
    if faults is not None:
        from offbook.determinism.faults import parse_faults  # few runs have faults

        plan = parse_faults(faults)
    limits = read_limits(workspace, max_iterations, max_runtime_secs, faults=plan)
    if faults and not orchestrator and backend in {"mock", "replay"}:
        raise UsageError(
            f"faults have no effect on the backend {backend!r}: its answers need no model",
            hint="backend: playbook, command or a client",
        )
    if backend == "mock":
        mocks = MockResponses(mock_responses)
        loop = (
            _find_orchestrator(orchestrator, limits, env)
            if orchestrator
            else make_loop(workspace, limits)
        )
        result = await run_loop(workspace, task, loop, limits, mocks, progress)
        return RunResult(
            **msgspec.structs.asdict(result),
            mock_responses_consumed=mocks.consumed,
            mock_responses_remaining=mocks.remaining,
        )
    # Options of another backend would be ignored silently.
    for name, value in (("orchestrator", orchestrator), ("mock_responses", mock_responses)):
        if value:
            raise UsageError(f"the backend {backend!r} takes no {name}", hint="backend: mock")
    source: ModelSource | None = None
    if backend == "replay":
        from offbook.workflows.loop_cassettes import CassetteAgent

        agent: Subject = CassetteAgent(workspace, cassette)
        agent.prepare(task)
        iterations = agent.iterations if max_iterations is None else max_iterations
        limits = read_limits(workspace, iterations, max_runtime_secs)
    else:
        config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
        agent, source = open_backend(config, workspace.path)
    # The values of `env` are redacted from the session, whatever they look like.
    with extra_secrets(env or {}):
        loop = make_loop(workspace, limits, agent)
        result = await run_loop(workspace, task, loop, limits, source, progress)
    return RunResult(**msgspec.structs.asdict(result))


def _find_orchestrator(
    orchestrator: str, limits: RunLimits, env: Mapping[str, str] | None
) -> Subject:
    """Return the external loop of this name."""
    require_known("unknown orchestrator", orchestrator, ORCHESTRATORS, where="run")
    from offbook.subjects.clis.clients import Ralph  # a client that few runs need

    return Ralph(max_iterations=limits.iterations, deadline=limits.seconds, env=env)
