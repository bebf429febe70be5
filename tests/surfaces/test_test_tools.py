"""The test tools on the command line."""

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.surfaces.conftest import Offbook

TASK = '<event topic="build.task">Add try/catch blocks</event>'
DONE = '<event topic="build.done">Implemented error handling</event>\nLOOP_COMPLETE'
FLOW = json.dumps([{"hat": "planner", "output": TASK}, {"hat": "builder", "output": DONE}])
HOLDS = '{"type": "exit_code", "expected": 0}'
FAILS = '{"type": "no_event", "topic": "build.done"}'


@pytest.fixture
def flow(workspaces: Path, offbook_command: Offbook) -> Path:
    """A workspace in which the loop has run."""
    made = json.loads(offbook_command("setup", "flow", "--json").out)
    ran = offbook_command("run", "flow", "--task", "Go", "--mock-responses", FLOW)
    assert (ran.code, ran.err) == (0, "")
    return Path(made["workspace_path"])


def test_a_workspace_is_set_up_from_options_and_files(workspaces: Path, offbook_command: Offbook):
    files = workspaces / "files.yaml"
    files.write_text("src/a.py: print()\n")
    made = offbook_command(
        "setup", "one", "--fixtures", files, "--fixture", "b.txt=x=y", "--scratchpad", "# Plan",
        "--config", '{"event_loop": {"completion_promise": "DONE"}}', "--json",
    )  # fmt: skip
    told = json.loads(made.out)
    assert told["created_files"] == ["src/a.py", "b.txt", ".agent/scratchpad.md"]
    assert (Path(told["workspace_path"]) / "b.txt").read_text() == "x=y"
    ran = offbook_command(
        "run", "one", "--task", "Go", "--mock-responses", '{"output": "DONE"}', "--json"
    )
    assert json.loads(ran.out)["termination_reason"] == "CompletionPromise"


@pytest.mark.parametrize("assertions, code", [((HOLDS,), 0), ((HOLDS, FAILS), 1)])
def test_assertions_decide_the_exit_code(
    flow: Path, offbook_command: Offbook, assertions: tuple[str, ...], code: int
):
    told = offbook_command("assert", "flow", *assertions, "--json")
    assert told.code == code
    assert json.loads(told.out)["failed_count"] == code
    assert offbook_command("assert", "flow", *assertions).code == code


def test_assertions_come_from_stdin_too(
    flow: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("- type: exit_code\n  expected: 0\n"))
    assert offbook_command("assert", "flow", "-").out == "✓ exit_code\n1 of 1 hold\n"


def test_a_run_is_inspected_in_three_ways(flow: Path, offbook_command: Offbook):
    records = json.loads(offbook_command("inspect", "flow", "--topic", "build.*").out)["records"]
    assert [record["data"]["topic"] for record in records] == ["build.task", "build.done"]
    timeline = offbook_command("inspect", "flow", "--format", "timeline").out
    assert timeline.startswith("1. planner: task.start → build.task (")
    summary = offbook_command("inspect", "flow", "--format", "summary", "--json").out
    assert json.loads(summary)["hats_used"] == ["planner", "builder"]


def test_a_report_is_written_and_shown(flow: Path, offbook_command: Offbook):
    offbook_command("assert", "flow", HOLDS)
    path = Path(offbook_command("report", "flow", "junit", "--name", "the flow").out.strip())
    assert path == flow / "reports" / "junit.xml"
    shown = offbook_command("report", "flow", "tap", "--print")
    assert shown.out.splitlines()[:3] == ["TAP version 14", "1..1", "ok 1 - 1 exit_code"]


def test_a_report_of_nothing_is_not_green(flow: Path, offbook_command: Offbook):
    told = offbook_command("report", "flow", "json")
    assert (told.code, "nothing to report" in told.err) == (1, True)


def test_workspaces_are_cleaned_up_by_name(flow: Path, offbook_command: Offbook):
    assert offbook_command("clean", "--list").out == "flow\n"
    assert offbook_command("clean").out == "there is none\n"
    gone = offbook_command("cleanup", "flow", "--preserve-session", "--json")
    assert json.loads(gone.out) == {"deleted": True, "preserved_files": ["session.jsonl"]}
    assert [path.name for path in flow.iterdir()] == ["session.jsonl"]


