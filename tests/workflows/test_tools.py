"""The test tools in sequence, as an agent uses them."""

from __future__ import annotations

import asyncio
import shutil
import sys
from inspect import signature
from pathlib import Path
from typing import Any

import msgspec
import pytest

from offbook import workflows
from offbook.errors import UsageError
from offbook.files import write_atomic
from offbook.trace import WORKSPACE_FILES, Trace
from offbook.workflows import Workspaces, check, inspect, report, run, setup

TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>\nLOOP_COMPLETE'
HOLDS = [{"type": "exit_code", "expected": 0}]
FLOW = [{"hat": "planner", "output": TASK}, {"hat": "builder", "output": DONE}]


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def read_file(path: str) -> str:
    return Path(path).read_text()


async def run_here(**options: Any) -> Any:
    arguments: dict[str, Any] = {"mock_responses": FLOW, **options}
    return await run("here", "x", **arguments)


async def test_verdicts_are_reported_to_ci():
    setup("ci")
    await run("ci", "Go", mock_responses=FLOW)
    check("ci", [{"type": "exit_code", "expected": 0}, {"type": "exit_code", "expected": 1}])
    result = report("ci", "junit", "auth flow", include_traces=True)
    assert (result.tests, result.passed, result.failed) == (2, 1, 1)
    written = read_file(result.report_path)
    assert 'tests="2" failures="1"' in written
    assert "session.jsonl" in written
    with pytest.raises(UsageError, match="leads out"):
        report("ci", "tap", "x", output_path="../x.tap")


async def test_exhausted_responses_are_reported_with_their_count():
    setup("dry")
    ran = await run("dry", "Go", mock_responses=[{"output": TASK}])
    assert "all 1 mock responses are used" in ran.error
    assert ran.exit_code == 1
    assert ran.mock_responses_consumed == 1


async def test_an_earlier_session_is_archived_with_a_warning():
    setup("twice")
    await run("twice", "Go", mock_responses=FLOW)
    second = await run("twice", "Go", mock_responses=FLOW)
    assert second.warnings == (
        "the workspace was used before: its session is kept as session-1.jsonl",
    )
    assert len(list(Trace(second.session_file))) == second.events_count


async def test_parallel_runs_are_independent():
    names = [f"w{n}" for n in range(8)]
    for name in names:
        setup(name)
    runs = await asyncio.gather(*(run(name, name, mock_responses=FLOW) for name in names))
    assert {ran.exit_code for ran in runs} == {0}
    assert len({ran.session_file for ran in runs}) == 8
    assert {ran.events_count for ran in runs} == {runs[0].events_count}


async def test_a_command_is_stopped_at_the_time_limit():
    setup("slow")
    code = "import time; print('working', flush=True); time.sleep(60)"
    ran = await run(
        "slow", "Go", backend="command", command=[sys.executable, "-c", code], max_runtime_secs=1.5
    )
    assert (ran.termination_reason, ran.exit_code) == ("MaxRuntime", 2)
    assert ran.warnings[-1].startswith("the time limit of ")
    assert ran.elapsed_secs < 30
    assert inspect("slow", format="summary")["iterations"] == 1


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: run("gone", "x", mock_responses=FLOW), "unknown workspace 'gone'"),
        (lambda: run("here", "x"), "needs mock_responses"),
        (lambda: run("here", "x", backend="mok"), "did you mean 'mock'"),
        (lambda: run("here", "x", mock_responses=[{"outptu": "x"}]), "outptu"),
        (lambda: run_here(mock_responses={"output": "x"}), "mock_responses: expected a list"),
        (lambda: run_here(mock_responses="LOOP_COMPLETE"), "mock_responses: expected a list"),
        (lambda: run_here(mock_responses=[{"output": "x", "delay_ms": -1}]), "delay_ms"),
        (lambda: run_here(max_iterations=0), "max_iterations must be at least 1, got 0"),
        (lambda: run_here(max_iterations="5"), "max_iterations must be at least 1, got '5'"),
        (lambda: run_here(max_runtime_secs=0), "max_runtime_secs must be more than 0, got 0"),
    ],
)
async def test_invalid_options_are_rejected_before_the_run(call: Any, message: str):
    setup("here")
    with pytest.raises(UsageError, match=message):
        await call()


def test_a_check_without_assertions_is_an_error():
    setup("empty")
    with pytest.raises(UsageError, match="missing assertions"):
        check("empty", [])
    with pytest.raises(UsageError, match="no session yet"):
        check("empty", [{"type": "exit_code", "expected": 0}])


