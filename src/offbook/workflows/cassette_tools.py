"""The tools `record` and `replay`: the loop with a real agent, and again without it.

    await record("flow", "happy", "Add error handling", "claude", env={…})
    await replay("flow", "happy", "Add error handling")

`record` stores the answers and the files of the agent in a cassette of the workspace; `replay`
answers from that cassette and starts no agent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import RunError, UsageError, require_known
from offbook.runs.agents import BACKENDS, BackendConfig, NoModel, open_backend
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets
from offbook.sources.cassette.cassette_file import journal_path
from offbook.sources.cassette.recording import Recording
from offbook.workflows.hat_loop import SCRATCHPAD, AgentTurn
from offbook.workflows.loop_cassettes import (
    DEFAULT_ITERATIONS,
    WORKSPACE_ROOT,
    CassetteAgent,
    TurnRecorder,
    cassette_path,
)
from offbook.workflows.loop_tools import Progress, make_loop, read_limits, run_loop
from offbook.workflows.workspace import Workspaces

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource


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
    max_iterations: int | None = None,
    max_runtime_secs: float | None = None,
    redactions: Mapping[str, Any] | None = None,
    env: Mapping[str, str] | None = None,
    replace: bool = False,
    progress: Progress | None = None,
) -> RecordResult:
    """Run the loop with a real agent and record a cassette in the workspace."""
    workspace = Workspaces().find(workspace_id)
    require_known("no backend that can be recorded:", backend, BACKENDS)
    path = cassette_path(workspace, cassette_name)
    limits = read_limits(
        workspace, max_iterations, max_runtime_secs, default_iterations=DEFAULT_ITERATIONS
    )
    config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
    agent, source = open_backend(config, workspace.path)
    # Everything that a replay needs to repeat the run: the agent for unrecorded prompts, the
    # limits, and the scratchpad, which is part of the first prompt.
    metadata: dict[str, Any] = {"backend": backend}
    if command:
        metadata["command"] = list(command)
    metadata["max_iterations"] = limits.iterations
    scratchpad = workspace.resolve(SCRATCHPAD)
    if scratchpad.is_file():
        metadata["scratchpad"] = scratchpad.read_text("utf-8", "replace")
    with extra_secrets(config.env), workspace.writes_own(path, journal_path(path)):
        recording = Recording(
            NoModel(),  # the agent answers; the recording stores its output
            path,
            redactions=redactions,
            roots={WORKSPACE_ROOT: workspace.path},
            backend=backend,
            task=task,
            replace=replace,
        )
        existed = path.is_file()
        try:
            recorder = TurnRecorder(recording, workspace.path)
            loop = make_loop(workspace, limits, agent, recorder)
            result = await run_loop(workspace, task, loop, limits, source, progress)
            metadata["termination_reason"] = result.termination_reason
            recording.interrupted = bool(result.error)
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
        raise RunError("nothing was recorded", hint=result.error or "the agent never answered")
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
        (*result.warnings, *recorder.warnings()),
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
    max_runtime_secs: float | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Run the loop with recorded answers; no agent is started and no model is called.

    With allow_passthrough, unrecorded prompts go to the agent that was recorded, or to `backend`.
    """
    workspace = Workspaces().find(workspace_id)
    recorded = CassetteAgent(workspace, cassette_name, strict=strict, redactions=redactions)
    recorded.prepare(task)
    source: ModelSource | None = None
    if allow_passthrough:
        config = BackendConfig(backend, tuple(command), dict(env or {}), playbook)
        source = recorded.allow_passthrough(config)
    elif backend or command or playbook:
        raise UsageError("a replay starts no agent", hint="fix: allow_passthrough=True")
    iterations = recorded.iterations if max_iterations is None else max_iterations
    limits = read_limits(workspace, iterations, max_runtime_secs)
    turns: list[AgentTurn] = []
    with extra_secrets(env or {}):
        loop = make_loop(workspace, limits, recorded, turns.append)
        result = await run_loop(workspace, task, loop, limits, source, progress)
    summary = recorded.summary()
    # A replayed answer costs nothing; one unknown cost makes the sum unknown.
    costs = [turn.cost_usd for turn in turns]
    return ReplayResult(
        result.exit_code,
        result.termination_reason,
        result.iterations,
        summary.interactions_replayed,
        summary.interactions_passthrough,
        None if None in costs else sum(cast("list[float]", costs)),
        result.session_file,
        summary.interactions_unused,
        summary.drifted,
        result.error,
        result.warnings,
    )
