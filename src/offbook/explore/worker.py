"""A process that plays behaviours, and is killed when one of them hangs.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it. A worker plays many behaviours and is replaced when one hangs or ends it.
"""

from __future__ import annotations

import faulthandler
import gc
import math
import os
import pickle
import re
import select
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import IO, Any, Self

import msgspec

from offbook.determinism.run_context import is_library
from offbook.errors import OffbookError, RunError, signal_name
from offbook.explore.moves import Move
from offbook.explore.oracles import CRASH, HANG, BrokenInvariant
from offbook.explore.playing import Behaviour, Job, Stage
from offbook.files import make_temp_folder, remove_temp_folder

DUMP = signal.SIGUSR2  # writes the stacks of a worker
GRACE = 2.0  # seconds in which an idle worker ends, and a hanging one writes its stacks
# The patience with a script that may hang: seconds, and times the slowest behaviour so far.
LEAST_PATIENCE, SLOWER, SLOWER_THAN_FIRST = 1.0, 10, 3
SIZE = 4  # bytes of the length before each message
MAX_STACKS = 100_000  # bytes
PR_SET_PDEATHSIG = 1  # of prctl
_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')

OpenStage = Callable[[], Stage]
Message = Behaviour | BaseException


class _Worker:
    """A fork of this process with a stage: it gets jobs, and sends the behaviours."""

    def __init__(self, open_stage: OpenStage, stacks: IO[str], temp: str) -> None:
        jobs, self._jobs = os.pipe()
        self._messages, messages = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        gc.freeze()  # the collector of the worker would copy every page of the parent
        parent = os.getpid()
        with warnings.catch_warnings():
            # A thread of the test is not in the fork, as after any fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            # Only the worker: it never returns from here, so nothing of the parent runs twice.
            try:
                os.close(self._jobs)
                os.close(self._messages)
                os.setsid()  # a new process group, which is killed as a whole
                _end_with(parent)
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                faulthandler.register(DUMP, stacks)
                tempfile.tempdir = temp  # what a killed worker leaves is removed with it
                _work(open_stage, jobs, messages)
            finally:
                os._exit(0)
        gc.unfreeze()
        os.close(jobs)
        os.close(messages)
        self._ready = select.poll()
        self._ready.register(self._messages, select.POLLIN)

    def send(self, jobs: Sequence[Job]) -> None:
        """Let the worker play these behaviours."""
        with suppress(BrokenPipeError):  # it died: the end of its messages says so
            _send(self._jobs, jobs)

    def receive(self, seconds: float) -> Any:
        """Return the next message, or None after this time. Raises EOFError if it has died.

        A message is a behaviour, an announced move, or an error.
        """
        milliseconds = None if seconds == math.inf else seconds * 1000
        return _receive(self._messages) if self._ready.poll(milliseconds) else None

    def write_stacks(self) -> None:
        """Let the worker write the stacks of its threads, from wherever it is."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, DUMP)

    def close(self, *, kill: bool = True) -> int:
        """End the worker and return its exit code."""
        os.close(self._jobs)
        os.close(self._messages)
        ends = time.monotonic() + (0 if kill else GRACE)
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid or time.monotonic() >= ends:
                break
            time.sleep(0.005)
        # Also what the agent has started.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, signal.SIGKILL)
        if not pid:
            with suppress(ProcessLookupError):  # it has not called setsid yet
                os.kill(self._pid, signal.SIGKILL)
            _, status = os.waitpid(self._pid, 0)
        return os.waitstatus_to_exitcode(status)


def _end_with(parent: int) -> None:
    """End this process if its parent is killed."""
    if sys.platform == "linux":
        from ctypes import CDLL

        CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # killed before
        os._exit(1)


def _send(pipe: int, message: object) -> None:
    # Not multiprocessing.Pipe, which takes twice as long.
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    content = len(content).to_bytes(SIZE) + content
    while content:
        content = content[os.write(pipe, content) :]


def _receive(pipe: int) -> Any:
    """Return the next message. Raises EOFError if the other process has ended."""
    size = int.from_bytes(_read(pipe, SIZE))
    return pickle.loads(_read(pipe, size))  # noqa: S301 - written by our own fork


def _read(pipe: int, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = os.read(pipe, size - len(content))
        if not part:
            raise EOFError
        content += part
    return content


def _work(open_stage: OpenStage, jobs: int, messages: int) -> None:
    """Play what is sent, until nothing more can come."""
    announce = partial(_send, messages)
    offered: object = None
    with suppress(EOFError, BrokenPipeError), open_stage() as stage:
        while True:
            for job in _receive(jobs):
                try:
                    behaviour = stage.play(job, announce if job.announces else None)
                except BaseException as error:  # noqa: BLE001 - raised in the parent
                    _send(messages, _picklable(error))
                    continue
                if job.seed and behaviour.tools == offered:
                    behaviour = msgspec.structs.replace(behaviour, tools=())
                offered = behaviour.tools or offered
                _send(messages, behaviour)
            sys.stdout.flush()
            sys.stderr.flush()


def _picklable(error: BaseException) -> BaseException:
    """Return the error, or one with its text if it cannot be sent."""
    with suppress(Exception):  # of a class of the user
        if isinstance(pickle.loads(pickle.dumps(error)), type(error)):  # noqa: S301 - our own bytes
            return error
    if isinstance(error, OffbookError):
        return type(error)(error.what, hint=error.hint)
    return RunError(f"the world raised {type(error).__name__}: {error}")


# --- The search's side


class Player:
    """Plays jobs in a worker, each within `deadline` seconds; without one, in this process.

    `known_hangs` are the keys of hangs that were found already: they are not waited for again.
    """

    def __init__(self, open_stage: OpenStage, deadline: float | None) -> None:
        self._open_stage = open_stage
        self._deadline = deadline if hasattr(os, "fork") else None
        self._worker: _Worker | None = None
        self._stage: Stage | None = None
        self._first = self._slowest = 0.0
        self.known_hangs: set[str] = set()

    def __enter__(self) -> Self:
        if self._deadline is None:
            self._stage = self._open_stage()
        else:
            self._temp = make_temp_folder()
            self._stacks = tempfile.TemporaryFile("w+")
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._stage is not None:
            self._stage.__exit__()
            return
        if self._worker is not None:
            # After Ctrl-C, at once.
            self._worker.close(kill=kind is not None and not issubclass(kind, Exception))
        self._stacks.close()
        remove_temp_folder(self._temp)

    @property
    def patience(self) -> float:
        """The seconds after which a script that may hang counts as one that does."""
        limit = max(LEAST_PATIENCE, SLOWER * self._slowest, SLOWER_THAN_FIRST * self._first)
        return limit if self._deadline is None else min(self._deadline, limit)

    def play(self, *jobs: Job, seconds: float | None = None) -> Iterator[Behaviour]:
        """Yield a behaviour for each job, in order; `seconds` is the time for each."""
        if self._stage is not None:
            yield from map(self._stage.play, jobs)
            return
        waiting = [*jobs]
        while waiting:
            worker, is_new = self._get_worker()
            worker.send(waiting)
            while waiting:
                began = time.monotonic()
                message = self._receive(worker, seconds or self._deadline or math.inf)
                if isinstance(message, BrokenInvariant):
                    yield self._observe(waiting.pop(0), message)
                    break  # the others are for the next worker
                if not isinstance(message, Behaviour):
                    raise message
                del waiting[0]
                seconds_taken = time.monotonic() - began
                if is_new:  # the first behaviour imports what it needs
                    self._first = max(self._first, seconds_taken)
                else:
                    self._slowest = max(self._slowest, seconds_taken)
                is_new = False
                yield message

    def play_one(self, job: Job, seconds: float | None = None) -> Behaviour:
        """Return the behaviour of a job."""
        (behaviour,) = self.play(job, seconds=seconds)
        return behaviour

    def _get_worker(self) -> tuple[_Worker, bool]:
        is_new = self._worker is None
        worker = self._worker or _Worker(self._open_stage, self._stacks, str(self._temp))
        self._worker = worker
        return worker, is_new

    def _receive(self, worker: _Worker, seconds: float) -> Message | BrokenInvariant:
        """Return the next message of the worker; if none comes, end it and return the violation."""
        first = self.patience if self.known_hangs else seconds
        try:
            message = worker.receive(first)
            if message is None:
                hang = self._describe_hang(worker, first)
                if hang.key not in self.known_hangs and first < seconds:
                    message = worker.receive(seconds - first)
                    hang = self._describe_hang(worker, seconds) if message is None else hang
                if message is None:
                    self._end_worker()
                    return hang
        except EOFError:
            code = self._end_worker()
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
            return BrokenInvariant(CRASH, f"the process of the agent {how}", f"{CRASH}: {how}")
        return message

    def _observe(self, job: Job, violation: BrokenInvariant) -> Behaviour:
        """Return the behaviour of a job that had no end; its moves are reported in another try."""
        moves = [*job.moves]
        if job.seed:
            worker, _ = self._get_worker()
            worker.send([msgspec.structs.replace(job, announces=True)])
            try:
                while isinstance(message := worker.receive(self.patience), Move):
                    moves.append(message)
                if isinstance(message, Behaviour):  # this time it ended
                    return Behaviour(message.moves, (violation,), requests=1)
            except EOFError:
                pass
            self._end_worker()
        return Behaviour(tuple(moves), (violation,), requests=1)

    def _end_worker(self) -> int:
        worker, self._worker = self._worker, None
        return 0 if worker is None else worker.close()

    def _describe_hang(self, worker: _Worker, seconds: float) -> BrokenInvariant:
        """Return the violation for a worker without an answer, with the place where it is."""
        file = self._stacks.fileno()
        os.ftruncate(file, 0)
        os.lseek(file, 0, os.SEEK_SET)  # the worker writes at the same position
        worker.write_stacks()
        text, before, ends = b"", b"", time.monotonic() + GRACE
        while (not text or text != before) and time.monotonic() < ends:
            time.sleep(0.01)
            before, text = text, os.pread(file, MAX_STACKS, 0)
        place = _find_place(text.decode("utf-8", "replace"))
        where = f": it is in {place}" if place else ""
        message = f"the agent did not end within {seconds:g} s{where}"
        return BrokenInvariant(HANG, message, f"{HANG}: {re.sub(r':[0-9]+ in ', ' ', place)}")


def _find_place(stacks: str) -> str:
    """Return the innermost line of the user's code in the stacks of a process, or ""."""
    for stack in stacks.split("\n\n"):
        for line in stack.splitlines():
            if (frame := _FRAME.match(line)) is None:
                continue
            file, number, function = frame.groups()
            if file == __file__:  # outside are the frames of the process before the fork
                break
            if not is_library(file):
                return f"{file}:{number} in {function}"
    return ""
