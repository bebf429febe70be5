"""The answers and files of a real agent are recorded once and replayed without it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import ReplayMismatch, RunError, UsageError
from offbook.files import parse_yaml
from offbook.workflows import check, inspect, record, replay, run, setup
from tests.forked import forked_command

TASK = "Implement the auth spec"
# An agent that plans, then builds: it writes files, a scratchpad and an event file.
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

ONE_INTERACTION = """
interactions:
  - request: {prompt_hash: "sha256:..."}
    response: {output: LOOP_COMPLETE}
"""


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.fixture
def counter(tmp_path: Path) -> Path:
    """A file with result character for each start of the real agent."""
    return tmp_path / "starts"


@pytest.fixture
def agent(tmp_path: Path, counter: Path) -> dict[str, Any]:
    """The options that name the real agent."""
    path = tmp_path / "agent.py"
    path.write_text(AGENT.format(counter=str(counter)))
    return {"backend": "command", "command": forked_command(path)}


def make_workspace(name: str = "auth", cassette: str = "", **options: Any) -> Path:
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
    folder = make_workspace(scratchpad="## Plan\n(empty)")
    recorded = await record("auth", "happy", TASK, **agent)
    assert (recorded.interactions, recorded.termination_reason) == (2, "CompletionPromise")
    assert recorded.cassette_path == str(folder / "cassettes" / "happy.yaml")
    recorded_topics = topics("auth")
    replayed = await replay("auth", "happy", TASK)
    assert replayed.error == ""
    assert (replayed.exit_code, replayed.iterations) == (0, 2)
    assert (replayed.interactions_replayed, replayed.interactions_passthrough) == (2, 0)
    assert replayed.cost_dollars == 0.0
    assert topics("auth") == recorded_topics == ["task.start", "build.task", "build.done"]
    assert read(counter) == "xx"  # once for each recorded iteration, not for the replay


async def test_a_replay_in_a_new_workspace_writes_the_recorded_files(
    agent: dict[str, Any], counter: Path
):
    first = make_workspace("first")
    await record("first", "happy", TASK, **agent)
    second = make_workspace("second", (first / "cassettes/happy.yaml").read_text())
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


async def test_the_cassette_is_yaml_with_one_interaction_per_iteration(agent: dict[str, Any]):
    make_workspace()
    made = await record("auth", "happy", TASK, redactions={"patterns": {"$UUID": True}}, **agent)
    cassette_file = parse_yaml(read(made.cassette_path))
    assert [item["request"]["hat"] for item in cassette_file["interactions"]] == [
        "planner",
        "builder",
    ]
    assert all(
        item["request"]["prompt_hash"].startswith("sha256:")
        for item in cassette_file["interactions"]
    )
    assert cassette_file["interactions"][1]["response"]["output"] == "LOOP_COMPLETE\n"
    assert cassette_file["metadata"]["termination_reason"] == "CompletionPromise"
    assert cassette_file["metadata"]["task"] == TASK


async def test_parallel_replays_of_one_cassette_are_independent(agent: dict[str, Any]):
    first = make_workspace("first")
    await record("first", "happy", TASK, **agent)
    text = (first / "cassettes/happy.yaml").read_text()
    names = [f"w{n}" for n in range(8)]
    for name in names:
        make_workspace(name, text)
    replayed = await asyncio.gather(*(replay(name, "happy", TASK) for name in names))
    assert {
        (result.exit_code, result.interactions_replayed, result.error) for result in replayed
    } == {(0, 2, "")}
    assert len({result.session_file for result in replayed}) == 8


async def test_run_can_replay_a_cassette(agent: dict[str, Any], counter: Path):
    make_workspace()
    await record("auth", "happy", TASK, **agent)
    ran = await run("auth", TASK, backend="replay", cassette="happy")
    assert (ran.exit_code, ran.termination_reason, ran.error) == (0, "CompletionPromise", "")
    assert read(counter) == "xx"


async def change_scratchpad(folder: Path, agent: dict[str, Any], *, note: str) -> str:
    """Record a cassette, and return a workspace with it and a different scratchpad."""
    await record("auth", "happy", TASK, **agent)
    make_workspace("changed", (folder / "cassettes/happy.yaml").read_text(), scratchpad=note)
    return "changed"


async def test_a_different_prompt_fails_with_both_hashes_and_the_difference(
    agent: dict[str, Any], counter: Path
):
    name = await change_scratchpad(
        make_workspace(scratchpad="for user_abc123"), agent, note="for user_xyz789"
    )
    replayed = await replay(name, "happy", TASK)
    assert replayed.exit_code == 1
    assert "interaction 1 (hat: planner)" in replayed.error
    assert replayed.error.count("sha256:") == 2
    assert "user_abc123" in replayed.error
    assert "user_xyz789" in replayed.error
    assert replayed.interactions_replayed == 0
    assert read(counter) == "xx"


async def test_a_loose_replay_compares_positions_and_reports_drift(
    agent: dict[str, Any],
):
    name = await change_scratchpad(make_workspace(scratchpad="result"), agent, note="another")
    replayed = await replay(name, "happy", TASK, strict=False)
    assert (replayed.exit_code, replayed.interactions_replayed, replayed.drifted) == (0, 2, 1)
    events = inspect(name, filter={"event_types": ["cassette.drift"]})["records"]
    assert [event["data"]["interaction"] for event in events] == [1]


async def test_a_redaction_makes_prompts_equal(agent: dict[str, Any]):
    name = await change_scratchpad(
        make_workspace(scratchpad="for user_abc123"), agent, note="for user_xyz789"
    )
    rules = {"patterns": {"user_id": "user_[a-z0-9]+"}}
    replayed = await replay(name, "happy", TASK, redactions=rules)
    assert (replayed.exit_code, replayed.error) == (0, "")


async def test_unrecorded_prompts_can_be_passed_to_the_real_agent(
    agent: dict[str, Any], counter: Path
):
    name = await change_scratchpad(make_workspace(scratchpad="result"), agent, note="another")
    replayed = await replay(name, "happy", TASK, allow_passthrough=True)
    assert (replayed.interactions_passthrough, read(counter)) == (1, "xxx")
    assert replayed.cost_dollars is None  # the agent reported no cost
    events = inspect(name, filter={"event_types": ["cassette.passthrough"]})["records"]
    assert [event["data"]["request"] for event in events] == [1]


async def test_a_replay_reaches_the_recorded_limit(tmp_path: Path):
    make_workspace()
    command = [sys.executable, "-c", "import random; print(random.random())"]
    recorded = await record("auth", "long", TASK, "command", command=command, max_iterations=2)
    assert (recorded.termination_reason, recorded.exit_code) == ("MaxIterations", 2)
    replayed = await replay("auth", "long", TASK)
    assert (replayed.termination_reason, replayed.exit_code) == ("MaxIterations", 2)
    assert replayed.error == ""


async def test_unused_interactions_fail_a_strict_replay(agent: dict[str, Any]):
    make_workspace()
    await record("auth", "happy", TASK, **agent)
    replayed = await replay("auth", "happy", TASK, max_iterations=1)
    assert "1 of 2 interactions unused" in replayed.error
    assert replayed.interactions_unused == 1
    loose = await replay("auth", "happy", TASK, max_iterations=1, strict=False)
    assert loose.error == ""


async def test_a_different_task_is_rejected_before_the_run(agent: dict[str, Any]):
    make_workspace()
    await record("auth", "happy", TASK, **agent)
    with pytest.raises(ReplayMismatch, match="the task differs from the recorded one") as caught:
        await replay("auth", "happy", "Do something else")
    assert TASK in str(caught.value)
    assert "Do something else" in str(caught.value)


async def test_a_loose_replay_answers_a_different_task_by_position(
    agent: dict[str, Any], counter: Path
):
    make_workspace()
    await record("auth", "happy", TASK, **agent)
    replayed = await replay("auth", "happy", "Do something else", strict=False)
    assert (replayed.error, replayed.interactions_replayed, replayed.drifted) == ("", 2, 2)
    assert read(counter) == "xx"  # by the recording only


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: record("auth", "../x", TASK, "command", command=["true"]),
            "invalid cassette name",
        ),
        (lambda: record("auth", "x", TASK, "mock"), "no backend that can be recorded: 'mock'"),
        (lambda: record("auth", "x", TASK, "claud"), "did you mean 'claude'"),
        (lambda: record("auth", "x", TASK, "command"), "needs a command"),
        (lambda: record("auth", "x", TASK, "command", command=["no-such"]), "backend_not_found"),
        (lambda: record("gone", "x", TASK, "command", command=["true"]), "available: auth"),
        (lambda: replay("auth", "hapy", TASK), "did you mean 'happy'"),
        (lambda: replay("auth", "../x", TASK), "invalid cassette name"),
        (lambda: replay("auth", "happy", TASK, backend="command"), "a replay starts no agent"),
        (lambda: run("auth", TASK, backend="replay"), "missing cassette to replay"),
    ],
)
async def test_invalid_options_are_rejected_before_the_run(call: Any, message: str):
    make_workspace(cassette=ONE_INTERACTION)
    with pytest.raises(UsageError, match=message):
        await call()


async def test_a_cassette_is_overwritten_only_with_replace(agent: dict[str, Any]):
    make_workspace()
    await record("auth", "happy", TASK, **agent)
    with pytest.raises(UsageError, match="already has a recording"):
        await record("auth", "happy", TASK, **agent)
    again = await record("auth", "happy", TASK, replace=True, **agent)
    assert again.interactions == 2


async def test_an_interrupted_recording_does_not_replace_a_cassette(
    agent: dict[str, Any], tmp_path: Path
):
    make_workspace()
    made = await record("auth", "happy", TASK, **agent)
    good = read(made.cassette_path)
    log = tmp_path / "log"
    script = f"echo x >> {log}; test $(wc -l < {log}) -gt 1 && sleep 600; echo working"
    again = asyncio.ensure_future(
        record("auth", "happy", TASK, "command", command=["sh", "-c", script], replace=True)
    )
    while not again.done() and (not log.exists() or len(read(log).splitlines()) < 2):  # noqa: ASYNC110 - another process writes it
        await asyncio.sleep(0.01)
    again.cancel()
    with pytest.raises(asyncio.CancelledError):
        await again
    assert read(made.cassette_path) == good


BINARY = "printf '\\377' >> {}"
LARGE = "head -c 3000000 /dev/zero | tr '\\0' x > {}"


@pytest.mark.parametrize("write", [BINARY, LARGE], ids=["binary", "large"])
async def test_a_new_file_without_a_place_in_the_cassette_is_named(write: str):
    folder = make_workspace()
    script = f"{write.format('made.bin')}; echo kept > note.txt; echo LOOP_COMPLETE"
    made = await record("auth", "tape", TASK, "command", command=["sh", "-c", script])
    (warning,) = made.warnings
    assert warning == "not in the cassette, which has texts of up to 1 MiB only: made.bin"
    (recorded,) = parse_yaml(read(made.cassette_path))["interactions"]
    assert recorded["response"]["files"] == {"note.txt": "kept\n"}
    assert (folder / "made.bin").exists()


@pytest.mark.parametrize("write", [BINARY, LARGE], ids=["binary", "large"])
async def test_a_change_without_a_place_in_the_cassette_fails_the_recording(write: str):
    make_workspace()
    script = f"{write.format('old.txt')}; echo LOOP_COMPLETE"
    with pytest.raises(RunError, match=r"the change of old\.txt cannot be recorded"):
        await record("auth", "tape", TASK, "command", command=["sh", "-c", script])


async def test_a_recording_that_failed_does_not_replace_a_cassette(agent: dict[str, Any]):
    make_workspace()
    made = await record("auth", "happy", TASK, **agent)
    good = read(made.cassette_path)
    script = "if [ -e first ]; then printf '\\377' > first; else echo 1 > first; fi; cat first"
    command = ["sh", "-c", script]
    again = await record("auth", "happy", TASK, "command", command=command, replace=True)
    assert "the change of first cannot be recorded" in again.error
    assert read(made.cassette_path) == good


async def test_a_deleted_binary_file_is_deleted_by_the_replay():
    folder = make_workspace()
    (folder / "old.bin").write_bytes(b"\xff")
    command = ["sh", "-c", "rm old.bin; echo LOOP_COMPLETE"]
    await record("auth", "tape", TASK, "command", command=command)
    (folder / "old.bin").write_bytes(b"\xff")
    assert (await replay("auth", "tape", TASK)).error == ""
    assert not (folder / "old.bin").exists()


async def test_an_agent_without_answers_writes_no_cassette():
    folder = make_workspace()
    (folder / "agent").write_text("#!/bin/nowhere\n")
    (folder / "agent").chmod(0o755)
    with pytest.raises(RunError, match="nothing was recorded"):
        await record("auth", "none", TASK, "command", command=["./agent"])
    assert not (folder / "cassettes/none.yaml").exists()


@pytest.mark.parametrize("secret", ["sk-ant-api03-" + "aB3dE6gH9" * 6, "just-some-words-of-mine"])
async def test_secrets_of_the_agent_are_in_no_file_of_the_workspace(secret: str):
    folder = make_workspace()
    command = [
        "sh",
        "-c",
        'echo "key $ANTHROPIC_API_KEY" > note.txt; cat note.txt; echo LOOP_COMPLETE',
    ]
    env = {"ANTHROPIC_API_KEY": secret}
    await record("auth", "keys", TASK, "command", command=command, env=env)
    (folder / "note.txt").unlink()
    paths = [path for path in folder.rglob("*") if path.is_file() and secret in path.read_text()]
    assert paths == []
    assert (folder / "cassettes/keys.yaml").stat().st_mode & 0o777 == 0o600
