"""Scenario files are decoded strictly, run in parallel and reported with their history."""

import json
from pathlib import Path

import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows import (
    ScenarioResult,
    Workspaces,
    find_scenarios,
    read_scenario,
    run_scenario,
    run_scenarios,
)
from tests.forked import forked_command
from tests.streaming_agent import streaming_agent

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"
GOOD = """\
run:
  task: Go
  mock_responses:
    - output: LOOP_COMPLETE
assert:
  - type: exit_code
    expected: 0
"""
# Fails as often as {failures} says, then passes.
FLAKY = """\
name: sometimes
run:
  task: Go
  backend: command
  command:
    - sh
    - -c
    - echo x >> {log}; test $(wc -l < {log}) -gt {failures} && echo LOOP_COMPLETE
  max_iterations: 1
assert:
  - type: termination_reason
    expected: CompletionPromise
retry:
  max_attempts: 3
report:
  - format: junit
  - format: ctrf
  - format: json
  - format: tap
"""


@pytest.fixture(autouse=True)
def isolated_workspaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def write(folder: Path, text: str, name: str = "one.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(path: str) -> str:
    return Path(path).read_text()


async def test_the_examples_pass(tmp_path: Path):
    names: list[str] = []

    def on_result(result: ScenarioResult) -> None:
        names.append(result.name)

    scenarios = find_scenarios([EXAMPLES])
    results = await run_scenarios(scenarios, reports=tmp_path / "out", on_result=on_result)
    assert len(results) == len(list(EXAMPLES.glob("*.yaml")))
    assert [result.error for result in results if not result.passed] == []
    assert sorted(names) == sorted(scenario.name for scenario in scenarios)
    assert Workspaces().ids() == []


async def test_a_failed_scenario_has_its_error_and_session(tmp_path: Path):
    path = write(tmp_path, GOOD.replace("expected: 0", "expected: 3"))
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (result.passed, result.flaky, result.attempts) == (False, False, 1)
    assert result.error == "exit_code: expected 3, got 0"
    assert read(result.session)
    assert Workspaces().ids() == []


async def test_exhausted_responses_fail_even_if_the_assertions_hold(tmp_path: Path):
    text = GOOD.replace("LOOP_COMPLETE", "nothing").replace("expected: 0", "expected: 1")
    result = await run_scenario(read_scenario(write(tmp_path, text)), reports=tmp_path / "out")
    assert not result.passed
    assert "all 1 mock responses are used" in result.error
    assert result.failure_history[0].kind == "mock_exhausted"


@pytest.mark.parametrize(
    "failures, outcome, attempts", [(0, "passed", 1), (1, "flaky", 2), (9, "failed", 3)]
)
async def test_flakiness_is_in_every_report(
    tmp_path: Path, failures: int, outcome: str, attempts: int
):
    passed, flaky = outcome != "failed", outcome == "flaky"
    text = FLAKY.format(log=tmp_path / "log", failures=failures)
    result = await run_scenario(read_scenario(write(tmp_path, text)), reports=tmp_path / "out")
    assert (result.passed, result.flaky, result.attempts) == (passed, flaky, attempts)
    names = ["sometimes.junit.xml", "sometimes.ctrf.json", "sometimes.json", "sometimes.tap"]
    assert [Path(path).name for path in result.reports] == names
    junit, ctrf, data, tap = (read(path) for path in result.reports)
    assert junit.count("<flakyFailure") == (attempts - 1 if passed else 0)
    assert junit.count("<rerunFailure") == (0 if passed else attempts - 1)
    assert ('"flaky": true' in data) is flaky
    assert ('"flaky": true' in ctrf) is flaky
    assert ('flaky: "true"' in tap or "flaky: true" in tap) is flaky


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("task: Go", "tsk: Go", 2, "did you mean 'task'"),
        ("task: Go", "task: 7", 2, "expected a text, got an integer"),
        ("exit_code", "exit_cod", 6, "did you mean 'exit_code'"),
        ("expected: 0", "expcted: 0", 6, "did you mean 'expected'"),
        (
            "assert:\n  - type: exit_code\n    expected: 0\n",
            "assert: []\n",
            5,
            "missing assertions",
        ),
        ("run:", "run: [", 3, "invalid YAML"),
        ("output: LOOP", "otput: LOOP", 4, "did you mean 'output'"),
        ("- output", "- trigger_pattern: '('\n      output", 4, "invalid pattern '\\('"),
        ("- output", "- delay_ms: -1\n      output", 4, "expected an integer >= 0"),
        ("task: Go", "task: Go\n  backend: comand", 3, "did you mean 'command'"),
        ("task: Go", "task: Go\n  orchestrator: ralf", 3, "did you mean 'ralph'"),
        ("task: Go", "task: Go\n  max_iterations: 0", 3, "expected an integer >= 1"),
        ("  mock_responses:\n    - output: LOOP_COMPLETE\n", "", 1, "needs mock_responses"),
        (
            "run:",
            "setup:\n  config:\n    hats:\n      a: {}\n      b:\n        trigers: [x]\nrun:",
            6,
            "did you mean 'triggers'",
        ),
        (
            "run:",
            "setup:\n  config:\n    hats: 7\nrun:",
            3,
            "expected a mapping or nothing, got an integer",
        ),
        (
            "run:",
            "retry:\n  retry_on: [timeot]\nrun:",
            2,
            "expected one of: timeout, rate_limit, mock_exhausted, assertion_failure, error",
        ),
    ],
)
def test_errors_have_their_line(tmp_path: Path, old: str, new: str, line: int, message: str):
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(FormatError, match=message) as raised:
        read_scenario(path)
    assert (raised.value.path, raised.value.line) == (str(path), line)


