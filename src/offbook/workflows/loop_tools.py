"""The tools `run`, `record` and `replay`: an agent loop works on a task in a workspace.

    result = await run("flow", "Add error handling", mock_responses=["LOOP_COMPLETE"])
    result.exit_code, result.termination_reason        # 0, "CompletionPromise"

`record` runs a real agent and stores its answers in a cassette of the workspace; `replay` answers
from that cassette and starts no agent. Cassettes are imported inside the functions: a mocked run
does not need them, and starts 10 ms sooner without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from offbook.errors import RunError, UsageError, did_you_mean
from offbook.runs.backends import BACKENDS, BackendConfig, BackendFactory
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets
from offbook.workflows.hat_loop import SCRATCHPAD
from offbook.workflows.loop_run import (
    LoopResult,
    NullSource,
    Progress,
    RunLimits,
    run_loop,
    run_subject,
)
from offbook.workflows.mock_backend import MockBackend, MockSource
from offbook.workflows.workspace import Workspace, Workspaces

ORCHESTRATORS = ("ralph",)


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
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
    faults: Mapping[str, Any] | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Run the loop on a task, within limits.

    The agent is scripted (mock_responses), recorded (cassette), a command or a client. With an
    orchestrator, the loop of another program runs, and mock_responses are its model.

    The loop ends with exit code 0 when the last line of an answer is LOOP_COMPLETE, or the
    completion_promise of the configuration. An answer publishes events as
    `<event topic="build.done">text</event>`; the hat whose triggers match the topic is next.
    """
    workspace = Workspaces().find(workspace_id)
    plan = None
    if faults is not None:
        from offbook.determinism.faults import parse_faults  # few runs have faults

        plan = parse_faults(faults)
    limits = RunLimits(max_iterations, max_runtime_secs, plan)
    if faults and not orchestrator and backend in {"mock", "replay"}:
        raise UsageError(
            f"faults have no effect on the backend {backend!r}: its answers need no model",
            hint="backend: playbook, command or a client",
        )
    if backend == "mock":
        mock = MockBackend(mock_responses)
        if orchestrator:
            result = await _run_orchestrator(
                workspace, task, orchestrator, mock, limits, env, progress
            )
        else:
            result = await run_loop(workspace, task, mock, limits, progress=progress)
        return RunResult(
            **msgspec.structs.asdict(result),
            mock_responses_consumed=mock.consumed,
            mock_responses_remaining=mock.remaining,
        )
    # Options of another backend would be ignored silently.
    for name, value in (("orchestrator", orchestrator), ("mock_responses", mock_responses)):
        if value:
            raise UsageError(f"the backend {backend!r} takes no {name}", hint="backend: mock")
    if backend == "replay":
        from offbook.workflows.cassette_backends import CassetteBackend

        recorded = CassetteBackend(workspace, cassette)
        recorded.prepare(task)
        # The verdict fails a run that leaves a part of the cassette unused.
        result = await run_loop(
            workspace, task, recorded, limits, verdict=recorded.verdict, progress=progress
        )
    else:
        config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
        agent = BackendFactory(config, workspace.path)
        # The values of `env` are redacted from the session, whatever they look like.
        with extra_secrets(config.env):
            result = await run_loop(
                workspace, task, agent, limits, verdict=agent.verdict, progress=progress
            )
    return RunResult(**msgspec.structs.asdict(result))


async def _run_orchestrator(
    workspace: Workspace,
    task: str,
    orchestrator: str,
    mock: MockBackend,
    limits: RunLimits,
    env: Mapping[str, str] | None,
    progress: Progress | None,
) -> LoopResult:
    """Run an external loop whose agent has the mock responses as its model."""
    if orchestrator not in ORCHESTRATORS:
        raise UsageError(
            f"unknown orchestrator {orchestrator!r}",
            where="run",
            hint=did_you_mean(orchestrator, ORCHESTRATORS),
        )
    from offbook.subjects.clis.ralph import HAT, Ralph  # a client that few runs need

    ralph = Ralph(max_iterations=limits.iterations, deadline=limits.seconds, env=env)
    source = MockSource(mock, HAT)
    return await run_subject(workspace, task, ralph, limits, source=source, progress=progress)


class RecordResult(AwaitableResult, frozen=True):
    """A recorded cassette, and the end of its run."""

    cassette_path: str
    cassette_name: str
    interactions: int
    total_tokens: int
    cost_dollars: float | None
    duration_secs: float
    exit_code: int
    termination_reason: str
    session_file: str
    error: str = ""
    warnings: tuple[str, ...] = ()


