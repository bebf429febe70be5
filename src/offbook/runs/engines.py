"""The engines that call a function for many jobs: processes of this machine, or a Ray cluster.

for item in LocalEngine(2).submit(play, seeds, timeout_of=lambda seed: 20.0):
    print(item.reason if isinstance(item, LostJob) else item.value)

A process that dies, hangs or prints anything is one lost job: results come through a separate pipe,
each job has a deadline from its own start, and a lost process is replaced. A task of a cluster
runs its jobs with the engine of one machine: both have the same contract. Evals, searches and
check-ups run on it.
"""

from __future__ import annotations

import gc
import os
import pickle
import selectors
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, NamedTuple, NoReturn, TypeVar

import msgspec

from offbook.errors import signal_name
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.child import (
    SIZE,
    StackFile,
    end_process,
    fork_process,
    receive_message,
    send_message,
)

# A worker has so many seconds of work ahead, and not more jobs: with short jobs it does not
# wait for the next one, and with long ones no job waits for a worker while another is idle.
AHEAD_SECONDS = 0.02
MAX_AHEAD = 32
MAX_OUTPUT = 2000
SENT = 100  # the exit code of a fork that has sent its result; that of another end is not one
DEFAULT_TIMEOUT = 600.0

J = TypeVar("J")
V = TypeVar("V")


class FinishedJob(NamedTuple, Generic[J, V]):
    """A job, and the value of the function for it."""

    job: J
    value: V


class LostJob(NamedTuple, Generic[J]):
    """A job without a value: what its process did instead, and the end of what it printed.

    If it did not end within `late` seconds, `place` is the line of the user's code that it was in,
    where that is known.
    """

    job: J
    reason: str  # `exited with 3`, `did not end within 20 s`, `raised ValueError: no such file`
    output: str = ""
    late: float = 0
    place: str = ""


class Setup(NamedTuple):
    """The data that jobs need in memory; jobs with the same key share it.

    It is loaded in a separate process. Each job runs in a fork of that, so that it finds what was
    loaded as it was; with `shared`, in the process itself.
    """

    key: object
    load: Callable[[], object]
    shared: bool = False


Result = FinishedJob[Any, Any] | LostJob[Any]
SetupOf = Callable[[Any], Setup | None]  # None: the job runs in the process of the worker


RunJobs = Callable[[Iterable[Any]], Generator[Result]]


def default_timeout(_job: object) -> float:
    """Return the seconds that a job has unless the caller says otherwise."""
    return DEFAULT_TIMEOUT


def no_setup(_job: object) -> None:
    """Return None: a job that needs nothing loaded."""


class Engine(msgspec.Struct, frozen=True):
    """Calls a function for each of many jobs.

    Jobs and values must be picklable, jobs hashable. They may be a generator: it is asked for the
    next job when there is a process for it, so a job may depend on the results so far.
    """

    def open(
        self,
        function: Callable[[Any], object],
        timeout_of: Callable[[Any], float],
        setup_of: SetupOf,
    ) -> AbstractContextManager[RunJobs]:
        """Return a block with a function that runs jobs, one iterable after the other.

        The processes are kept until the end of the block.
        """
        raise NotImplementedError

    def submit(
        self,
        function: Callable[[J], V],
        jobs: Iterable[J],
        *,
        timeout_of: Callable[[J], float] = default_timeout,
        setup_of: SetupOf = no_setup,
    ) -> Generator[FinishedJob[J, V] | LostJob[J]]:
        """Yield the result of each job as it comes, in any order. Closing it ends the others."""
        with self.open(function, timeout_of, setup_of) as run:
            yield from run(jobs)


class LocalEngine(Engine, frozen=True):
    """Worker processes of this machine.

    A worker has at most `ahead` jobs whose results were not yielded. It is a fork of this process:
    the function need not be picklable. With `fresh`, each job has a new process.
    """

    processes: int = 1
    ahead: int = MAX_AHEAD
    fresh: bool = False

    @contextmanager
    def open(
        self,
        function: Callable[[Any], object],
        timeout_of: Callable[[Any], float],
        setup_of: SetupOf,
    ) -> Generator[RunJobs]:
        """Yield a function that runs jobs; the workers end with the block."""
        alone = self.processes <= 1
        ahead = 1 if self.fresh else self.ahead

        def start() -> _Worker:
            return _Worker(function, setup_of, ahead, alone=alone)

        pool = _Pool(start, max(1, self.processes), timeout_of, fresh=self.fresh)
        try:
            yield pool.run
        finally:
            pool.close()


