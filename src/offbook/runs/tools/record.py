"""`record`: let a real agent work on a task, and keep what it answered and left behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any

from offbook.checks.snapshot import list_files, read_small
from offbook.errors import RunError, UsageError, nearest
from offbook.runs.agents import AGENTS, Agent, Choice
from offbook.runs.bridge import Settled
from offbook.runs.tools.replay import WORKSPACE, place_cassette
from offbook.runs.tools.work import Limits, Progress, Silent, Worked, work
from offbook.runs.workspace import Workspace, Workspaces
from offbook.secrets import keep_secret
from offbook.sources.cassette.format import Answered
from offbook.sources.recording import Recording, Summary
from offbook.subjects.loop.backend import Acted, Backend
from offbook.subjects.loop.loop import SCRATCHPAD


class Recorded(Settled, frozen=True):
    """A cassette that was recorded, and how its run ended."""

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
) -> Recorded:
    """Work on a task with a real agent, and keep a cassette of it in the workspace."""
    workspace = Workspaces().find(workspace_id)
    if backend not in AGENTS:
        raise UsageError(
            f"{backend!r} is no backend that can be recorded", hint=nearest(backend, AGENTS)
        )
    place = place_cassette(workspace, cassette_name)
    agent = Agent(Choice(backend, tuple(command), dict(env or {}), playbook), workspace.path)
    about = _describe(workspace, backend, command, max_iterations)
    with keep_secret(env or {}):
        recording = Recording(
            Silent(),
            place,
            redactions=redactions,
            roots={WORKSPACE: workspace.path},
            backend=backend,
            task=task,
            replace=replace,
        )
        working = work(
            workspace,
            task,
            lambda stage: Taped(agent(stage), recording, workspace.path),
            Limits(max_iterations, max_runtime_secs),
            judge=agent.verdict,
            progress=progress,
        )
        worked, summary = await _fill(recording, working, about)
    return Recorded(
        summary.cassette_path,
        cassette_name,
        summary.interactions,
        summary.total_tokens,
        summary.cost_dollars,
        summary.duration_secs,
        worked.exit_code,
        worked.termination_reason,
        worked.session_file,
        worked.error,
        worked.warnings,
    )


async def _fill(
    recording: Recording, working: Awaitable[Worked], about: dict[str, Any]
) -> tuple[Worked, Summary]:
    """Close the cassette after the work; nothing, or half of it, replaces no good recording."""
    there = recording.path.is_file()
    try:
        worked = await working
        about["termination_reason"] = worked.termination_reason
    except BaseException:
        recording.interrupted = True
        raise
    finally:
        summary = recording.summary()
        if summary.interactions and not (there and summary.interrupted):
            recording.close(about)
        else:
            recording.discard()
    if not summary.interactions:
        raise RunError("nothing was recorded: the agent never answered", hint=worked.error)
    return worked, summary


def _describe(
    workspace: Workspace, backend: str, command: Sequence[str], iterations: int
) -> dict[str, Any]:
    """What a replay has to know: who it was, how long it was allowed, and what was noted first."""
    scratchpad = workspace.place(SCRATCHPAD)
    return {
        "backend": backend,
        **({"command": list(command)} if command else {}),
        "max_iterations": iterations,
        **({"scratchpad": scratchpad.read_text("utf-8")} if scratchpad.is_file() else {}),
    }


class Taped:
    """A backend whose answers go to a cassette, with the files that they changed."""

    def __init__(self, backend: Backend, recording: Recording, folder: Path) -> None:
        self._backend = backend
        self._recording = recording
        self._folder = folder

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """What the backend answers, kept on its way."""
        before = _read_texts(self._folder)
        start = time.perf_counter()
        try:
            acted = await self._backend.act(hat, prompt, seconds)
        except asyncio.CancelledError:
            self._recording.interrupted = True
            raise
        after = _read_texts(self._folder)
        changed: dict[str, str | None] = {
            name: after.get(name)
            for name in sorted(before.keys() | after.keys())
            if before.get(name) != after.get(name)
        }
        answered = Answered(
            output=acted.output,
            exit_code=acted.exit_code,
            tokens=acted.tokens,
            cost_dollars=acted.cost_usd,
            duration_ms=round((time.perf_counter() - start) * 1000),
            files=changed,
        )
        self._recording.output(prompt, answered, hat=hat)
        return acted


def _read_texts(folder: Path) -> dict[str, str]:
    """The small texts of a folder; what else there is cannot be kept in a cassette."""
    found = ((name, read_small(path)) for name, path in list_files(folder))
    return {name: text for name, text in found if text is not None}
