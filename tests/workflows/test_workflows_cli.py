"""The commands `offbook scenario` and `offbook workspace`."""

import io
import json
import os
import shlex
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
def flow(workspaces: Path, workspace_command: Offbook) -> Path:
    """A workspace in which the loop has run."""
    made = json.loads(workspace_command("setup", "flow", "--json").out)
    ran = workspace_command("run", "flow", "--task", "Go", "--mock-responses", FLOW)
    assert (ran.code, ran.err) == (0, "")
    return Path(made["workspace_path"])


def test_setup_reads_options_and_files(
    workspaces: Path, offbook_command: Offbook, workspace_command: Offbook
):
    files = workspaces / "files.yaml"
    files.write_text("src/a.py: print()\n")
    config = '{"event_loop": {"completion_promise": "DONE"}}'
    options = ("--fixtures", files, "--fixture", "b.txt=x=y", "--scratchpad", "# Plan")
    made = workspace_command("setup", "one", *options, "--config", config, "--json")
    result = json.loads(made.out)
    assert result["created_files"] == ["src/a.py", "b.txt", ".agent/scratchpad.md"]
    assert (Path(result["workspace_path"]) / "b.txt").read_text() == "x=y"
    ran = offbook_command(
        "workspace",
        "run",
        "one",
        "--task",
        "Go",
        "--mock-responses",
        '{"output": "DONE"}',
        "--json",
    )
    assert json.loads(ran.out)["termination_reason"] == "CompletionPromise"


@pytest.mark.parametrize("assertions, code", [((HOLDS,), 0), ((HOLDS, FAILS), 1)])
def test_assertions_decide_the_exit_code(
    flow: Path, workspace_command: Offbook, assertions: tuple[str, ...], code: int
):
    outcome = workspace_command("assert", "flow", *assertions, "--json")
    assert outcome.code == code
    assert json.loads(outcome.out)["failed_count"] == code
    assert workspace_command("assert", "flow", *assertions).code == code


def test_assertions_are_read_from_stdin(
    flow: Path, workspace_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("- type: exit_code\n  expected: 0\n"))
    assert workspace_command("assert", "flow", "-").out == "✓ exit_code\n1 of 1 hold\n"


def test_inspect_prints_records_timeline_and_summary(flow: Path, workspace_command: Offbook):
    records = json.loads(workspace_command("inspect", "flow", "--topic", "build.*").out)["records"]
    assert [record["data"]["topic"] for record in records] == ["build.task", "build.done"]
    timeline = workspace_command("inspect", "flow", "--format", "timeline").out
    assert timeline.startswith("1. planner: task.start → build.task (")
    summary = workspace_command("inspect", "flow", "--format", "summary", "--json").out
    assert json.loads(summary)["hats_used"] == ["planner", "builder"]


def test_a_report_is_written_and_printed(flow: Path, workspace_command: Offbook):
    workspace_command("assert", "flow", HOLDS)
    path = Path(workspace_command("report", "flow", "junit", "--name", "the flow").out.strip())
    assert path == flow / "reports" / "junit.xml"
    shown = workspace_command("report", "flow", "tap", "--print")
    assert shown.out.splitlines()[:3] == ["TAP version 14", "1..1", "ok 1 - 1 exit_code"]


def test_a_typo_in_a_configuration_file_is_reported_with_its_line(
    workspaces: Path, workspace_command: Offbook
):
    preset = workspaces / "preset.yaml"
    preset.write_text("hats:\n  planner:\n    trigers: [task.start]\n")
    outcome = workspace_command("setup", "typo", "--config", preset)
    assert outcome.code == 2
    assert f"{preset}:3: unknown key 'trigers' (at $.hats.planner.trigers)" in outcome.err
    assert "did you mean 'triggers'?" in outcome.err


def test_an_empty_report_exits_with_1(flow: Path, workspace_command: Offbook):
    outcome = workspace_command("report", "flow", "json")
    assert (outcome.code, "nothing to report" in outcome.err) == (1, True)


def test_workspaces_are_listed_and_removed_by_name(flow: Path, workspace_command: Offbook):
    assert workspace_command("inspect").out == "flow\n"
    assert json.loads(workspace_command("inspect", "--json").out) == {"workspaces": ["flow"]}
    assert workspace_command("cleanup", "--stale").out == "no stale workspaces\n"
    removed = workspace_command("cleanup", "flow", "--preserve-session", "--json")
    assert json.loads(removed.out) == {"deleted": True, "preserved_files": ["session.jsonl"]}
    assert [path.name for path in flow.parent.iterdir()] == ["session.jsonl"]
    assert workspace_command("inspect").out == "no workspaces\n"