class _Worker:
    """A forked process: it reads jobs from a pipe and writes their results to another."""

    def __init__(
        self,
        function: Callable[[Any], object],
        setup_of: SetupOf,
        ahead: int,
        *,
        alone: bool = False,
    ) -> None:
        jobs_in, jobs_out = os.pipe()
        results_in, results_out = os.pipe()
        self._ahead = ahead
        self._alone = alone
        self._folder = make_temp_folder()
        self._log = self._folder / "output.txt"
        self._stacks = StackFile(str(self._folder))

        def work() -> None:
            os.close(jobs_out)
            os.close(results_in)
            self._stacks.register()
            tempfile.tempdir = str(self._folder)  # what a killed worker leaves is removed with it
            _Work(function, setup_of, results_out, self._log).run(jobs_in)

        self.pid = fork_process(work)
        os.close(jobs_in)
        os.close(results_out)
        self.results = results_in
        self._jobs = jobs_out
        self._buffer = b""
        self.pending: deque[Any] = deque()
        self.since = time.monotonic()
        self.finished = 0
        self.busy = 0.0  # seconds

    def send(self, jobs: Sequence[Any]) -> None:
        if not self.pending:
            self.since = time.monotonic()
        self.pending.extend(jobs)
        with suppress(BrokenPipeError):  # it died: the end of its results says so
            send_message(self._jobs, pickle.dumps(list(jobs)))

    @property
    def wanted(self) -> int:
        """The number of jobs to send now."""
        ahead = self._ahead
        if not self._alone:  # a job may wait for this worker while another one is idle
            seconds = self.busy / max(1, self.finished)
            ahead = min(ahead, max(1, int(AHEAD_SECONDS / max(seconds, 1e-6))))
        # In halves: one message for several jobs.
        return ahead - len(self.pending) if len(self.pending) <= ahead // 2 else 0

    def receive(self) -> list[Result] | None:
        """Return the results that have arrived, or None at the end of the worker."""
        data = os.read(self.results, 1 << 16)
        if not data:
            return None
        self._buffer += data
        found: list[Result] = []
        start = 0
        while len(self._buffer) >= start + SIZE:
            end = start + SIZE + int.from_bytes(self._buffer[start : start + SIZE])
            if len(self._buffer) < end:
                break
            if end == start + SIZE:  # its job starts now
                self.since = time.monotonic()
            else:
                found.append(_load(self._buffer[start + SIZE : end]))
            start = end
        self._buffer = self._buffer[start:]
        return found

    def close(self) -> int:
        """End the worker and return its exit status."""
        os.close(self._jobs)
        os.close(self.results)
        code = end_process(self.pid)
        self._stacks.close()
        remove_temp_folder(self._folder)
        return code

    def output(self) -> str:
        """Return the end of what the worker has printed."""
        try:
            return self._log.read_text("utf-8", "replace")[-MAX_OUTPUT:]
        except OSError:
            return ""

    def find_place(self) -> str:
        """Return the innermost line of the user's code that the worker is in, or ""."""
        return self._stacks.find_place(self.pid)


class _Work:
    """The work of a worker, in its process and in those of its setups.

    Each process that runs a job writes the result to the pipe of the worker. A job starts
    after the result of the one before it, so that a lost process has lost only its own job.
    """

    def __init__(
        self, function: Callable[[Any], object], setup_of: SetupOf, results: int, log_path: Path
    ) -> None:
        self._function, self._setup_of = function, setup_of
        self._results = results
        self._processes: dict[object, _SetupProcess] = {}
        # What a job prints goes to a file: it must not mix with results or reports.
        self._log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(self._log, 1)
        os.dup2(self._log, 2)

    def run(self, jobs: int) -> None:
        """Run the jobs that are sent."""
        while (message := receive_message(jobs)) is not None:
            for setup, batch in self._group(_load(message)):
                if setup is None:
                    for job in batch:
                        self.run_job(job)
                    continue
                if setup.key not in self._processes:
                    self._processes[setup.key] = _SetupProcess(setup, self)
                    send_message(self._results, b"")
                self._processes[setup.key].run(batch)

    def _group(self, jobs: list[Any]) -> Iterator[tuple[Setup | None, list[Any]]]:
        """Yield the jobs of each setup, in their order."""
        found = [(self._setup_of(job), job) for job in jobs]
        for _, group in groupby(found, lambda pair: pair[0] and pair[0].key):
            members = list(group)
            yield members[0][0], [job for _, job in members]

    def run_job(self, job: Any) -> None:
        """Run a job in this process."""
        if os.fstat(self._log).st_size:  # what the last job has printed
            os.ftruncate(self._log, 0)
        try:
            content = pickle.dumps(FinishedJob(job, self._function(job)))
        except BaseException as error:  # noqa: BLE001 - the reason why the job has no value
            reason = f"raised {type(error).__name__}: {error}"
            content = pickle.dumps(LostJob(job, reason, traceback.format_exc()[-MAX_OUTPUT:]))
        send_message(self._results, content)

    def run_in_fork(self, job: Any) -> None:
        """Run a job in a fork of this process; without a result, end in the same way as it."""

        def work() -> None:
            self.run_job(job)
            os._exit(SENT)

        _, status = os.waitpid(fork_process(work, leads_group=False), 0)
        if os.waitstatus_to_exitcode(status) != SENT:
            _die_with(status)


