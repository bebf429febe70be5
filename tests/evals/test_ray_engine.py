"""The engine for Ray: batches, lost tasks and streamed results, with a cluster of one thread."""

import pickle
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from offbook.errors import RunError, UsageError
from offbook.evals import CaseResult, LostTrial, Result, Trial, engines


class RayError(Exception):
    """As in ray.exceptions."""


class FakeRay:
    """Runs tasks one result at a time; a deadly trial ends the task that is at it."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, deadly: dict[int, int]) -> None:
        self.deadly = deadly  # how often, by the number of the case
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

    def stream(self, work: bytes, batch: list[tuple[Trial, float]], _folder: str) -> Iterator[Any]:
        evaluate, _subject_of = pickle.loads(work)  # noqa: S301 - of this test
        for trial, _seconds in batch:
            self.executed.append(trial.case)
            if self.deadly.get(trial.case, 0) > 0:
                self.deadly[trial.case] -= 1
                raise RayError("the node is gone")
            yield trial, evaluate(trial)
        if self.dies_at_the_end:
            self.dies_at_the_end = False
            raise RayError("the node is gone")

    def wait(self, streams: Sequence[Any], **_options: Any) -> tuple[list[Any], list[Any]]:
        return list(streams[:1]), []

    def get(self, value: Any) -> Any:
        return value

    def cancel(self, stream: Any, **_options: Any) -> None:
        self.cancelled.append(stream)


def evaluate(trial: Trial) -> CaseResult:
    return CaseResult(f"case-{trial.case}", trial.trial)


def no_subject(_trial: Trial) -> None:
    return None


def run(ray: FakeRay, count: int) -> list[Result]:
    trials = [Trial(0, number, 1) for number in range(count)]
    return list(engines.run_on(ray, trials, evaluate, lambda _: 60.0, no_subject))


def reported(results: list[Result]) -> list[int]:
    return sorted(
        item.trial.case if isinstance(item, LostTrial) else item[0].case for item in results
    )


def test_every_trial_is_reported_once():
    assert reported(run(FakeRay({}), 100)) == list(range(100))


def test_a_trial_that_ends_its_task_each_time_is_the_only_one_that_is_lost():
    results = run(FakeRay({7: 99}), 100)
    lost = [item for item in results if isinstance(item, LostTrial)]
    assert reported(results) == list(range(100))
    assert [item.trial.case for item in lost] == [7]
    assert lost[0].reason == "the worker of the case was lost: RayError: the node is gone"


def test_a_lost_task_repeats_only_the_trial_that_it_was_at():
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
    work = pickle.dumps((evaluate, no_subject))
    batch = [(Trial(0, number, 1), 60.0) for number in range(3)]
    folder = str(Path(__file__).parents[2])  # where the process finds this module
    results = list(engines.evaluate_batch(work, batch, folder))
    assert reported(results) == [0, 1, 2]


def test_a_cluster_that_cannot_be_reached_is_an_error_of_offbook(monkeypatch: pytest.MonkeyPatch):
    def init(**_options: Any) -> None:
        raise ConnectionError("no cluster at this address")

    fake = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", fake)
    results = engines.run_on_ray([], evaluate, address="10.0.0.1:1", timeout_of=lambda _: 1.0)
    with pytest.raises(RunError, match="cannot connect to the Ray cluster: no cluster at"):
        list(results)


def test_a_stopped_run_cancels_its_tasks():
    ray = FakeRay({})
    trials = [Trial(0, number, 1) for number in range(100)]
    results = engines.run_on(ray, trials, evaluate, lambda _: 60.0, no_subject)
    next(results)
    results.close()
    assert ray.cancelled


def test_the_extra_is_named_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"offbook\[ray\]"):
        list(engines.run_on_ray([], evaluate, timeout_of=lambda _: 1.0))
