"""What `run`, `record` and `replay` have in common: the loop at work in a workspace."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import OffbookError, RunError, ScriptError, UsageError
from offbook.runs.bridge import Settled
from offbook.runs.rehearsals.rehearsal import Rehearsal
from offbook.runs.workspace import Workspace
from offbook.secrets import hide_secrets, known_secrets
from offbook.subjects.loop.backend import Backend
from offbook.subjects.loop.config import Preset, read_preset
from offbook.subjects.loop.loop import EVENTS, Loop
from offbook.trace.events import ITERATION, TERMINATION
from offbook.trace.outputs import written
from offbook.trace.reader import Trace
from offbook.trace.verdicts import Verdict, deliver

if TYPE_CHECKING:
    from offbook.exchange.reply import Reply
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource
    from offbook.subjects.subject import Stage, Subject
    from offbook.trace.events import Event

Progress = Callable[[float, float | None, str], None]


class Limits(msgspec.Struct, frozen=True):
    """How often the agent is called at most, and how long all of it may take."""

    iterations: int
    seconds: float = 300.0

    def __post_init__(self) -> None:
        known = isinstance(cast("Any", self.iterations), int) and self.iterations > 0
        if not known:
            raise UsageError(f"max_iterations is {self.iterations!r}", hint="let it be at least 1")
        if not isinstance(cast("Any", self.seconds), (int, float)) or not self.seconds > 0:
            raise UsageError(f"max_runtime_secs is {self.seconds!r}", hint="let it be more than 0")


class Worked(Settled, frozen=True):
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


class Silent:
    """A source for runs whose agent brings its own answers."""

    async def reply(self, request: Request, /) -> Reply:
        """Nobody should ask."""
        raise ScriptError(f"nothing is scripted for {request.prompt[:60]!r}")


async def work(
    workspace: Workspace,
    task: str,
    backend: Backend | Callable[[Stage], Backend],
    limits: Limits,
    *,
    judge: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> Worked:
    """Let the loop work on a task, and tell how it ended; `judge` has the last word."""
    loop = Loop(_limit(workspace, limits), backend=backend)
    return await perform(workspace, task, loop, limits, judge=judge, progress=progress)


async def perform(
    workspace: Workspace,
    task: str,
    subject: Subject,
    limits: Limits,
    *,
    source: ModelSource | None = None,
    judge: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> Worked:
    """Let a loop, ours or another, work on a task, and tell how it ended."""
    warnings = set_aside(workspace)
    start = time.monotonic()
    error = ""
    rehearsal = Rehearsal(
        subject, source=source or Silent(), cwd=workspace.path, trace=workspace.session
    )
    if progress is not None:
        rehearsal.hub.subscribe(_tell_iterations(progress, limits.iterations))
    try:
        await rehearsal.run(task)
        verdict = judge()
        if verdict is not None:
            deliver(rehearsal.hub, verdict)
            error = "" if verdict.holds else verdict.message
    except OffbookError as problem:
        error = hide_secrets(str(problem), known_secrets())
    finally:
        await rehearsal.dispose()
    if not workspace.session.is_file():
        raise RunError("the workspace was removed while the loop ran", where=workspace.id)
    return _tell(workspace, error, warnings, time.monotonic() - start)


def _tell_iterations(progress: Progress, total: int) -> Callable[[Event], None]:
    def hear(event: Event) -> None:
        if event.event == ITERATION:
            number = event.data["n"]
            progress(number, total, f"iteration {number}: {event.data['hat']}")

    return hear


def _limit(workspace: Workspace, limits: Limits) -> Preset:
    """How the workspace was set up, with the limits of this run."""
    preset = read_preset(workspace.card.config)
    loop = msgspec.structs.replace(
        preset.event_loop, max_iterations=limits.iterations, max_runtime_seconds=limits.seconds
    )
    return msgspec.structs.replace(preset, event_loop=loop)


def set_aside(workspace: Workspace) -> tuple[str, ...]:
    """Keep an earlier session under another name, and its events file, so that two never mix."""
    if not workspace.session.exists():
        return ()
    number = 1
    while (kept := workspace.path / f"session-{number}.jsonl").exists():
        number += 1
    workspace.session.rename(kept)
    for name in EVENTS:
        log = workspace.path / name
        if log.is_file():
            log.rename(log.with_name(f"{log.stem}-{number}{log.suffix}"))
    return (f"the workspace was used before: its session is kept as {kept.name}",)


def _tell(workspace: Workspace, error: str, warnings: tuple[str, ...], seconds: float) -> Worked:
    reason, code = "Stopped", 1
    iterations = count = 0
    said: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for event in Trace(workspace.session):
        count += 1
        iterations += event.event == ITERATION
        if event.event == TERMINATION:
            reason, code = event.data["reason"], event.data["exit_code"]
        if (part := written(event)) is not None:
            said[part[0]].append(part[1])
    return Worked(
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