def test_duplicate_names_are_rejected(tmp_path: Path):
    first, second = write(tmp_path, GOOD), write(tmp_path, f"name: One\n{GOOD}", "two.yaml")
    with pytest.raises(FormatError, match="duplicate scenario name 'One'"):
        find_scenarios([first, second])


def test_a_folder_without_scenarios_is_an_error(tmp_path: Path):
    with pytest.raises(UsageError, match="no scenario"):
        find_scenarios([tmp_path])
    with pytest.raises(FormatError, match="cannot be read"):
        find_scenarios([tmp_path / "gone.yaml"])


async def test_fixture_paths_outside_fail_the_scenario(tmp_path: Path):
    path = write(tmp_path, f"setup:\n  fixtures:\n    ../x: y\n{GOOD}")
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (result.passed, "leads out" in result.error) == (False, True)


WITH_CASSETTE = """\
run:
  task: Make it
  backend: command
  command: [sh, -c, "echo x >> {starts}; echo made > made.txt; echo LOOP_COMPLETE"]
  cassette: tapes/made.yaml
assert:
  - type: exit_code
    expected: 0
  - type: file_contains
    path: made.txt
    pattern: made
"""


async def test_a_scenario_with_a_cassette_runs_its_agent_only_to_record(tmp_path: Path):
    starts = tmp_path / "starts"
    scenario = read_scenario(write(tmp_path, WITH_CASSETTE.format(starts=starts)))
    missing = await run_scenario(scenario, reports=tmp_path / "out")
    assert "fix: offbook scenario run FILE --record" in missing.error
    assert not starts.exists()
    recorded = await run_scenario(scenario, reports=tmp_path / "out", recording=True)
    assert (recorded.passed, recorded.error) == (True, "")
    replayed = await run_scenario(scenario, reports=tmp_path / "out")
    assert (replayed.passed, replayed.error) == (True, "")
    again = await run_scenario(scenario, reports=tmp_path / "out", recording=True)
    assert again.passed
    assert read(str(starts)) == "x\n" * 2


async def test_only_a_real_agent_can_be_recorded(tmp_path: Path):
    text = GOOD.replace("  task: Go\n", "  task: Go\n  cassette: tapes/x.yaml\n")
    result = await run_scenario(
        read_scenario(write(tmp_path, text)), reports=tmp_path / "out", recording=True
    )
    assert (result.passed, "a cassette records a real agent" in result.error) == (False, True)


FAULTY = """\
run:
  task: Go
  backend: playbook
  playbook: book.yaml
  faults: {faults}
assert:
  - type: exit_code
    expected: 0
"""


def test_an_unknown_fault_is_reported_with_its_line(tmp_path: Path):
    with pytest.raises(FormatError, match=r"one.yaml:5: unknown fault 'rest'"):
        read_scenario(write(tmp_path, FAULTY.format(faults="[rest]")))


async def test_a_scenario_with_mock_responses_cannot_have_faults(tmp_path: Path):
    text = GOOD.replace("run:\n", "run:\n  faults: [reset]\n")
    result = await run_scenario(read_scenario(write(tmp_path, text)))
    assert not result.passed
    assert "faults have no effect on the backend 'mock'" in result.error


async def test_the_model_of_a_scenario_has_faults(tmp_path: Path):
    (tmp_path / "book.yaml").write_text("- when: Go\n  do:\n    - say: LOOP_COMPLETE\n")
    result = await run_scenario(read_scenario(write(tmp_path, FAULTY.format(faults="[status@1]"))))
    assert not result.passed
    assert "injected fault" in result.error


COMMAND = """\
run:
  task: Go
  backend: command
  command: {command}
  playbook: book.yaml
  max_iterations: 1
  faults: [{fault}]
assert:
  - type: iterations
    min: 1
"""


@pytest.mark.parametrize(
    "fault, option, error",
    [("status@1", "--loud", ""), ("reset@1", "--quiet", "reset at request 1: swallowed")],
)
async def test_a_scenario_passes_if_the_sdk_of_its_command_handles_the_faults(
    tmp_path: Path, fault: str, option: str, error: str
):
    text = "The work that you asked for is done.\nLOOP_COMPLETE"
    (tmp_path / "book.yaml").write_text(f"- when: Go\n  do:\n    - say: {json.dumps(text)}\n")
    (tmp_path / "agent.py").write_text(streaming_agent("Go"))
    command = forked_command(tmp_path / "agent.py", option, imports=["openai"])
    scenario = COMMAND.format(command=json.dumps(command), fault=fault)
    result = await run_scenario(read_scenario(write(tmp_path, scenario)))
    assert (result.passed, error in result.error) == (not error, True), result.error


async def test_the_limit_of_the_configuration_ends_the_loop(tmp_path: Path):
    path = write(
        tmp_path,
        "setup: {config: {event_loop: {max_iterations: 2}}}\n"
        "run: {task: Go, backend: command, command: [echo, hello]}\n"
        "assert: [{type: iterations, exact: 2}]\n",
    )
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert result.passed, result.error
