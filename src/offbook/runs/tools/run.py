"""`run`: let the loop work on a task in a workspace, and record it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import OffbookError, ScriptError, UsageError, nearest
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.workspace import Workspace, Workspaces
from offbook.subjects.loop.backend import Backend, CommandBackend, MockBackend
from offbook.subjects.loop.loop import Loop
from offbook.trace.outputs import join_output
from offbook.trace.reader import Trace

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request
    from offbook.subjects.subject import Stage

BACKENDS = ("mock", "command")


class Ran(msgspec.Struct, frozen=True):
    """A run that is over."""

    exit_code: int
    termination_reason: str
    iterations: int
    elapsed_secs: float
    session_file: str
    events_count: int
    stdout: str
    stderr: str
    mock_responses_consumed: int = 0
    mock_responses_remaining: int = 0
    error: str = ""
    warnings: list[str] = []


class Silent:
    """A source for runs whose agent brings its own answers."""

    async def reply(self, request: Request, /) -> Reply:
        """Nobody should ask."""
        raise ScriptError(f"nothing is scripted for {request.prompt[:60]!r}")


async def run(
    workspace_id: str,
    task: str,
    *,
    backend: str = "mock",
    command: Sequence[str] = (),
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
) -> Ran:
    """Work on a task, within limits, with scripted answers or a command of one's own."""
    workspace = Workspaces().find(workspace_id)
    mock = _read_mock(backend, mock_responses)
    actor = _choose(workspace, backend, mock, command, env or {})
    loop = Loop(_limit(workspace, max_iterations, max_runtime_secs), backend=actor)
    warnings = _set_aside(workspace)
    start = time.monotonic()
    error = ""
    rehearsal = Rehearsal(loop, source=Silent(), cwd=workspace.path, trace=workspace.session)
    try:
        await rehearsal.run(task)
    except OffbookError as problem:
        error = str(problem)
    finally:
        await rehearsal.dispose()
    return _tell(workspace, loop, mock, error, warnings, time.monotonic() - start)


def _read_mock(backend: str, responses: Sequence[Any] | None) -> MockBackend | None:
    if backend not in BACKENDS:
        raise UsageError(
            f"there is no backend {backend!r}", where="run", hint=nearest(backend, BACKENDS)
        )
    if backend != "mock":
        return None
    if not responses:
        raise UsageError(
            "the mock backend needs mock_responses", hint='[{"output": "…\\nLOOP_COMPLETE"}]'
        )
    return MockBackend(responses)


def _choose(
    workspace: Workspace,
    backend: str,
    mock: MockBackend | None,
    command: Sequence[str],
    env: Mapping[str, str],
) -> Any:
    if mock is not None:
        return mock
    if not command:
        raise UsageError(f"the backend {backend!r} needs a command", hint='command=["my-agent"]')

    def start(stage: Stage) -> Backend:
        home = workspace.path / ".agent" / "home"
        return CommandBackend(command, stage.cwd, home, env, stage.hub)

    return start


def _limit(workspace: Workspace, iterations: int, seconds: float) -> dict[str, Any]:
    config: dict[str, Any] = {"event_loop": {}, **workspace.card.config}
    limits = {"max_iterations": iterations, "max_runtime_seconds": seconds}
    return {**config, "event_loop": {**config["event_loop"], **limits}}


def _set_aside(workspace: Workspace) -> list[str]:
    """Keep an earlier session under another name, so that two never mix."""
    if not workspace.session.exists():
        return []
    number = 1
    while (kept := workspace.path / f"session-{number}.jsonl").exists():
        number += 1
    workspace.session.rename(kept)
    return [f"the workspace was used before: its session is kept as {kept.name}"]


def _tell(
    workspace: Workspace,
    loop: Loop,
    mock: MockBackend | None,
    error: str,
    warnings: list[str],
    seconds: float,
) -> Ran:
    events = list(Trace(workspace.session))
    outcome = loop.outcome
    ends = [event for event in events if event.event == "_meta.termination"]
    reason = outcome.reason if outcome else ends[-1].data["reason"] if ends else "Stopped"
    code = outcome.exit_code if outcome else 1
    iterations = sum(event.event == "_meta.iteration" for event in events)
    return Ran(
        code,
        reason,
        iterations,
        round(seconds, 3),
        str(workspace.session),
        len(events),
        join_output(events, "stdout"),
        join_output(events, "stderr"),
        mock.consumed if mock else 0,
        mock.remaining if mock else 0,
        error,
        warnings,
    )


def session_of(workspace: Workspace) -> Path:
    """The session of a workspace's last run."""
    if not workspace.session.is_file():
        raise UsageError(
            f"the workspace {workspace.id!r} has no session yet",
            hint=f"run something in it first: offbook run {workspace.id} …",
        )
    return workspace.session
