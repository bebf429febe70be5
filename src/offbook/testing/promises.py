"""What a suite says when a promise is not kept."""

from __future__ import annotations

from typing import NoReturn
from unittest import SkipTest

from offbook.errors import CheckFailed


def hold(kept: object, promise: str, came: object = "") -> None:
    """Fail with the promise, and with what came instead."""
    if not kept:
        raise CheckFailed(f"{promise}{f', but came: {came!r}' if came != '' else ''}")


def skip(why: str) -> NoReturn:
    """Leave a promise out that this kind does not make; pytest shows it as skipped."""
    raise SkipTest(why)
