"""What a real agent answered and left behind is recorded once, and replayed without it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import ReplayMismatch, RunError, UsageError
from offbook.workflows.loop_cassette import record, replay
from offbook.workflows.loop_run import run
from offbook.workflows.tools import check, inspect, setup
from offbook.yaml_files import parse_yaml

TASK = "Implement the auth spec"
# An agent that plans, then builds: it writes files, notes, and events as Ralph's second version.
AGENT = """
import os, pathlib, sys, datetime
prompt = sys.stdin.read()
counter = pathlib.Path({counter!r})
counter.write_text(counter.read_text() + "x" if counter.exists() else "x")
pathlib.Path(".ralph").mkdir(exist_ok=True)
if os.environ["OFFBOOK_HAT"] == "planner":
    pathlib.Path(".agent/scratchpad.md").write_text("## Plan\\n- auth\\n")
    print(datetime.datetime.now(datetime.UTC).isoformat())
    print('<event topic="build.task">Create src/auth.rs</event>')
else:
    pathlib.Path("src").mkdir(exist_ok=True)
    pathlib.Path("src/auth.rs").write_text("fn auth() {{}} // in " + os.getcwd())
    pathlib.Path("old.txt").unlink(missing_ok=True)
    with open(".ralph/events.jsonl", "a") as log:
        log.write('{{"topic": "build.done", "payload": "auth is there"}}\\n')
    print("LOOP_COMPLETE")
"""

EMPTY_BUT_ONE = """
interactions:
  - request: {prompt_hash: "sha256:..."}
    response: {output: LOOP_COMPLETE}
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A file that counts how often the real agent was started."""
    return tmp_path / "starts"


@pytest.fixture
def agent(tmp_path: Path, counter: Path) -> dict[str, Any]:
    """The options that name the real agent."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT.format(counter=str(counter)))
    return {"backend": "command", "command": [sys.executable, str(path)]}


def make(name: str = "auth", cassette: str = "", **options: Any) -> Path:
    files = {"specs/auth.md": "Let them in.", "old.txt": "old"}
    if cassette:
        files["cassettes/happy.yaml"] = cassette
    made = setup(name, fixtures={**files, **options.pop("fixtures", {})}, **options)
    return Path(made.workspace_path)


def read(path: Path | str) -> str:
    return Path(path).read_text()


def topics(name: str) -> list[str]:
    records = inspect(name, filter={"event_types": ["bus.publish"]})["records"]
    return [record["data"]["topic"] for record in records]


async def test_a_recording_is_replayed_in_its_workspace_without_the_agent(
    agent: dict[str, Any], counter: Path
):
    folder = make(scratchpad="## Plan\n(empty)")
    recorded = await record("auth", "happy", TASK, **agent)
    assert (recorded.interactions, recorded.termination_reason) == (2, "CompletionPromise")
    assert recorded.cassette_path == str(folder / "cassettes" / "happy.yaml")
    told = topics("auth")
    replayed = await replay("auth", "happy", TASK)
    assert replayed.error == ""
    assert (replayed.exit_code, replayed.iterations) == (0, 2)
    assert (replayed.interactions_replayed, replayed.interactions_passthrough) == (2, 0)
    assert replayed.cost_dollars == 0.0
    assert topics("auth") == told == ["task.start", "build.task", "build.done"]
    assert read(counter) == "xx"  # once for each recorded iteration, and never again


async def test_a_fresh_workspace_gets_the_files_that_were_left_then(
    agent: dict[str, Any], counter: Path
):
    first = make("first")
    await record("first", "happy", TASK, **agent)
    second = make("second", (first / "cassettes/happy.yaml").read_text())
    replayed = await replay("second", "happy", TASK)
    assert (replayed.exit_code, replayed.error) == (0, "")
    checked = check(
        "second",
        [
            {"type": "exit_code", "expected": 0},
            {"type": "termination_reason", "expected": "CompletionPromise"},
            {"type": "file_contains", "path": "src/auth.rs", "pattern": str(second)},
            {"type": "scratchpad_contains", "pattern": "- auth"},
            {"type": "cost_within", "max_dollars": 0.0},
            {"type": "event_sequence", "topics": ["task.start", "build.task", "build.done"]},
        ],
    )
    assert checked.passed, checked
    assert not (second / "old.txt").exists()
    assert read(counter) == "xx"