async def test_inspect_is_limited_and_reports_truncation():
    setup("many")
    await run("many", "Go", mock_responses=FLOW)
    some = inspect("many", limit=2)
    assert (len(some["records"]), some["truncated"]) == (2, True)
    whole = inspect("many", limit=some["total_matched"])
    assert not whole["truncated"]
    later = inspect("many", filter={"after_iteration": 1})["records"]
    assert later[0]["event"] == "_meta.iteration"
    for wrong, message in (
        (0, "limit: expected an integer >= 1, got 0"),
        (-1, "limit: expected an integer >= 1, got -1"),
    ):
        with pytest.raises(UsageError, match=message):
            inspect("many", limit=wrong)
    with pytest.raises(UsageError, match="did you mean 'topics'"):
        inspect("many", filter={"topic": []})


async def test_a_corrupt_session_is_reported_with_its_line():
    setup("broken")
    ran = await run("broken", "Go", mock_responses=FLOW)
    lines = read_file(ran.session_file).splitlines(keepends=True)
    write_atomic(Path(ran.session_file), "".join([*lines[:6], "{oops\n", *lines[6:]]))
    assert inspect("broken")["faults"][0]["line"] == 7
    assert inspect("broken")["faults"][0]["text"] == "{oops"
    for call in (lambda: check("broken", HOLDS), lambda: report("broken", "junit", "x")):
        with pytest.raises(UsageError, match=r"session\.jsonl:7: the session is corrupt") as raised:
            call()
        assert "the line begins: {oops" in str(raised.value)


@pytest.mark.parametrize(
    "tool, options, message",
    [
        (setup, {"config": {"hats": 5}}, "config: expected a mapping"),
        (setup, {"config": {"event_loop": {"max_iterations": -1}}}, "expected an integer >= 0"),
        (setup, {"config": [1]}, "config: expected a mapping, got a list"),
        (setup, {"scratchpad": 5}, "fixtures: expected a text"),
        (inspect, {"limit": 0}, "limit: expected an integer >= 1, got 0"),
        (inspect, {"limit": -1, "format": "summary"}, "limit: expected an integer >= 1, got -1"),
        (inspect, {"limit": "5"}, "limit: expected an integer, got a text"),
        (inspect, {"filter": [1]}, "filter: expected a mapping"),
        (inspect, {"filter": {"topcs": []}}, "did you mean 'topics'"),
    ],
)
def test_invalid_arguments_are_rejected_without_side_effects(
    tool: Any, options: dict[str, Any], message: str
):
    setup("here")
    with pytest.raises(UsageError, match=message):
        tool("new" if tool is setup else "here", **options)
    assert Workspaces().ids() == ["here"]


async def test_a_run_records_the_files_of_each_iteration():
    setup("files", fixtures={"plan.md": "- one\n"})
    script = "echo x >> log.txt; test $(wc -l < log.txt) -gt 1 && echo LOOP_COMPLETE; true"
    await run("files", task="Go", backend="command", command=["sh", "-c", script])
    session = Workspaces().find("files").recorded_session
    seen = [event.data for event in Trace(session) if event.event == WORKSPACE_FILES]
    assert seen[0]["written"]["plan.md"] == "- one\n"
    assert [data["written"].get("log.txt") for data in seen[1:]] == ["x\n", "x\nx\n"]


def test_a_new_workspace_has_the_folder_of_the_agent():
    assert (Path(setup("bare").workspace_path) / ".agent").is_dir()


DEFAULTS: dict[str, dict[str, Any]] = {
    "run": {"backend": "mock"},
    "replay": {"strict": True, "allow_passthrough": False},
    "inspect": {"limit": 100, "format": "json"},
    "cleanup": {"preserve_session": False},
    "diff": {"compare_to": "current"},
    "evaluate": {"chain_of_thought": True},
    "report": {"include_traces": False},
}


@pytest.mark.parametrize("tool", DEFAULTS)
def test_options_have_the_defaults_of_the_specification(tool: str):
    parameters = signature(getattr(workflows, tool)).parameters
    assert {name: parameters[name].default for name in DEFAULTS[tool]} == DEFAULTS[tool]


CONFIGURED = {"event_loop": {"max_iterations": 3, "max_runtime_seconds": 70}}
# The configuration, the arguments, and the limits of a run: iterations and seconds.
LIMITS: list[tuple[dict[str, Any], dict[str, Any], tuple[int, float]]] = [
    ({}, {}, (5, 300)),
    (CONFIGURED, {}, (3, 70)),
    ({"max_iterations": 8, "max_runtime": 60}, {}, (8, 60)),
    ({"event_loop": {"max_iterations": 100}}, {}, (100, 300)),
    (CONFIGURED, {"max_iterations": 7}, (7, 70)),
    (CONFIGURED, {"max_runtime_secs": 9}, (3, 9)),
]


@pytest.mark.parametrize("config, arguments, limits", LIMITS)
def test_limits_are_the_arguments_or_the_configuration_or_the_defaults(
    config: dict[str, Any], arguments: dict[str, Any], limits: tuple[int, float]
):
    setup("w", config=config)
    options: dict[str, Any] = {"max_iterations": None, "max_runtime_secs": None, **arguments}
    found = workflows.read_limits(Workspaces().find("w"), **options)
    assert (found.iterations, found.seconds) == limits


