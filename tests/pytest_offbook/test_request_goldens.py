"""The requests of a test are compared with a golden, which is written on request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from offbook.files import parse_yaml

pytest_plugins = ["pytester"]

DISABLED_PLUGINS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"]
SETTINGS = "[pytest]\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
UPDATE = "--offbook-update"
RunTest = Callable[..., pytest.RunResult]
TEST = """
from offbook import call, say, when

def find(api):
    @api.tool("find_order", "{tool}", {{"type": "object", "properties": {{}}}})
    def find_order(params, ctx):
        return "{result}"

def test_it(offbook):
    settings = {{"parameters": {{"temperature": {t}}}}}
    session = offbook.session(extensions=[find], system_prompt="{system}", settings=settings)
    run = session.run(when("{prompt}", [call("find_order"), say("Found.")]))
    {check}
"""
CHECK = "offbook.check_requests(run)"


@pytest.fixture
def run_test(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> RunTest:
    monkeypatch.delenv("CI", raising=False)

    def run(
        *options: str,
        system: str = "You sell lamps.",
        tool: str = "Find an order.",
        result: str = "one lamp",
        prompt: str = "Find order 7",
        temperature: float = 0.5,
        check: str = CHECK,
    ) -> pytest.RunResult:
        code = TEST.format(
            system=system, tool=tool, result=result, prompt=prompt, t=temperature, check=check
        )
        pytester.makeini(SETTINGS)
        pytester.makepyfile(test_it=code)
        return pytester.runpytest_inprocess(*DISABLED_PLUGINS, *options)

    return run


@pytest.fixture
def golden(pytester: pytest.Pytester) -> Path:
    """The path of the golden of the test."""
    return pytester.path / "requests" / "test_it-test_it.yaml"


def test_a_test_without_a_golden_fails_with_the_command_that_writes_it(
    run_test: RunTest, golden: Path
):
    result = run_test()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it-test_it.yaml: this test has no golden of its requests yet",
            "*pytest --offbook-update test_it.py::test_it",
        ]
    )
    assert not golden.exists()


def test_a_golden_has_each_request_without_what_the_one_before_has(run_test: RunTest, golden: Path):
    run_test(UPDATE).assert_outcomes(passed=1)
    first, second = parse_yaml(golden.read_text())["requests"]
    assert first["system"] == "You sell lamps."
    assert first["parameters"] == {"temperature": 0.5}
    described = {tool["name"]: tool["description"] for tool in first["tools"]}
    assert described["find_order"] == "Find an order."
    assert first["messages"] == [{"user": "Find order 7"}]
    assert list(second) == ["more"]
    assert [list(message) for message in second["more"]] == [["assistant"], ["tool"]]


def test_the_same_requests_pass_again_and_leave_the_golden_unchanged(
    run_test: RunTest, golden: Path
):
    run_test(UPDATE).assert_outcomes(passed=1)
    written = golden.read_bytes()
    run_test().assert_outcomes(passed=1)
    assert golden.read_bytes() == written


@pytest.mark.parametrize(
    "change, lines",
    [
        ({"system": "You sell kettles."}, ["*-*You sell lamps.*", "*+*You sell kettles.*"]),
        ({"tool": "Lose an order."}, ["*-*Find an order.*", "*+*Lose an order.*"]),
        ({"temperature": 0.9}, ["*-*temperature: 0.5", "*+*temperature: 0.9"]),
        ({"prompt": "Find order 8"}, ["*-*user: *order 7*", "*+*user: *order 8*"]),
        ({"result": "no lamp"}, ["*-*one lamp*", "*+*no lamp*"]),
    ],
    ids=["system prompt", "tool", "parameter", "prompt", "tool result"],
)
def test_a_changed_request_fails_with_the_difference(
    run_test: RunTest, change: dict[str, object], lines: list[str], golden: Path
):
    run_test(UPDATE).assert_outcomes(passed=1)
    written = golden.read_bytes()
    result = run_test(**change)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_it-test_it.yaml:*: the requests of the agent differ from the golden",
            *lines,
            "*if this is intended: pytest --offbook-update test_it.py::test_it",
        ]
    )
    assert golden.read_bytes() == written


def test_an_intended_change_is_written_on_request(run_test: RunTest, golden: Path):
    run_test(UPDATE).assert_outcomes(passed=1)
    run_test(UPDATE, system="You sell kettles.").assert_outcomes(passed=1)
    assert "You sell kettles." in golden.read_text()
    run_test(system="You sell kettles.").assert_outcomes(passed=1)


def test_in_ci_no_golden_is_written(
    run_test: RunTest, golden: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CI", "true")
    result = run_test(UPDATE)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*goldens are not updated in CI", "*remove --offbook-update"])
    assert not golden.exists()


def test_secrets_ids_and_folders_are_not_in_a_golden(
    run_test: RunTest, golden: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SHOP_API_KEY", "kettle-and-lamp-4711")
    check = "offbook.check_requests(run, redactions={'patterns': {'order': 'order [0-9]+'}})"
    run_test(UPDATE, result="kettle-and-lamp-4711", check=check).assert_outcomes(passed=1)
    text = golden.read_text()
    assert "kettle-and-lamp-4711" not in text
    assert "[ORDER]" in text
    assert "[UUID]" in text


@pytest.mark.parametrize(
    "check, message",
    [
        (f"{CHECK}; {CHECK}", "*this golden was compared already*"),
        ("offbook.check_requests(run, '../elsewhere')", "*is outside of its folder*"),
        (
            "from types import SimpleNamespace as Run; offbook.check_requests(Run(requests=[]))",
            "*the run made no request, so there is nothing to compare*",
        ),
    ],
    ids=["twice", "elsewhere", "no request"],
)
def test_a_comparison_that_shows_nothing_fails(run_test: RunTest, check: str, message: str):
    result = run_test(UPDATE, check=check)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([message])