@sync_or_async
async def record(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    cassette_name: str,
    task: str,
    backend: str,
    *,
    command: Sequence[str] = (),
    playbook: str = "",
    max_iterations: int = 10,
    max_runtime_secs: float = 300.0,
    redactions: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> RecordResult:
    """Run the loop with a real agent and record a cassette in the workspace."""
    from offbook.sources.cassette.recording import Recording
    from offbook.workflows.cassette_backends import (
        WORKSPACE_ROOT,
        RecordingBackend,
        cassette_path,
    )

    workspace = Workspaces().find(workspace_id)
    if backend not in BACKENDS:
        raise UsageError(
            f"the backend {backend!r} cannot be recorded", hint=did_you_mean(backend, BACKENDS)
        )
    path = cassette_path(workspace, cassette_name)
    limits = RunLimits(max_iterations, max_runtime_secs)
    config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
    agent = BackendFactory(config, workspace.path)
    # Everything that a replay needs to repeat the run: the agent for unrecorded prompts, the
    # limits, and the scratchpad, which is part of the first prompt.
    metadata: dict[str, Any] = {"backend": backend}
    if command:
        metadata["command"] = list(command)
    metadata["max_iterations"] = max_iterations
    scratchpad = workspace.resolve(SCRATCHPAD)
    if scratchpad.is_file():
        metadata["scratchpad"] = scratchpad.read_text("utf-8")
    with extra_secrets(config.env):
        recording = Recording(
            NullSource(),  # the backend answers; the recording stores its output
            path,
            redactions=redactions,
            roots={WORKSPACE_ROOT: workspace.path},
            backend=backend,
            task=task,
            replace=replace,
        )
        existed = path.is_file()
        try:
            result = await run_loop(
                workspace,
                task,
                lambda context: RecordingBackend(agent(context), recording, workspace.path),
                limits,
                verdict=agent.verdict,
                progress=progress,
            )
            metadata["termination_reason"] = result.termination_reason
        except BaseException:
            recording.interrupted = True
            raise
        finally:
            # An empty or interrupted recording never replaces an existing cassette.
            summary = recording.summary()
            if summary.interactions and not (existed and summary.interrupted):
                recording.close(metadata)
            else:
                recording.discard()
    if not summary.interactions:
        raise RunError("nothing was recorded: the agent never answered", hint=result.error)
    return RecordResult(
        summary.cassette_path,
        cassette_name,
        summary.interactions,
        summary.total_tokens,
        summary.cost_dollars,
        summary.duration_secs,
        result.exit_code,
        result.termination_reason,
        result.session_file,
        result.error,
        result.warnings,
    )


class ReplayResult(AwaitableResult, frozen=True):
    """The result of a replay, with the counts of replayed and unused interactions."""

    exit_code: int
    termination_reason: str
    iterations: int
    interactions_replayed: int
    interactions_passthrough: int
    cost_dollars: float | None
    session_file: str
    interactions_unused: int = 0
    drifted: int = 0
    error: str = ""
    warnings: tuple[str, ...] = ()


@sync_or_async
async def replay(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    cassette_name: str,
    task: str,
    *,
    strict: bool = True,
    allow_passthrough: bool = False,
    backend: str = "",
    command: Sequence[str] = (),
    playbook: str = "",
    env: Mapping[str, str] | None = None,
    redactions: Mapping[str, Any] | None = None,
    max_iterations: int | None = None,
    max_runtime_secs: float = 300.0,
    progress: Progress | None = None,
) -> ReplayResult:
    """Run the loop with recorded answers; no agent is started and no model is called.

    With allow_passthrough, unrecorded prompts go to the agent that was recorded, or to `backend`.
    """
    from offbook.workflows.cassette_backends import CassetteBackend

    workspace = Workspaces().find(workspace_id)
    recorded = CassetteBackend(workspace, cassette_name, strict=strict, redactions=redactions)
    recorded.prepare(task)
    if allow_passthrough:
        config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
        recorded.allow_passthrough(config)
    elif backend or command or playbook:
        raise UsageError("a replay starts no agent", hint="fix: allow_passthrough=True")
    limits = RunLimits(max_iterations or recorded.iterations, max_runtime_secs)
    with extra_secrets(env or {}):
        result = await run_loop(
            workspace, task, recorded, limits, verdict=recorded.verdict, progress=progress
        )
    summary = recorded.summary()
    return ReplayResult(
        result.exit_code,
        result.termination_reason,
        result.iterations,
        summary.interactions_replayed,
        summary.interactions_passthrough,
        recorded.cost,
        result.session_file,
        summary.interactions_unused,
        summary.drifted,
        result.error,
        result.warnings,
    )
