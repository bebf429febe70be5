"""The tools that compare, measure and judge the results of runs.

coverage("flow").missing                      # hats, topics and tools that were never used
await benchmark("flow", "Add error handling", mock_responses=["LOOP_COMPLETE"], repeat=10)
compare("flow", "other").same
await evaluate("flow", [{"criterion": "plan_quality"}], judge="judge.yaml")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
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
from offbook.errors import CheckFailed, OffbookError, UsageError, require_known
from offbook.exchange.model import ModelSource
from offbook.files import convert, require_file
from offbook.options import Count, decode, require_some
from offbook.runs.agents import JudgeConfig
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.secrets import extra_secrets, outgoing
from offbook.sources.cassette.cassette_file import journal_path
from offbook.sources.cassette.recording import Recording
from offbook.trace.agent_output import join_output
from offbook.trace.events import PUBLISH, REQUEST, Verdict
from offbook.trace.hub import Hub
from offbook.trace.instrument import TracedSource
from offbook.trace.reader import Trace
from offbook.trace.recorder import record_trace
from offbook.workflows.loop_cassettes import WORKSPACE_ROOT, cassette_path
from offbook.workflows.loop_tools import Progress, run
from offbook.workflows.presets import read_preset
from offbook.workflows.workspace import CASSETTES, Workspace, Workspaces

BASELINES = "benchmarks"


class CoverageResult(msgspec.Struct, frozen=True):
    """The parts of an agent that runs have used; `percent` is null if they offer none."""

    percent: float | None
    offered: int
    covered: int
    traces: int
    missing: list[str]
    parts: list[dict[str, Any]]


def coverage(workspace_id: str, *, also: Sequence[str] = ()) -> CoverageResult:
    """Report which hats, topics, tools, hooks and handoffs the last run of a workspace used.

    `also` adds the last runs of other workspaces. `missing` lists what was never used, or only
    failed. A percentage of null is no data: the runs offer no parts.
    """
    from offbook.checks.agent_coverage import AgentCoverage, read_coverage
    from offbook.trace.reader import Trace, raise_if_corrupt

    measured = AgentCoverage()
    for name in (workspace_id, *also):
        path = Workspaces().find(name).recorded_session
        trace = Trace(path)
        read_coverage(trace, measured)
        raise_if_corrupt(trace.faults, path)
    result = measured.as_json()
    return CoverageResult(
        result["percent"],
        result["offered"],
        result["covered"],
        measured.traces,
        measured.missing(),
        result["parts"],
    )


class BenchmarkResult(AwaitableResult, frozen=True):
    """The figures of several runs: `metrics` with intervals of 95 %, and `compared` if asked for.

    `passed` is false if a figure is worse than in the baseline.
    """

    passed: bool
    runs: int
    metrics: list[dict[str, Any]]
    compared: list[dict[str, Any]]
    summary: list[str]
    baseline_path: str = ""


@sync_or_async
async def benchmark(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    task: str,
    *,
    repeat: int = 10,
    backend: str = "mock",
    command: Sequence[str] = (),
    playbook: str = "",
    max_iterations: int | None = None,
    max_runtime_secs: float | None = None,
    env: Mapping[str, str] | None = None,
    mock_responses: Sequence[Any] | None = None,
    save_baseline: str = "",
    from_baseline: str = "",
    min_effect_percent: float = 5.0,
    progress: Progress | None = None,
) -> BenchmarkResult:
    """Run the loop several times and report requests, tokens, cost, wall and CPU time.

    The parameters of the run are those of test_run. `save_baseline` stores the runs in the
    workspace under a name; `from_baseline` compares with stored ones. A figure is worse if the
    permutation test of the paired differences has p < 0.005 and its mean has grown by at least
    `min_effect_percent`: `passed` is then false. A comparison needs at least 8 runs.
    """
    from offbook.checks.budgets import Spending
    from offbook.runs import benchmark as core

    workspace = Workspaces().find(workspace_id)
    decode(repeat, Count, "repeat")
    stored = core.read_baseline(_baseline_path(workspace, from_baseline)) if from_baseline else None
    if stored is not None and repeat < core.MIN_PAIRS:
        raise UsageError(f"a comparison needs {core.MIN_PAIRS} runs, got {repeat}")
    samples: list[core.Sample] = []
    for number in range(repeat + 1):
        watch = core.RunStopwatch()
        result = await run(
            workspace_id,
            task,
            backend=backend,
            command=command,
            playbook=playbook,
            max_iterations=max_iterations,
            max_runtime_secs=max_runtime_secs,
            env=env,
            mock_responses=mock_responses,
        )
        wall, cpu = watch.read()
        if result.exit_code:
            reason = f"{result.termination_reason}, exit code {result.exit_code}"
            raise CheckFailed(f"run {number + 1} failed, so it was not measured: {reason}")
        spent = Spending()
        core.read_spending(workspace.recorded_session, spent)
        if number:  # the first run is a warm-up
            requests = spent.requests or None
            tokens, cost = spent.known("tokens"), spent.known("cost_usd")
            samples.append(core.Sample(requests, tokens, cost, wall, cpu))
        if progress is not None:
            progress(number, repeat, f"run {number} of {repeat}")
    same = stored is None or stored.machine == core.machine_name()
    compared = (
        []
        if stored is None
        else core.compare(
            stored.samples, samples, min_effect=min_effect_percent / 100, same_machine=same
        )
    )
    path = _baseline_path(workspace, save_baseline) if save_baseline else None
    if path is not None:
        core.save_baseline(path, task, samples)
    summaries = core.summarize(samples)
    return BenchmarkResult(
        passed=not any(comparison.worse for comparison in compared),
        runs=repeat,
        metrics=msgspec.to_builtins(summaries),
        compared=msgspec.to_builtins(compared),
        summary=core.render(summaries, compared),
        baseline_path="" if path is None else str(path),
    )


def _baseline_path(workspace: Workspace, name: str) -> Path:
    return workspace.resolve(f"{BASELINES}/{name}.json")


class CompareResult(msgspec.Struct, frozen=True):
    """Two runs side by side: `report` has the lines for people, `figures` the numbers of both."""

    same: bool
    differences: dict[str, int]
    figures: dict[str, Any]
    report: list[str]


def compare(workspace_id: str, after: str) -> CompareResult:
    """Compare the last run of a workspace with another run: the first divergence, what differs.

    `after` is the name of another workspace, or the path of a trace. Events are aligned by content;
    times and ids do not count.
    """
    from offbook.checks.comparison import compare_paths, render_comparison

    result = compare_paths(Workspaces().find(workspace_id).recorded_session, _find_trace(after))
    differences: dict[str, int] = {}
    for trace in result.traces:
        for kind, count in trace.differences.items():
            differences[kind] = differences.get(kind, 0) + count
    return CompareResult(
        result.same,
        differences,
        msgspec.to_builtins(result.figures),
        list(render_comparison(result)),
    )


def _find_trace(name: str) -> Path:
    """Return the trace of a workspace, or the path itself."""
    if name.endswith(".jsonl"):
        return require_file(Path(name), "trace")
    return Workspaces().find(name).recorded_session


class ChaosResult(AwaitableResult, frozen=True):
    """A run with faults: what the agent did about each, and how the run ended.

    `passed` is false if a fault was swallowed, looped or unknown.
    """

    passed: bool
    summary: str
    outcomes: list[dict[str, Any]]
    exit_code: int
    termination_reason: str
    error: str = ""


@sync_or_async
async def chaos(  # noqa: PLR0913 - the parameters of the tool
    workspace_id: str,
    task: str,
    faults: Sequence[str],
    *,
    seed: int = 0,
    backend: str = "playbook",
    command: Sequence[str] = (),
    playbook: str = "",
    max_iterations: int | None = None,
    max_runtime_secs: float | None = None,
    env: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> ChaosResult:
    """Run the loop with faults in the responses of its model, and report what the agent did.

    Each fault is survived, retried, reported, swallowed, looped or unknown; `passed` is false if
    one was swallowed, looped or unknown. A run in which none was injected is an error. The same
    faults and seed repeat the run exactly.
    The agent needs a model: the backend is playbook, command or a client, not mock. A playbook is
    a file of the workspace, such as a fixture of test_setup, or a path:
    `- {when: text of the task, do: [{say: LOOP_COMPLETE}]}`.
    """
    from offbook.checks.fault_outcomes import find_outcomes, judge_faults, summarize
    from offbook.trace.reader import Trace

    require_some(faults, "no faults are given", hint='{"faults": ["rate_limit@1", "reset"]}')
    workspace = Workspaces().find(workspace_id)
    inside = workspace.resolve(playbook) if playbook and not Path(playbook).is_absolute() else None
    result = await run(
        workspace_id,
        task,
        backend=backend,
        command=command,
        playbook=str(inside) if inside is not None and inside.is_file() else playbook,
        max_iterations=max_iterations,
        max_runtime_secs=max_runtime_secs,
        env=env,
        faults={"kinds": faults, "seed": seed},
        progress=progress,
    )
    events = list(Trace(workspace.recorded_session))
    verdict = judge_faults(events)
    outcomes = find_outcomes(events)
    if not outcomes and result.error:
        raise CheckFailed(result.error)
    return ChaosResult(
        passed=verdict.holds,
        summary=summarize(outcomes),
        outcomes=msgspec.to_builtins(outcomes),
        exit_code=result.exit_code,
        termination_reason=result.termination_reason,
        error=result.error,
    )


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
        require_known("the preset has no hat", JUDGE_HAT, hats, where=judge_preset)
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
            stack.enter_context(workspace.writes_own(path, journal_path(path)))
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
    hint = "an evaluation of nothing is not a pass"
    require_some(evaluations, "missing evaluations", hint=hint)
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
    require_some(text.strip(), f"nothing to judge: the target {target!r} is empty")
    omitted = len(text) - MAX_TARGET_CHARS
    return (
        text
        if omitted <= 0
        else f"{outgoing(text)[:MAX_TARGET_CHARS]}\n… {omitted} characters omitted"
    )
