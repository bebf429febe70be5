"""Five scenarios, three doors: as scenario files, as Python, and through an MCP client.

The steps are data: both doors that are called step by step are given the same ones.
"""

from __future__ import annotations

import os
import sys
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
from offbook.workflows.scenario import find_scenarios
from offbook.workflows.scenario_runner import run_scenarios
from tests.clients import CLAUDE, Shell, installed

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>'
Ask = Callable[..., Awaitable[dict[str, Any]]]


async def ask_python(tool: str, **arguments: Any) -> dict[str, Any]:
    """What the function of `offbook.tools` gives."""
    given = getattr(workflows, "check" if tool == "assert" else tool)(**arguments)
    return msgspec.to_builtins(await given if hasattr(given, "__await__") else given)


@asynccontextmanager
async def python() -> AsyncGenerator[Ask]:
    yield ask_python


@asynccontextmanager
async def mcp() -> AsyncGenerator[Ask]:
    """The tools over stdin and stdout, for the client of the official SDK."""
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "offbook", "mcp"], env=dict(os.environ)
    )
    async with Client(server) as client:

        async def ask(tool: str, **arguments: Any) -> dict[str, Any]:
            answer = await client.call_tool(f"test_{tool}", arguments)
            assert not answer.is_error, answer.content
            return cast("dict[str, Any]", answer.structured_content)

        yield ask


Door = Callable[[], AbstractAsyncContextManager[Ask]]


@pytest.fixture(params=[python, mcp], ids=["python", "mcp"])
def door(request: pytest.FixtureRequest) -> Door:
    """A way in: what it opens asks for a tool, and has its answer."""
    return request.param


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)


def statuses(checked: dict[str, Any]) -> dict[str, str]:
    return {one["assertion"]: one["status"] for one in checked["results"]}


async def clean(ask: Ask, name: str) -> None:
    assert await ask("cleanup", workspace_id=name) == {"deleted": True, "preserved_files": []}


async def test_1_a_planner_plans_and_meets_its_limit(door: Door):
    async with door() as ask:
        name = "planner_test_001"
        made = await ask("setup", workspace_id=name, scratchpad="## Plan\n(empty)")
        assert made["created_files"] == [".agent/scratchpad.md"]
        ran = await ask(
            "run",
            workspace_id=name,
            task="Implement user authentication",
            backend="mock",
            max_iterations=1,
            mock_responses=[{"hat": "planner", "output": TASK}],
        )
        assert (ran["exit_code"], ran["termination_reason"]) == (2, "MaxIterations")
        assert (ran["mock_responses_consumed"], ran["mock_responses_remaining"]) == (1, 0)
        checked = await ask(
            "assert",
            workspace_id=name,
            assertions=[
                {"type": "exit_code", "expected": 2},
                {"type": "event_occurred", "topic": "build.task"},
                {"type": "event_sequence", "topics": ["task.start", "build.task"]},
            ],
        )
        assert (checked["passed"], checked["failed_count"]) == (True, 0)
        told = await ask("inspect", workspace_id=name, format="timeline")
        assert [(one["iteration"], one["hat"]) for one in told["timeline"]] == [(1, "planner")]
        await clean(ask, name)


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


