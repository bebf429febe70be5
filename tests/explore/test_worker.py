"""An agent that hangs, or ends its process, is a finding: the search goes on."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from offbook import session
from offbook.errors import InvariantBroken, UsageError
from offbook.explore import Counterexample, Exploration, explore, replay, run_rendered
from offbook.explore.search import describe
from offbook.explore.worker import LEAST_PATIENCE, Players
from offbook.runs import Run
from tests.explore.worlds import MOCKS, PROMPT, broken_shop, fixed_shop, never_twice

ROOT = Path(__file__).parents[2]
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
SOON = 1.0  # seconds: the behaviours of a session take milliseconds


def world_with(tool: Callable[[], object]) -> Callable[[], Any]:
    """Return a world whose tool `refund` calls this function for order 7."""

    def extension(api: Any) -> None:
        @api.tool("refund", parameters=NUMBER)
        def refund(params: Any, ctx: Any) -> str:
            if params["number"] == 7:
                tool()
            return "refunded"

    return lambda: session(extensions=[extension], mock_tools=MOCKS)


def wait_for_ever() -> None:
    threading.Event().wait()


def loop_for_ever() -> None:
    while True:
        pass


def wait_in_c() -> None:
    """Hold the lock of Python and look at no signal, as a loop in C does, but without its work."""
    take, lock = ctypes.PyDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    take(lock)
    take(lock)


def ignore_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    while True:
        time.sleep(1)


def find(world: Any, *invariants: Any, **options: Any) -> list[Counterexample]:
    # Each behaviour that hangs is waited for: one is enough.
    arguments: dict[str, Any] = {"runs": 1, "deadline": SOON, **options}
    with pytest.raises(InvariantBroken) as caught:
        explore(world, PROMPT, *invariants, **arguments)
    return cast("Exploration", caught.value.exploration).findings


SCRIPT = 'when("Refund order 7", [\n    call("refund", {"number": 7}),\n    say("Done."),\n])'


@pytest.mark.parametrize("hang", [wait_for_ever, loop_for_ever, wait_in_c, ignore_signals])
def test_a_hang_is_found_with_its_place_and_its_script_and_nothing_is_left_of_its_worker(
    hang: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (finding,) = find(world_with(hang))
    assert (finding.invariant, finding.script) == ("no hang", SCRIPT)
    assert re.search(
        rf"within 1 s: it is in .*test_worker.py:\d+ in {hang.__name__}", finding.message
    )
    assert not [*tmp_path.iterdir()]


def test_the_search_goes_on_after_hangs_that_are_one_finding():
    def never_two(run: Run, _: Any) -> None:
        assert not any(tool.input.get("number") == 2 for tool in run.executed), "two"

    findings = find(world_with(wait_for_ever), never_two, runs=40)
    assert [finding.invariant for finding in findings] == ["no hang", "never_two"]


def test_an_agent_that_is_slower_than_the_deadline_is_no_finding():
    def world() -> Any:
        time.sleep(2)
        return fixed_shop()

    error = r"more than 0\.5 s to start and to end after a reply without a call; it was in .*world"
    with pytest.raises(UsageError, match=error) as caught:
        explore(world, PROMPT, runs=3, deadline=0.5)
    assert "raise --deadline" in str(caught.value)


def test_a_search_ends_in_time_while_it_makes_a_script_that_hangs_smaller():
    """The hang and its confirmation take as long as the search may: a script has no time left."""
    (finding,) = find(world_with(wait_for_ever), runs=None, minutes=0.02, deadline=4.0)
    assert (finding.repeats, finding.smallest) == (True, False)


def test_a_script_without_the_time_to_make_it_smaller_is_not_called_the_smallest():
    def world() -> Any:
        def extension(api: Any) -> None:
            @api.tool("refund", parameters=NUMBER)
            def refund(params: Any, ctx: Any) -> str:
                time.sleep(0.3)
                raise SystemError("it crashed")

        return session(extensions=[extension], mock_tools=MOCKS)

    with pytest.raises(InvariantBroken) as caught:
        explore(world, PROMPT, minutes=0.01)
    (finding,) = cast("Exploration", caught.value.exploration).findings
    assert (finding.repeats, finding.smallest) == (True, False)
    assert "there was no time to make it smaller" in str(caught.value)
    assert "the smallest" not in str(caught.value)


def test_a_hang_that_is_a_finding_is_not_waited_for_again(monkeypatch: pytest.MonkeyPatch):
    """It is known where it is, so it takes less than the least for a new one, and only once."""
    late: list[float] = []
    learn: Any = getattr(Players, "_learn")  # noqa: B009 - not a part of its interface

    def note(players: Players, result: Any) -> None:
        late.append(getattr(result, "late", 0))
        learn(players, result)

    monkeypatch.setattr(Players, "_learn", note)
    for factor in ("SLOWER", "SLOWER_THAN_FIRST"):  # a slow machine gives no more time
        monkeypatch.setattr(f"offbook.explore.worker.{factor}", 0)
    with pytest.raises(InvariantBroken) as caught:
        explore(world_with(wait_for_ever), PROMPT, runs=30, deadline=3.0)
    found = cast("Exploration", caught.value.exploration)
    ((_, times),) = found.broken_by.items()
    assert found.behaviours == 30
    again = late[-25:]  # after the first one and its script
    assert 5 < sum(map(bool, again)) <= times
    assert max(again) < LEAST_PATIENCE


def test_a_script_that_is_being_made_smaller_is_reported_when_the_search_is_interrupted(
    monkeypatch: pytest.MonkeyPatch,
):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    seen: list[Exploration] = []
    monkeypatch.setattr("offbook.explore.search.shrink", interrupt)
    with pytest.raises(KeyboardInterrupt):
        explore(broken_shop, PROMPT, never_twice, runs=100, progress=seen.append)
    (finding,) = seen[-1].findings
    assert (finding.invariant, finding.repeats, finding.smallest) == ("never_twice", False, False)
    text = describe(seen[-1])
    assert "a script that broke it once; the search was ended before it was tried again" in text
    assert "the smallest" not in text


@pytest.mark.slow
def test_a_script_that_hangs_has_values_in_place_of_results():
    """What comes before the hang need not stay only because its result had the value."""
    known = 1177 * len(MOCKS) + 3  # 4711, which is no constant of the code

    def world() -> Any:
        def extension(api: Any) -> None:
            @api.tool("list_orders", parameters={"type": "object"})
            def list_orders(params: Any, ctx: Any) -> str:
                return str(known)

            @api.tool("refund", parameters=NUMBER)
            def refund(params: Any, ctx: Any) -> str:
                if params["number"] == known:
                    wait_for_ever()
                return "refunded"

        return session(extensions=[extension], mock_tools=MOCKS)

    finding = next(f for f in find(world, runs=60, deadline=2.0) if f.invariant == "no hang")
    assert "seen" not in finding.script
    assert "list_orders" not in finding.script
    assert 'call("refund", {"number": 4711})' in finding.script


def test_a_hang_that_is_not_seen_again_is_no_finding_and_is_counted(tmp_path: Path):
    waited = tmp_path / "waited"

    def wait_once() -> None:
        if not waited.exists():
            waited.touch()
            threading.Event().wait()

    found = explore(world_with(wait_once), PROMPT, runs=2, deadline=SOON)
    assert (found.findings, found.slow) == ([], 1)
    assert "late once, and not again: 1 behaviour" in found.summary


def test_a_hang_that_is_never_twice_in_the_same_place_is_a_finding(tmp_path: Path):
    count = tmp_path / "count"

    def wait_here() -> None:
        threading.Event().wait()

    def wait_there() -> None:
        threading.Event().wait()

    def wait() -> None:
        with count.open("a") as file:
            file.write(".")
        (wait_here if count.stat().st_size % 2 else wait_there)()

    (finding, *_) = find(world_with(wait))
    assert (finding.invariant, finding.script) == ("no hang", SCRIPT)


def test_an_agent_that_hangs_when_it_runs_again_is_a_finding():
    held = threading.Lock()

    findings = find(world_with(lambda: held.acquire() and None), runs=2)
    assert [finding.invariant for finding in findings] == ["no hang"]


@pytest.mark.parametrize(
    "end, message",
    [
        (lambda: os._exit(3), "the process of the agent exited with 3"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL"),
    ],
)
def test_an_agent_that_ends_its_process_is_found(end: Callable[[], None], message: str):
    (finding,) = find(world_with(end))
    assert (finding.invariant, message in finding.message) == ("no unhandled exception", True)
    assert 'call("refund", {"number": 7})' in finding.script


def test_a_saved_script_that_hangs_fails_within_its_deadline():
    script = run_rendered(SCRIPT)
    with pytest.raises(InvariantBroken, match=r"no hang: the agent did not end within 1 s"):
        replay(world_with(wait_for_ever), script, deadline=SOON)
    assert replay(fixed_shop, script, deadline=SOON).tools == ["refund"]


def test_an_error_of_the_world_is_raised_by_the_search():
    def world() -> Any:
        raise KeyError("no such file")

    with pytest.raises(UsageError, match=r"test_worker\.py:\d+: the world raised KeyError"):
        explore(world, PROMPT, runs=1)


def test_an_error_of_a_class_that_cannot_be_sent_is_raised_with_its_text():
    class OddError(Exception):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} and {two}")

    def world() -> Any:
        raise OddError(1, 2)

    with pytest.raises(UsageError, match="the world raised OddError: 1 and 2"):
        explore(world, PROMPT, runs=1)


def test_an_error_of_usage_keeps_its_kind():
    with pytest.raises(UsageError, match="the world has 3 parts"):
        explore(lambda: (1, 2, 3), PROMPT, runs=1)


def test_without_a_deadline_the_world_runs_in_this_process():
    processes: list[int] = []

    def world() -> Any:
        processes.append(os.getpid())
        return broken_shop()

    explore(world, PROMPT, runs=2, deadline=None)
    explore(world, PROMPT, runs=2)
    assert processes == [os.getpid()] * 2


HANGING = """
import os, time
from offbook import session

def extension(api):
    @api.tool("wait", parameters={"type": "object", "properties": {}})
    def wait(params, ctx):
        with open(os.environ["WAITING"], "w") as file:  # a named pipe
            file.write(str(os.getpid()))
        while True:
            time.sleep(1)

def world():
    tools = dict.fromkeys(("bash", "edit", "read", "write"), "ok")
    return session(extensions=[extension], mock_tools=tools)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_search_that_hangs_and_its_worker(tmp_path: Path, number: signal.Signals):
    (tmp_path / "hanging.py").write_text(HANGING)
    waiting = tmp_path / "waiting"
    os.mkfifo(waiting)
    command = [sys.executable, "-m", "offbook", "explore", "hanging:world", "Go"]
    environment = {**os.environ, "WAITING": str(waiting)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment) as process:
        pid = int(waiting.read_text())
        process.send_signal(number)
        assert process.wait(30) != 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
