"""Tests as lists of steps."""

# pyright: basic
# Patterns take and return any value.

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.patterns import Cell, computed, default, handler, pattern, run_steps, run_steps_file


@handler
def add(event: Any, items: Any) -> None:
    items.push(event)


@handler
def fail(event: Any) -> None:
    raise ValueError("refused")


@pattern
def basket(items: Cell[list[Any]] = default([]), limit: Cell[int] = default(3)) -> dict[str, Any]:
    return {
        "items": items,
        "count": computed(lambda: len(items.get())),
        "add": add(items=items),
        "fail": fail(),
    }


def statuses(steps: list[dict[str, Any]], **options: Any) -> list[str]:
    return [result.status for result in run_steps(basket, steps, **options).results]


def test_actions_and_assertions_run_in_order():
    steps = [
        {"assert": "count == 0"},
        {"send": "add", "event": {"name": "tea"}},
        {"assert": "count == 1 and items[0]['name'] == 'tea'"},
        {"set": "items.0.name", "to": "cake"},
        {"push": "items", "item": 5},
        {"settle": True},
        {"assert": "items == [{'name': 'cake'}, 5]"},
    ]
    result = run_steps(basket, steps)
    assert result.passed
    assert result.results[2].name.endswith("(after send add)")


def test_a_false_assertion_shows_its_operands():
    result = run_steps(basket, [{"assert": "count == limit - 1"}])
    assert not result.passed
    assert result.results[0].operands == {"count": 0, "limit": 3}
    assert result.results[0].message == "count is 0, limit is 3"


def test_operands_that_were_not_evaluated_are_absent():
    result = run_steps(basket, [{"assert": "count == 1 and len(items) == 5"}])
    assert result.results[0].operands == {"count": 0}


def test_the_steps_after_a_failure_run():
    assert statuses([{"assert": "count == 9"}, {"assert": "count == 0"}]) == ["failed", "passed"]


def test_a_skipped_step_is_counted_and_proves_nothing():
    result = run_steps(basket, [{"assert": "count == 9", "skip": True}])
    assert [step.status for step in result.results] == ["skipped"]
    assert not result.passed


def test_an_error_of_a_handler_fails_the_steps():
    steps = [{"send": "fail"}, {"assert": "count == 0"}]
    assert statuses(steps) == ["passed", "passed", "failed"]
    assert statuses(steps, expect_errors=1) == ["passed", "passed"]


@pytest.mark.parametrize(
    "step, message",
    [
        ({"assert": "True", "send": "add"}, "two kinds: assert, send"),
        ({"skip": True}, "no kind: skip"),
        ({"sned": "add"}, "no kind: sned"),
        ({"send": "add", "evnt": 1}, "a step with 'send' has no key 'evnt'\\s+did you mean"),
        ({"set": "items"}, "'set' needs 'to'"),
        ({"assert": "count =="}, "invalid expression: count =="),
        ({"assert": True}, "step 2: True: .*reads nothing of the pattern\\s+.*: add, count, fail,"),
        ({"assert": "sum([1]) == 1"}, "reads nothing of the pattern"),
        ({"assert": "all(x > 0 for x in [1])"}, "reads nothing of the pattern"),
        ("send", "expected a mapping, got a text"),
    ],
)
def test_a_step_that_cannot_run_is_refused_before_anything_runs(step: Any, message: str):
    with pytest.raises(UsageError, match=message):
        run_steps(basket, [{"assert": "count == 0"}, step])


@pytest.mark.parametrize(
    "step, message",
    [
        ({"send": "ad"}, "step 1: .*no output 'ad'"),
        ({"send": "count"}, "step 1: 'count' is not a stream"),
        ({"set": "itmes", "to": 1}, "step 1: .*no cell 'itmes'"),
        ({"assert": "cuont == 1"}, "step 1: cuont == 1: unknown name 'cuont'"),
        ({"assert": "items[7]"}, "step 1: .*IndexError"),
        ({"assert": "open('x')"}, "unknown name 'open'"),
        ({"assert": "(count == 9, 'wrong')"}, "step 1: .*expected True or False, got tuple"),
        ({"assert": "(x > 9 for x in items)"}, "got generator\\s+write a comparison, or all"),
        ({"assert": "[x > 9 for x in items]"}, "got list"),
        ({"assert": "count == 0 and items"}, "got ReadOnlyList"),
        ({"assert": "add"}, "got Stream"),
    ],
)
def test_a_wrong_name_is_reported_with_its_step(step: Any, message: str):
    with pytest.raises(UsageError, match=message):
        run_steps(basket, [step, {"assert": "count == 0"}])


def test_an_output_may_have_the_name_of_a_function():
    @pattern
    def totals() -> dict[str, Any]:
        return {"sum": 3, "items": [0, 1]}

    steps = [{"assert": "sum == 3"}, {"assert": "any(items for items in items)"}]
    assert run_steps(totals, steps).passed


def test_steps_without_an_assertion_are_refused():
    with pytest.raises(UsageError, match="no step asserts anything"):
        run_steps(basket, [{"send": "add"}])


ONE_VALUE = """
from offbook.patterns import pattern

@pattern
def p(value=1):
    return {"value": value}
"""


def test_a_file_of_steps_is_run(tmp_path: Path):
    (tmp_path / "p.py").write_text(ONE_VALUE)
    file = tmp_path / "p.steps.yaml"
    file.write_text("pattern: p.py\nstate: {value: 2}\nsteps:\n  - assert: value == 2\n")
    assert run_steps_file(file).passed


@pytest.mark.parametrize(
    "text, message",
    [
        ("- a", ": expected a mapping, got a list"),
        ("steps: []", ": missing key 'pattern'"),
        ("pattern: p.py\nstat: {}\nsteps: []", ":2: unknown key 'stat' .*\\s+did you mean 'state'"),
        ("pattern: p.py\nsteps:\n  assert: a", ":2: expected a list, got a mapping"),
        ("pattern: p.py\nsteps:\n  - send: a\n", ":2: no step asserts anything"),
        ("pattern: p.py\nsteps: []\n", ":2: no step asserts anything"),
        (
            "pattern: p.py\nsteps:\n  - assert: value == 1\n  - sendd: a",
            ":4: step 2: the step has no kind: sendd",
        ),
        (
            "pattern: p.py\nsteps:\n  - set: value\n    to: 2\n  - assert: valu == 1",
            ":5: step 2: valu == 1: unknown name 'valu'\\s+did you mean 'value'",
        ),
    ],
)
def test_an_error_of_a_file_names_its_line(tmp_path: Path, text: str, message: str):
    (tmp_path / "p.py").write_text(ONE_VALUE)
    file = tmp_path / "p.steps.yaml"
    file.write_text(text)
    with pytest.raises(UsageError, match=f"p.steps.yaml{message}"):
        run_steps_file(file)