async def regress(ask: Ask, **agent: Any) -> None:
    """Record, replay, assert, report: in one workspace, as it is written down."""
    name, task = "auth_regression", "Implement the auth spec"
    await ask("setup", workspace_id=name, fixtures={"specs/auth.spec.md": "Let them in."})
    recorded = await ask(
        "record",
        workspace_id=name,
        cassette_name="auth_happy_path",
        task=task,
        redactions={"patterns": {"$TIMESTAMP": True, "$UUID": True}},
        **agent,
    )
    assert (recorded["interactions"], recorded["cassette_name"]) == (2, "auth_happy_path")
    assert recorded["cassette_path"].endswith("cassettes/auth_happy_path.yaml")
    replayed = await ask(
        "replay", workspace_id=name, cassette_name="auth_happy_path", task=task, strict=True
    )
    assert replayed["error"] == ""
    assert replayed["termination_reason"] == "CompletionPromise"
    counts = [replayed[f"interactions_{what}"] for what in ("replayed", "passthrough")]
    assert (counts, replayed["cost_dollars"]) == ([2, 0], 0.0)
    checked = await ask(
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
    report = await ask("report", workspace_id=name, format="junit", test_name=name)
    reader: Any = JUnitXml
    read = reader.fromfile(report["report_path"])
    assert (read.tests, read.failures, read.errors) == (report["tests"], 0, 0)
    await clean(ask, name)


async def test_2_a_real_agent_is_recorded_and_replayed(door: Door):
    async with door() as ask:
        await regress(ask, backend="command", command=["sh", "-c", AGENT])


@pytest.mark.parametrize("shell", [installed(CLAUDE)])
async def test_2_claude_code_is_recorded_and_replayed(door: Door, shell: Shell, tmp_path: Path):
    async with door() as ask:
        playbook = tmp_path / "play.py"
        playbook.write_text(PLAYBOOK)
        await regress(ask, backend=shell.client.program, playbook=str(playbook))


async def test_3_a_judge_scores_plan_and_code(door: Door):
    async with door() as ask:
        name = "quality_eval"
        await ask(
            "setup",
            workspace_id=name,
            fixtures={"specs/feature.spec.md": "Say hello.", "src/feature.rs": "fn main() {}"},
            scratchpad="## Plan\n1. Write src/feature.rs, done when it says hello.",
        )
        await ask(
            "run",
            workspace_id=name,
            task="Plan and implement the feature spec",
            mock_responses=[{"output": "LOOP_COMPLETE"}],
        )
        rubric = {"5": "Clear", "4": "Good", "3": "Acceptable", "2": "Confusing", "1": "Useless"}
        judged = await ask(
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
        assert [one["score"] for one in judged["evaluations"]] == [5, 4, 4]
        assert all(one["reasoning"] and one["max_score"] == 5 for one in judged["evaluations"])
        assert (judged["overall_score"], judged["all_passed"]) == (4.33, True)
        await ask("assert", workspace_id=name, assertions=[{"type": "exit_code", "expected": 0}])
        report = await ask(
            "report",
            workspace_id=name,
            format="junit",
            test_name="quality_evaluation",
            include_traces=True,
        )
        assert (report["tests"], report["passed"]) == (4, 4)  # evaluations and assertions together
        assert "session.jsonl" in Path(report["report_path"]).read_text()  # noqa: ASYNC240 - a test
        await clean(ask, name)


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
async def test_4_the_flow_is_asserted_and_success_takes_a_promise(door: Door, promise: str):
    async with door() as ask:
        name = "flow_test"
        await ask("setup", workspace_id=name)
        ran = await ask(
            "run",
            workspace_id=name,
            task="Add error handling to the API",
            backend="mock",
            mock_responses=[
                {"hat": "planner", "output": TASK},
                {"hat": "builder", "output": DONE + promise},
            ],
        )
        checked = await ask("assert", workspace_id=name, assertions=FLOW)
        if promise:
            assert (ran["exit_code"], ran["error"], checked["passed"]) == (0, "", True)
            told = await ask(
                "inspect", workspace_id=name, format="timeline", filter={"topics": ["build.*"]}
            )
            assert [one["events"] for one in told["timeline"]] == [
                ["task.start → build.task"],
                ["build.task → build.done"],
            ]
        else:  # the answers run dry before the work is said to be done: that is no success
            assert "all 2 mock responses are used" in ran["error"]
            assert "keep the completion promise" in ran["error"]
            failed = {kind for kind, status in statuses(checked).items() if status != "pass"}
            # the planner was asked once more, and had nothing to say
            assert failed == {"exit_code", "hat_sequence", "iteration_count"}
        await clean(ask, name)


async def test_5_the_workspace_is_compared_with_what_was_approved(door: Door):
    async with door() as ask:
        name = "snapshot_test"
        approved = {
            "files": {
                "src/main.rs": "fn main() { log(); } // 2024-01-13T10:00:00Z",
                ".agent/scratchpad.md": "whatever it was",
            }
        }
        made = await ask(
            "setup",
            workspace_id=name,
            fixtures={
                "src/main.rs": "fn main() {}",
                ".offbook/snapshots/approved_state.json": msgspec.json.encode(approved).decode(),
            },
            scratchpad="## Plan",
        )
        taken = await ask("snapshot", workspace_id=name, snapshot_id="before")
        assert sorted(taken["files"]) == [".agent/scratchpad.md", "src/main.rs"]
        await ask(
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
        checked = await ask(
            "assert", workspace_id=name, assertions=[{**wanted, "redactions": redactions}, wanted]
        )
        assert [one["passed"] for one in checked["results"]] == [True, False]
        found = await ask("diff", workspace_id=name, baseline="before", compare_to="current")
        assert (found["changed_files"], found["added_files"]) == (["src/main.rs"], [])
        [hunk] = found["diffs"]["src/main.rs"]["hunks"]
        assert hunk["content"].startswith("-fn main() {}\n+fn main() { log(); }")
        await clean(ask, name)


async def test_the_same_five_are_scenario_files(tmp_path: Path):
    scenarios = find_scenarios([EXAMPLES])
    names = {scenario.name for scenario in scenarios}
    assert names == {
        "planner_test_001",
        "auth_regression",
        "quality_eval",
        "flow_test",
        "snapshot_test",
    }
    played = await run_scenarios(scenarios, reports=tmp_path / "out")
    assert [one.error for one in played if not one.passed] == []
    for one in played:
        assert one.results
        assert all(result.status == "pass" for result in one.results)
    [judged] = [one for one in played if one.name == "quality_eval"]
    assert [each.score for each in judged.evaluations] == [5, 4, 4]


def test_a_plain_function_needs_no_event_loop():
    workflows.setup("plain")
    ran = workflows.run("plain", "Go", mock_responses=["LOOP_COMPLETE"])
    assert (ran.exit_code, ran.stdout) == (0, "LOOP_COMPLETE")
    assert workflows.check("plain", [{"type": "exit_code", "expected": 0}]).passed
