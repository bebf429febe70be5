"""The engines that run trials: worker processes of this machine, or a Ray cluster.

A worker that dies, hangs or prints anything is one failed trial: results come through a pipe of
their own, each trial has a deadline from its own start, and a lost worker is replaced. A task of a
cluster runs its trials with the engine of one machine: both have the same contract.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from offbook.errors import RunError, UsageError, signal_name
from offbook.evals.run_directory import CaseResult
from offbook.runs.child import (
    SIZE,
    end_process,
    end_with,
    fork_process,
    receive_message,
    send_message,
)

# A worker has so many seconds of work ahead, and not more trials: with short trials it does not
# wait for the next one, and with long ones no trial waits for a worker while another is idle.
AHEAD_SECONDS = 0.02
MAX_AHEAD = 32
MAX_OUTPUT = 2000
SENT = 100  # the exit code of a fork that has sent its result; that of another end is not one
DEFAULT_TIMEOUT = 600.0


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


class PythonSubject(NamedTuple):
    """A Python subject, which has a process; trials with the same key have the same one.

    Each trial runs in a fork of that process, or in the process itself if it is shared.
    """

    key: object
    load: Callable[[], object]
    shared: bool = False


SubjectOf = Callable[[Trial], PythonSubject | None]  # None for a case without a Python subject


class _Worker:
    """A forked process: it reads trials from a pipe and writes their results to another."""

    def __init__(self, evaluate: Evaluate, subject_of: SubjectOf, ahead: int) -> None:
        trials_in, trials_out = os.pipe()
        results_in, results_out = os.pipe()
        self._ahead = ahead
        handle, name = tempfile.mkstemp(prefix="offbook-worker-")
        os.close(handle)
        self.log = Path(name)

        def work() -> None:
            os.close(trials_out)
            os.close(results_in)
            _Work(evaluate, subject_of, results_out, self.log).run(trials_in)

        self.pid = fork_process(work)
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
        with suppress(BrokenPipeError):  # it died: the end of its results says so
            send_message(self._trials, msgspec.json.encode(trials))

    @property
    def wanted(self) -> int:
        """The number of trials to send now."""
        seconds = (time.monotonic() - self.started) / max(1, self.finished)
        ahead = min(self._ahead, max(1, int(AHEAD_SECONDS / max(seconds, 1e-6))))
        # In halves: one message for several trials.
        return ahead - len(self.pending) if len(self.pending) <= ahead // 2 else 0

    def receive(self) -> list[CaseResult] | None:
        """Return the results that have arrived, or None at the end of the worker."""
        data = os.read(self.results, 1 << 16)
        if not data:
            return None
        self._buffer += data
        found: list[CaseResult] = []
        start = 0
        while len(self._buffer) >= start + SIZE:
            end = start + SIZE + int.from_bytes(self._buffer[start : start + SIZE])
            if len(self._buffer) < end:
                break
            if end == start + SIZE:  # its trial starts now
                self.since = time.monotonic()
            else:
                found.append(_decoder.decode(self._buffer[start + SIZE : end]))
            start = end
        self._buffer = self._buffer[start:]
        return found

    def close(self) -> int:
        """End the worker and return its exit status."""
        os.close(self._trials)
        os.close(self.results)
        code = end_process(self.pid)
        self.log.unlink(missing_ok=True)
        return code

    def output(self) -> str:
        """Return the end of what the worker has printed."""
        try:
            return self.log.read_text("utf-8", "replace")[-MAX_OUTPUT:]
        except OSError:
            return ""


class _Work:
    """The work of a worker, in its process and in those of its subjects.

    Each process that runs a trial writes the result to the pipe of the worker. A trial starts
    after the result of the one before it, so that a lost process has lost only its own trial.
    """

    def __init__(
        self, evaluate: Evaluate, subject_of: SubjectOf, results: int, log_path: Path
    ) -> None:
        self._evaluate, self._subject_of = evaluate, subject_of
        self._results = results
        self._processes: dict[object, _SubjectProcess] = {}
        # What a case prints goes to a file: it must not mix with results or reports.
        self._log = os.open(log_path, os.O_WRONLY | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def run(self, trials: int) -> None:
        """Run the trials that are sent."""
        while (message := receive_message(trials)) is not None:
            for subject, batch in self._group(_decode_trials(message)):
                if subject is None:
                    for trial in batch:
                        self.run_trial(trial)
                    continue
                if subject.key not in self._processes:
                    self._processes[subject.key] = _SubjectProcess(subject, self)
                    send_message(self._results, b"")
                self._processes[subject.key].run(batch)

    def _group(self, trials: list[Trial]) -> Iterator[tuple[PythonSubject | None, list[Trial]]]:
        """Yield the trials of each subject, in their order."""
        found = [(self._subject_of(trial), trial) for trial in trials]
        for _, group in groupby(found, lambda pair: pair[0] and pair[0].key):
            members = list(group)
            yield members[0][0], [trial for _, trial in members]

    def run_trial(self, trial: Trial) -> None:
        """Run a trial in this process."""
        if os.fstat(self._log).st_size:  # what the last trial has printed
            os.ftruncate(self._log, 0)
        send_message(self._results, _encoder.encode(self._evaluate(trial)))

    def run_in_fork(self, trial: Trial) -> None:
        """Run a trial in a fork of this process; without a result, end in the same way as it."""

        def work() -> None:
            self.run_trial(trial)
            os._exit(SENT)

        _, status = os.waitpid(fork_process(work, leads_group=False), 0)
        if os.waitstatus_to_exitcode(status) != SENT:
            _die_with(status)


class _SubjectProcess:
    """A process with an imported subject, and the trials of that subject.

    A trial finds the process as it was after the import, whatever other trials have changed;
    those that declare to share their state run in the process itself. If it dies, or a fork of it,
    the worker dies in the same way: the trial is lost.
    """

    def __init__(self, subject: PythonSubject, work: _Work) -> None:
        trials, self._trials = os.pipe()
        self._done, done = os.pipe()
        run = work.run_trial if subject.shared else work.run_in_fork

        def serve() -> None:
            subject.load()
            gc.collect()
            send_message(done, b"")
            while (message := receive_message(trials)) is not None:
                for trial in _decode_trials(message):
                    run(trial)
                send_message(done, b"")

        self._pid = fork_process(serve, leads_group=False)
        os.close(trials)
        os.close(done)
        self._wait()

    def run(self, trials: Sequence[Trial]) -> None:
        """Run trials one after the other; they write their results themselves."""
        send_message(self._trials, msgspec.json.encode(trials))
        self._wait()

    def _wait(self) -> None:
        if receive_message(self._done) is None:
            _die_with(os.waitpid(self._pid, 0)[1])


def _decode_trials(message: bytes) -> list[Trial]:
    return [Trial(*item) for item in msgspec.json.decode(message, type=list[tuple[int, int, int]])]


def _die_with(status: int) -> NoReturn:
    """End this process in the same way as a child."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def run_local(
    trials: Iterable[Trial],
    evaluate: Evaluate,
    *,
    jobs: int = 1,
    timeout_of: Callable[[Trial], float] = lambda _: DEFAULT_TIMEOUT,
    subject_of: SubjectOf = lambda _: None,
    ahead: int = MAX_AHEAD,
) -> Generator[Result]:
    """Yield the results of the trials as they come, in any order. Closing it ends the workers.

    A worker has at most `ahead` trials whose results were not yielded.
    """
    pool = _Pool(trials, lambda: _Worker(evaluate, subject_of, ahead), timeout_of)
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
        self,
        trials: Iterable[Trial],
        start_worker: Callable[[], _Worker],
        timeout_of: Callable[[Trial], float],
    ) -> None:
        self.workers: list[_Worker] = []
        self._source = iter(trials)
        self._returned: deque[Trial] = deque()  # the trials of a lost worker
        self._start_worker = start_worker
        self._timeout_of = timeout_of
        self._selector = selectors.DefaultSelector()

    def start(self) -> None:
        """Start a worker, if there is a trial for it."""
        if batch := self._next(1):
            worker = self._start_worker()
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


