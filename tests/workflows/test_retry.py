"""Failed attempts are retried as the policy allows, and stay in the history."""

from pathlib import Path

import pytest

from offbook.errors import FormatError
from offbook.files import convert
from offbook.reports import Attempt
from offbook.workflows import (
    AttemptFailure,
    FailureKind,
    RetryPolicy,
    RetryResult,
    read_scenario,
    run,
    run_scenario,
    run_with_retries,
    setup,
)


class Attempts:
    """Fails in these ways in turn, then passes; stores its arguments."""

    def __init__(self, *kinds: FailureKind) -> None:
        self._left = list(kinds)
        self.histories: list[tuple[Attempt, ...]] = []
        self.delays: list[float] = []

    async def attempt(self, history: tuple[Attempt, ...]) -> tuple[int, AttemptFailure | None]:
        self.histories.append(history)
        kind = self._left.pop(0) if self._left else None
        return len(self.histories), AttemptFailure(kind, f"a {kind}") if kind else None

    async def wait(self, seconds: float) -> None:
        self.delays.append(seconds)

    async def run(self, policy: RetryPolicy) -> RetryResult[int]:
        return await run_with_retries(self.attempt, policy, sleep=self.wait)


async def test_a_pass_after_a_failure_is_flaky():
    attempts = Attempts("timeout")
    result = await attempts.run(RetryPolicy(max_attempts=3, backoff_ms=1000))
    assert (result.failure, result.flaky, result.attempts, result.value) == (None, True, 2, 2)
    assert result.history == (Attempt(1, "a timeout", "timeout"),)
    assert attempts.histories == [(), result.history]


async def test_a_first_pass_is_not_flaky():
    result = await Attempts().run(RetryPolicy(max_attempts=3))
    assert (result.flaky, result.attempts, result.history) == (False, 1, ())


async def test_every_failure_stays_in_the_history():
    attempts = Attempts("timeout", "error", "timeout", "timeout")
    result = await attempts.run(RetryPolicy(max_attempts=3, backoff_ms=100))
    assert result.failure == AttemptFailure("timeout", "a timeout")
    assert (result.flaky, [attempt.kind for attempt in result.history]) == (
        False,
        ["timeout", "error", "timeout"],
    )
    assert attempts.delays == [0.1, 0.2]


@pytest.mark.parametrize(
    "policy, attempts",
    [
        (RetryPolicy(max_attempts=3), 2),
        (RetryPolicy(max_attempts=3, retry_on=("assertion_failure",)), 2),
        (RetryPolicy(max_attempts=3, retry_on=("timeout", "rate_limit")), 1),
        (RetryPolicy(max_attempts=3, no_retry_on=("assertion_failure",)), 1),
        (
            RetryPolicy(
                max_attempts=3,
                retry_on=("assertion_failure",),
                no_retry_on=("assertion_failure",),
            ),
            1,
        ),
        (RetryPolicy(), 1),
    ],
)
async def test_failures_are_retried_as_the_policy_allows(policy: RetryPolicy, attempts: int):
    assert (await Attempts("assertion_failure").run(policy)).attempts == attempts


@pytest.mark.parametrize(
    "raw, message",
    [
        ({"max_attempts": 0}, "max_attempts must be at least 1, got 0"),
        ({"backoff_ms": -1}, "backoff_ms must be at least 0, got -1"),
        ({"retry_on": ["timeuot"]}, "invalid value 'timeuot'"),
        ({"max_attemps": 2}, "did you mean 'max_attempts'"),
    ],
)
def test_an_invalid_policy_is_rejected(raw: dict[str, object], message: str):
    with pytest.raises(FormatError, match=message):
        convert(raw, RetryPolicy, path="retry")


async def test_a_hang_in_the_last_allowed_iteration_is_retried_as_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = tmp_path / "hang.yaml"
    path.write_text(
        "run:\n  task: Go\n  max_iterations: 1\n  max_runtime_secs: 0.05\n"
        "  mock_responses: [{output: LOOP_COMPLETE, delay_ms: 60000}]\n"
        "assert: [{type: exit_code, expected: 0}]\n"
        "retry: {max_attempts: 2, retry_on: [timeout]}\n"
    )
    result = await run_scenario(read_scenario(path), reports=tmp_path / "out")
    assert [attempt.kind for attempt in result.failure_history] == ["timeout", "timeout"]
    assert "the loop reached its time limit" in result.error


def test_a_hang_in_the_last_allowed_iteration_ends_with_max_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    setup("hang")
    command = ["sh", "-c", "sleep 600"]
    ran = run(
        "hang", "Go", backend="command", command=command, max_iterations=1, max_runtime_secs=0.2
    )
    assert (ran.termination_reason, ran.exit_code) == ("MaxRuntime", 2)
    assert ran.warnings == ("the time limit of 0.2 s was reached in iteration 1",)
