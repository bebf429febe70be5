"""Runs the trials of cases on a Ray cluster: one on this machine, or that of an address.

Ray schedules the tasks and repeats those of lost workers. The working directory, with the packs
and subjects, must be at the same path on all machines of the cluster.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any

import msgspec

from offbook.errors import UsageError
from offbook.evals.local_engine import Evaluate, LostTrial, Result, Trial
from offbook.evals.run_directory import CaseResult

RETRIES = 3  # of a task whose worker was lost
BATCHES_PER_CPU = 8  # small enough to spread the work, large enough for short cases
MAX_BATCH = 64
POLL_SECONDS = 1.0

_decoder = msgspec.json.Decoder(CaseResult)


def evaluate_batch(
    evaluate: Evaluate, batch: Sequence[tuple[int, int, int]], folder: str
) -> list[bytes]:
    """Evaluate trials in a worker of the cluster, in the working directory of the run."""
    os.chdir(folder)
    encode = msgspec.json.Encoder(enc_hook=repr).encode
    return [encode(evaluate(Trial(*item))) for item in batch]


def run_on_ray(
    trials: Sequence[Trial],
    evaluate: Evaluate,
    *,
    address: str = "",
    timeout_of: Callable[[Trial], float],
) -> Generator[Result]:
    """Yield the results of the trials as they come. Closing it cancels the others."""
    try:
        import ray  # pyright: ignore[reportMissingImports] - an extra
    except ImportError as error:
        raise UsageError(
            "--engine ray needs the package ray", hint="pip install 'offbook[ray]'"
        ) from error
    cluster: Any = ray
    owned = not cluster.is_initialized()
    if owned:
        options = {"log_to_driver": False, "logging_level": "error"}
        cluster.init(address=address or None, **options)
    try:
        yield from run_on(cluster, trials, evaluate, timeout_of)
    finally:
        if owned:
            cluster.shutdown()


def run_on(
    ray: Any,
    trials: Sequence[Trial],
    evaluate: Evaluate,
    timeout_of: Callable[[Trial], float],
) -> Generator[Result]:
    """Yield the result of each trial, as the workers of a cluster finish them."""
    task = ray.remote(max_retries=RETRIES, retry_exceptions=False)(evaluate_batch)
    shared = ray.put(evaluate)  # the packs are sent once, not with each task
    folder = os.getcwd()  # noqa: PTH109 - a text for the workers
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = max(1, min(MAX_BATCH, len(trials) // (cpus * BATCHES_PER_CPU)))
    batches = [list(trials[start : start + size]) for start in range(0, len(trials), size)]
    running: dict[Any, tuple[list[Trial], float]] = {}
    try:
        while batches or running:
            # Not more tasks than the cluster has work for: a stopped run leaves little behind.
            while batches and len(running) < cpus * 2:
                batch = batches.pop(0)
                running[task.remote(shared, batch, folder)] = batch, time.monotonic()
            ready, _ = ray.wait(list(running), num_returns=1, timeout=POLL_SECONDS)
            for reference in ready:
                batch, _ = running.pop(reference)
                try:
                    for trial, line in zip(batch, ray.get(reference), strict=True):
                        yield trial, _decoder.decode(line)
                except ray.exceptions.RayError as error:
                    # One trial of the batch ends its worker each time: find it alone.
                    if len(batch) > 1:
                        batches[:0] = [[trial] for trial in batch]
                    else:
                        reason = f"the worker of the case was lost: {type(error).__name__}"
                        yield LostTrial(batch[0], reason)
            now = time.monotonic()
            for reference, (batch, since) in list(running.items()):
                # A task may wait for a worker first, so a batch has the time of two.
                if now - since > 2 * sum(map(timeout_of, batch)):
                    del running[reference]
                    ray.cancel(reference, force=True)
                    if len(batch) > 1:
                        batches[:0] = [[trial] for trial in batch]
                    else:
                        limit = timeout_of(batch[0])
                        yield LostTrial(batch[0], f"the case did not end within {limit:g} s")
    finally:
        for reference in running:
            ray.cancel(reference, force=True)
