"""The engine on a Ray cluster: each task runs a batch of jobs with the engine of one machine."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from itertools import islice
from typing import Any

from offbook.errors import RunError, UsageError
from offbook.runs.child import end_with, receive_message, send_message
from offbook.runs.engines import (
    MAX_AHEAD,
    Engine,
    LocalEngine,
    LostJob,
    Result,
    RunJobs,
    SetupOf,
)

RETRIES = 3  # of a job whose task was lost
BATCHES_PER_CPU = 4  # small enough to spread the work, large enough for short jobs
MAX_BATCH = 64


def choose_engine(name: str, address: str, processes: int, ahead: int = MAX_AHEAD) -> Engine:
    """Return the engine of the options `--engine`, `--address` and `--jobs`."""
    if name == "ray":
        return RayEngine(address)
    if address:
        raise UsageError("--address is that of a Ray cluster", hint="add --engine ray")
    return LocalEngine(processes, ahead)


class RayEngine(Engine, frozen=True):
    """The machines of a cluster: that at the address, or one of this machine.

    The function and the setups must be picklable, and the machines have the working directory at
    the same path.
    """

    address: str = ""

    @contextmanager
    def open(
        self,
        function: Callable[[Any], object],
        timeout_of: Callable[[Any], float],
        setup_of: SetupOf,
    ) -> Generator[RunJobs]:
        """Yield a function that runs jobs; a cluster that was started here ends with the block."""
        try:
            import ray  # pyright: ignore[reportMissingImports] - an extra
        except ImportError as error:
            raise UsageError(
                "--engine ray needs the package ray", hint="pip install 'offbook[ray]'"
            ) from error
        cluster: Any = ray
        owned = not cluster.is_initialized()
        if owned:
            try:
                cluster.init(
                    address=self.address or None, log_to_driver=False, logging_level="error"
                )
            except Exception as error:
                raise RunError(
                    f"cannot {'connect to the Ray cluster' if self.address else 'start Ray'}:"
                    f" {error}",
                    where=self.address,
                    hint="check --address; `ray status` shows the cluster of this machine",
                ) from error
        try:
            yield lambda jobs: run_on(cluster, function, jobs, timeout_of, setup_of)
        finally:
            if owned:
                cluster.shutdown()


def run_on(
    ray: Any,
    function: Callable[[Any], object],
    jobs: Iterable[Any],
    timeout_of: Callable[[Any], float],
    setup_of: SetupOf,
) -> Generator[Any]:
    """Yield the result of each job, as the workers of a cluster finish them."""
    # A lost task is submitted again here, with the jobs that it has not finished.
    options = {
        "num_returns": "streaming",
        "max_retries": 0,
        "_generator_backpressure_num_objects": 1,
    }
    task = ray.remote(**options)(run_batch)
    try:
        content = pickle.dumps((function, setup_of))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(
            f"a function cannot be sent to the cluster: {error}",
            hint="define it at the top level of a module",
        ) from error
    work = ray.put(content)  # sent once for all tasks
    folder = os.getcwd()  # noqa: PTH109 - a text for the workers
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    batches = _batches(jobs, cpus)
    nothing: list[Any] = []
    returned: deque[list[Any]] = deque()  # the batches of lost tasks
    running: dict[Any, list[Any]] = {}
    lost: Counter[Any] = Counter()
    try:
        while True:
            # Not more tasks than the cluster has work for: a stopped run leaves little behind.
            while len(running) < cpus * 2:
                batch = returned.popleft() if returned else next(batches, nothing)
                if not batch:
                    break
                timed = [(job, timeout_of(job)) for job in batch]
                running[task.remote(work, timed, folder)] = batch
            if not running:
                return
            ready, _ = ray.wait([*running], num_returns=1)
            for stream in ready:
                try:
                    item: Result = ray.get(next(stream))
                except StopIteration:
                    del running[stream]
                    continue
                except ray.exceptions.RayError as error:
                    batch = running.pop(stream)
                    if not batch:  # lost between its last result and its end
                        continue
                    lost[batch[0]] += 1
                    if lost[batch[0]] > RETRIES:
                        yield LostJob(batch.pop(0), _reason_of(error))
                    if batch:
                        returned.append(batch)
                    continue
                running[stream].remove(item[0])
                yield item
    finally:
        for stream in running:
            ray.cancel(stream, force=True)


def _batches(jobs: Iterable[Any], cpus: int) -> Iterator[list[Any]]:
    """Yield batches of jobs; single ones if their number is not known, as of a generator."""
    size = 1
    if isinstance(jobs, Sized):
        size = max(1, min(MAX_BATCH, len(jobs) // (cpus * BATCHES_PER_CPU)))
    rest = iter(jobs)
    while batch := list(islice(rest, size)):
        yield batch


def _reason_of(error: Exception) -> str:
    last = (str(error).strip().splitlines() or [""])[-1]
    return f"was lost with its worker: {type(error).__name__}: {last}".rstrip(": ")


# --- In a worker of the cluster


def run_batch(work: bytes, batch: Sequence[tuple[Any, float]], folder: str) -> Any:
    """Yield the results of jobs in a worker of the cluster, in the working directory of the run.

    The worker has threads and may not be forked, so a new process forks. A job starts when the
    result before it is with the driver: a killed driver has to repeat no more than one job for
    each worker.
    """
    code = f"from {__name__} import serve_batch; serve_batch({os.getpid()})"
    with subprocess.Popen(  # noqa: S603 - ourselves
        [sys.executable, "-c", code], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None  # noqa: S101 - for the type checker
        assert process.stdout is not None  # noqa: S101 - as above
        requests, results = process.stdin.fileno(), process.stdout.fileno()
        send_message(requests, work)
        send_message(requests, pickle.dumps(list(batch)))
        while (message := receive_message(results)) is not None:
            yield pickle.loads(message)  # noqa: S301 - of our own process
            send_message(requests, b"")
    if process.returncode:
        raise RunError(f"the process of the jobs exited with {process.returncode}")


def serve_batch(parent: int) -> None:
    """Run the jobs of stdin with the engine of one machine; the next one after each answer."""
    end_with(parent)
    requests, results = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what anything prints is not a result
    function, setup_of = pickle.loads(receive_message(requests) or b"")  # noqa: S301 - of our driver
    timeouts: dict[Any, float] = dict(pickle.loads(receive_message(requests) or b""))  # noqa: S301 - as above
    engine = LocalEngine(ahead=1)
    for item in engine.submit(
        function, [*timeouts], timeout_of=timeouts.__getitem__, setup_of=setup_of
    ):
        send_message(results, pickle.dumps(item))
        if receive_message(requests) is None:
            return
