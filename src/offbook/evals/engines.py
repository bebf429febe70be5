"""The engines that run trials: worker processes of this machine, or a Ray cluster.

A worker that dies, hangs or prints anything is one failed trial: results come through a pipe of
their own, each trial has a deadline, and a lost worker is replaced.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from offbook.errors import UsageError, signal_name
from offbook.evals.run_directory import CaseResult

# A worker has so many seconds of work ahead, and not more trials: with short trials it does not
# wait for the next one, and with long ones no trial waits for a worker while another is idle.
AHEAD_SECONDS = 0.02
MAX_AHEAD = 32
MAX_OUTPUT = 2000
SIZE = 4  # bytes of the length before each message
DEFAULT_TIMEOUT = 600.0
PR_SET_PDEATHSIG = 1  # of prctl


class Trial(NamedTuple):
    """One trial of a case: the positions of its pack and its case, and its number from 1."""

    pack: int
    case: int
    trial: int


class LostTrial(NamedTuple):
    """A trial without a result, and the reason."""

    trial: Trial
    reason: str
    output: str = ""


Evaluate = Callable[[Trial], CaseResult]
Result = tuple[Trial, CaseResult] | LostTrial

_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder = msgspec.json.Decoder(CaseResult)


class _Worker:
    """A forked process: it reads trials from a pipe and writes their results to another."""

    def __init__(self, evaluate: Evaluate) -> None:
        trials_in, trials_out = os.pipe()
        results_in, results_out = os.pipe()
        handle, name = tempfile.mkstemp(prefix="offbook-worker-")
        os.close(handle)
        self.log = Path(name)
        gc.freeze()  # the collector of the worker would copy every page of the parent
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            # Only the worker: it never returns from here, so nothing of the parent runs twice.
            try:
                os.setsid()  # a new process group, which is killed as a whole
                _end_with(parent)
                os.close(trials_out)
                os.close(results_in)
                _work(evaluate, trials_in, results_out, self.log)
            finally:
                os._exit(0)
        os.close(trials_in)
        os.close(results_out)
        self.results = results_in
        self._trials = trials_out
        self._buffer = b""
        self.pending: deque[Trial] = deque()
        self.started = self.since = time.monotonic()
        self.finished = 0

    def send(self, trials: Sequence[Trial]) -> None:
        if not self.pending:
            self.since = time.monotonic()
        self.pending.extend(trials)
        message = msgspec.json.encode(list(trials))
        with suppress(BrokenPipeError):  # it died: the end of its results says so
            os.write(self._trials, len(message).to_bytes(SIZE) + message)

    @property
    def wanted(self) -> int:
        """The number of trials to send now."""
        seconds = (time.monotonic() - self.started) / max(1, self.finished)
        ahead = min(MAX_AHEAD, max(1, int(AHEAD_SECONDS / max(seconds, 1e-6))))
        # In halves: one message for several trials.
        return ahead - len(self.pending) if len(self.pending) <= ahead // 2 else 0

    def receive(self) -> list[CaseResult] | None:
        """Return the results that have arrived, or None at the end of the worker."""
        data = os.read(self.results, 1 << 16)
        if not data:
            return None
        self._buffer += data
        found: list[CaseResult] = []
        while len(self._buffer) >= SIZE:
            end = SIZE + int.from_bytes(self._buffer[:SIZE])
            if len(self._buffer) < end:
                break
            found.append(_decoder.decode(self._buffer[SIZE:end]))
            self._buffer = self._buffer[end:]
        return found

    def close(self) -> int:
        """End the worker and return its exit status."""
        os.close(self._trials)
        os.close(self.results)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            # It has not called setsid yet, or it is gone.
            _kill(self.pid)
        _, status = os.waitpid(self.pid, 0)
        self.log.unlink(missing_ok=True)
        return os.waitstatus_to_exitcode(status)

    def output(self) -> str:
        """Return the end of what the worker has printed."""
        try:
            return self.log.read_text("utf-8", "replace")[-MAX_OUTPUT:]
        except OSError:
            return ""


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _end_with(parent: int) -> None:
    """End this process if its parent is killed, which can no longer end a trial that hangs."""
    if sys.platform == "linux":
        from ctypes import CDLL

        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # killed before
        os._exit(1)


def _work(evaluate: Evaluate, trials: int, results: int, log: Path) -> None:
    """The life of a worker."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends us
    # What a case prints goes to a file: it must not mix with results or reports.
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(file, 1)
    os.dup2(file, 2)
    while True:
        head = _read_exactly(trials, SIZE)
        if head is None:
            return
        body = _read_exactly(trials, int.from_bytes(head))
        for item in msgspec.json.decode(body or b"[]", type=list[tuple[int, int, int]]):
            if os.fstat(file).st_size:  # what the last trial has printed
                os.ftruncate(file, 0)
            message = _encoder.encode(evaluate(Trial(*item)))
            _write_all(results, len(message).to_bytes(SIZE) + message)


