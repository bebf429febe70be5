"""The engine for Ray: batches, lost tasks and streamed results, with a cluster of one thread."""

import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offbook.errors import RunError, UsageError
from offbook.runs import ray_engine
from offbook.runs.engines import FinishedJob, LostJob, Result, no_setup
from offbook.runs.ray_engine import RayEngine


class RayError(Exception):
    """As in ray.exceptions."""


class FakeRay:
    """Runs tasks one result at a time; a deadly job ends the task that is at it."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, deadly: dict[int, int]) -> None:
        self.deadly = deadly  # how often, by the job
        self.dies_at_the_end = False  # once, after all results of a task
        self.executed: list[int] = []
        self.cancelled: list[Any] = []
        self.options: dict[str, Any] = {}

    def cluster_resources(self) -> dict[str, int]:
        return {"CPU": 1}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **options: Any) -> Callable[[Any], Any]:
        self.options = options
        return lambda _function: SimpleNamespace(remote=self.stream)

    def stream(self, work: bytes, batch: list[tuple[int, float]], _folder: str) -> Iterator[Any]:
        function, _setup_of = pickle.loads(work)  # noqa: S301 - of this test
        for job, _seconds in batch:
            self.executed.append(job)
            if self.deadly.get(job, 0) > 0:
                self.deadly[job] -= 1
                raise RayError("the node is gone")
            yield FinishedJob(job, function(job))
        if self.dies_at_the_end:
            self.dies_at_the_end = False
            raise RayError("the node is gone")

    def wait(self, streams: Sequence[Any], **_options: Any) -> tuple[list[Any], list[Any]]:
        return list(streams[:1]), []

    def get(self, value: Any) -> Any:
        return value

    def cancel(self, stream: Any, **_options: Any) -> None:
        self.cancelled.append(stream)


def double(number: int) -> int:
    return 2 * number


def run(ray: FakeRay, count: int) -> list[Result]:
    return list(ray_engine.run_on(ray, double, range(count), lambda _: 60.0, no_setup))


def reported(results: list[Result]) -> list[int]:
    return sorted(item.job for item in results)


@pytest.mark.parametrize("jobs", [range(100), iter(range(100))])
def test_every_job_is_reported_once(jobs: Iterable[int]):
    results = ray_engine.run_on(FakeRay({}), double, jobs, lambda _: 60.0, no_setup)
    assert sorted(results) == [FinishedJob(number, 2 * number) for number in range(100)]


def test_a_job_that_ends_its_task_each_time_is_the_only_one_that_is_lost():
    results = run(FakeRay({7: 99}), 100)
    lost = [item for item in results if isinstance(item, LostJob)]
    assert reported(results) == list(range(100))
    assert lost == [LostJob(7, "was lost with its worker: RayError: the node is gone")]


def test_a_job_of_a_generator_may_depend_on_the_results_so_far():
    ray, last = FakeRay({}), 1

    def jobs() -> Iterator[int]:
        while last < 1000:
            yield last

    for item in ray_engine.run_on(ray, double, jobs(), lambda _: 60.0, no_setup):
        last = max(last, item.value)
    assert set(ray.executed) == {1, 2, 4, 8, 16, 32, 64, 128, 256, 512}


def test_a_lost_task_repeats_only_the_job_that_it_was_at():
    ray = FakeRay({7: 1})
    assert reported(run(ray, 100)) == list(range(100))
    assert Counter(ray.executed) == Counter([*range(100), 7])


def test_a_task_that_is_lost_after_its_last_result_is_finished():
    ray = FakeRay({})
    ray.dies_at_the_end = True
    assert reported(run(ray, 100)) == list(range(100))
    assert Counter(ray.executed) == Counter(range(100))


def test_a_task_waits_until_each_result_is_with_the_driver():
    run(ray := FakeRay({}), 10)
    assert ray.options["_generator_backpressure_num_objects"] == 1


def test_a_batch_is_run_by_the_engine_of_one_machine():
    work = pickle.dumps((double, no_setup))
    batch = [(number, 60.0) for number in range(3)]
    folder = str(Path(__file__).parents[2])  # where the process finds this module
    assert list(ray_engine.run_batch(work, batch, folder)) == [
        FinishedJob(0, 0),
        FinishedJob(1, 2),
        FinishedJob(2, 4),
    ]


def test_a_cluster_that_cannot_be_reached_is_an_error_of_offbook(monkeypatch: pytest.MonkeyPatch):
    def init(**_options: Any) -> None:
        raise ConnectionError("no cluster at this address")

    fake = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", fake)
    results = RayEngine("10.0.0.1:1").submit(double, [])
    with pytest.raises(RunError, match="cannot connect to the Ray cluster: no cluster at"):
        list(results)


def test_a_function_that_the_machines_cannot_import_is_refused():
    results = ray_engine.run_on(FakeRay({}), lambda job: job, [1], lambda _: 60.0, no_setup)
    with pytest.raises(UsageError, match=r"cannot be sent to the cluster: .*lambda") as caught:
        next(results)
    assert caught.value.hint == "define it at the top level of a module"


def test_a_stopped_run_cancels_its_tasks():
    ray = FakeRay({})
    results = ray_engine.run_on(ray, double, range(100), lambda _: 60.0, no_setup)
    next(results)
    results.close()
    assert ray.cancelled


def test_the_extra_is_named_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"offbook\[ray\]"):
        list(RayEngine().submit(double, []))
