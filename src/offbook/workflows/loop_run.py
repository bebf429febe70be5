"""What `run`, `record` and `replay` have in common: the loop at work in a workspace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import OffbookError, RunError, ScriptError, UsageError
from offbook.runs.backends import Backend, MockBackend
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.sync_bridge import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets, hide_secrets, known_secrets
from offbook.trace.agent_output import output_text
from offbook.trace.events import ITERATION, TERMINATION, Verdict
from offbook.trace.reader import Trace
from offbook.workflows.hat_loop import EVENT_FILES, HatLoop
from offbook.workflows.presets import Preset, read_preset
from offbook.workflows.workspace import Workspace, Workspaces

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.subjects.subject import RunContext, Subject
    from offbook.trace.events import Event


# --- What `run`, `record` and `replay` have in common: the loop at work in a workspace.

Progress = Callable[[float, float | None, str], None]


class RunLimits(msgspec.Struct, frozen=True):
    """How often the agent is called at most, and how long all of it may take."""

    iterations: int
    seconds: float = 300.0

    def __post_init__(self) -> None:
        known = isinstance(cast("Any", self.iterations), int) and self.iterations > 0
        if not known:
            raise UsageError(f"max_iterations is {self.iterations!r}", hint="let it be at least 1")
        if not isinstance(cast("Any", self.seconds), (int, float)) or not self.seconds > 0:
            raise UsageError(f"max_runtime_secs is {self.seconds!r}", hint="let it be more than 0")


class LoopResult(AwaitableResult, frozen=True):
    """How the loop ended."""

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


class NullSource:
    """A source for runs whose agent brings its own answers."""

    async def reply(self, request: Request, /) -> Reply:
        """Nobody should ask."""
        raise ScriptError(f"nothing is scripted for {request.prompt[:60]!r}")


async def run_loop(
    workspace: Workspace,
    task: str,
    backend: Backend | Callable[[RunContext], Backend],
    limits: RunLimits,
    *,
    judge: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> LoopResult:
    """Let the loop work on a task, and tell how it ended; `judge` has the last word."""
    loop = HatLoop(_limited_preset(workspace, limits), backend=backend)
    return await run_subject(workspace, task, loop, limits, judge=judge, progress=progress)


async def run_subject(
    workspace: Workspace,
    task: str,
    subject: Subject,
    limits: RunLimits,
    *,
    source: ModelSource | None = None,
    judge: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> LoopResult:
    """Let a loop, ours or another, work on a task, and tell how it ended."""
    warnings = archive_session(workspace)
    start = time.monotonic()
    error = ""
    rehearsal = Rehearsal(
        subject, source=source or NullSource(), cwd=workspace.path, trace=workspace.session
    )
    if progress is not None:
        rehearsal.hub.subscribe(_report_iterations(progress, limits.iterations))
    try:
        await rehearsal.run(task)
        verdict = judge()
        if verdict is not None:
            rehearsal.hub.emit_verdict(verdict)
            error = "" if verdict.holds else verdict.message
    except OffbookError as problem:
        error = hide_secrets(str(problem), known_secrets())
    finally:
        await rehearsal.dispose()
    if not workspace.session.is_file():
        raise RunError("the workspace was removed while the loop ran", where=workspace.id)
    return _read_result(workspace, error, warnings, time.monotonic() - start)


def _report_iterations(progress: Progress, total: int) -> Callable[[Event], None]:
    def hear(event: Event) -> None:
        if event.event == ITERATION:
            number = event.data["n"]
            progress(number, total, f"iteration {number}: {event.data['hat']}")

    return hear


def _limited_preset(workspace: Workspace, limits: RunLimits) -> Preset:
    """How the workspace was set up, with the limits of this run."""
    preset = read_preset(workspace.card.config)
    loop = msgspec.structs.replace(
        preset.event_loop, max_iterations=limits.iterations, max_runtime_seconds=limits.seconds
    )
    return msgspec.structs.replace(preset, event_loop=loop)


def archive_session(workspace: Workspace) -> tuple[str, ...]:
    """Keep an earlier session under another name, and its events file, so that two never mix."""
    if not workspace.session.exists():
        return ()
    number = 1
    while (kept := workspace.path / f"session-{number}.jsonl").exists():
        number += 1
    workspace.session.rename(kept)
    for name in EVENT_FILES:
        log = workspace.path / name
        if log.is_file():
            log.rename(log.with_name(f"{log.stem}-{number}{log.suffix}"))
    return (f"the workspace was used before: its session is kept as {kept.name}",)


def _read_result(
    workspace: Workspace, error: str, warnings: tuple[str, ...], seconds: float
) -> LoopResult:
    reason, code = "Stopped", 1
    iterations = count = 0
    said: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for event in Trace(workspace.session):
        count += 1
        iterations += event.event == ITERATION
        if event.event == TERMINATION:
            reason, code = event.data["reason"], event.data["exit_code"]
        if (part := output_text(event)) is not None:
            said[part[0]].append(part[1])
    return LoopResult(
        code,
        reason,
        iterations,
        round(seconds, 3),
        str(workspace.session),
        count,
        "".join(said["stdout"]),
        "".join(said["stderr"]),
        error,
        warnings,
    )


# --- `run`: let the loop work on a task in a workspace, and record it.


class RunResult(LoopResult, frozen=True):
    """A run that is over."""

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
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Work on a task, within limits: scripted answers, a recording, a command or a client.

    With an orchestrator, the loop is not ours but that one's, and scripted answers are its agent.
    """
    workspace = Workspaces().find(workspace_id)
    limits = RunLimits(max_iterations, max_runtime_secs)
    if backend == "mock":
        mock = _read_mock(mock_responses)
        worked = await _run_mock(workspace, task, mock, limits, orchestrator, env, progress)
        return _run_result(worked, mock.consumed, mock.remaining)
    for name, given in (("orchestrator", orchestrator), ("mock_responses", mock_responses)):
        if given:
            raise UsageError(f"the backend {backend!r} takes no {name}", hint="backend: mock")
    if backend == "replay":
        from offbook.workflows.loop_cassette import CassetteBackend

        tape = CassetteBackend(workspace, cassette)
        tape.begin(task)
        return _run_result(
            await run_loop(workspace, task, tape, limits, judge=tape.verdict, progress=progress)
        )
    from offbook.runs.backends import BackendConfig, BackendFactory

    choice = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
    agent = BackendFactory(choice, workspace.path)
    with extra_secrets(choice.env):
        return _run_result(
            await run_loop(workspace, task, agent, limits, judge=agent.verdict, progress=progress)
        )


async def _run_mock(
    workspace: Workspace,
    task: str,
    mock: MockBackend,
    limits: RunLimits,
    orchestrator: str,
    env: Mapping[str, str] | None,
    progress: Progress | None,
) -> LoopResult:
    """Let scripted answers be the agent: of our loop, or of an orchestrator's."""
    if not orchestrator:
        return await run_loop(workspace, task, mock, limits, progress=progress)
    from offbook.workflows.mock_backend import run_orchestrator

    return await run_orchestrator(
        workspace, task, orchestrator, mock, limits, env=env, progress=progress
    )


def _read_mock(responses: Sequence[Any] | None) -> MockBackend:
    if not responses:
        raise UsageError(
            "the mock backend needs mock_responses", hint='[{"output": "…\\nLOOP_COMPLETE"}]'
        )
    return MockBackend(responses)


def _run_result(worked: LoopResult, consumed: int = 0, remaining: int = 0) -> RunResult:
    told = msgspec.structs.asdict(worked)
    return RunResult(**told, mock_responses_consumed=consumed, mock_responses_remaining=remaining)
