"""What failed is tried again only where that is allowed, and is never forgotten."""

import pytest

from offbook.errors import FormatError
from offbook.files import convert
from offbook.reports.report import Attempt
from offbook.workflows.scenario import (
    AttemptFailure,
    FailureKind,
    RetryPolicy,
    RetryResult,
    run_with_retries,
)


class Tries:
    """Fails in these ways, one after the other, then passes; remembers what it was told."""

    def __init__(self, *kinds: FailureKind) -> None:
        self._left = list(kinds)
        self.told: list[tuple[Attempt, ...]] = []
        self.waits: list[float] = []

    async def attempt(self, history: tuple[Attempt, ...]) -> tuple[int, AttemptFailure | None]:
        self.told.append(history)
        kind = self._left.pop(0) if self._left else None
        return len(self.told), AttemptFailure(kind, f"a {kind}") if kind else None

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)

    async def repeat(self, retry: RetryPolicy) -> RetryResult[int]:
        return await run_with_retries(self.attempt, retry, sleep=self.wait)


async def test_what_passes_after_a_failure_is_flaky_and_says_why():
    tries = Tries("timeout")
    done = await tries.repeat(RetryPolicy(max_attempts=3, backoff_ms=1000))
    assert (done.failure, done.flaky, done.attempts, done.value) == (None, True, 2, 2)
    assert done.history == (Attempt(1, "a timeout", "timeout"),)
    assert tries.told == [(), done.history]


async def test_what_passes_at_once_is_not_flaky():
    done = await Tries().repeat(RetryPolicy(max_attempts=3))
    assert (done.flaky, done.attempts, done.history) == (False, 1, ())


async def test_what_never_passes_failed_and_keeps_every_failure():
    tries = Tries("timeout", "error", "timeout", "timeout")
    done = await tries.repeat(RetryPolicy(max_attempts=3, backoff_ms=100))
    assert done.failure == AttemptFailure("timeout", "a timeout")
    assert (done.flaky, [one.kind for one in done.history]) == (
        False,
        ["timeout", "error", "timeout"],
    )
    assert tries.waits == [0.1, 0.2]


@pytest.mark.parametrize(
    "retry, attempts",
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
async def test_a_failure_is_tried_again_where_that_is_allowed(retry: RetryPolicy, attempts: int):
    assert (await Tries("assertion_failure").repeat(retry)).attempts == attempts


@pytest.mark.parametrize(
    "raw, told",
    [
        ({"max_attempts": 0}, "try at least once"),
        ({"backoff_ms": -1}, "backoff_ms is -1"),
        ({"retry_on": ["timeuot"]}, "Invalid enum value 'timeuot'"),
        ({"max_attemps": 2}, "did you mean 'max_attempts'"),
    ],
)
def test_a_wrong_retry_is_refused(raw: dict[str, object], told: str):
    with pytest.raises(FormatError, match=told):
        convert(raw, RetryPolicy, path="retry")
