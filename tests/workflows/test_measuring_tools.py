"""Coverage, benchmark and comparison of the runs of workspaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import CheckFailed, UsageError
from offbook.workflows import benchmark, chaos, compare, coverage, run, setup
from tests.forked import forked_command
from tests.streaming_agent import streaming_agent

CONFIG: dict[str, Any] = {
    "hats": {
        "planner": {"triggers": ["task.start"], "publishes": ["build.task"]},
        "builder": {"triggers": ["build.task"], "publishes": ["build.done", "build.blocked"]},
        "reviewer": {"triggers": ["build.blocked"], "publishes": ["review.done"]},
    },
}
PLAN = {"hat": "planner", "output": '<event topic="build.task">Go</event>'}
BUILD = {"hat": "builder", "output": '<event topic="build.done">Done</event>\nLOOP_COMPLETE'}


@pytest.fixture
def flow(workspaces: Path) -> str:
    setup("flow", config=CONFIG)
    return "flow"


def test_the_hats_and_topics_that_never_ran_are_missing(flow: str):
    run(flow, "Build", mock_responses=[PLAN, BUILD])
    result = coverage(flow)
    assert result.missing == [
        "hat reviewer: never run",
        "topic build.blocked: never published",
        "topic review.done: never published",
    ]
    assert (result.covered, result.offered, result.traces) == (4, 7, 1)


def test_a_workspace_without_a_run_is_an_error(flow: str):
    with pytest.raises(UsageError, match="has no session yet"):
        coverage(flow)


def test_a_benchmark_compares_with_its_baseline(flow: str):
    options: dict[str, Any] = {"mock_responses": [PLAN, BUILD], "repeat": 8}
    first = benchmark(flow, "Build", save_baseline="main", **options)
    assert Path(first.baseline_path).is_file()
    # No figure can have grown this much.
    again = benchmark(flow, "Build", from_baseline="main", min_effect_percent=1_000_000, **options)
    assert again.passed
    metrics = ["requests", "cost_usd", "wall_seconds", "cpu_seconds"]
    assert [row["metric"] for row in again.compared] == metrics
    assert [row["mean"] for row in again.metrics if row["metric"] == "tokens"] == [None]


def test_a_run_that_fails_is_not_measured(flow: str):
    with pytest.raises(CheckFailed, match="run 1 failed, so it was not measured"):
        benchmark(flow, "Build", mock_responses=[PLAN], max_iterations=1, repeat=1)


def test_too_few_runs_and_unknown_baselines_are_errors(flow: str):
    with pytest.raises(UsageError, match="repeat: expected an integer >= 1"):
        benchmark(flow, "Build", repeat=0)
    with pytest.raises(UsageError, match=r"main\.json"):
        benchmark(flow, "Build", from_baseline="main")


def test_two_runs_that_differ_are_compared(flow: str):
    setup("other", config=CONFIG)
    run(flow, "Build", mock_responses=[PLAN, BUILD])
    blocked = {"hat": "builder", "output": '<event topic="build.blocked">No</event>\nLOOP_COMPLETE'}
    run("other", "Build", mock_responses=[PLAN, blocked])
    result = compare(flow, "other")
    assert not result.same
    assert any("build.blocked" in line for line in result.report)
    assert compare(flow, flow).same


def test_a_missing_trace_is_an_error(flow: str):
    run(flow, "Build", mock_responses=[PLAN, BUILD])
    with pytest.raises(UsageError, match="no such trace"):
        compare(flow, "missing.jsonl")


QUIET_SEED = 1  # it injects nothing into the first request
MODEL = "- {when: Build, do: [{say: LOOP_COMPLETE}]}\n"


def test_the_outcome_of_each_fault_is_reported(workspaces: Path):
    setup("flow", fixtures={"model.yaml": MODEL})
    result = chaos("flow", "Build", ["status@1"], playbook="model.yaml")
    [outcome] = result.outcomes
    assert (outcome["kind"], outcome["number"]) == ("status", 1)
    assert result.exit_code != 0
    assert "injected fault" in result.error


ANSWER = "- {when: Build, do: [{say: 'Everything is built.\n\n  LOOP_COMPLETE'}]}\n"


@pytest.mark.parametrize(
    "fault, option, outcome, passed",
    [
        ("rate_limit@1", "--loud", "retried", True),
        ("reset@1", "--loud", "reported", True),
        ("reset@1", "--quiet", "swallowed", False),
    ],
)
def test_the_sdk_of_a_command_gets_the_faults_of_a_loop(
    workspaces: Path, fault: str, option: str, outcome: str, *, passed: bool
):
    setup("flow", fixtures={"model.yaml": ANSWER, "agent.py": streaming_agent("Build")})
    result = chaos(
        "flow",
        "Build",
        [fault],
        backend="command",
        command=forked_command("agent.py", option, imports=["openai"]),
        playbook="model.yaml",
        max_iterations=1,
    )
    assert [one["outcome"] for one in result.outcomes] == [outcome], result
    assert result.passed == passed


def test_a_run_without_a_fault_is_no_pass(workspaces: Path):
    setup("flow", fixtures={"model.yaml": MODEL})
    with pytest.raises(CheckFailed, match="never injected: status@9"):
        chaos("flow", "Build", ["status@9"], playbook="model.yaml")
    with pytest.raises(CheckFailed, match="no fault was injected"):
        chaos("flow", "Build", ["status"], seed=QUIET_SEED, playbook="model.yaml")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"faults": []}, "no faults are given"),
        ({"faults": ["rest"]}, "unknown fault 'rest'"),
        ({"faults": ["reset"], "backend": "mock"}, "faults have no effect on the backend 'mock'"),
    ],
)
def test_faults_that_cannot_be_injected_are_errors(
    flow: str, options: dict[str, Any], message: str
):
    with pytest.raises(UsageError, match=message):
        chaos(flow, "Build", **options)
