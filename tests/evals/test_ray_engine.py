"""The engine for Ray: batches, lost workers and deadlines, with a cluster of one thread."""

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from offbook.errors import UsageError
from offbook.evals import CaseResult, LostTrial, Result, Trial, engines


class RayError(Exception):
    """As in ray.exceptions."""


class Task:
    """The reference to a result."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        self.function, self.arguments = function, arguments


def make_task(function: Any, *arguments: Any) -> Task:
    return Task(function, arguments)


class FakeRay:
    """Runs a task when its result is asked for; some trials kill their worker."""

    exceptions = SimpleNamespace(RayError=RayError)

    def __init__(self, deadly: set[int]) -> None:
        self.deadly = deadly
        self.cancelled: list[Any] = []

    def cluster_resources(self) -> dict[str, int]:
        return {"CPU": 1}

    def put(self, value: Any) -> Any:
        return value

    def remote(self, **_options: Any) -> Callable[[Any], Any]:
        return lambda function: SimpleNamespace(remote=partial(make_task, function))

    def wait(self, references: Sequence[Any], **_options: Any) -> tuple[list[Any], list[Any]]:
        return list(references[:1]), []

    def get(self, reference: Any) -> Any:
        evaluate, batch, folder = reference.arguments
        if any(trial.case in self.deadly for trial in batch):
            raise RayError
        return reference.function(evaluate, batch, folder)

    def cancel(self, reference: Any, **_options: Any) -> None:
        self.cancelled.append(reference)


def evaluate(trial: Trial) -> CaseResult:
    return CaseResult(f"case-{trial.case}", trial.trial)


def run(ray: FakeRay, count: int) -> list[Result]:
    trials = [Trial(0, number, 1) for number in range(count)]
    return list(engines.run_on(ray, trials, evaluate, lambda _: 60.0))


def reported(results: list[Result]) -> list[int]:
    return sorted(
        item.trial.case if isinstance(item, LostTrial) else item[0].case for item in results
    )


def test_every_trial_is_reported_once():
    assert reported(run(FakeRay(set()), 100)) == list(range(100))


def test_a_trial_that_kills_its_worker_is_the_only_one_that_is_lost():
    results = run(FakeRay({7}), 100)
    lost = [item for item in results if isinstance(item, LostTrial)]
    assert reported(results) == list(range(100))
    assert [item.trial.case for item in lost] == [7]
    assert "the worker of the case was lost" in lost[0].reason


def test_a_stopped_run_cancels_its_tasks():
    ray = FakeRay(set())
    trials = [Trial(0, number, 1) for number in range(100)]
    results = engines.run_on(ray, trials, evaluate, lambda _: 60.0)
    next(results)
    results.close()
    assert ray.cancelled


def test_the_extra_is_named_where_ray_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match=r"offbook\[ray\]"):
        list(engines.run_on_ray([], evaluate, timeout_of=lambda _: 1.0))
