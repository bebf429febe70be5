"""Scenario files: read strictly, played side by side, told with their history."""

from pathlib import Path

import pytest

from offbook.errors import FormatError, UsageError
from offbook.workflows.scenario import find_scenarios, read_scenario
from offbook.workflows.scenario_runner import ScenarioResult, run_scenario, run_scenarios
from offbook.workflows.workspace import Workspaces

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
# Fails until it has been tried as often as the file says.
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
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def write(folder: Path, text: str, name: str = "one.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def read(path: str) -> str:
    return Path(path).read_text()


async def test_the_examples_pass(tmp_path: Path):
    told: list[str] = []

    def tell(played: ScenarioResult) -> None:
        told.append(played.name)

    scenarios = find_scenarios([EXAMPLES])
    played = await run_scenarios(scenarios, reports=tmp_path / "out", on_result=tell)
    assert len(played) == len(list(EXAMPLES.glob("*.yaml")))
    assert [one.error for one in played if not one.passed] == []
    assert sorted(told) == sorted(scenario.name for scenario in scenarios)
    assert Workspaces().ids() == []


async def test_a_failed_scenario_says_why_and_keeps_its_session(tmp_path: Path):
    path = write(tmp_path, GOOD.replace("expected: 0", "expected: 3"))
    played = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (played.passed, played.flaky, played.attempts) == (False, False, 1)
    assert played.error == "exit_code: expected 3, got 0"
    assert read(played.session)
    assert Workspaces().ids() == []


async def test_a_script_that_runs_dry_fails_whatever_was_asserted(tmp_path: Path):
    text = GOOD.replace("LOOP_COMPLETE", "nothing").replace("expected: 0", "expected: 1")
    played = await run_scenario(read_scenario(write(tmp_path, text)), reports=tmp_path / "out")
    assert not played.passed
    assert "all 1 mock responses are used" in played.error
    assert played.failure_history[0].kind == "mock_exhausted"


@pytest.mark.parametrize(
    "failures, outcome, attempts", [(0, "passed", 1), (1, "flaky", 2), (9, "failed", 3)]
)
async def test_flakiness_is_in_every_report(
    tmp_path: Path, failures: int, outcome: str, attempts: int
):
    passed, flaky = outcome != "failed", outcome == "flaky"
    text = FLAKY.format(log=tmp_path / "log", failures=failures)
    played = await run_scenario(read_scenario(write(tmp_path, text)), reports=tmp_path / "out")
    assert (played.passed, played.flaky, played.attempts) == (passed, flaky, attempts)
    junit, ctrf, data, tap = (read(path) for path in played.reports)
    assert junit.count("<flakyFailure") == (attempts - 1 if passed else 0)
    assert junit.count("<rerunFailure") == (0 if passed else attempts - 1)
    assert ('"flaky": true' in data) is flaky
    assert ('"flaky": true' in ctrf) is flaky
    assert ('flaky: "true"' in tap or "flaky: true" in tap) is flaky


@pytest.mark.parametrize(
    "old, new, line, told",
    [
        ("task: Go", "tsk: Go", 2, "did you mean 'task'"),
        ("task: Go", "task: 7", 2, "Expected `str`, got `int`"),
        ("exit_code", "exit_cod", 6, "did you mean 'exit_code'"),
        ("expected: 0", "expcted: 0", 6, "did you mean 'expected'"),
        ("assert:\n  - type: exit_code\n    expected: 0\n", "assert: []\n", 5, "no assertions"),
        ("run:", "run: [", 3, "invalid YAML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, told: str
):
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(FormatError, match=told) as raised:
        read_scenario(path)
    assert (raised.value.path, raised.value.line) == (str(path), line)


def test_two_of_one_name_are_refused(tmp_path: Path):
    first, second = write(tmp_path, GOOD), write(tmp_path, f"name: One\n{GOOD}", "two.yaml")
    with pytest.raises(FormatError, match="the name 'One' is taken"):
        find_scenarios([first, second])


def test_a_folder_without_scenarios_is_no_pass(tmp_path: Path):
    with pytest.raises(UsageError, match="no scenario"):
        find_scenarios([tmp_path])
    with pytest.raises(FormatError, match="cannot be read"):
        find_scenarios([tmp_path / "gone.yaml"])


async def test_fixtures_that_lead_out_fail_the_scenario(tmp_path: Path):
    path = write(tmp_path, f"setup:\n  fixtures:\n    ../x: y\n{GOOD}")
    played = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert (played.passed, "leads out" in played.error) == (False, True)


TAPED = """\
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


async def test_a_scenario_with_a_cassette_needs_its_agent_only_to_record(tmp_path: Path):
    starts = tmp_path / "starts"
    scenario = read_scenario(write(tmp_path, TAPED.format(starts=starts)))
    missing = await run_scenario(scenario, reports=tmp_path / "out")
    assert "record it: offbook scenario run FILE --record" in missing.error
    assert not starts.exists()
    recorded = await run_scenario(scenario, reports=tmp_path / "out", recording=True)
    assert (recorded.passed, recorded.error) == (True, "")
    replayed = await run_scenario(scenario, reports=tmp_path / "out")
    assert (replayed.passed, replayed.error) == (True, "")
    again = await run_scenario(scenario, reports=tmp_path / "out", recording=True)
    assert again.passed
    assert read(str(starts)) == "x\n" * 2


async def test_only_a_real_agent_is_recorded(tmp_path: Path):
    text = GOOD.replace("  task: Go\n", "  task: Go\n  cassette: tapes/x.yaml\n")
    played = await run_scenario(
        read_scenario(write(tmp_path, text)), reports=tmp_path / "out", recording=True
    )
    assert (played.passed, "from a real agent" in played.error) == (False, True)
