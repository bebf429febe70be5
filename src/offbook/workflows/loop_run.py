"""One run of an agent loop in a workspace, as `run`, `record` and `replay` need it.

The loop is the subject of a rehearsal. Its trace is the `session.jsonl` of the workspace, outside
of the agent's folder, and the result is read from there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import OffbookError, RunError, ScriptError, UsageError
from offbook.runs.rehearsal import Rehearsal
from offbook.runs.run import AwaitableResult
from offbook.secrets import excerpt, hide_secrets
from offbook.trace.agent_output import output_text
from offbook.trace.events import ITERATION, PROCESS_EXIT, TERMINATION, Verdict
from offbook.trace.reader import Trace
from offbook.workflows.hat_loop import EVENT_FILES, HatLoop
from offbook.workflows.presets import read_preset
from offbook.workflows.workspace import Workspace

if TYPE_CHECKING:
    from offbook.determinism.faults import Faults
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.runs.backends import Backend
    from offbook.subjects.subject import RunContext, Subject
    from offbook.trace.events import Event

Progress = Callable[[float, float | None, str], None]
"""Receives the number of finished steps, the total if it is known, and a message."""


class RunLimits(msgspec.Struct, frozen=True):
    """The maximum number of iterations and of seconds of a run, and the faults in it."""

    iterations: int
    seconds: float = 300.0
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


class NullSource:
    """The model of a run whose backend answers by itself: any request is an error."""

    async def reply(self, request: Request, /) -> Reply:
        """Raise a ScriptError."""
        raise ScriptError(f"no reply is scripted for {excerpt(request.prompt, 60)!r}")


async def run_loop(
    workspace: Workspace,
    task: str,
    backend: Backend | Callable[[RunContext], Backend],
    limits: RunLimits,
    *,
    verdict: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> LoopResult:
    """Run the hat loop with the workspace's configuration and these limits."""
    preset = read_preset(workspace.info.config)
    event_loop = msgspec.structs.replace(
        preset.event_loop, max_iterations=limits.iterations, max_runtime_seconds=limits.seconds
    )
    loop = HatLoop(msgspec.structs.replace(preset, event_loop=event_loop), backend=backend)
    return await run_subject(workspace, task, loop, limits, verdict=verdict, progress=progress)


async def run_subject(
    workspace: Workspace,
    task: str,
    subject: Subject,
    limits: RunLimits,
    *,
    source: ModelSource | None = None,
    verdict: Callable[[], Verdict | None] = lambda: None,
    progress: Progress | None = None,
) -> LoopResult:
    """Run a loop, ours or an external one, as the subject of a rehearsal.

    `verdict` is called after the run: a playbook or cassette may have an unused rest.
    """
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
            subject,
            source=source or NullSource(),
            cwd=workspace.path,
            trace=workspace.session,
            faults=limits.faults,
        )
        if progress is not None:

            def on_event(event: Event) -> None:
                if event.event == ITERATION:
                    number = event.data["n"]
                    progress(number, limits.iterations, f"iteration {number}: {event.data['hat']}")

            rehearsal.hub.subscribe(on_event)
        try:
            await rehearsal.run(task)
            final = verdict()
            if final is not None:
                rehearsal.hub.emit_verdict(final)
                error = "" if final.holds else final.message
        except OffbookError as problem:
            # A failed run is a result: the tools return it, and assertions can still be checked.
            error = hide_secrets(str(problem))
        finally:
            try:
                await rehearsal.dispose()
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
