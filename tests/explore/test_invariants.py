"""The invariants that suit many agents, on runs that keep or break them."""

from types import SimpleNamespace
from typing import Any

import pytest

from offbook.errors import CheckFailed
from offbook.explore import at_most, ends_within, never_before, no_secret_in_answer


def run_of(*calls: tuple[str, dict[str, Any], bool], requests: int = 1, output: str = "") -> Any:
    """Return a run: each call has a tool, its input, and whether it failed."""
    executed = [
        SimpleNamespace(name=name, input=given, result=SimpleNamespace(failed=failed))
        for name, given, failed in calls
    ]

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
