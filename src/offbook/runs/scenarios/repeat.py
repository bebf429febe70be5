"""Try again what failed for a reason that may pass, and remember that it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Literal, TypeVar

import msgspec

from offbook.reports.report import Attempt

T = TypeVar("T")
Kind = Literal["timeout", "rate_limit", "mock_exhausted", "assertion_failure", "error"]


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to try, and after which failures; one in both lists is not tried again."""

    max_attempts: int = 1
    backoff_ms: int = 0
    retry_on: tuple[Kind, ...] = ()
    no_retry_on: tuple[Kind, ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}: try at least once")
        if self.backoff_ms < 0:
            raise ValueError(f"backoff_ms is {self.backoff_ms}")

    def allows(self, kind: str) -> bool:
        """Whether a failure of this kind is tried again; of any, when none is named."""
        return kind not in self.no_retry_on and (not self.retry_on or kind in self.retry_on)


class Failure(msgspec.Struct, frozen=True):
    """Why a try failed."""

    kind: Kind
    error: str


class Repeated(msgspec.Struct, Generic[T], frozen=True):
    """What came of all tries: the last one's value, and the failures before it."""

    value: T
    failure: Failure | None
    attempts: int
    history: tuple[Attempt, ...]

    @property
    def flaky(self) -> bool:
        """Whether it passed only after it had failed."""
        return self.failure is None and bool(self.history)


Try = Callable[[tuple[Attempt, ...]], Awaitable[tuple[T, Failure | None]]]


async def repeat(
    attempt: Try[T],
    retry: Retry,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Repeated[T]:
    """Try until it passes or may not be tried again; the wait doubles each time.

    Each try is told what failed before it.
    """
    history: tuple[Attempt, ...] = ()
    number = 1
    while True:
        value, failure = await attempt(history)
        if failure is None:
            return Repeated(value, None, number, history)
        history = (*history, Attempt(number, failure.error, failure.kind))
        if number >= retry.max_attempts or not retry.allows(failure.kind):
            return Repeated(value, failure, number, history)
        if retry.backoff_ms:
            await sleep(retry.backoff_ms * 2 ** (number - 1) / 1000)
        number += 1
