"""`evaluate`: let a model judge what a run brought; its verdicts go into the trace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from offbook.checks.judge import (
    JUDGE_HAT,
    MAX_SCORE,
    Evaluation,
    Judge,
    ask_judge,
    reject_self_judging,
)
from offbook.errors import OffbookError, UsageError
from offbook.exchange.model import ModelSource
from offbook.files import convert
from offbook.runs.run_files import record_trace
from offbook.runs.sync_bridge import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets
from offbook.sources.cassette.recording import Recording
from offbook.trace.agent_output import join_output
from offbook.trace.events import PUBLISH, REQUEST, Verdict
from offbook.trace.hub import Hub
from offbook.trace.instrument import TracedSource
from offbook.trace.reader import Trace
from offbook.workflows.judge_factory import JudgeConfig
from offbook.workflows.loop_cassette import WORKSPACE, cassette_path
from offbook.workflows.loop_run import Progress
from offbook.workflows.workspace import CASSETTES, Workspace, Workspaces

MAX_TARGET_CHARS = 200_000
TARGETS = "scratchpad, file:PATH, session or output"


class QuestionScore(msgspec.Struct, frozen=True):
    """One of the questions of which a judgement consists."""

    name: str
    score: int
    reasoning: str


class EvaluationScore(msgspec.Struct, frozen=True):
    """One judgement; where the judge gave none there is an error, and no score."""

    criterion: str
    target: str
    threshold: int
    passed: bool
    score: int | None = None
    max_score: int = MAX_SCORE
    reasoning: str = ""
    error: str = ""
    parts: list[QuestionScore] = []


class EvaluateResult(AwaitableResult, frozen=True):
    """All judgements; the overall score is the mean of those there are."""

    evaluations: list[EvaluationScore]
    overall_score: float | None
    all_passed: bool


@sync_or_async
async def evaluate(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    evaluations: Sequence[Any],
    *,
    judge: str = "",
    judge_backend: str = "",
    judge_command: Sequence[str] = (),
    judge_preset: str = JUDGE_HAT,
    judge_model: str = "",
    tested_model: str = "",
    chain_of_thought: bool = True,
    force: bool = False,
    env: Mapping[str, str] | None = None,
    record: str = "",
    progress: Progress | None = None,
) -> EvaluateResult:
    """Let a judge score the last run of a workspace: a file, a provider, a client, a command."""
    workspace = Workspaces().find(workspace_id)
    env = env or {}
    named = (judge, judge_backend, judge_command, judge_preset, judge_model)
    with ExitStack() as stack:
        stack.enter_context(extra_secrets(env))
        hub = stack.enter_context(record_trace(workspace.recorded, append=True))
        seated = JudgeConfig(*named, env, chain_of_thought).seat(workspace.path / CASSETTES)
        if record:
            place = cassette_path(workspace, record)
            recording = Recording(seated.source, place, roots={WORKSPACE: workspace.path})
            seated = msgspec.structs.replace(seated, source=stack.enter_context(recording))
        return await evaluate_all(
            seated, workspace, evaluations, hub, tested_model, force=force, progress=progress
        )


@sync_or_async
async def evaluate_with_source(
    source: ModelSource,
    workspace_id: str,
    evaluations: Sequence[Any],
    *,
    judge_model: str = "",
    tested_model: str = "",
    force: bool = False,
) -> EvaluateResult:
    """Let any source of replies be the judge."""
    workspace = Workspaces().find(workspace_id)
    with record_trace(workspace.recorded, append=True) as hub:
        judge = Judge(source, judge_model)
        return await evaluate_all(judge, workspace, evaluations, hub, tested_model, force=force)


async def evaluate_all(
    judge: Judge,
    workspace: Workspace,
    evaluations: Sequence[Any],
    hub: Hub,
    tested_model: str,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> EvaluateResult:
    """All judgements; what the judge is asked and answers is in the trace."""
    session = workspace.recorded
    task, models = _look_up(session)
    if not force:
        reject_self_judging(judge.model, {tested_model, *models} - {""})
    if not evaluations:
        raise UsageError("there are no evaluations", hint="nothing judged is not a pass")
    raws: list[Any] = msgspec.to_builtins(evaluations)
    wanted = [convert(raw, Evaluation, path=f"evaluations[{n}]") for n, raw in enumerate(raws, 1)]
    told = msgspec.structs.replace(judge, source=TracedSource(judge.source, hub))
    scored: list[EvaluationScore] = []
    for number, evaluation in enumerate(wanted, 1):
        one = await _score(told, workspace, evaluation, task)
        hub.emit_verdict(_verdict(one))
        scored.append(one)
        if progress is not None:
            progress(number, len(wanted), f"judged {one.criterion} of {one.target}")
    scores = [one.score for one in scored if one.score is not None]
    overall = round(sum(scores) / len(scores), 2) if scores else None
    return EvaluateResult(scored, overall, all(one.passed for one in scored))


async def _score(
    judge: Judge, workspace: Workspace, evaluation: Evaluation, task: str
) -> EvaluationScore:
    known = (evaluation.criterion, evaluation.target, evaluation.passing_score)
    parts: list[QuestionScore] = []
    try:
        artefact = read_target(workspace, evaluation.target)
        if not evaluation.questions:
            judged = await ask_judge(judge, evaluation, artefact, task=task)
            score, reasoning = judged.score, judged.reasoning
        else:
            for name, question in evaluation.questions.items():
                judged = await ask_judge(judge, evaluation, artefact, task=task, question=question)
                parts.append(QuestionScore(name, judged.score, judged.reasoning))
            score = sum(part.score for part in parts) // len(parts)
            reasoning = "\n".join(f"{one.name} {one.score}: {one.reasoning}" for one in parts)
    except OffbookError as error:
        return EvaluationScore(*known, passed=False, error=str(error), parts=parts)
    passed = score >= evaluation.passing_score
    return EvaluationScore(*known, passed=passed, score=score, reasoning=reasoning, parts=parts)


def read_target(workspace: Workspace, target: str) -> str:
    """What is to be judged; what is not there is an error, and no low score."""
    kind, _, path = target.partition(":")
    if target == "scratchpad":
        text = _read(workspace, ".agent/scratchpad.md")
    elif kind == "file" and path:
        text = _read(workspace, path)
    elif target == "session":
        text = workspace.recorded.read_text(encoding="utf-8", errors="replace")
    elif target == "output":
        text = join_output(Trace(workspace.recorded), "stdout")
    else:
        raise UsageError(f"there is no target {target!r}", hint=f"there is {TARGETS}")
    if not text.strip():
        raise UsageError(f"there is nothing to judge: the target {target!r} is empty")
    left_out = len(text) - MAX_TARGET_CHARS
    return text if left_out <= 0 else f"{text[:MAX_TARGET_CHARS]}\n… {left_out} characters left out"


def _read(workspace: Workspace, path: str) -> str:
    place = workspace.place(path)
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be judged: {error}", where=workspace.id) from error


def _look_up(session: Path) -> tuple[str, set[str]]:
    """The task of a run, and the models that did it; those that judged it do not count."""
    task: str | None = None
    models: set[str] = set()
    for event in Trace(session):
        if event.event == PUBLISH and task is None:
            task = str(event.data.get("payload", ""))
        elif event.event == REQUEST and event.data.get("metadata", {}).get("hat") != JUDGE_HAT:
            models.add(str(event.data.get("model", "")))
    return task or "", models


def _verdict(one: EvaluationScore) -> Verdict:
    name = f"evaluate {one.criterion} {one.target}"
    if one.error:
        return Verdict(name, "error", one.error)
    status = "pass" if one.passed else "fail"
    return Verdict(name, status, one.reasoning, f"at least {one.threshold}", one.score)
