"""The five scenarios of the specification: as scenario files, in Python, and by an MCP client.

The steps are data: Python and MCP receive the same ones.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from junitparser import JUnitXml
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from offbook import workflows
from offbook.workflows import find_scenarios, run_scenarios
from tests.clients import CLAUDE, Shell, installed
from tests.forked import forked_command

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>'
CallTool = Callable[..., Awaitable[dict[str, Any]]]


async def call_python(tool: str, **arguments: Any) -> dict[str, Any]:
    """Call the function of `offbook.workflows`."""
    result = getattr(workflows, "check" if tool == "assert" else tool)(**arguments)
    return msgspec.to_builtins(await result if hasattr(result, "__await__") else result)


@asynccontextmanager
async def python() -> AsyncGenerator[CallTool]:
    yield call_python


@asynccontextmanager
async def mcp() -> AsyncGenerator[CallTool]:
    """Call the tools over stdio with the client of the official SDK."""
    program, *words = forked_command("-m", "offbook", "mcp")
    server = StdioServerParameters(command=program, args=words, env=dict(os.environ))
    async with Client(server) as client:

        async def call_tool(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(f"test_{tool}", arguments)
            assert not answer.is_error, answer.content
            return cast("dict[str, Any]", answer.structured_content)

        yield call_tool


Interface = Callable[[], AbstractAsyncContextManager[CallTool]]


@pytest.fixture(params=[python, mcp], ids=["python", "mcp"])
def interface(request: pytest.FixtureRequest) -> Interface:
    """Python or MCP: opened, it is a function that calls a tool."""
    return request.param


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


def statuses(checked: dict[str, Any]) -> dict[str, str]:
    return {item["assertion"]: item["status"] for item in checked["results"]}


async def clean(call_tool: CallTool, name: str) -> None:
    assert await call_tool("cleanup", workspace_id=name) == {"deleted": True, "preserved_files": []}


async def test_1_a_planner_plans_and_reaches_its_limit(interface: Interface):
    async with interface() as call_tool:
        name = "planner_test_001"
        made = await call_tool("setup", workspace_id=name, scratchpad="## Plan\n(empty)")
        assert made["created_files"] == [".agent/scratchpad.md"]
        ran = await call_tool(
            "run",
            workspace_id=name,
            task="Implement user authentication",
            backend="mock",
            max_iterations=1,
            mock_responses=[{"hat": "planner", "output": TASK}],
        )
        assert (ran["exit_code"], ran["termination_reason"]) == (2, "MaxIterations")
        assert (ran["mock_responses_consumed"], ran["mock_responses_remaining"]) == (1, 0)
        checked = await call_tool(
            "assert",
            workspace_id=name,
            assertions=[
                {"type": "exit_code", "expected": 2},
                {"type": "event_occurred", "topic": "build.task"},
                {"type": "event_sequence", "topics": ["task.start", "build.task"]},
            ],
        )
        assert (checked["passed"], checked["failed_count"]) == (True, 0)
        timeline = await call_tool("inspect", workspace_id=name, format="timeline")
        assert [(item["iteration"], item["hat"]) for item in timeline["timeline"]] == [
            (1, "planner")
        ]
        await clean(call_tool, name)


AGENT = """\
if [ "$OFFBOOK_HAT" = planner ]; then
  echo '<event topic="build.task">Write src/auth.rs</event>'
else
  mkdir -p src; echo 'fn auth() {}' > src/auth.rs; echo LOOP_COMPLETE
