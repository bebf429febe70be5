"""Tests as lists of steps."""

# pyright: basic
# Patterns take and return any value.

from pathlib import Path
from typing import Any

import pytest

from offbook.errors import FormatError, UsageError
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
    ],
)
def test_a_wrong_name_is_reported_with_its_step(step: Any, message: str):
    with pytest.raises(UsageError, match=message):
        run_steps(basket, [step, {"assert": "count == 0"}])


def test_steps_without_an_assertion_are_refused():
    with pytest.raises(UsageError, match="no step asserts anything"):
        run_steps(basket, [{"send": "add"}])


def test_a_file_of_steps_is_run(tmp_path: Path):
    (tmp_path / "p.py").write_text(
        "from offbook.patterns import pattern\n@pattern\ndef p(value=1): return {'value': value}\n"
    )
    file = tmp_path / "p.steps.yaml"
    file.write_text("pattern: p.py\nstate: {value: 2}\nsteps:\n  - assert: value == 2\n")
    assert run_steps_file(file).passed


@pytest.mark.parametrize(
    "text, message",
    [
        ("- a", "is a mapping"),
        ("steps: []", "missing `pattern`"),
        ("patern: p.py\nsteps: []", "unknown key 'patern'\\s+did you mean 'pattern'"),
    ],
)
def test_a_malformed_file_names_its_path(tmp_path: Path, text: str, message: str):
    file = tmp_path / "p.steps.yaml"
    file.write_text(text)
    with pytest.raises(FormatError, match=f"p.steps.yaml.*{message}"):
        run_steps_file(file)