@pytest.mark.parametrize(
    "words, message",
    [
        (("run", "gone", "--task", "x", "--mock-responses", "[{}]"), "available: flow"),
        (("run", "flow", "--task", "x"), "needs mock_responses"),
        (("diff", "flow", "befor"), "unknown snapshot 'befor'"),
        (("snapshot", "flow", "--id", "../x"), "invalid snapshot name"),
        (("assert", "flow", "{oops"), "assertions: invalid JSON"),
        (("assert", "flow", "no-such.yaml"), "no-such.yaml: cannot be read"),
        (("inspect", "flow", "--filter", '{"topic": []}'), "did you mean 'topics'"),
        (
            ("inspect", "flow", "--filter", "[]"),
            "filter: expected a mapping or nothing, got a list",
        ),
        (("inspect", "flow", "--limit", "0"), "limit: expected an integer >= 1, got 0"),
        (("report", "flow", "junit", "--output", "../x"), "leads out"),
        (("cleanup", "../x"), "invalid workspace name"),
        (("setup", "flow"), "exists already"),
        (("setup", "two", "--fixture", "x"), "write NAME=VALUE"),
        (("setup", "two", "--fixture", "../x=y"), "leads out"),
    ],
)
def test_wrong_arguments_exit_with_2_and_a_message(
    flow: Path, workspace_command: Offbook, words: tuple[str, ...], message: str
):
    outcome = workspace_command(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_a_run_needs_exactly_one_workspace_and_a_task(flow: Path, workspace_command: Offbook):
    assert (
        "unexpected extra argument (two)"
        in workspace_command("run", "flow", "two", "--task", "x").err
    )
    assert "Missing option '--task'" in workspace_command("run", "flow").err


def test_a_missing_scenario_file_is_reported(offbook_command: Offbook):
    outcome = offbook_command("scenario", "run", "no-such.yaml")
    assert outcome.code == 2
    assert "no-such.yaml: cannot be read" in outcome.err


def test_a_run_that_reaches_its_limit_fails(
    workspaces: Path, offbook_command: Offbook, workspace_command: Offbook
):
    workspace_command("setup", "one")
    answers = json.dumps([{"output": TASK}])
    ran = offbook_command(
        "workspace",
        "run",
        "one",
        "--task",
        "Go",
        "--max-iterations",
        "1",
        "--mock-responses",
        answers,
    )
    assert ran.code == 1
    assert "MaxIterations after 1 iteration" in ran.out


def test_only_named_variables_reach_the_agent(
    workspaces: Path, workspace_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MINE", "here")
    monkeypatch.setenv("OTHER", "not given")
    workspace_command("setup", "one")
    script = "sh -c 'echo $MINE, $OTHER, $YOURS; echo LOOP_COMPLETE'"
    words = ("run", "one", "--task", "Go", "--command", script)
    outcome = workspace_command(*words, "--env", "MINE", "--env", "YOURS=a=b")
    assert outcome.out.startswith("here, , a=b\n")
    wrong = workspace_command(*words, "--env", "NOWHERE")
    assert (wrong.code, "environment variable 'NOWHERE' is not set" in wrong.err) == (2, True)


def test_the_loop_is_recorded_and_replayed(workspaces: Path, workspace_command: Offbook):
    workspace_command("setup", "one")
    options = ("--task", "Say hello", "--json")
    agent = ("--", "sh", "-c", "echo hello; echo LOOP_COMPLETE")
    recorded = workspace_command("run", "one", "--record", "hello", *options, *agent)
    assert (recorded.code, json.loads(recorded.out)["interactions"]) == (0, 1)
    replayed = workspace_command("run", "one", "--replay", "hello", *options)
    result = json.loads(replayed.out)
    assert (replayed.code, result["interactions_replayed"], result["exit_code"]) == (0, 1, 0)
    ran = workspace_command("run", "one", "--task", "Say hello", "--cassette", "hello")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "hello")
    no_agent = workspace_command("run", "one", "--record", "x", *options)
    assert "can be recorded" in no_agent.err


@pytest.mark.parametrize(
    "words, message",
    [
        (("--replace",), "--replace has no effect without --record"),
        (("--loose",), "--strict/--loose has no effect without --replay"),
        (("--redact", "{}"), "--redact has no effect without --record or --replay"),
        (("--record", "a", "--replay", "b"), "--record and --replay exclude each other"),
        (("--record", "a", "--mock-responses", "[]"), "--mock-responses has no effect"),
    ],
)
def test_an_option_without_effect_is_refused(
    flow: Path, workspace_command: Offbook, words: tuple[str, ...], message: str
):
    outcome = workspace_command("run", "flow", "--task", "Go", *words)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_ctrl_c_stops_the_agent_and_keeps_the_session(workspaces: Path, workspace_command: Offbook):
    made = json.loads(workspace_command("setup", "slow", "--json").out)
    pipe = workspaces / "pipe"
    os.mkfifo(pipe)
    agent = workspaces / "agent.py"
    agent.write_text(f"import os, time\nopen({str(pipe)!r}, 'w').write(str(os.getpid()))\n")
    with agent.open("a") as file:
        file.write("time.sleep(600)\n")
    words = ["workspace", "run", "slow", "--task", "Go", "--command", f"{sys.executable} {agent}"]
    running = subprocess.Popen(
        [sys.executable, "-m", "offbook", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    pid = int(pipe.read_text())
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=300)
    assert (running.returncode, err) == (130, b"offbook: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    session = Path(made["workspace_path"]).parent / "session.jsonl"
    lines = [json.loads(line) for line in session.read_text().splitlines()]
    assert any(line["event"] == "_meta.termination" for line in lines)


SCENARIO = """\
run:
  task: Go
  mock_responses: [{output: LOOP_COMPLETE}]
assert: [{type: exit_code, expected: %d}]
"""


@pytest.mark.parametrize("expected, code", [(0, 0), (1, 1)])
def test_scenarios_are_run_and_counted(
    workspaces: Path, offbook_command: Offbook, expected: int, code: int
):
    for name in ("one", "two"):
        (workspaces / f"{name}.yaml").write_text(SCENARIO % (0 if name == "one" else expected))
    files = [workspaces / "one.yaml", workspaces / "two.yaml"]
    out = ("--reports", workspaces / "out")
    outcome = offbook_command("scenario", "run", *files, *out)
    assert (outcome.code, outcome.err) == (code, "")
    assert outcome.out.endswith(f"{2 - code} passed, {code} failed, 0 flaky\n")
    spoken = offbook_command("scenario", "run", *files, *out, "--json")
    assert (spoken.code, json.loads(spoken.out)["failed"]) == (code, code)


@pytest.mark.parametrize("strict, code", [((), 0), (("--fail-on-flaky",), 1)])
def test_flaky_scenarios_fail_with_fail_on_flaky(
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
    outcome = offbook_command(
        "scenario", "run", workspaces / "one.yaml", *strict, "--reports", workspaces
    )
    assert outcome.code == code
    assert "~ one (" in outcome.out
    assert "1 passed, 0 failed, 1 flaky" in outcome.out


RECORDED = """
setup: {fixtures: {data.txt: hello}}
run:
  task: Go
  backend: command
  command: [sh, -c, "printf '\\\\377' >> %s; echo LOOP_COMPLETE"]
  cassette: cassettes/tape.yaml
assert: [{type: exit_code, expected: 0}]
"""


@pytest.mark.parametrize(
    "file, code, message",
    [
        ("made.bin", 0, "offbook: one: not in the cassette, which has texts of up to 1 MiB only"),
        ("data.txt", 1, "the change of data.txt cannot be recorded"),
    ],
)
def test_a_file_that_a_scenario_cannot_record_is_named(
    workspaces: Path, offbook_command: Offbook, file: str, code: int, message: str
):
    (workspaces / "one.yaml").write_text(RECORDED % file)
    outcome = offbook_command(
        "scenario", "run", workspaces / "one.yaml", "--record", "--reports", workspaces
    )
    assert outcome.code == code
    assert message in (outcome.out if code else outcome.err)
    assert (workspaces / "cassettes" / "tape.yaml").exists() == (not code)


def test_a_setup_names_the_stale_workspaces_that_it_removes(
    workspaces: Path, workspace_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    def is_alive(_pid: int) -> bool:
        return False

    workspace_command("setup", "old")
    monkeypatch.setattr("offbook.workflows.workspace.STALE_SECONDS", -1)
    monkeypatch.setattr("offbook.workflows.workspace._is_alive", is_alive)
    made = workspace_command("setup", "new")
    assert made.err == "offbook: removed the workspace 'old': not used for a day\n"


def test_diff_prints_the_changes(flow: Path, workspace_command: Offbook):
    assert workspace_command("diff", "flow").out == "nothing changed\n"
    assert workspace_command("snapshot", "flow", "--id", "before").out.startswith("before: 0 files")
    (flow / "new.txt").write_text("hello\n")
    assert workspace_command("diff", "flow", "before").out == (
        "+ new.txt (+1 -0)\n@@ 1-1 @@\n+hello\n"
    )
    taken = workspace_command("snapshot", "--json", "flow", "--id", "after")
    assert json.loads(taken.out)["snapshot_id"] == "after"
    outcome = json.loads(workspace_command("diff", "flow", "--json").out)
    assert outcome["added_files"] == ["new.txt"]


def test_one_report_covers_all_scenarios(workspaces: Path, offbook_command: Offbook):
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
    places = {
        kind: workspaces / "out" / f"all.{kind}" for kind in ("junit", "tap", "tap13", "ctrf")
    }
    options = [word for kind, path in places.items() for word in (f"--{kind}", path)]
    outcome = offbook_command("scenario", "run", *files, "--reports", workspaces / "own", *options)
    assert outcome.code == 1
    assert "[3/3]" in outcome.out
    reader: Any = JUnitXml
    read = reader.fromfile(str(places["junit"]))
    assert (read.tests, read.failures, read.errors) == (4, 1, 1)
    assert [suite.name for suite in read] == ["good", "bad", "never"]
    ctrf = json.loads(places["ctrf"].read_text())["results"]
    assert (ctrf["summary"]["passed"], ctrf["summary"]["failed"]) == (2, 2)
    assert [test["suite"] for test in ctrf["tests"]] == [["good"], ["good"], ["bad"], ["never"]]
    lines = places["tap"].read_text().splitlines()
    assert places["tap13"].read_text().splitlines() == ["TAP version 13", *lines[1:]]
    points = [line for line in places["tap"].read_text().splitlines() if "ok " in line]
    assert [line.partition(" - ")[2].partition(":")[0] for line in points] == [
        "good",
        "good",
        "bad",
        "never",
    ]
    assert [line.startswith("not") for line in points] == [False, False, True, True]


def test_inspect_prints_the_events_of_one_type(flow: Path, workspace_command: Offbook):
    shown = workspace_command("inspect", "flow", "--event", "bus.publish").out
    assert {record["event"] for record in json.loads(shown)["records"]} == {"bus.publish"}


def test_inspect_reports_the_lines_that_cannot_be_read(flow: Path, workspace_command: Offbook):
    session = flow.parent / "session.jsonl"
    lines = session.read_text().splitlines()
    session.write_text("\n".join([*lines[:2], "no json", *lines[2:], ""]))
    outcome = workspace_command("inspect", "flow", "--format", "timeline")
    assert outcome.code == 1
    assert "offbook: line 3: " in outcome.err


def test_inspect_says_why_a_timeline_is_empty(flow: Path, workspace_command: Offbook):
    session = flow.parent / "session.jsonl"
    lines = [line for line in session.read_text().splitlines() if "_meta.iteration" not in line]
    session.write_text("\n".join([*lines, ""]))
    outcome = workspace_command("inspect", "flow", "--format", "timeline")
    assert (outcome.code, outcome.out) == (0, "no iteration records\n")


def test_a_report_can_be_described_as_json(flow: Path, workspace_command: Offbook):
    workspace_command("assert", "flow", HOLDS)
    result = json.loads(workspace_command("report", "flow", "tap", "--json").out)
    assert (result["tests"], result["passed"], result["failed"]) == (1, 1, 0)


def test_the_removal_of_stale_workspaces_can_be_described_as_json(
    flow: Path, workspace_command: Offbook
):
    assert json.loads(workspace_command("cleanup", "--stale", "--json").out) == {"removed": []}


JUDGE = """import json, sys
sys.stdin.read()
print(json.dumps({"reasoning": "it is so", "score": int(sys.argv[1])}))
"""


@pytest.mark.parametrize("score, sign, code", [(5, "✓", 0), (1, "✗", 1)])
def test_a_judge_decides_the_exit_code(
    flow: Path, workspace_command: Offbook, tmp_path: Path, score: int, sign: str, code: int
):
    judge = tmp_path / "judge.py"
    judge.write_text(JUDGE)
    command = shlex.join([sys.executable, str(judge), str(score)])
    arguments = ("evaluate", "flow", '{"criterion": "safety", "target": "output"}')
    outcome = workspace_command(*arguments, "--judge-command", command)
    assert outcome.code == code
    assert outcome.out == f"{sign} safety output: {score} of 5\n    it is so\n"
    outcome = workspace_command(*arguments, "--judge-command", command, "--json")
    assert outcome.code == code
    assert json.loads(outcome.out)["all_passed"] is not code


def test_a_judge_without_a_score_fails(flow: Path, workspace_command: Offbook):
    arguments = ("evaluate", "flow", '{"criterion": "safety", "target": "output"}')
    outcome = workspace_command(*arguments, "--judge-command", "true")
    assert outcome.code == 1
    assert outcome.out.startswith("✗ safety output: ")


def test_a_terminal_shows_the_progress_of_a_run(
    flow: Path, workspace_command: Offbook, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    options = ("--task", "Go", "--mock-responses", FLOW, "--max-iterations", "5")
    shown = workspace_command("run", "flow", *options).err.splitlines()
    assert shown[:2] == [
        "iteration 1: planner, of 5 at most",
        "iteration 2: builder, of 5 at most",
    ]


def test_a_summary_is_printed_line_by_line(flow: Path, workspace_command: Offbook):
    shown = workspace_command("inspect", "flow", "--format", "summary").out.splitlines()
    assert "hats_used: ['planner', 'builder']" in shown
