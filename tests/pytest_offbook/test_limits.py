"""Budgets and contracts in pytest fail tests and runs."""

from fnmatch import fnmatch

import pytest

from tests.forked import run_pytest

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
    pytester: pytest.Pytester,
    *options: str,
    mark: str = "",
    settings: str = "",
    test: str = TESTS,
) -> pytest.RunResult:
    if settings:
        text = "[tool.pytest.ini_options]\nasyncio_default_fixture_loop_scope = 'function'\n"
        (pytester.path / "pyproject.toml").write_text(text + settings)
    else:
        pytester.makeini(INI)
    pytester.makepyfile(test_it=test.replace("MARK", mark) if "MARK" in test else f"{mark}\n{test}")
    return pytester.runpytest_inprocess(*OPTIONS, *options)


@pytest.mark.parametrize(
    "limits, failed, message",
    [
        ("requests=2, tokens=10_000, seconds=1000", 0, ""),
        ("requests=1", 1, "requests 2 exceeds the maximum 1"),
        ("tokens=1", 1, "tokens * exceeds the maximum 1"),
        ("seconds=0", 1, "seconds * exceeds the maximum 0"),
        (
            "cost_usd=1",
            1,
            "no data: no cost was recorded, and no price or no tokens are known of *",
        ),
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
    result.stdout.fnmatch_lines(["*unknown key 'token'*requests, tokens, cost_usd, seconds*"])
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


SPELLINGS = [
    "[tool.offbook.budget]\ntest = {requests = 1}\nsuite = {requests = 9}\n",
    "[tool]\noffbook.budget.test = {requests = 1}\n",
    '[tool."offbook"]\nbudget = {test = {requests = 1}}\n',
    "[tool]\noffbook = {budget = {test = {requests = 1}}}\n",
    "[ tool . offbook . budget ]\ntest.requests = 1\n",
]


@pytest.mark.parametrize("settings", SPELLINGS)
def test_the_settings_limit_every_test_with_an_agent(pytester: pytest.Pytester, settings: str):
    result = run(pytester, settings=settings)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*requests 2 exceeds the maximum 1*"])


def test_tests_without_data_for_a_setting_are_counted(pytester: pytest.Pytester):
    result = run(pytester, settings="[tool.offbook.budget]\ntest = {cost_usd = 1}\n")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["no data for a limit: 1 test"])


FIXTURES = """
import pytest
from offbook import say, session, when

def ask(count=1):
    with session() as agent:
        for number in range(count):
            agent.run(when("Go", [say("ok")]))

@pytest.fixture
def before():
    ask()

@pytest.fixture
def after():
    yield
    ask()

@pytest.fixture(scope="module", params=[1, 2])
def shared():
    ask(5)
    yield
    ask(5)

@pytest.fixture(scope="module")
def agent():
    with session() as opened:
        yield opened
"""
ONE = "@pytest.mark.offbook_budget(requests=1)\n"


@pytest.mark.parametrize(
    "test, outcomes, requests",
    [
        ("def test_it(before):\n    pass", {"passed": 1}, 1),
        ("def test_it(before):\n    ask()", {"failed": 1}, 2),
        ("def test_it(after):\n    ask()", {"passed": 1, "errors": 1}, 2),
        ("def test_it(shared, before):\n    pass", {"passed": 2}, 22),
        ("def test_it(shared):\n    ask(2)", {"failed": 2}, 24),
        ("def test_it(shared):\n    pass", {"failed": 2}, 20),
        ("def test_it(agent):\n    agent.run(when('Go', [say('ok')]))", {"passed": 1}, 1),
    ],
)
def test_runs_of_fixtures_count(
    pytester: pytest.Pytester, test: str, outcomes: dict[str, int], requests: int
):
    limit = ("--offbook-budget", f"requests={requests - 1}")
    result = run(pytester, *limit, test=f"{FIXTURES}\n{ONE}{test}\n")
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([f"suite: *requests {requests} exceeds*"])


def test_the_runs_of_a_test_that_fails_count_for_the_suite(pytester: pytest.Pytester):
    test = f"{FIXTURES}\ndef test_it(before):\n    assert False\n"
    result = run(pytester, "--offbook-budget", "requests=0", test=test)
    result.stdout.fnmatch_lines(["suite: *requests 1 exceeds*"])


PLAIN = "def test_go():\n    pass\n"


@pytest.mark.parametrize("limit", ["requests=3", "seconds=1000", "tokens=5"])
def test_a_budget_of_a_test_without_an_agent_is_no_data(pytester: pytest.Pytester, limit: str):
    result = run(pytester, mark=f"import pytest\n@pytest.mark.offbook_budget({limit})", test=PLAIN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*no data: the run has no *"])


@pytest.mark.parametrize("limit", ["requests=3", "seconds=1000"])
def test_a_budget_of_a_run_without_an_agent_is_no_data(pytester: pytest.Pytester, limit: str):
    result = run(pytester, "--offbook-budget", limit, test=PLAIN)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["suite: budget of *: no data: the run has no *"])


def test_the_settings_do_not_fail_a_run_of_tests_without_an_agent(pytester: pytest.Pytester):
    result = run(pytester, settings="[tool.offbook.budget]\nsuite = {requests=3}\n", test=PLAIN)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["suite: budget of requests: no data: the run has no requests"])


@pytest.mark.parametrize("name", ["offbook_budgets", "offbook_bugdet", "ofbook_budget"])
def test_a_misspelt_marker_is_refused(pytester: pytest.Pytester, name: str):
    result = run(
        pytester,
        *("-W", "ignore::pytest.PytestUnknownMarkWarning"),
        mark=f"import pytest\n@pytest.mark.{name}(requests=3)",
        test=PLAIN,
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"*unknown marker '{name}': did you mean 'offbook_budget'?"])


@pytest.mark.parametrize(
    "settings, message",
    [
        ('[tool.offbook]\ncontract = "c.json"', "*'contract'*did you mean 'contracts'?*"),
        ("[tool.offbook.bugdet]\ntest = {requests = 1}", "*did you mean 'budget'?*"),
        ("[tool.offbook.budget]\ntests = {requests = 1}", "*did you mean 'test'?*"),
        ("[tool.offbook.budget]\ntest = {request = 1}", "*unknown key 'request'*"),
        ("[tool.offbook.budget]\nsuite = {seconds = inf}", "*must be a finite number*"),
    ],
)
def test_a_misspelt_setting_is_refused(pytester: pytest.Pytester, settings: str, message: str):
    result = run(pytester, settings=settings, test=PLAIN)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert fnmatch(" ".join(result.errlines), message)


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
    result = run_pytest(pytester, *OPTIONS, "-n", "1", "--offbook-budget", "requests=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "contract unused, no event matched it: topic build.done",
            "suite: budget of requests: requests 2 exceeds the maximum 1",
        ]
    )