fi
"""
PLAYBOOK = """\
from offbook import call, say, when
playbook = [
    when("planner", [say('<event topic="build.task">Write src/auth.rs</event>')]),
    when("builder", [
        call("Bash", {"command": "mkdir -p src; echo 'fn auth() {}' > src/auth.rs"}),
        say("LOOP_COMPLETE"),
    ]),
]
"""


async def regress(call_tool: CallTool, **agent: Any) -> None:
    """Record, replay, assert and report in item workspace."""
    name, task = "auth_regression", "Implement the auth spec"
    await call_tool("setup", workspace_id=name, fixtures={"specs/auth.spec.md": "Let them in."})
    recorded = await call_tool(
        "record",
        workspace_id=name,
        cassette_name="auth_happy_path",
        task=task,
        redactions={"patterns": {"$TIMESTAMP": True, "$UUID": True}},
        **agent,
    )
    assert (recorded["interactions"], recorded["cassette_name"]) == (2, "auth_happy_path")
    assert recorded["cassette_path"].endswith("cassettes/auth_happy_path.yaml")
    replayed = await call_tool(
        "replay", workspace_id=name, cassette_name="auth_happy_path", task=task, strict=True
    )
    assert replayed["error"] == ""
    assert replayed["termination_reason"] == "CompletionPromise"
    counts = [replayed[f"interactions_{what}"] for what in ("replayed", "passthrough")]
    assert (counts, replayed["cost_dollars"]) == ([2, 0], 0.0)
    checked = await call_tool(
        "assert",
        workspace_id=name,
        assertions=[
            {"type": "exit_code", "expected": 0},
            {"type": "termination_reason", "expected": "CompletionPromise"},
            {"type": "file_exists", "path": "src/auth.rs"},
            {"type": "cost_within", "max_dollars": 0.00},
        ],
    )
    assert checked["passed"], checked
    report = await call_tool("report", workspace_id=name, format="junit", test_name=name)
    reader: Any = JUnitXml
    read = reader.fromfile(report["report_path"])
    assert (read.tests, read.failures, read.errors) == (report["tests"], 0, 0)
    await clean(call_tool, name)


async def test_2_a_real_agent_is_recorded_and_replayed(interface: Interface):
    async with interface() as call_tool:
        await regress(call_tool, backend="command", command=["sh", "-c", AGENT])


@pytest.mark.parametrize("shell", [installed(CLAUDE)])
async def test_2_claude_code_is_recorded_and_replayed(
    interface: Interface, shell: Shell, tmp_path: Path
):
    async with interface() as call_tool:
        playbook = tmp_path / "play.py"
        playbook.write_text(PLAYBOOK)
        await regress(call_tool, backend=shell.client.program, playbook=str(playbook))


async def test_3_a_judge_scores_plan_and_code(interface: Interface):
    async with interface() as call_tool:
        name = "quality_eval"
        await call_tool(
            "setup",
            workspace_id=name,
            fixtures={"specs/feature.spec.md": "Say hello.", "src/feature.rs": "fn main() {}"},
            scratchpad="## Plan\n1. Write src/feature.rs, done when it says hello.",
        )
        await call_tool(
            "run",
            workspace_id=name,
            task="Plan and implement the feature spec",
            mock_responses=[{"output": "LOOP_COMPLETE"}],
        )
        rubric = {"5": "Clear", "4": "Good", "3": "Acceptable", "2": "Confusing", "1": "Useless"}
        evaluated = await call_tool(
            "evaluate",
            workspace_id=name,
            evaluations=[
                {"criterion": "plan_quality", "target": "scratchpad", "rubric": rubric},
                {"criterion": "code_quality", "target": "file:src/feature.rs", "rubric": rubric},
                {"criterion": "custom", "target": "session", "custom_prompt": "Were rules kept?"},
            ],
            judge=str(EXAMPLES / "judge.jsonl"),
            judge_model="claude-3-haiku",
            chain_of_thought=True,
        )
        assert [item["score"] for item in evaluated["evaluations"]] == [5, 4, 4]
        assert all(
            item["reasoning"] and item["max_score"] == 5 for item in evaluated["evaluations"]
        )
        assert (evaluated["overall_score"], evaluated["all_passed"]) == (4.33, True)
        await call_tool(
            "assert", workspace_id=name, assertions=[{"type": "exit_code", "expected": 0}]
        )
        report = await call_tool(
            "report",
            workspace_id=name,
            format="junit",
            test_name="quality_evaluation",
            include_traces=True,
        )
        assert (report["tests"], report["passed"]) == (4, 4)  # evaluations and assertions together
        assert "session.jsonl" in Path(report["report_path"]).read_text()  # noqa: ASYNC240 - a test
        await clean(call_tool, name)


FLOW = [
    {"type": "exit_code", "expected": 0},
    {"type": "hat_transition", "from": "planner", "to": "builder"},
    {"type": "hat_sequence", "hats": ["planner", "builder"]},
    {"type": "iteration_count", "hat": "planner", "exact": 1},
    {"type": "event_sequence", "topics": ["task.start", "build.task", "build.done"]},
    {"type": "no_event", "topic": "build.blocked"},
    {"type": "stdout_contains", "pattern": "error handling"},
]


@pytest.mark.parametrize("promise", ["\nLOOP_COMPLETE", ""], ids=["promised", "not promised"])
async def test_4_the_flow_is_asserted_and_success_needs_a_promise(
    interface: Interface, promise: str
):
    async with interface() as call_tool:
        name = "flow_test"
        await call_tool("setup", workspace_id=name)
        ran = await call_tool(
            "run",
            workspace_id=name,
            task="Add error handling to the API",
            backend="mock",
            mock_responses=[
                {"hat": "planner", "output": TASK},
                {"hat": "builder", "output": DONE + promise},
            ],
        )
        checked = await call_tool("assert", workspace_id=name, assertions=FLOW)
        if promise:
            assert (ran["exit_code"], ran["error"], checked["passed"]) == (0, "", True)
            timeline = await call_tool(
                "inspect", workspace_id=name, format="timeline", filter={"topics": ["build.*"]}
            )
            assert [item["events"] for item in timeline["timeline"]] == [
                ["task.start → build.task"],
                ["build.task → build.done"],
            ]
        else:  # the responses are used up before the promise: not a success
            assert "all 2 mock responses are used" in ran["error"]
            assert "end the last one with the completion promise" in ran["error"]
            failed = {kind for kind, status in statuses(checked).items() if status != "pass"}
            # the planner was prompted once more and had no response
            assert failed == {"exit_code", "hat_sequence", "iteration_count"}
        await clean(call_tool, name)


async def test_5_the_workspace_is_compared_with_an_approved_snapshot(interface: Interface):
    async with interface() as call_tool:
        name = "snapshot_test"
        approved = {
            "files": {
                "src/main.rs": "fn main() { log(); } // 2024-01-13T10:00:00Z",
                ".agent/scratchpad.md": "whatever it was",
            }
        }
        made = await call_tool(
            "setup",
            workspace_id=name,
            fixtures={
                "src/main.rs": "fn main() {}",
                ".offbook/snapshots/approved_state.json": msgspec.json.encode(approved).decode(),
            },
            scratchpad="## Plan",
        )
        taken = await call_tool("snapshot", workspace_id=name, snapshot_id="before")
        assert sorted(taken["files"]) == [".agent/scratchpad.md", "src/main.rs"]
        await call_tool(
            "run",
            workspace_id=name,
            task="Add logging to main",
            mock_responses=[{"output": "LOOP_COMPLETE"}],
        )
        change = Path(made["workspace_path"]) / "src" / "main.rs"
        change.write_text("fn main() { log(); } // 2026-11-15T06:00:00Z")
        wanted = {"type": "snapshot_matches", "snapshot_id": "approved_state"}
        redactions = {
            "patterns": {"$TIMESTAMP": True},
            "paths": ["$.files['.agent/scratchpad.md']"],
        }
        checked = await call_tool(
            "assert", workspace_id=name, assertions=[{**wanted, "redactions": redactions}, wanted]
        )
        assert [item["passed"] for item in checked["results"]] == [True, False]
        difference = await call_tool(
            "diff", workspace_id=name, baseline="before", compare_to="current"
        )
        assert (difference["changed_files"], difference["added_files"]) == (["src/main.rs"], [])
        [hunk] = difference["diffs"]["src/main.rs"]["hunks"]
        assert hunk["content"].startswith("-fn main() {}\n+fn main() { log(); }")
        await clean(call_tool, name)


async def test_the_five_scenarios_are_also_scenario_files(tmp_path: Path):
    scenarios = find_scenarios([EXAMPLES])
    names = {scenario.name for scenario in scenarios}
    assert names == {
        "planner_test_001",
        "auth_regression",
        "quality_eval",
        "flow_test",
        "snapshot_test",
    }
    results = await run_scenarios(scenarios, reports=tmp_path / "out")
    assert [item.error for item in results if not item.passed] == []
    for item in results:
        assert item.results
        assert all(result.status == "pass" for result in item.results)
    [evaluated] = [item for item in results if item.name == "quality_eval"]
    assert [each.score for each in evaluated.evaluations] == [5, 4, 4]


def test_the_tools_need_no_event_loop():
    workflows.setup("plain")
    ran = workflows.run("plain", "Go", mock_responses=["LOOP_COMPLETE"])
    assert (ran.exit_code, ran.stdout) == (0, "LOOP_COMPLETE")
    assert workflows.check("plain", [{"type": "exit_code", "expected": 0}]).passed
