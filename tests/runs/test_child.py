"""A function in a process of its own: its value, its end, and how it is killed."""

import gc
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Event

import pytest

from offbook.errors import RunError
from offbook.runs.child import Child, end_process, fork_process, wait_for
from tests.waiting import wait_until

SECONDS = 300.0


@pytest.fixture
def start(tmp_path: Path) -> Callable[[Callable[[], object]], Child]:
    return lambda function: Child(function, str(tmp_path))


def finish(child: Child) -> None:
    while wait_for([child], SECONDS):
        if child.read():
            return
    raise AssertionError("it never ended")


def fail() -> None:
    raise ValueError("no")


def test_the_value_of_the_function_is_sent(start: Callable[..., Child]):
    child = start(lambda: ("x" * 200_000, os.getpid()))
    finish(child)
    text, pid = child.value
    assert (len(text), child.end()) == (200_000, 0)
    assert pid != os.getpid()


def test_an_exception_is_raised_in_the_parent(start: Callable[..., Child]):
    child = start(fail)
    finish(child)
    with pytest.raises(RunError, match="a process failed with ValueError: no"):
        _ = child.value
    child.end()


@pytest.mark.parametrize(
    "end, code",
    [(lambda: os._exit(3), 3), (lambda: os.kill(os.getpid(), signal.SIGKILL), -9)],
)
def test_a_process_that_ends_by_itself_has_no_value(
    start: Callable[..., Child], end: Callable[[], object], code: int
):
    child = start(end)
    finish(child)
    assert (child.value, child.end()) == (None, code)


def wait_forever(started: Path) -> None:
    started.touch()
    Event().wait()


def test_a_process_that_waits_is_killed_and_its_place_is_known(
    start: Callable[..., Child], tmp_path: Path
):
    started = tmp_path / "started"
    child = start(partial(wait_forever, started))
    wait_until(started.exists)
    assert wait_for([child], 0) == []
    assert "test_child.py" in child.find_place()
    assert child.end() == -signal.SIGKILL


def test_a_fork_leaves_the_garbage_collector_of_its_parent_as_it_was():
    gc.freeze()
    assert end_process(fork_process(lambda: None), grace=SECONDS) == 0
    assert gc.get_freeze_count() > 0
