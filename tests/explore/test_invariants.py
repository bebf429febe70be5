"""The invariants that suit many agents, on runs that keep or break them."""

from types import SimpleNamespace
from typing import Any

import openai
import pytest

from offbook import drive
from offbook.errors import CheckFailed, UnknownOutcome, UsageError
from offbook.explore import at_most, ends_within, explore, never_before, no_secret_in_answer
from offbook.trace import KnownTools


def run_of(
    *calls: tuple[str, dict[str, Any], bool],
    requests: int = 1,
    output: str = "",
    unknown: tuple[str, ...] = (),
) -> Any:
    """Return a run: each call has a tool, its input, and whether it failed."""
    executed = KnownTools(
        [
            SimpleNamespace(name=name, input=given, result=SimpleNamespace(failed=failed))
            for name, given, failed in calls
        ],
        unknown,
    )

    def named(_: str) -> list[None]:
        return [None] * requests

    events = SimpleNamespace(named=named)
    return SimpleNamespace(executed=executed, events=events, output=output)


FIND, REFUND = ("find", {"id": 7}, False), ("refund", {"id": 7}, False)
FAILED, OTHER = ("refund", {"id": 7}, True), ("refund", {"id": 8}, False)


@pytest.mark.parametrize(
    "invariant, run",
    [
        (never_before("refund", "find"), run_of(FIND, REFUND)),
        (never_before("refund", "find"), run_of(FAILED, FIND)),
        (at_most(1, "refund", "id"), run_of(REFUND, OTHER, FAILED, FIND, FIND)),
        (at_most(1, "refund"), run_of(REFUND, unknown=("find",))),
        (never_before("refund", "find"), run_of(FIND, unknown=("refund",))),
        (ends_within(2), run_of(requests=2)),
        (no_secret_in_answer, run_of(output="done")),
    ],
)
def test_a_run_that_keeps_the_invariant_passes(invariant: Any, run: Any):
    assert invariant(run, None) is None


@pytest.mark.parametrize(
    "invariant, run, message",
    [
        (
            never_before("refund", "find"),
            run_of(REFUND, FIND),
            "refund succeeded with {'id': 7} before find",
        ),
        (
            never_before("refund", "find"),
            run_of(("find", {}, True), REFUND),
            "refund succeeded with {'id': 7} before find",
        ),
        (
            at_most(1, "refund", "id"),
            run_of(REFUND, OTHER, REFUND),
            "refund succeeded 2 times with {'id': 7}",
        ),
        (at_most(1, "refund"), run_of(REFUND, OTHER), "refund succeeded 2 times with {'id': 8}"),
        (
            at_most(1, "refund"),
            run_of(REFUND, REFUND, unknown=("refund",)),
            "refund succeeded 2 times with {'id': 7}",
        ),
        (ends_within(2), run_of(requests=3), "the agent sent 3 requests"),
        (
            no_secret_in_answer,
            run_of(output=f"the key is sk-ant-api03-{'Ab1' * 30}"),
            "the answer contains a secret",
        ),
    ],
)
def test_a_run_that_breaks_the_invariant_says_how(invariant: Any, run: Any, message: str):
    with pytest.raises(CheckFailed) as caught:
        invariant(run, None)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "invariant, name",
    [
        (never_before("refund", "find"), "never refund before find"),
        (at_most(1, "refund", "id", "day"), "at most 1 refund per id, day"),
        (at_most(2, "refund"), "at most 2 refund"),
        (ends_within(3), "ends within 3 requests"),
    ],
)
def test_an_invariant_is_named_in_reports(invariant: Any, name: str):
    assert invariant.__name__ == name


UNDECIDED = [
    (at_most(1, "refund"), run_of(REFUND, unknown=("refund",))),
    (never_before("refund", "find"), run_of(unknown=("refund",))),
]


@pytest.mark.parametrize("invariant, run", UNDECIDED)
def test_a_tool_that_may_have_run_decides_nothing(invariant: Any, run: Any):
    with pytest.raises(UnknownOutcome):
        invariant(run, None)


def never_sends_a_result(prompt: str) -> None:
    tools: Any = [{"type": "function", "function": {"name": "refund", "parameters": {}}}]
    messages: Any = [{"role": "user", "content": prompt}]
    client = openai.OpenAI(api_key="none", max_retries=0)
    client.chat.completions.create(model="m", messages=messages, tools=tools)


def test_an_invariant_that_cannot_be_decided_says_what_is_unknown():
    message = "the invariant at most 1 refund cannot be decided: it is unknown whether 'refund' ran"
    with pytest.raises(UsageError, match=message) as caught:
        explore(
            lambda: drive(never_sends_a_result), "Go", at_most(1, "refund"), runs=20, seed=1,
            gives_up=openai.APIError,
        )  # fmt: skip
    assert "run.executed.known()" in str(caught.value)