async def test_the_cassette_is_yaml_that_tells_each_iteration(agent: dict[str, Any]):
    make()
    made = await record("auth", "happy", TASK, redactions={"patterns": {"$UUID": True}}, **agent)
    tape = parse_yaml(read(made.cassette_path))
    assert [one["request"]["hat"] for one in tape["interactions"]] == ["planner", "builder"]
    assert all(one["request"]["prompt_hash"].startswith("sha256:") for one in tape["interactions"])
    assert tape["interactions"][1]["response"]["output"] == "LOOP_COMPLETE\n"
    assert tape["metadata"]["termination_reason"] == "CompletionPromise"
    assert tape["metadata"]["task"] == TASK


async def test_eight_replays_of_one_cassette_do_not_share_a_cursor(agent: dict[str, Any]):
    first = make("first")
    await record("first", "happy", TASK, **agent)
    text = (first / "cassettes/happy.yaml").read_text()
    names = [f"w{n}" for n in range(8)]
    for name in names:
        make(name, text)
    replayed = await asyncio.gather(*(replay(name, "happy", TASK) for name in names))
    assert {(one.exit_code, one.interactions_replayed, one.error) for one in replayed} == {
        (0, 2, "")
    }
    assert len({one.session_file for one in replayed}) == 8


async def test_run_replays_a_cassette_too(agent: dict[str, Any], counter: Path):
    make()
    await record("auth", "happy", TASK, **agent)
    ran = await run("auth", TASK, backend="replay", cassette="happy")
    assert (ran.exit_code, ran.termination_reason, ran.error) == (0, "CompletionPromise", "")
    assert read(counter) == "xx"


async def change(folder: Path, agent: dict[str, Any], *, note: str) -> str:
    """A cassette recorded with another scratchpad than the workspace `changed` has."""
    await record("auth", "happy", TASK, **agent)
    make("changed", (folder / "cassettes/happy.yaml").read_text(), scratchpad=note)
    return "changed"


async def test_another_prompt_fails_with_both_hashes_and_the_difference(
    agent: dict[str, Any], counter: Path
):
    name = await change(make(scratchpad="for user_abc123"), agent, note="for user_xyz789")
    replayed = await replay(name, "happy", TASK)
    assert replayed.exit_code == 1
    assert "interaction 1 (hat: planner)" in replayed.error
    assert replayed.error.count("sha256:") == 2
    assert "user_abc123" in replayed.error
    assert "user_xyz789" in replayed.error
    assert replayed.interactions_replayed == 0
    assert read(counter) == "xx"


async def test_without_strictness_only_the_turn_counts_and_the_drift_is_told(
    agent: dict[str, Any],
):
    name = await change(make(scratchpad="one"), agent, note="another")
    replayed = await replay(name, "happy", TASK, strict=False)
    assert (replayed.exit_code, replayed.interactions_replayed, replayed.drifted) == (0, 2, 1)
    events = inspect(name, filter={"event_types": ["cassette.drift"]})["records"]
    assert [event["data"]["interaction"] for event in events] == [1]


async def test_a_redaction_makes_the_prompts_agree(agent: dict[str, Any]):
    name = await change(make(scratchpad="for user_abc123"), agent, note="for user_xyz789")
    rules = {"patterns": {"user_id": "user_[a-z0-9]+"}}
    replayed = await replay(name, "happy", TASK, redactions=rules)
    assert (replayed.exit_code, replayed.error) == (0, "")


async def test_what_is_not_recorded_may_go_to_the_real_agent(agent: dict[str, Any], counter: Path):
    name = await change(make(scratchpad="one"), agent, note="another")
    replayed = await replay(name, "happy", TASK, allow_passthrough=True)
    assert (replayed.interactions_passthrough, read(counter)) == (1, "xxx")
    assert replayed.cost_dollars is None  # the agent did not say what it cost
    events = inspect(name, filter={"event_types": ["cassette.passthrough"]})["records"]
    assert [event["data"]["request"] for event in events] == [1]


async def test_a_recording_that_met_its_limit_meets_it_again(tmp_path: Path):
    make()
    talks = [sys.executable, "-c", "import random; print(random.random())"]
    recorded = await record("auth", "long", TASK, "command", command=talks, max_iterations=2)
    assert (recorded.termination_reason, recorded.exit_code) == ("MaxIterations", 2)
    replayed = await replay("auth", "long", TASK)
    assert (replayed.termination_reason, replayed.exit_code) == ("MaxIterations", 2)
    assert replayed.error == ""