def run_in_fork(work: Callable[[], CaseResult]) -> CaseResult:
    """Return the result of work in a fork of this process: all that it changes is gone then.

    If the fork dies, this process dies in the same way: the trial is lost.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        # A thread of the subject is not in the fork, as after any fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            _end_with(parent)
            _write_all(writing, _encoder.encode(work()))
        finally:
            os._exit(0)
    os.close(writing)
    parts: list[bytes] = []
    while part := os.read(reading, 1 << 16):
        parts.append(part)
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(parent, -code)
    if code or not parts:
        os._exit(code)
    return _decoder.decode(b"".join(parts))


def _read_exactly(file: int, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = os.read(file, count - len(data))
        if not part:
            return None
        data += part
    return data


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def run_local(
    trials: Iterable[Trial],
    evaluate: Evaluate,
    *,
    jobs: int = 1,
    timeout_of: Callable[[Trial], float] = lambda _: DEFAULT_TIMEOUT,
) -> Generator[Result]:
    """Yield the results of the trials as they come, in any order. Closing it ends the workers."""
    pool = _Pool(trials, evaluate, timeout_of)
    try:
        for _ in range(max(1, jobs)):
            pool.start()
        while pool.workers:
            for worker in pool.wait():
                yield from pool.receive(worker)
            yield from pool.end_late_workers()
    finally:
        pool.close()


class _Pool:
    """The workers of a run, and the trials that wait for one. A worker without a trial is ended."""

    def __init__(
        self, trials: Iterable[Trial], evaluate: Evaluate, timeout_of: Callable[[Trial], float]
    ) -> None:
        self.workers: list[_Worker] = []
        self._source = iter(trials)
        self._returned: deque[Trial] = deque()  # the trials of a lost worker
        self._evaluate = evaluate
        self._timeout_of = timeout_of
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Start a worker, if there is a trial for it."""
        if batch := self._next(1):
            worker = _Worker(self._evaluate)
            self.workers.append(worker)
            self._selector.register(worker.results, selectors.EVENT_READ, worker)
            worker.send(batch)

    def _next(self, count: int) -> list[Trial]:
        batch: list[Trial] = []
        while len(batch) < count:
            item = self._returned.popleft() if self._returned else next(self._source, None)
            if item is None:
                break
            batch.append(item)
        return batch

    def wait(self) -> list[_Worker]:
        """Return the workers that have sent something, at the next deadline at the latest."""
        deadline = min(w.since + self._timeout_of(w.pending[0]) for w in self.workers)
        seconds = max(0.0, deadline - time.monotonic())
        return [key.data for key, _ in self._selector.select(seconds)]

    def receive(self, worker: _Worker) -> Iterator[Result]:
        """Yield the results of a worker, and give it more work or end it."""
        results = worker.receive()
        if results is None:
            yield from self._replace(worker, "")
            return
        for result in results:
            worker.since = time.monotonic()
            worker.finished += 1
            yield worker.pending.popleft(), result
        if batch := self._next(worker.wanted):
            worker.send(batch)
        elif not worker.pending:
            self._remove(worker)

    def end_late_workers(self) -> Iterator[Result]:
        """End the workers whose trial takes too long."""
        for worker in list(self.workers):
            limit = self._timeout_of(worker.pending[0])
            if time.monotonic() - worker.since >= limit:
                yield from self._replace(worker, f"the case did not end within {limit:g} s")

    def _replace(self, worker: _Worker, reason: str) -> Iterator[LostTrial]:
        """End a worker and start another: the trial that it was at is lost, the others wait."""
        output = worker.output()
        code = self._remove(worker)
        lost = worker.pending.popleft()
        self._returned.extendleft(reversed(worker.pending))
        if not reason:
            reason = (
                f"the process of the case was killed by {signal_name(-code)}"
                if code < 0
                else f"the process of the case exited with {code}"
            )
        yield LostTrial(lost, reason, output)
        self.start()

    def _remove(self, worker: _Worker) -> int:
        self._selector.unregister(worker.results)
        self.workers.remove(worker)
        return worker.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.close()
        self._selector.close()


# --- The engine on a cluster


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