SAYS_HELLO: dict[str, Any] = {"backend": "command", "command": ["echo", "hello"]}
TOOLS_WITH_LIMITS: dict[str, Any] = {
    "run": lambda: run("w", "Go", **SAYS_HELLO),
    "record": lambda: workflows.record("w", "tape", "Go", **SAYS_HELLO),
}


@pytest.mark.parametrize("tool", TOOLS_WITH_LIMITS)
async def test_the_limit_of_the_configuration_ends_the_loop(tool: str):
    setup("w", config=CONFIGURED)
    assert (await TOOLS_WITH_LIMITS[tool]()).termination_reason == "MaxIterations"
    assert inspect("w", format="summary")["iterations"] == 3


async def test_a_recording_has_ten_iterations_without_a_limit():
    setup("w")
    await workflows.record("w", "tape", "Go", **SAYS_HELLO)
    assert inspect("w", format="summary")["iterations"] == 10
    setup("again", config=CONFIGURED)
    recorded = Workspaces().find("w").path / "cassettes"
    shutil.copytree(recorded, Workspaces().find("again").path / "cassettes")
    for replayed in (
        await workflows.replay("again", "tape", "Go"),
        await run("again", "Go", backend="replay", cassette="tape"),
    ):
        assert (replayed.iterations, replayed.error) == (10, "")


# The fields of each result in the specification.
RETURNS = {
    "setup": "workspace_path workspace_id created_files",
    "run": "exit_code termination_reason iterations elapsed_secs session_file events_count stdout "
    "stderr mock_responses_consumed mock_responses_remaining",
    "check": "passed results failed_count",
    "inspect": "records total_matched truncated",
    "inspect summary": "total_events by_type by_topic iterations hats_used duration_secs",
    "inspect timeline": "timeline",
    "snapshot": "snapshot_id files file_count total_bytes",
    "diff": "changed_files added_files deleted_files diffs",
    "record": "cassette_path cassette_name interactions total_tokens cost_dollars duration_secs",
    "replay": "exit_code termination_reason iterations interactions_replayed "
    "interactions_passthrough cost_dollars session_file",
    "evaluate": "evaluations overall_score all_passed",
    "report": "report_path format tests passed failed skipped duration_secs",
    "cleanup": "deleted preserved_files",
}


async def test_every_result_has_the_fields_of_the_specification(tmp_path: Path):
    judge = tmp_path / "judge.jsonl"
    judge.write_text('{"text": "{\\"reasoning\\": \\"so\\", \\"score\\": 4}"}\n')
    plan = {"criterion": "plan_quality", "target": "scratchpad"}
    agent = ["sh", "-c", "echo LOOP_COMPLETE"]
    results = {
        "setup": setup("w", scratchpad="# Plan"),
        "record": await workflows.record("w", "tape", "Go", "command", command=agent),
        "replay": await workflows.replay("w", "tape", "Go"),
        "run": await run("w", "Go", mock_responses=FLOW),
        "check": check("w", HOLDS),
        "inspect": inspect("w"),
        "inspect summary": inspect("w", format="summary"),
        "inspect timeline": inspect("w", format="timeline"),
        "snapshot": workflows.snapshot("w"),
        "diff": workflows.diff("w", "initial"),
        "evaluate": await workflows.evaluate("w", [plan], judge=str(judge)),
        "report": report("w", "junit", "flow"),
        "cleanup": workflows.cleanup("w"),
    }
    fields = {name: set(msgspec.to_builtins(result)) for name, result in results.items()}
    missing = {name: set(names.split()) - fields[name] for name, names in RETURNS.items()}
    assert {name: names for name, names in missing.items() if names} == {}


async def test_an_event_has_its_source_and_its_target():
    setup("w")
    answer = '<event topic="build.task" target="builder">x</event>'
    await run("w", "Go", mock_responses=[answer, "LOOP_COMPLETE"])
    published = inspect("w", filter={"topics": ["build.task"]})["records"]
    assert [(each["data"]["source"], each["data"]["target"]) for each in published] == [
        ("planner", "builder")
    ]


def test_a_setup_removes_stale_workspaces(monkeypatch: pytest.MonkeyPatch):
    def is_alive(_pid: int) -> bool:
        return False

    setup("old")
    setup("taped", fixtures={"cassettes/happy.yaml": "interactions: []"})
    monkeypatch.setattr("offbook.workflows.workspace.STALE_SECONDS", -1)
    monkeypatch.setattr("offbook.workflows.workspace._is_alive", is_alive)
    assert setup("new").warnings == ("removed the workspace 'old': not used for a day",)
    assert Workspaces().ids() == ["new", "taped"]