async def test_unused_interactions_fail_a_strict_replay(agent: dict[str, Any]):
    make()
    await record("auth", "happy", TASK, **agent)
    replayed = await replay("auth", "happy", TASK, max_iterations=1)
    assert "1 of 2 interactions unused" in replayed.error
    assert replayed.interactions_unused == 1
    loose = await replay("auth", "happy", TASK, max_iterations=1, strict=False)
    assert loose.error == ""


async def test_another_task_is_refused_up_front_with_both(agent: dict[str, Any]):
    make()
    await record("auth", "happy", TASK, **agent)
    with pytest.raises(ReplayMismatch, match="the task differs from the recorded one") as caught:
        await replay("auth", "happy", "Do something else")
    assert TASK in str(caught.value)
    assert "Do something else" in str(caught.value)


@pytest.mark.parametrize(
    "call, told",
    [
        (lambda: record("auth", "../x", TASK, "command", command=["true"]), "no name for a casse"),
        (lambda: record("auth", "x", TASK, "mock"), "'mock' is no backend that can be recorded"),
        (lambda: record("auth", "x", TASK, "claud"), "did you mean 'claude'"),
        (lambda: record("auth", "x", TASK, "command"), "needs a command"),
        (lambda: record("auth", "x", TASK, "command", command=["no-such"]), "backend_not_found"),
        (lambda: record("gone", "x", TASK, "command", command=["true"]), "available: auth"),
        (lambda: replay("auth", "hapy", TASK), "did you mean 'happy'"),
        (lambda: replay("auth", "../x", TASK), "no name for a cassette"),
        (lambda: replay("auth", "happy", TASK, backend="command"), "a replay asks no agent"),
        (lambda: run("auth", TASK, backend="replay"), "which cassette"),
    ],
)
async def test_wrong_calls_are_told_before_anything_runs(call: Any, told: str):
    make(cassette=EMPTY_BUT_ONE)
    with pytest.raises(UsageError, match=told):
        await call()


async def test_a_cassette_is_not_overwritten_by_chance(agent: dict[str, Any]):
    make()
    await record("auth", "happy", TASK, **agent)
    with pytest.raises(UsageError, match="already has a recording"):
        await record("auth", "happy", TASK, **agent)
    again = await record("auth", "happy", TASK, replace=True, **agent)
    assert again.interactions == 2


async def test_what_is_broken_off_does_not_replace_a_good_cassette(
    agent: dict[str, Any], tmp_path: Path
):
    make()
    made = await record("auth", "happy", TASK, **agent)
    good = read(made.cassette_path)
    said = tmp_path / "said"
    script = f"echo x >> {said}; test $(wc -l < {said}) -gt 1 && sleep 600; echo working"
    again = asyncio.ensure_future(
        record("auth", "happy", TASK, "command", command=["sh", "-c", script], replace=True)
    )
    while not again.done() and (not said.exists() or len(read(said).splitlines()) < 2):  # noqa: ASYNC110 - it is a process's own file
        await asyncio.sleep(0.01)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    assert read(made.cassette_path) == good


async def test_an_agent_that_never_answers_leaves_no_cassette():
    folder = make()
    (folder / "agent").write_text("#!/bin/nowhere\n")
    (folder / "agent").chmod(0o755)
    with pytest.raises(RunError, match="nothing was recorded"):
        await record("auth", "none", TASK, "command", command=["./agent"])
    assert not (folder / "cassettes/none.yaml").exists()


@pytest.mark.parametrize("secret", ["sk-ant-api03-" + "aB3dE6gH9" * 6, "just-some-words-of-mine"])
async def test_secrets_that_an_agent_is_given_are_in_no_file_of_the_workspace(secret: str):
    folder = make()
    tells = [
        "sh",
        "-c",
        'echo "key $ANTHROPIC_API_KEY" > note.txt; cat note.txt; echo LOOP_COMPLETE',
    ]
    env = {"ANTHROPIC_API_KEY": secret}
    await record("auth", "keys", TASK, "command", command=tells, env=env)
    (folder / "note.txt").unlink()
    held = [path for path in folder.rglob("*") if path.is_file() and secret in path.read_text()]
    assert held == []
    assert (folder / "cassettes/keys.yaml").stat().st_mode & 0o777 == 0o600
