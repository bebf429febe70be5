"""`replay`: let the loop work on a task once more, with the answers of a cassette."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.checks.snapshot import list_files, read_small_text
from offbook.errors import RunError, UsageError, did_you_mean
from offbook.files import write_atomic
from offbook.runs.backends import BACKENDS, Backend, BackendConfig, BackendFactory, BackendResult
from offbook.runs.sync_bridge import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets
from offbook.sources.cassette.format import RecordedResponse
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.recording import Recording, RecordingSummary
from offbook.sources.cassette.replay import Cassette, ReplaySummary
from offbook.trace.events import Verdict
from offbook.workflows.hat_loop import SCRATCHPAD
from offbook.workflows.loop_run import LoopResult, NullSource, Progress, RunLimits, run_loop
from offbook.workflows.workspace import CASSETTES, NAME_PATTERN, Workspace, Workspaces

if TYPE_CHECKING:
    from offbook.subjects.subject import RunContext
    from offbook.trace.hub import Hub


# --- `replay`: let the loop work on a task once more, with the answers of a cassette.

WORKSPACE = "WORKSPACE"
DEFAULT_ITERATIONS = 10


class ReplayResult(AwaitableResult, frozen=True):
    """A replay that is over."""

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
    """Work on a task with recorded answers; no agent is started, and no model asked.

    With `allow_passthrough`, what is not recorded goes to the agent that was recorded, or to
    `backend`.
    """
    workspace = Workspaces().find(workspace_id)
    tape = CassetteBackend(workspace, cassette_name, strict=strict, redactions=redactions)
    tape.begin(task)
    if allow_passthrough:
        tape.allow(BackendConfig(backend, tuple(command), dict(env or {}), playbook))
    elif backend or command or playbook:
        raise UsageError("a replay asks no agent", hint="say allow_passthrough to let it")
    limits = RunLimits(max_iterations or tape.iterations, max_runtime_secs)
    with extra_secrets(env or {}):
        worked = await run_loop(
            workspace, task, tape, limits, judge=tape.verdict, progress=progress
        )
    summary = tape.summary()
    return ReplayResult(
        worked.exit_code,
        worked.termination_reason,
        worked.iterations,
        summary.interactions_replayed,
        summary.interactions_passthrough,
        tape.cost,
        worked.session_file,
        summary.interactions_unused,
        summary.drifted,
        worked.error,
        worked.warnings,
    )


class CassetteBackend:
    """A cassette of a workspace: it answers, and leaves the files that were left then."""

    def __init__(
        self,
        workspace: Workspace,
        name: str,
        *,
        strict: bool = True,
        redactions: Mapping[str, Any] | None = None,
    ) -> None:
        self._workspace = workspace
        self._strict = strict
        self._redactions = redactions
        self._tape = load_cassette(find_cassette(workspace, name))
        self._about = self._tape.header.metadata
        self._agent: BackendFactory | None = None
        self._next: Backend | None = None
        self._replay = self._open()
        self.cost: float | None = 0.0

    def _open(self, hub: Hub | None = None) -> Cassette:
        return Cassette(
            self._tape,
            strict=self._strict,
            passthrough=NullSource() if self._agent else None,
            redactions=self._redactions,
            roots={WORKSPACE: self._workspace.path},
            hub=hub,
        )

    @property
    def iterations(self) -> int:
        """How many iterations the recording was allowed."""
        most = self._about.get("max_iterations", DEFAULT_ITERATIONS)
        return most if isinstance(most, int) and most > 0 else DEFAULT_ITERATIONS

    def begin(self, task: str) -> None:
        """Refuse a recording of another task; in a used workspace, undo what was noted since."""
        self._replay.check_task(task)
        if not self._workspace.session.exists():
            return
        scratchpad = self._workspace.place(SCRATCHPAD)
        noted = self._about.get("scratchpad")
        if isinstance(noted, str):
            write_atomic(scratchpad, noted)
        elif "max_iterations" in self._about:
            scratchpad.unlink(missing_ok=True)

    def allow(self, choice: BackendConfig) -> None:
        """Let what is not recorded go to an agent: the one that was recorded, if none is named."""
        if not choice.backend:
            name = str(self._about.get("backend", ""))
            if name not in BACKENDS:
                raise UsageError("who is to be asked what is not recorded?", hint="name a backend")
            words = choice.command or tuple(cast("list[str]", self._about.get("command", ())))
            choice = BackendConfig(name, words, choice.env, choice.playbook)
        self._agent = BackendFactory(choice, self._workspace.path)

    def __call__(self, stage: RunContext) -> Backend:
        """The backend, on its stage."""
        self._replay = self._open(stage.hub)
        self._next = self._agent(stage) if self._agent else None
        return self

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
        """What was answered then, or, where that is allowed, what is answered now."""
        answered = self._replay.reply_to_prompt(prompt, hat)
        if answered is not None:
            self._leave(answered)
            return BackendResult(answered.output or "", answered.exit_code, cost_usd=0.0)
        assert self._next is not None  # noqa: S101 - or there would have been an error
        acted = await self._next.act(hat, prompt, seconds)
        costs = (self.cost, acted.cost_usd)
        self.cost = None if None in costs else sum(cast("tuple[float, float]", costs))
        return acted

    def _leave(self, answered: RecordedResponse) -> None:
        for name, text in answered.files.items():
            place = self._workspace.place(name)
            if text is None:
                place.unlink(missing_ok=True)
            else:
                write_atomic(place, text)

    def verdict(self) -> Verdict:
        """Whether all was replayed, and as it was recorded."""
        return self._replay.verdict()

    def summary(self) -> ReplaySummary:
        """The numbers of the replay."""
        return self._replay.summary()


def cassette_path(workspace: Workspace, name: str) -> Path:
    """Where a cassette of this name is, or will be."""
    if not NAME_PATTERN.match(name) or ".." in name:
        raise UsageError(
            f"{name!r} is no name for a cassette", hint="letters, digits, '-', '_' and '.'"
        )
    return workspace.place(f"{CASSETTES}/{name.removesuffix('.yaml')}.yaml")


def find_cassette(workspace: Workspace, name: str) -> Path:
    """The cassette of this name; an unknown one is answered with those there are."""
    if not name:
        raise UsageError("which cassette is to be replayed?", hint='cassette="auth_flow"')
    place = cassette_path(workspace, name)
    if not place.is_file():
        there = [path.stem for path in place.parent.glob("*.yaml")]
        raise UsageError(
            f"there is no cassette {name!r}", where=workspace.id, hint=did_you_mean(name, there)
        )
    return place


# --- `record`: let a real agent work on a task, and keep what it answered and left behind.


class RecordResult(AwaitableResult, frozen=True):
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
    """Work on a task with a real agent, and keep a cassette of it in the workspace."""
    workspace = Workspaces().find(workspace_id)
    if backend not in BACKENDS:
        raise UsageError(
            f"{backend!r} is no backend that can be recorded", hint=did_you_mean(backend, BACKENDS)
        )
    place = cassette_path(workspace, cassette_name)
    agent = BackendFactory(
        BackendConfig(backend, tuple(command), dict(env or {}), playbook), workspace.path
    )
    about = _cassette_metadata(workspace, backend, command, max_iterations)
    with extra_secrets(env or {}):
        recording = Recording(
            NullSource(),
            place,
            redactions=redactions,
            roots={WORKSPACE: workspace.path},
            backend=backend,
            task=task,
            replace=replace,
        )
        working = run_loop(
            workspace,
            task,
            lambda stage: RecordingBackend(agent(stage), recording, workspace.path),
            RunLimits(max_iterations, max_runtime_secs),
            judge=agent.verdict,
            progress=progress,
        )
        worked, summary = await _record_run(recording, working, about)
    return RecordResult(
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


async def _record_run(
    recording: Recording, working: Awaitable[LoopResult], about: dict[str, Any]
) -> tuple[LoopResult, RecordingSummary]:
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


def _cassette_metadata(
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


class RecordingBackend:
    """A backend whose answers go to a cassette, with the files that they changed."""

    def __init__(self, backend: Backend, recording: Recording, folder: Path) -> None:
        self._backend = backend
        self._recording = recording
        self._folder = folder

    async def act(self, hat: str, prompt: str, seconds: float) -> BackendResult:
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
        answered = RecordedResponse(
            output=acted.output,
            exit_code=acted.exit_code,
            tokens=acted.tokens,
            cost_dollars=acted.cost_usd,
            duration_ms=round((time.perf_counter() - start) * 1000),
            files=changed,
        )
        self._recording.record_output(prompt, answered, hat=hat)
        return acted


def _read_texts(folder: Path) -> dict[str, str]:
    """The small texts of a folder; what else there is cannot be kept in a cassette."""
    found = ((name, read_small_text(path)) for name, path in list_files(folder))
    return {name: text for name, text in found if text is not None}
