"""`--offbook-coverage` measures a suite, with and without workers, and fails if told to."""

import json

import pytest

from tests.forked import run_pytest

pytest_plugins = ["pytester"]

TESTS = """
import os
import pytest
from offbook import call, say, when

def shop(api):
    @api.tool("find")
    def find(params, ctx):
        return "found"

    @api.tool("broken")
    def broken(params, ctx):
        return {"content": "no", "is_error": True}

    @api.tool("never")
    def never(params, ctx):
        return "never"

@pytest.mark.parametrize("tool", ["find", "broken"])
def test_tool(offbook, tool):
    offbook.session(extensions=[shop]).run(when("Go", [call(tool), say("Done.")]))
"""
CRASH = """
def test_crash(offbook):
    offbook.session().run(when("Go", [call("bash", {"command": "true"}), say("Done.")]))
    os._exit(1)
"""
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


@pytest.fixture(autouse=True)
def suite(pytester: pytest.Pytester) -> None:
    pytester.makeini(INI)
    pytester.makepyfile(test_shop=TESTS)


def states(pytester: pytest.Pytester) -> dict[str, str]:
    parts = json.loads((pytester.path / "coverage.json").read_text())["parts"]
    return {part["name"]: part["state"] for part in parts if part["kind"] == "tool"}


def test_the_summary_names_what_was_never_called_and_what_only_failed(pytester: pytest.Pytester):
    result = pytester.runpytest_inprocess(*OPTIONS, "--offbook-coverage")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["tool*broken*only failed*1 failed", "tool*find*covered*", "tool*never*never called"]
    )
    result.stdout.fnmatch_lines(["1 of 7 parts covered: 14.3 %, 2 traces"])


def test_without_the_option_nothing_is_measured(pytester: pytest.Pytester):
    result = pytester.runpytest_inprocess(*OPTIONS)
    result.stdout.no_fnmatch_line("*parts covered*")


@pytest.mark.parametrize("percent, expected", [("14", 0), ("15", 1)])
def test_a_suite_below_the_limit_fails(pytester: pytest.Pytester, percent: str, expected: int):
    result = pytester.runpytest_inprocess(*OPTIONS, f"--offbook-coverage-fail-under={percent}")
    assert result.ret == expected


def test_a_suite_without_an_agent_has_no_data_and_fails_the_limit(pytester: pytest.Pytester):
    pytester.makepyfile(test_shop="def test_nothing(): pass")
    result = pytester.runpytest_inprocess(*OPTIONS, "--offbook-coverage-fail-under=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["no data: 0 traces*", "offbook: no data for *fail-under=1"])


AGENTS = """
from agents import Agent, function_tool
from offbook import call, say, when

def refund(order: int) -> str:
    return "refunded"

def test_refund(offbook, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    tool = function_tool(refund)
    clerk = Agent("clerk", tools=[tool])
    offbook.drive(Agent("triage", tools=[tool], handoffs=[clerk])).run(
        when("Go", [call("transfer_to_clerk"), call("refund", {"order": 7}), say("Done.")])
    )
"""


@pytest.mark.parametrize(
    "agent, code, line",
    [
        ("clerk", 0, "tool*refund*covered*1 succeeded"),
        ("triage", 1, "tool*refund*never called"),
        ("clrk", 1, "offbook: no run has an agent 'clrk'"),
    ],
)
def test_one_of_several_agents_is_measured_alone(
    pytester: pytest.Pytester, agent: str, code: int, line: str
):
    pytester.makepyfile(test_shop=AGENTS)
    options = ["--offbook-coverage-agent", agent, "--offbook-coverage-fail-under=100"]
    result = pytester.runpytest_inprocess(*OPTIONS, *options)
    assert result.ret == code
    result.stdout.fnmatch_lines([line])


@pytest.mark.slow
def test_workers_measure_one_agent(pytester: pytest.Pytester):
    pytester.makepyfile(test_shop=AGENTS)
    result = run_pytest(pytester, *OPTIONS, "-n", "1", "--offbook-coverage-agent", "triage")
    result.stdout.fnmatch_lines(["tool*refund*never called"])


def test_a_failed_suite_keeps_its_exit_code(pytester: pytest.Pytester):
    pytester.makepyfile(test_shop="import missing_module")
    result = pytester.runpytest_inprocess(*OPTIONS, "--offbook-coverage-fail-under=1")
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize(
    "option, message",
    [
        ("--offbook-coverage=tests", "expected a .json file, got 'tests'"),
        ("--offbook-coverage-fail-under=101", "expected a number from 0 to 100, got 101"),
    ],
)
def test_wrong_options_are_usage_errors(pytester: pytest.Pytester, option: str, message: str):
    result = pytester.runpytest_inprocess(*OPTIONS, option)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*{message}*"])


@pytest.mark.slow
def test_workers_are_merged_and_a_crashed_one_keeps_its_traces(pytester: pytest.Pytester):
    pytester.makepyfile(test_shop=TESTS + CRASH)
    result = run_pytest(pytester, *OPTIONS, "-n", "1", "--offbook-coverage=coverage.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed while running *test_crash*"])
    found = states(pytester)
    assert (found["find"], found["broken"], found["never"]) == (
        "covered",
        "only failed",
        "never called",
    )


@pytest.mark.slow
@pytest.mark.parametrize("percent, expected", [("14", 0), ("15", 1)])
def test_the_limit_is_that_of_all_workers_together(
    pytester: pytest.Pytester, percent: str, expected: int
):
    limit = f"--offbook-coverage-fail-under={percent}"
    result = run_pytest(pytester, *OPTIONS, "-n", "2", limit)
    assert result.ret == expected
    result.stdout.fnmatch_lines(["1 of 7 parts covered: 14.3 %, 2 traces"])


@pytest.mark.slow
def test_workers_without_an_agent_have_no_data_and_fail_the_limit(pytester: pytest.Pytester):
    pytester.makepyfile(test_shop="def test_nothing(): pass")
    result = run_pytest(pytester, *OPTIONS, "-n", "2", "--offbook-coverage-fail-under=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["no data: 0 traces*", "offbook: no data for *fail-under=1"])


def test_a_suite_in_which_nothing_of_the_agent_works_is_zero_and_fails_the_limit(
    pytester: pytest.Pytester,
):
    pytester.makepyfile(test_shop=TESTS.replace('["find", "broken"]', '["broken"]'))
    result = pytester.runpytest_inprocess(*OPTIONS, "--offbook-coverage-fail-under=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["0 of 7 parts covered: 0.0 %, 1 trace"])


def test_a_run_over_its_budget_is_also_told_of_its_coverage(pytester: pytest.Pytester):
    (pytester.path / "pyproject.toml").write_text("[tool.offbook.budget]\nsuite = {requests = 1}")
    result = pytester.runpytest_inprocess(*OPTIONS, "--offbook-coverage-fail-under=90")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["offbook: coverage 14.3 % is under 90 %", "suite: budget of requests: *"]
    )
