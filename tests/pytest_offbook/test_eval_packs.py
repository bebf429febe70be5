"""With --offbook-evals, each case of an eval pack is a test."""

import json
from typing import Any

import pytest

from tests.evals.conftest import RUN

pytest_plugins = ["pytester"]

INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
OPTIONS = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-rA"]
RUBRICS = """
[[rubrics]]
id = "completed"
assertions = [{kind = "run-status", expected = "completed"}]
[[rubrics]]
id = "failed"
assertions = [{kind = "run-status", expected = "failed"}]
"""
LADDER = """
[[ladders]]
id = "climb"
backend = {path = "t.jsonl"}
timeout-tiers = [{id = "t", max-tool-calls = LIMIT}]
"""
EVENTS: list[dict[str, Any]] = [
    {"index": 0, "emitted_at_ms": 0, "type": "iteration_start", "session_id": "s"},
    {"index": 1, "emitted_at_ms": 5, "type": "tool_call", "tool_name": "read", "raw_input": {}},
    {"index": 2, "emitted_at_ms": 9, "type": "iteration_end", "session_id": "s"},
]


def case(name: str, *lines: str) -> str:
    return "\n".join(["[[cases]]", f'id = "{name}"', 'run = "run.json"', *lines, ""])


def run(
    pytester: pytest.Pytester, pack: str, *options: str, name: str = "shop.eval.toml"
) -> pytest.RunResult:
    pytester.makeini(INI)
    files = {"run.json": json.dumps(RUN), "t.jsonl": "\n".join(map(json.dumps, EVENTS))}
    for path, text in {**files, name: pack}.items():
        (pytester.path / path).write_text(text)
    return pytester.runpytest_inprocess(*OPTIONS, *options)


GOOD = case("good", 'rubrics = ["completed"]')
BAD = case("bad", 'rubrics = ["failed"]')


def test_a_case_is_collected_with_the_option_only(pytester: pytest.Pytester):
    run(pytester, RUBRICS + GOOD).assert_outcomes()
    run(pytester, RUBRICS + GOOD, "--offbook-evals").assert_outcomes(passed=1)


def test_a_file_that_is_no_pack_is_not_collected(pytester: pytest.Pytester):
    result = run(pytester, RUBRICS + GOOD, "--offbook-evals", name="shop.toml")
    result.assert_outcomes()


def test_a_failing_case_fails_with_its_reason_and_no_traceback(pytester: pytest.Pytester):
    result = run(pytester, RUBRICS + GOOD + BAD, "--offbook-evals")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "1 of 1 trials failed: run status mismatch: expected failed, got completed",
            "PASSED shop.eval.toml::good",
            "FAILED shop.eval.toml::bad - 1 of 1 trials failed*",
        ]
    )
    result.stdout.no_fnmatch_line("*evals_pytest.py*")


@pytest.mark.parametrize("severity", ["warning", "informational"])
def test_a_failing_case_of_a_lower_severity_is_skipped(pytester: pytest.Pytester, severity: str):
    pack = RUBRICS + case("bad", 'rubrics = ["failed"]', f'severity = "{severity}"')
    result = run(pytester, pack, "--offbook-evals")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED*{severity}: run status mismatch*"])


def test_all_trials_of_a_case_are_run(pytester: pytest.Pytester):
    pack = RUBRICS + case("bad", 'rubrics = ["failed"]', "trials = 3")
    result = run(pytester, pack, "--offbook-evals")
    result.stdout.fnmatch_lines(["FAILED shop.eval.toml::bad - 3 of 3 trials failed*"])


@pytest.mark.parametrize("limit, failed", [(1, 0), (0, 1)])
def test_a_ladder_is_a_test(pytester: pytest.Pytester, limit: int, failed: int):
    pack = RUBRICS + GOOD + LADDER.replace("LIMIT", str(limit))
    result = run(pytester, pack, "--offbook-evals")
    result.assert_outcomes(passed=2 - failed, failed=failed)
    assert (pytester.path / ".offbook/pytest/ladders/climb/01-default/t/summary.json").is_file()


def test_a_wrong_pack_is_an_error_with_its_place(pytester: pytest.Pytester):
    result = run(pytester, RUBRICS + case("bad", "treshold = 1"), "--offbook-evals")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*shop.eval.toml:11: *unknown*treshold*"])
    result.stdout.no_fnmatch_line("*evals_pytest.py*")


def test_an_unexpected_error_is_that_of_its_case(pytester: pytest.Pytester):
    (pytester.path / ".offbook").write_text("a file, where a folder is needed")
    result = run(pytester, LADDER.replace("LIMIT", "1"), "--offbook-evals")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["1 of 1 trials failed: NotADirectoryError: *"])


WARNED = "".join(
    case(name, f'rubrics = ["{rubric}"]', 'severity = "warning"', 'metadata = { lang = "de" }')
    for name, rubric in (("one", "completed"), ("two", "failed"))
)


def limit(rate: float, value: str = "") -> str:
    return f'[[slices]]\nby = "lang"\nvalue = "{value}"\nmin-pass-rate = {rate}\n'


@pytest.mark.parametrize(
    "slices, failed, line",
    [
        (limit(0.5), 0, "PASSED shop.eval.toml::slice lang"),
        (limit(0.9), 1, "FAILED shop.eval.toml::slice lang - slice lang=de: pass rate 0.50 is*"),
        (limit(0.5, "en"), 1, "FAILED shop.eval.toml::slice lang=en - slice lang=en: no data*"),
    ],
)
def test_a_limit_of_slices_is_a_test(
    pytester: pytest.Pytester, slices: str, failed: int, line: str
):
    result = run(pytester, RUBRICS + WARNED + slices, "--offbook-evals")
    result.assert_outcomes(passed=2 - failed, skipped=1, failed=failed)
    result.stdout.fnmatch_lines([line])


def test_a_limit_of_slices_alone_runs_its_cases(pytester: pytest.Pytester):
    result = run(pytester, RUBRICS + WARNED + limit(0.9), "--offbook-evals", "-k", "slice")
    result.assert_outcomes(failed=1, deselected=2)


JUDGED = """
[[rubrics]]
id = "polite"
kind = "llm-judge"
prompt = "Is it polite?"
judge = { source = "judge.jsonl", min-agreement = 0.5 }
calibration = [{ output = "Please", score = 1.0 }, { output = "No", score = 0.0 }]
"""


def test_a_judge_that_has_changed_is_measured_again(pytester: pytest.Pytester):
    def judge(*answers: tuple[str, int]) -> str:
        texts = [(match, json.dumps({"reasoning": "r", "score": n})) for match, n in answers]
        return "\n".join(json.dumps({"match": match, "text": text}) for match, text in texts)

    file = pytester.path / "judge.jsonl"
    pack = JUDGED + case("c", 'rubrics = ["polite"]')
    file.write_text(judge(("*No*", 1), ("*", 5)))
    run(pytester, pack, "--offbook-evals").assert_outcomes(passed=1)
    file.write_text(judge(("*", 5)))
    result = run(pytester, pack, "--offbook-evals")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*agrees too little*kappa 0.00*"])