class _SetupProcess:
    """A process with what a setup has loaded, and the jobs of that setup.

    A job finds the process as it was after the setup, whatever other jobs have changed; those of a
    shared one run in the process itself. If it dies, or a fork of it, the worker dies in the same
    way: the job is lost.
    """

    def __init__(self, setup: Setup, work: _Work) -> None:
        jobs, self._jobs = os.pipe()
        self._done, done = os.pipe()
        run = work.run_job if setup.shared else work.run_in_fork

        def serve() -> None:
            try:
                setup.load()
            except BaseException:
                os.write(2, traceback.format_exc().encode("utf-8", "replace"))
                raise
            gc.collect()
            send_message(done, b"")
            while (message := receive_message(jobs)) is not None:
                for job in _load(message):
                    run(job)
                send_message(done, b"")

        self._pid = fork_process(serve, leads_group=False)
        os.close(jobs)
        os.close(done)
        self._wait()

    def run(self, jobs: Sequence[Any]) -> None:
        """Run jobs one after the other; they write their results themselves."""
        send_message(self._jobs, pickle.dumps(list(jobs)))
        self._wait()

    def _wait(self) -> None:
        if receive_message(self._done) is None:
            _die_with(os.waitpid(self._pid, 0)[1])


def _load(message: bytes) -> Any:
    return pickle.loads(message)  # noqa: S301 - of our own fork, or of its parent


def _die_with(status: int) -> NoReturn:
    """End this process in the same way as a child."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


class _Pool:
    """The workers of an engine, and the jobs that wait for one."""

    def __init__(
        self,
        start_worker: Callable[[], _Worker],
        processes: int,
        timeout_of: Callable[[Any], float],
        *,
        fresh: bool,
    ) -> None:
        self._workers: list[_Worker] = []
        self._source: Iterator[Any] = iter(())
        self._returned: deque[Any] = deque()  # the jobs of a lost worker
        self._start_worker = start_worker
        self._processes = processes
        self._timeout_of = timeout_of
        self._fresh = fresh
        self._selector = selectors.DefaultSelector()

    def run(self, jobs: Iterable[Any]) -> Generator[Result]:
        """Yield the result of each job as it comes."""
        self._source = iter(jobs)
        for worker in self._workers:
            self._feed(worker)
        for _ in range(self._processes - len(self._workers)):
            self._start()
        while any(worker.pending for worker in self._workers):
            for worker in self._wait():
                yield from self._receive(worker)
            yield from self._end_late_workers()

    def _start(self) -> None:
        """Start a worker, if there is a job for it."""
        if batch := self._next(1):
            worker = self._start_worker()
            self._workers.append(worker)
            self._selector.register(worker.results, selectors.EVENT_READ, worker)
            worker.send(batch)

    def _feed(self, worker: _Worker) -> None:
        """Send a worker as many jobs as it wants, if there are any."""
        if batch := self._next(worker.wanted):
            worker.send(batch)

    def _next(self, count: int) -> list[Any]:
        batch: list[Any] = []
        while len(batch) < count:
            if self._returned:
                batch.append(self._returned.popleft())
                continue
            try:
                batch.append(next(self._source))
            except StopIteration:
                break
        return batch

    def _wait(self) -> list[_Worker]:
        """Return the workers that have sent something, at the next deadline at the latest."""
        deadline = min(w.since + self._timeout_of(w.pending[0]) for w in self._workers if w.pending)
        seconds = max(0.0, deadline - time.monotonic())
        return [key.data for key, _ in self._selector.select(seconds)]

    def _receive(self, worker: _Worker) -> Iterator[Result]:
        """Yield the results of a worker, and give it more work."""
        results = worker.receive()
        if results is None:
            yield from self._replace(worker)
            return
        for result in results:
            now = time.monotonic()
            worker.busy += now - worker.since
            worker.since = now
            worker.finished += 1
            worker.pending.popleft()
            yield result
        if self._fresh and not worker.pending:
            self._remove(worker)
            self._start()
        else:
            self._feed(worker)

    def _end_late_workers(self) -> Iterator[Result]:
        """End the workers whose job takes too long."""
        # Not one whose result has come while the caller was at those before it.
        sent = {key.fd for key, _ in self._selector.select(0)}
        for worker in [w for w in self._workers if w.pending and w.results not in sent]:
            limit = self._timeout_of(worker.pending[0])
            if time.monotonic() - worker.since >= limit:
                yield from self._replace(worker, limit)

    def _replace(self, worker: _Worker, limit: float | None = None) -> Iterator[Result]:
        """End a worker and start another: the job that it was at is lost, the others wait."""
        place = worker.find_place() if limit is not None else ""
        output = worker.output()
        code = self._remove(worker)
        if worker.pending:
            lost = worker.pending.popleft()
            self._returned.extendleft(reversed(worker.pending))
            reason = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with {code}"
            if limit is not None:
                reason = f"did not end within {limit:g} s"
            yield LostJob(lost, reason, output, limit or 0, place)
        self._start()

    def _remove(self, worker: _Worker) -> int:
        self._selector.unregister(worker.results)
        self._workers.remove(worker)
        return worker.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()
        self._selector.close()
