"""`evaluate`: let a model judge what a run brought; its verdicts go into the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.judge import HIGHEST, Evaluation, ask_judge, refuse_same
from offbook.determinism.clock import SystemClock
from offbook.errors import ModelError, OffbookError, UsageError
from offbook.exchange.messages import Text
from offbook.exchange.reply import Reply
from offbook.files import convert
from offbook.runs.tools.work import session_of
from offbook.runs.workspace import Workspace, Workspaces
from offbook.subjects.process import isolate, run_process
from offbook.trace.hub import Hub
from offbook.trace.observe import Observed
from offbook.trace.outputs import join_output
from offbook.trace.reader import Trace
from offbook.trace.recorder import Recorder
from offbook.trace.verdicts import Verdict, deliver

if TYPE_CHECKING:
    from offbook.exchange.request import Request
    from offbook.exchange.source import ModelSource

LONGEST = 200_000
PATIENCE = 300.0
TARGETS = "scratchpad, file:PATH, session or output"


class Scored(msgspec.Struct, frozen=True):
    """One judgement; where the judge gave none there is an error, and no score."""

    criterion: str
    target: str
    threshold: int
    passed: bool
    score: int | None = None
    max_score: int = HIGHEST
    reasoning: str = ""
    error: str = ""


class Evaluated(msgspec.Struct, frozen=True):
    """All judgements; the overall score is the mean of those there are."""

    evaluations: list[Scored]
    overall_score: float | None
    all_passed: bool


class CommandSource:
    """A command as a model: the question at its stdin, the answer at its stdout."""

    def __init__(
        self, command: Sequence[str], workspace: Workspace, env: Mapping[str, str]
    ) -> None:
        self._command = list(command)
        self._cwd = workspace.path
        self._env = isolate(workspace.path / ".agent" / "home", env)

    async def reply(self, request: Request, /) -> Reply:
        """What the command prints."""
        asked = f"{request.system}\n\n{request.prompt}".encode()
        ended = await run_process(
            self._command, cwd=self._cwd, env=self._env, deadline=PATIENCE, stdin=asked
        )
        if ended.code:
            raise ModelError(f"the judge's command failed with {ended.code}: {ended.stderr[:200]}")
        return Reply((Text(ended.stdout),))


async def evaluate(
    workspace_id: str,
    evaluations: Sequence[Any],
    *,
    judge: str = "",
    judge_command: Sequence[str] = (),
    judge_model: str = "",
    tested_model: str = "",
    force: bool = False,
    env: Mapping[str, str] | None = None,
) -> Evaluated:
    """Let a judge, from a file or a command, score the last run of a workspace."""
    workspace = Workspaces().find(workspace_id)
    if bool(judge) is bool(judge_command):
        raise UsageError(
            "evaluate needs a judge, or a judge_command",
            hint="judge is the path of a playbook, mocks or a cassette",
        )
    if judge:
        from offbook.runs.service import open_source

        source = open_source(Path(judge))()
    else:
        source = CommandSource(judge_command, workspace, env or {})
    return await judge_with(
        source,
        workspace_id,
        evaluations,
        judge_model=judge_model,
        tested_model=tested_model,
        force=force,
    )


async def judge_with(
    source: ModelSource,
    workspace_id: str,
    evaluations: Sequence[Any],
    *,
    judge_model: str = "",
    tested_model: str = "",
    force: bool = False,
) -> Evaluated:
    """Let any source of replies be the judge; what it is asked and answers is in the trace."""
    workspace = Workspaces().find(workspace_id)
    session = session_of(workspace)
    if not force:
        refuse_same(judge_model, tested_model)
    if not evaluations:
        raise UsageError("there are no evaluations", hint="nothing judged is not a pass")
    wanted = [convert(raw, Evaluation, path=f"evaluations[{n}]") for n, raw in _count(evaluations)]
    task = _find_task(session)
    clock = SystemClock()
    recorder = Recorder(session, ts=clock.millis(), more=True)
    hub = Hub(clock)
    hub.subscribe(recorder.record)
    told = Observed(source, hub)
    scored: list[Scored] = []
    try:
        for evaluation in wanted:
            one = await _score(told, workspace, evaluation, task, judge_model)
            deliver(hub, _verdict(one))
            scored.append(one)
    finally:
        recorder.close()
    scores = [one.score for one in scored if one.score is not None]
    overall = round(sum(scores) / len(scores), 2) if scores else None
    return Evaluated(scored, overall, all(one.passed for one in scored))


def _count(evaluations: Sequence[Any]) -> Any:
    return enumerate(msgspec.to_builtins(evaluations), 1)


async def _score(
    source: ModelSource, workspace: Workspace, evaluation: Evaluation, task: str, model: str
) -> Scored:
    known = (evaluation.criterion, evaluation.target, evaluation.enough)
    try:
        artefact = read_target(workspace, evaluation.target)
        judged = await ask_judge(source, evaluation, artefact, task=task, model=model)
    except OffbookError as error:
        return Scored(*known, passed=False, error=str(error))
    passed = judged.score >= evaluation.enough
    return Scored(*known, passed=passed, score=judged.score, reasoning=judged.reasoning)


def read_target(workspace: Workspace, target: str) -> str:
    """What is to be judged; what is not there is an error, and no low score."""
    kind, _, path = target.partition(":")
    if target == "scratchpad":
        text = _read(workspace, ".agent/scratchpad.md")
    elif kind == "file" and path:
        text = _read(workspace, path)
    elif target == "session":
        text = session_of(workspace).read_text(encoding="utf-8", errors="replace")
    elif target == "output":
        text = join_output(Trace(session_of(workspace)), "stdout")
    else:
        raise UsageError(f"there is no target {target!r}", hint=f"there is {TARGETS}")
    if not text.strip():
        raise UsageError(f"there is nothing to judge: the target {target!r} is empty")
    left_out = len(text) - LONGEST
    return text if left_out <= 0 else f"{text[:LONGEST]}\n… {left_out} characters left out"


def _read(workspace: Workspace, path: str) -> str:
    place = workspace.place(path)
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be judged: {error}", where=workspace.id) from error


def _find_task(session: Path) -> str:
    for event in Trace(session):
        if event.event == "bus.publish":
            return str(event.data.get("payload", ""))
    return ""


def _verdict(one: Scored) -> Verdict:
    name = f"evaluate {one.criterion} {one.target}"
    if one.error:
        return Verdict(name, "error", one.error)
    status = "pass" if one.passed else "fail"
    return Verdict(name, status, one.reasoning, f"at least {one.threshold}", one.score)