@pytest.mark.parametrize(
    "words, told",
    [
        (("run", "gone", "--task", "x", "--mock-responses", "[{}]"), "available: flow"),
        (("run", "flow", "--task", "x"), "needs mock_responses"),
        (("run", "flow", "two", "--task", "x"), "a task needs one workspace"),
        (("run", "no-such.yaml"), "no-such.yaml: cannot be read"),
        (("diff", "flow", "befor"), "there is no snapshot 'befor'"),
        (("snapshot", "flow", "--id", "../x"), "no name for a snapshot"),
        (("assert", "flow", "{oops"), "assertions: invalid JSON"),
        (("assert", "flow", "no-such.yaml"), "no-such.yaml: cannot be read"),
        (("inspect", "flow", "--filter", '{"topic": []}'), "did you mean 'topics'"),
        (("inspect", "flow", "--filter", "[]"), "filter is an object, not list"),
        (("inspect", "flow", "--limit", "0"), "limit is 0"),
        (("report", "flow", "junit", "--output", "../x"), "leads out"),
        (("cleanup", "../x"), "no name for a workspace"),
        (("setup", "flow"), "exists already"),
        (("setup", "two", "--fixture", "x"), "is not NAME=VALUE"),
        (("setup", "two", "--fixture", "../x=y"), "leads out"),
    ],
)
def test_wrong_words_are_told_in_a_paragraph(
    flow: Path, offbook_command: Offbook, words: tuple[str, ...], told: str
):
    outcome = offbook_command(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert told in outcome.err


def test_a_run_that_meets_its_limit_fails(workspaces: Path, offbook_command: Offbook):
    offbook_command("setup", "one")
    answers = json.dumps([{"output": TASK}])
    ran = offbook_command(
        "run", "one", "--task", "Go", "--max-iterations", "1", "--mock-responses", answers
    )
    assert ran.code == 1
    assert "MaxIterations after 1 iterations" in ran.out


def test_an_agent_is_given_of_our_environment_what_is_named(
    workspaces: Path, offbook_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINE", "here")
    monkeypatch.setenv("OTHER", "not given")
    offbook_command("setup", "one")
    script = "sh -c 'echo $MINE, $OTHER, $YOURS; echo LOOP_COMPLETE'"
    words = ("run", "one", "--task", "Go", "--command", script)
    told = offbook_command(*words, "--env", "MINE", "--env", "YOURS=a=b")
    assert told.out.startswith("here, , a=b\n")
    wrong = offbook_command(*words, "--env", "NOWHERE")
    assert (wrong.code, "env 'NOWHERE' is not set here" in wrong.err) == (2, True)


def test_the_loop_is_recorded_and_replayed(workspaces: Path, offbook_command: Offbook):
    offbook_command("setup", "one")
    where = ("--workspace", "one", "--task", "Say hello", "--json")
    agent = ("--", "sh", "-c", "echo hello; echo LOOP_COMPLETE")
    recorded = offbook_command("record", "hello", *where, *agent)
    assert (recorded.code, json.loads(recorded.out)["interactions"]) == (0, 1)
    replayed = offbook_command("replay", "hello", *where)
    told = json.loads(replayed.out)
    assert (replayed.code, told["interactions_replayed"], told["exit_code"]) == (0, 1, 0)
    ran = offbook_command("run", "one", "--task", "Say hello", "--cassette", "hello")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "hello")
    for words in (("record", "x"), ("replay", "hello")):
        assert offbook_command(*words).code == 2
    assert "no backend that can be recorded" in offbook_command("record", "x", *where).err


def test_ctrl_c_ends_the_command_and_keeps_the_session(workspaces: Path, offbook_command: Offbook):
    made = json.loads(offbook_command("setup", "slow", "--json").out)
    pipe = workspaces / "pipe"
    os.mkfifo(pipe)
    agent = workspaces / "agent.py"
    agent.write_text(f"import os, time\nopen({str(pipe)!r}, 'w').write(str(os.getpid()))\n")
    with agent.open("a") as file:
        file.write("time.sleep(600)\n")
    words = ["run", "slow", "--task", "Go", "--command", f"{sys.executable} {agent}"]
    running = subprocess.Popen(
        [sys.executable, "-m", "offbook", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    pid = int(pipe.read_text())
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, err) == (130, b"offbook: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    session = Path(made["workspace_path"]) / "session.jsonl"
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    assert any(line["event"] == "_meta.termination" for line in lines)


SCENARIO = """\
run:
  task: Go
  mock_responses: [{output: LOOP_COMPLETE}]
assert: [{type: exit_code, expected: %d}]
"""


@pytest.mark.parametrize("expected, code", [(0, 0), (1, 1)])
def test_scenarios_are_played_and_counted(
    workspaces: Path, offbook_command: Offbook, expected: int, code: int
):
    for name in ("one", "two"):
        (workspaces / f"{name}.yaml").write_text(SCENARIO % (0 if name == "one" else expected))
    files = [workspaces / "one.yaml", workspaces / "two.yaml"]
    out = ("--reports", workspaces / "out")
    told = offbook_command("run", *files, *out)
    assert (told.code, told.err) == (code, "")
    assert told.out.endswith(f"{2 - code} passed, {code} failed, 0 flaky\n")
    spoken = offbook_command("run", *files, *out, "--json")
    assert (spoken.code, json.loads(spoken.out)["failed"]) == (code, code)


@pytest.mark.parametrize("strict, code", [((), 0), (("--fail-on-flaky",), 1)])
def test_flaky_scenarios_fail_where_that_is_wanted(
    workspaces: Path, offbook_command: Offbook, strict: tuple[str, ...], code: int
):
    tried = workspaces / "tried"
    (workspaces / "one.yaml").write_text(
        f"""
run:
  task: Go
  backend: command
  command: [sh, -c, "test -e {tried} && echo LOOP_COMPLETE; touch {tried}"]
  max_iterations: 1
assert: [{{type: exit_code, expected: 0}}]
retry: {{max_attempts: 2}}
"""
    )
    told = offbook_command("run", workspaces / "one.yaml", *strict, "--reports", workspaces)
    assert told.code == code
    assert "~ one (" in told.out
    assert "1 passed, 0 failed, 1 flaky" in told.out


def test_what_changed_is_shown(flow: Path, offbook_command: Offbook):
    assert offbook_command("diff", "flow").out == "nothing changed\n"
    assert offbook_command("snapshot", "flow", "--id", "before").out.startswith("before: 0 files")
    (flow / "new.txt").write_text("hello\n")
    assert offbook_command("diff", "flow", "before").out == (
        "+ new.txt (+1 -0)\n@@ 1-1 @@\n+hello\n"
    )
    told = json.loads(offbook_command("diff", "flow", "--json").out)
    assert told["added_files"] == ["new.txt"]


def test_one_report_tells_all_scenarios(workspaces: Path, offbook_command: Offbook):
    scenario = "run:\n  task: Go\n  mock_responses: [LOOP_COMPLETE]\nassert:\n"
    assertion = "  - type: exit_code\n    expected: {}\n"
    out = "setup:\n  fixtures:\n    ../x: leads out\n"
    for name, text in (
        ("good", scenario + assertion.format(0) * 2),
        ("bad", scenario + assertion.format(3)),
        ("never", out + scenario + assertion.format(0)),
    ):
        (workspaces / f"{name}.yaml").write_text(text)
    files = [workspaces / f"{name}.yaml" for name in ("good", "bad", "never")]
    places = {kind: workspaces / "out" / f"all.{kind}" for kind in ("junit", "tap", "ctrf")}
    options = [word for kind, path in places.items() for word in (f"--{kind}", path)]
    told = offbook_command("run", *files, "--reports", workspaces / "own", *options)
    assert told.code == 1
    assert "[3/3]" in told.out
    reader: Any = JUnitXml
    read = reader.fromfile(str(places["junit"]))
    assert (read.tests, read.failures, read.errors) == (4, 1, 1)
    assert [suite.name for suite in read] == ["good", "bad", "never"]
    ctrf = json.loads(places["ctrf"].read_text())["results"]
    assert (ctrf["summary"]["passed"], ctrf["summary"]["failed"]) == (2, 2)
    assert [test["suite"] for test in ctrf["tests"]] == [["good"], ["good"], ["bad"], ["never"]]
    points = [line for line in places["tap"].read_text().splitlines() if "ok " in line]
    assert [line.partition(" - ")[2].partition(":")[0] for line in points] == [
        "good",
        "good",
        "bad",
        "never",
    ]
    assert [line.startswith("not") for line in points] == [False, False, True, True]


@pytest.mark.parametrize(
    "words, told",
    [
        ("flow.yaml --backend mock", "--backend does nothing for scenarios"),
        ("one --task Go --junit all.xml", "--junit does nothing for the loop"),
        ("--mocks a.jsonl --jobs 2 -- true", "--jobs does nothing for a command with a scripted"),
        ("--record-mocks a.jsonl --json -- true", "--json does nothing for a command that is rec"),
    ],
)
def test_an_option_of_another_way_to_run_is_refused(
    words: str, told: str, offbook_command: Offbook
):
    refused = offbook_command("run", *words.split())
    assert refused.code == 2
    assert told in refused.err
