"""A budget of time: what it spent is measured, and the line is known that was at work."""

import asyncio
import threading
from pathlib import Path

from offbook.determinism.guard import seconds_waiting_for_cpu, time_budget

FILE = str(Path(__file__))


def test_what_is_quick_is_within():
    with time_budget(5, FILE) as watch:
        pass
    assert not watch.over
    assert watch.line == ""


def test_what_waits_too_long_is_named_with_its_line():
    never = threading.Event()
    with time_budget(0.02, FILE) as watch:
        never.wait(0.2)
    line = test_what_waits_too_long_is_named_with_its_line.__code__.co_firstlineno + 3
    assert watch.over
    assert watch.line == f"{FILE}:{line}"


def test_a_coroutine_that_waits_too_long_is_named_with_its_line():
    async def wait() -> None:
        await asyncio.sleep(0.2)

    with time_budget(0.02, FILE) as watch:
        asyncio.run(wait())
    assert watch.over
    line = test_a_coroutine_that_waits_too_long_is_named_with_its_line.__code__.co_firstlineno
    assert watch.line in {f"{FILE}:{line + 2}", f"{FILE}:{line + 5}"}


def test_waiting_for_ones_turn_is_never_negative():
    assert seconds_waiting_for_cpu() >= 0
