"""Budgets and contracts in pytest fail tests and runs."""

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest
from offbook import call, say, when

GO = when("Go", [call("bash", {"command": "true"}), say("Done.")])

MARK
def test_go(offbook):
    offbook.session().run(GO)

def test_no_agent():
    pass
"""
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]


def run(
    pytester: pytest.Pytester, *options: str, mark: str = "", settings: str = ""
) -> pytest.RunResult:
    if settings:
        text = "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n"
        (pytester.path / "pyproject.toml").write_text(text + settings)
    else:
        pytester.makeini(INI)
    pytester.makepyfile(test_it=TESTS.replace("MARK", mark))
    return pytester.runpytest_inprocess(*OPTIONS, *options)


@pytest.mark.parametrize(
    "limits, failed, message",
    [
        ("requests=2, tokens=10_000, seconds=1000", 0, ""),
        ("requests=1", 1, "requests 2 exceeds the maximum 1"),
        ("tokens=1", 1, "tokens * exceeds the maximum 1"),
        ("seconds=0", 1, "seconds * exceeds the maximum 0"),
        ("cost_usd=1", 1, "no data: the run has no cost usd"),
    ],
)
def test_a_test_over_its_budget_fails(
    pytester: pytest.Pytester, limits: str, failed: int, message: str
):
    result = run(pytester, mark=f"@pytest.mark.offbook_budget({limits})")
    result.assert_outcomes(passed=2 - failed, failed=failed)
    if message:
        result.stdout.fnmatch_lines([f"*{message}*"])


def test_an_unknown_limit_is_an_error(pytester: pytest.Pytester):
    result = run(pytester, mark="@pytest.mark.offbook_budget(token=3)")
    result.stdout.fnmatch_lines(["*unknown field `token`*requests, tokens, cost_usd, seconds*"])
    result.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize("limit, code", [("requests=2", 0), ("requests=1", 1), ("cost_usd=9", 1)])
def test_a_run_over_its_budget_fails(pytester: pytest.Pytester, limit: str, code: int):
    result = run(pytester, "--offbook-budget", limit)
    result.assert_outcomes(passed=2)
    assert result.ret == code
    if code:
        result.stdout.fnmatch_lines(["suite: budget of *"])


@pytest.mark.parametrize("value", ["requests", "requests=many", "request=3"])
def test_a_wrong_option_is_a_usage_error(pytester: pytest.Pytester, value: str):
    assert run(pytester, "--offbook-budget", value).ret == pytest.ExitCode.USAGE_ERROR


def test_the_settings_limit_every_test_with_an_agent(pytester: pytest.Pytester):
    settings = "[tool.offbook.budget]\ntest = {requests = 1}\nsuite = {requests = 9}\n"
    result = run(pytester, settings=settings)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*requests 2 exceeds the maximum 1*"])


def test_tests_without_data_for_a_setting_are_counted(pytester: pytest.Pytester):
    result = run(pytester, settings="[tool.offbook.budget]\ntest = {cost_usd = 1}\n")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["no data for a limit: 1 test"])


@pytest.mark.slow
def test_contracts_of_the_project_are_held_in_workers(pytester: pytest.Pytester):
    (pytester.path / "contracts.yaml").write_text(
        "events: {tool.call: {properties: {input: {required: [command]}}}}\n"
        "topics: {build.done: {type: string}}\n"
    )
    text = "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n"
    settings = '[tool.offbook]\ncontracts = "contracts.yaml"\n'
    (pytester.path / "pyproject.toml").write_text(text + settings)
    pytester.makepyfile(test_it=TESTS.replace("MARK", ""))
    result = pytester.runpytest_subprocess(*OPTIONS, "-n", "1", "--offbook-budget", "requests=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "contract unused, no event matched it: topic build.done",
            "suite: budget of requests: requests 2 exceeds the maximum 1",
        ]
    )