RETRIES = 3  # of a trial whose task was lost
BATCHES_PER_CPU = 4  # small enough to spread the work, large enough for short cases
MAX_BATCH = 64


def evaluate_batch(work: bytes, batch: Sequence[tuple[Trial, float]], folder: str) -> Any:
    """Yield the results of trials in a worker of the cluster, in the working directory of the run.

    The worker has threads and may not be forked, so a new process forks. A trial starts when the
    result before it is with the driver: a killed driver has to repeat no more than one trial for
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
        raise RunError(f"the process of the trials exited with {process.returncode}")


def serve_batch(parent: int) -> None:
    """Run the trials of stdin with the engine of one machine; the next one after each answer."""
    end_with(parent)
    requests, results = os.dup(0), os.dup(1)
    os.dup2(2, 1)  # what anything prints is not a result
    evaluate, subject_of = pickle.loads(receive_message(requests) or b"")  # noqa: S301 - of our driver
    timeouts: dict[Trial, float] = dict(pickle.loads(receive_message(requests) or b""))  # noqa: S301 - as above
    for item in run_local(
        [*timeouts], evaluate, timeout_of=timeouts.__getitem__, subject_of=subject_of, ahead=1
    ):
        send_message(results, pickle.dumps(item))
        if receive_message(requests) is None:
            return


def run_on_ray(
    trials: Sequence[Trial],
    evaluate: Evaluate,
    *,
    address: str = "",
    timeout_of: Callable[[Trial], float],
    subject_of: SubjectOf = lambda _: None,
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
        try:
            cluster.init(address=address or None, log_to_driver=False, logging_level="error")
        except Exception as error:
            raise RunError(
                f"cannot {'connect to the Ray cluster' if address else 'start Ray'}: {error}",
                where=address,
                hint="check --address; `ray status` shows the cluster of this machine",
            ) from error
    try:
        yield from run_on(cluster, trials, evaluate, timeout_of, subject_of)
    finally:
        if owned:
            cluster.shutdown()


def run_on(
    ray: Any,
    trials: Sequence[Trial],
    evaluate: Evaluate,
    timeout_of: Callable[[Trial], float],
    subject_of: SubjectOf = lambda _: None,
) -> Generator[Result]:
    """Yield the result of each trial, as the workers of a cluster finish them."""
    # A lost task is submitted again here, with the trials that it has not finished.
    options = {
        "num_returns": "streaming",
        "max_retries": 0,
        "_generator_backpressure_num_objects": 1,
    }
    task = ray.remote(**options)(evaluate_batch)
    work = ray.put(pickle.dumps((evaluate, subject_of)))  # the packs are sent once for all tasks
    folder = os.getcwd()  # noqa: PTH109 - a text for the workers
    cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
    size = max(1, min(MAX_BATCH, len(trials) // (cpus * BATCHES_PER_CPU)))
    batches = deque(list(trials[start : start + size]) for start in range(0, len(trials), size))
    running: dict[Any, list[Trial]] = {}
    lost: Counter[Trial] = Counter()
    try:
        while batches or running:
            # Not more tasks than the cluster has work for: a stopped run leaves little behind.
            while batches and len(running) < cpus * 2:
                batch = batches.popleft()
                timed = [(trial, timeout_of(trial)) for trial in batch]
                running[task.remote(work, timed, folder)] = batch
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
                        yield LostTrial(batch.pop(0), _reason_of(error))
                    if batch:
                        batches.appendleft(batch)
                    continue
                running[stream].remove(item[0])
                yield item
    finally:
        for stream in running:
            ray.cancel(stream, force=True)


def _reason_of(error: Exception) -> str:
    last = (str(error).strip().splitlines() or [""])[-1]
    return f"the worker of the case was lost: {type(error).__name__}: {last}".rstrip(": ")
