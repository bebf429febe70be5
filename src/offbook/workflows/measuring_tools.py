"""The tools that measure runs: `coverage`, `benchmark`, `compare` and `chaos`.

coverage("flow").missing                      # hats, topics and tools that were never used
await benchmark("flow", "Add error handling", mock_responses=["LOOP_COMPLETE"], repeat=10)
compare("flow", "other").same
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import CheckFailed, UsageError
from offbook.runs.run import AwaitableResult, sync_or_async
from offbook.workflows.loop_tools import Progress, run
from offbook.workflows.workspace import Workspace, Workspaces

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
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
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
    if repeat < 1:
        raise UsageError(f"repeat must be at least 1, got {repeat}")
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
            samples.append(core.Sample(requests, spent.tokens, spent.cost_usd, wall, cpu))
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
        path = Path(name)
        if not path.is_file():
            raise UsageError("no such trace", where=name)
        return path
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
    max_iterations: int = 5,
    max_runtime_secs: float = 300.0,
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

    if not faults:
        raise UsageError("no faults are given", hint='{"faults": ["rate_limit@1", "reset"]}')
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
