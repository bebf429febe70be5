"""The engine of one machine: a plain function for many jobs, in processes that can be killed."""

import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from offbook.runs import engines
from offbook.runs.engines import FinishedJob, LocalEngine, LostJob, Setup, no_setup


def double(number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("processes", [1, 3])
def test_every_job_has_its_value_once(processes: int):
    results = LocalEngine(processes).submit(double, range(100))
    assert sorted(results) == [FinishedJob(number, 2 * number) for number in range(100)]


def test_jobs_run_in_other_processes():
    (result,) = LocalEngine().submit(lambda _: os.getpid(), [None])
    assert isinstance(result, FinishedJob)
    assert result.value != os.getpid()


def leave(code: int) -> None:
    os._exit(code)


def die(number: int) -> None:
    os.kill(os.getpid(), number)


def fail(_job: object) -> None:
    raise ValueError("no such file")


def leave_politely(code: int) -> None:
    raise SystemExit(code)


def refuse_to_pickle(_job: object) -> Callable[[], None]:
    return lambda: None


def hang(_job: object) -> None:
    signal.pause()


# the function, the job -> what its process did instead
LOST: dict[str, tuple[Callable[..., object], int, str]] = {
    "it ends": (leave, 3, "exited with 3"),
    "it is killed": (die, signal.SIGKILL, "was killed by SIGKILL"),
    "it raises": (fail, 1, "raised ValueError: no such file"),
    "it exits": (leave_politely, 4, "raised SystemExit: 4"),
    "a value that cannot be sent": (refuse_to_pickle, 1, "raised "),
    "it hangs": (hang, 1, "did not end within 0.3 s"),
}


@pytest.mark.parametrize("name", LOST)
@pytest.mark.parametrize("in_fork", [False, True])
def test_a_lost_job_says_what_its_process_did(name: str, *, in_fork: bool):
    function, job, reason = LOST[name]
    setup = Setup("key", lambda: None) if in_fork else None
    timeout = 0.3 if function is hang else 60.0
    results = LocalEngine().submit(
        function, [job], timeout_of=lambda _: timeout, setup_of=lambda _: setup
    )
    (lost,) = results
    assert isinstance(lost, LostJob)
    assert lost.reason.startswith(reason)


@pytest.mark.parametrize("in_fork", [False, True])
def test_a_lost_job_takes_no_other_with_it(*, in_fork: bool):
    def end_at_7(number: int) -> int:
        if number == 7:
            os._exit(1)
        return number

    setup = Setup("key", lambda: None) if in_fork else None
    results = list(LocalEngine(2).submit(end_at_7, range(20), setup_of=lambda _: setup))
    assert sorted(item.job for item in results) == list(range(20))
    assert [item.job for item in results if isinstance(item, LostJob)] == [7]


def test_a_setup_that_fails_is_in_the_output_of_its_job():
    (lost,) = LocalEngine().submit(double, [1], setup_of=lambda _: Setup("key", lambda: fail(1)))
    assert isinstance(lost, LostJob)
    assert "ValueError: no such file" in lost.output


def test_a_result_that_waits_for_the_caller_is_not_late():
    # Both results come while the caller takes longer than a job may.
    results = LocalEngine(2).submit(double, [1, 2], timeout_of=lambda _: 0.2)
    found = [next(results)]
    time.sleep(0.4)  # the caller's own work
    found += results
    assert sorted(found) == [FinishedJob(1, 2), FinishedJob(2, 4)]


def test_a_job_of_a_generator_may_depend_on_the_results_so_far():
    last, seen = 1, set[int]()

    def jobs() -> Iterator[int]:
        while last < 100:
            yield last

    for item in LocalEngine(ahead=1).submit(double, jobs()):
        assert isinstance(item, FinishedJob)
        seen.add(item.job)
        last = item.value
    assert seen == {1, 2, 4, 8, 16, 32, 64}


def test_the_process_is_kept_for_the_next_jobs():
    with LocalEngine().open(lambda _: os.getpid(), lambda _: 60.0, no_setup) as run:
        finished = [item for _ in range(2) for item in run(range(4))]
    values = [item.value for item in finished if isinstance(item, FinishedJob)]
    assert values == [values[0]] * 8


def test_a_process_that_dies_without_a_job_is_replaced():
    with LocalEngine().open(lambda _: os.getpid(), lambda _: 60.0, no_setup) as run:
        (first,) = run([1])
        assert isinstance(first, FinishedJob)
        os.kill(first.value, signal.SIGKILL)
        (second,) = run([2])
    # The kill is known at once, or when the next job is lost with the process.
    assert isinstance(second, LostJob) or second.value != first.value


def test_fresh_jobs_have_a_process_each():
    results = LocalEngine(2, fresh=True).submit(lambda _: os.getpid(), range(5))
    values = [item.value for item in results if isinstance(item, FinishedJob)]
    assert len(set(values)) == 5


def test_the_place_of_a_late_job_is_known():
    (lost,) = LocalEngine().submit(hang, [1], timeout_of=lambda _: 0.3)
    assert isinstance(lost, LostJob)
    assert lost.late == 0.3
    assert re.search(r"test_engines.py:\d+ in hang$", lost.place)


def test_what_a_killed_process_leaves_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def leave_a_folder(_job: object) -> None:
        (Path(tempfile.mkdtemp()) / "left.txt").write_text("x")
        os._exit(3)

    (lost,) = LocalEngine().submit(leave_a_folder, [1])
    assert isinstance(lost, LostJob)
    assert not [*tmp_path.iterdir()]


def test_closing_ends_the_jobs_under_way():
    begun = time.monotonic()
    results = LocalEngine(2).submit(lambda job: job or hang(job), [1, 0])
    next(results)
    results.close()
    assert time.monotonic() - begun < 60


@pytest.mark.parametrize("loaded", [True, False])
def test_the_time_of_a_job_begins_after_its_setup(*, loaded: bool):
    setup = Setup("key", lambda: None) if loaded else None
    worker = engines._Worker(double, lambda _: setup, 1)  # pyright: ignore[reportPrivateUsage]
    worker.send([1])
    worker.since = 0.0  # as if it had been sent long ago
    while not worker.receive():
        pass
    worker.close()
    assert bool(worker.since) is loaded


def test_a_worker_without_a_group_of_its_own_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "setsid", lambda: None)  # as if it were ended before it calls this
    worker = engines._Worker(hang, lambda _: None, 1)  # pyright: ignore[reportPrivateUsage]
    worker.send([1])
    assert worker.close() == -signal.SIGKILL
