"""The tool `evaluate`: a model judges the result of a run.

    evaluate("flow", [{"criterion": "plan_quality", "target": "scratchpad"}], judge="judge.yaml")

The judge's requests and verdicts are added to the session of the run. `record` stores them in a
cassette, and `judge` with the name of that cassette replays them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec

from offbook.checks.context import NOT_ENDED, CheckContext
from offbook.checks.judge import (
    JUDGE_HAT,
    MAX_SCORE,
    Evaluation,
    Judge,
    ask_judge,
    reject_self_judging,
)
from offbook.errors import OffbookError, UsageError, did_you_mean
from offbook.exchange.model import ModelSource
from offbook.files import convert
from offbook.runs.agents import JudgeConfig
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets, outgoing
from offbook.sources.cassette.recording import Recording
from offbook.trace.agent_output import join_output
from offbook.trace.events import PUBLISH, REQUEST, Verdict
from offbook.trace.hub import Hub
from offbook.trace.instrument import TracedSource
from offbook.trace.reader import Trace
from offbook.trace.recorder import record_trace
from offbook.workflows.loop_cassettes import WORKSPACE_ROOT, cassette_path
from offbook.workflows.loop_tools import Progress
from offbook.workflows.presets import read_preset
from offbook.workflows.workspace import CASSETTES, Workspace, Workspaces

MAX_TARGET_CHARS = 200_000
TARGETS = "scratchpad, file:PATH, session or output"


class QuestionScore(msgspec.Struct, frozen=True):
    """The score of one question, where an evaluation consists of several."""

    name: str
    score: int
    reasoning: str


class EvaluationScore(msgspec.Struct, frozen=True):
    """The score of one evaluation; without a score, `error` is the reason."""

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
    """All scores; the overall score is the mean of those that exist."""

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
    """Let a judge score the last run: a file, a provider, a client or a command."""
    workspace = Workspaces().find(workspace_id)
    env = env or {}
    instructions = ""
    if judge_preset != JUDGE_HAT:
        hats = read_preset(judge_preset).hats or {}
        if JUDGE_HAT not in hats:
            raise UsageError(
                f"the preset has no hat {JUDGE_HAT!r}",
                where=judge_preset,
                hint=did_you_mean(JUDGE_HAT, hats),
            )
        instructions = hats[JUDGE_HAT].instructions or hats[JUDGE_HAT].description
    config = JudgeConfig(
        judge, judge_backend, judge_command, judge_model, env, instructions, chain_of_thought
    )
    with ExitStack() as stack:
        stack.enter_context(extra_secrets(env))
        stack.enter_context(workspace.lock(shared=True))
        hub = stack.enter_context(record_trace(workspace.recorded_session, append=True))
        built = config.build(workspace.path / CASSETTES)
        if record:
            path = cassette_path(workspace, record)
            # Recorded behind the trace, so a replay emits the same requests.
            recording = Recording(built.source, path, roots={WORKSPACE_ROOT: workspace.path})
            built = msgspec.structs.replace(built, source=stack.enter_context(recording))
        return await evaluate_all(
            built, workspace, evaluations, hub, tested_model, force=force, progress=progress
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
    """Let any ModelSource judge the last run."""
    workspace = Workspaces().find(workspace_id)
    with workspace.lock(shared=True), record_trace(workspace.recorded_session, append=True) as hub:
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
    """Return the scores of all evaluations, and emit requests and verdicts to the hub."""
    # The session names the task and the tested models; the judge's own requests do not count.
    task: str | None = None
    models = {tested_model}
    for event in Trace(workspace.recorded_session):
        if event.event == PUBLISH and task is None:
            task = str(event.data.get("payload", ""))
        elif event.event == REQUEST and event.data.get("metadata", {}).get("hat") != JUDGE_HAT:
            models.add(str(event.data.get("model", "")))
    if not force:
        reject_self_judging(judge.model, models - {""})
    if not evaluations:
        raise UsageError("missing evaluations", hint="an evaluation of nothing is not a pass")
    # Python callers may pass `Evaluation` values, the other interfaces dicts.
    raws: list[Any] = msgspec.to_builtins(evaluations)
    parsed = [convert(raw, Evaluation, path=f"evaluations[{n}]") for n, raw in enumerate(raws, 1)]
    traced = msgspec.structs.replace(judge, source=TracedSource(judge.source, hub))
    # Of a run that was killed, nothing is known: a judge would score what it left behind.
    killed = CheckContext(Trace(workspace.recorded_session)).unfinished
    scores: list[EvaluationScore] = []
    for number, evaluation in enumerate(parsed, 1):
        if killed:
            fields = (evaluation.criterion, evaluation.target, evaluation.passing_score)
            score = EvaluationScore(*fields, passed=False, error=NOT_ENDED)
        else:
            score = await _score(traced, workspace, evaluation, task or "")
        status = "error" if score.error else "pass" if score.passed else "fail"
        status = "no_data" if killed else status
        expected = None if score.error else f"at least {score.threshold}"
        name = f"evaluate {score.criterion} {score.target}"
        message = score.error or score.reasoning
        hub.emit_verdict(Verdict(name, status, message, expected, score.score))
        scores.append(score)
        if progress is not None:
            progress(number, len(parsed), f"judged {score.criterion} of {score.target}")
    points = [score.score for score in scores if score.score is not None]
    overall = round(sum(points) / len(points), 2) if points else None
    return EvaluateResult(scores, overall, all(score.passed for score in scores))


async def _score(
    judge: Judge, workspace: Workspace, evaluation: Evaluation, task: str
) -> EvaluationScore:
    """Return the score of one evaluation; a failed judge is an error, never a low score."""
    fields = (evaluation.criterion, evaluation.target, evaluation.passing_score)
    parts: list[QuestionScore] = []
    try:
        artefact = read_target(workspace, evaluation.target)
        if not evaluation.questions:
            judgement = await ask_judge(judge, evaluation, artefact, task=task)
            score, reasoning = judgement.score, judgement.reasoning
        else:
            for name, question in evaluation.questions.items():
                judgement = await ask_judge(
                    judge, evaluation, artefact, task=task, question=question
                )
                parts.append(QuestionScore(name, judgement.score, judgement.reasoning))
            score = sum(part.score for part in parts) // len(
                parts
            )  # rounded down: no benefit of doubt
            reasoning = "\n".join(f"{part.name} {part.score}: {part.reasoning}" for part in parts)
    except OffbookError as error:
        return EvaluationScore(*fields, passed=False, error=str(error), parts=parts)
    passed = score >= evaluation.passing_score
    return EvaluationScore(*fields, passed=passed, score=score, reasoning=reasoning, parts=parts)


def read_target(workspace: Workspace, target: str) -> str:
    """Return the text to judge; a missing or empty one raises a UsageError."""
    kind, _, path = target.partition(":")
    if target == "session":
        text = workspace.recorded_session.read_text(encoding="utf-8", errors="replace")
    elif target == "output":
        text = join_output(Trace(workspace.recorded_session), "stdout")
    elif target == "scratchpad" or (kind == "file" and path):
        path = path or ".agent/scratchpad.md"
        file = workspace.resolve(path)
        if file.exists() and not file.is_file():  # to read a pipe could take forever
            raise UsageError(f"{path} cannot be judged: not a regular file", where=workspace.id)
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{path} cannot be judged: {error}", where=workspace.id) from error
    else:
        raise UsageError(f"unknown target {target!r}", hint=f"expected: {TARGETS}")
    if not text.strip():
        raise UsageError(f"nothing to judge: the target {target!r} is empty")
    omitted = len(text) - MAX_TARGET_CHARS
    return (
        text
        if omitted <= 0
        else f"{outgoing(text)[:MAX_TARGET_CHARS]}\n… {omitted} characters omitted"
    )
