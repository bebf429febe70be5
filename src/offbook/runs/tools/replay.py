"""`replay`: let the loop work on a task once more, with the answers of a cassette."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import UsageError, nearest
from offbook.files import write_whole
from offbook.runs.agents import AGENTS, Agent, Choice
from offbook.runs.bridge import Settled
from offbook.runs.tools.work import Limits, Progress, Silent, work
from offbook.runs.workspace import CASSETTES, ID, Workspace, Workspaces
from offbook.secrets import keep_secret
from offbook.sources.cassette.format import Answered
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.replay import Replay, Summary
from offbook.subjects.loop.backend import Acted, Backend
from offbook.subjects.loop.loop import SCRATCHPAD
from offbook.trace.verdicts import Verdict

if TYPE_CHECKING:
    from offbook.subjects.subject import Stage
    from offbook.trace.hub import Hub

WORKSPACE = "WORKSPACE"
MOST = 10


class Replayed(Settled, frozen=True):
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
) -> Replayed:
    """Work on a task with recorded answers; no agent is started, and no model asked.

    With `allow_passthrough`, what is not recorded goes to the agent that was recorded, or to
    `backend`.
    """
    workspace = Workspaces().find(workspace_id)
    tape = CassetteBackend(workspace, cassette_name, strict=strict, redactions=redactions)
    tape.begin(task)
    if allow_passthrough:
        tape.allow(Choice(backend, tuple(command), dict(env or {}), playbook))
    elif backend or command or playbook:
        raise UsageError("a replay asks no agent", hint="say allow_passthrough to let it")
    limits = Limits(max_iterations or tape.iterations, max_runtime_secs)
    with keep_secret(env or {}):
        worked = await work(workspace, task, tape, limits, judge=tape.verdict, progress=progress)
    summary = tape.summary()
    return Replayed(
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
        self._tape = load(find_cassette(workspace, name))
        self._about = self._tape.header.metadata
        self._agent: Agent | None = None
        self._next: Backend | None = None
        self._replay = self._open()
        self.cost: float | None = 0.0

    def _open(self, hub: Hub | None = None) -> Replay:
        return Replay(
            self._tape,
            strict=self._strict,
            passthrough=Silent() if self._agent else None,
            redactions=self._redactions,
            roots={WORKSPACE: self._workspace.path},
            hub=hub,
        )

    @property
    def iterations(self) -> int:
        """How many iterations the recording was allowed."""
        most = self._about.get("max_iterations", MOST)
        return most if isinstance(most, int) and most > 0 else MOST

    def begin(self, task: str) -> None:
        """Refuse a recording of another task; in a used workspace, undo what was noted since."""
        self._replay.check_task(task)
        if not self._workspace.session.exists():
            return
        scratchpad = self._workspace.place(SCRATCHPAD)
        noted = self._about.get("scratchpad")
        if isinstance(noted, str):
            write_whole(scratchpad, noted)
        elif "max_iterations" in self._about:
            scratchpad.unlink(missing_ok=True)

    def allow(self, choice: Choice) -> None:
        """Let what is not recorded go to an agent: the one that was recorded, if none is named."""
        if not choice.backend:
            name = str(self._about.get("backend", ""))
            if name not in AGENTS:
                raise UsageError("who is to be asked what is not recorded?", hint="name a backend")
            words = choice.command or tuple(cast("list[str]", self._about.get("command", ())))
            choice = Choice(name, words, choice.env, choice.playbook)
        self._agent = Agent(choice, self._workspace.path)

    def __call__(self, stage: Stage) -> Backend:
        """The backend, on its stage."""
        self._replay = self._open(stage.hub)
        self._next = self._agent(stage) if self._agent else None
        return self

    async def act(self, hat: str, prompt: str, seconds: float) -> Acted:
        """What was answered then, or, where that is allowed, what is answered now."""
        answered = self._replay.output(prompt, hat)
        if answered is not None:
            self._leave(answered)
            return Acted(answered.output or "", answered.exit_code, cost_usd=0.0)
        assert self._next is not None  # noqa: S101 - or there would have been an error
        acted = await self._next.act(hat, prompt, seconds)
        costs = (self.cost, acted.cost_usd)
        self.cost = None if None in costs else sum(cast("tuple[float, float]", costs))
        return acted

    def _leave(self, answered: Answered) -> None:
        for name, text in answered.files.items():
            place = self._workspace.place(name)
            if text is None:
                place.unlink(missing_ok=True)
            else:
                write_whole(place, text)

    def verdict(self) -> Verdict:
        """Whether all was replayed, and as it was recorded."""
        return self._replay.verdict()

    def summary(self) -> Summary:
        """The numbers of the replay."""
        return self._replay.summary()


def place_cassette(workspace: Workspace, name: str) -> Path:
    """Where a cassette of this name is, or will be."""
    if not ID.match(name) or ".." in name:
        raise UsageError(
            f"{name!r} is no name for a cassette", hint="letters, digits, '-', '_' and '.'"
        )
    return workspace.place(f"{CASSETTES}/{name.removesuffix('.yaml')}.yaml")


def find_cassette(workspace: Workspace, name: str) -> Path:
    """The cassette of this name; an unknown one is answered with those there are."""
    if not name:
        raise UsageError("which cassette is to be replayed?", hint='cassette="auth_flow"')
    place = place_cassette(workspace, name)
    if not place.is_file():
        there = [path.stem for path in place.parent.glob("*.yaml")]
        raise UsageError(
            f"there is no cassette {name!r}", where=workspace.id, hint=nearest(name, there)
        )
    return place
