"""A process that plays behaviours, and is killed when one of them hangs.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it. A worker plays many behaviours and is replaced when one hangs or ends it.
"""

from __future__ import annotations

import math
import os
import pickle
import re
import select
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from types import TracebackType
from typing import Any, Self

import msgspec

from offbook.errors import OffbookError, RunError, signal_name
from offbook.explore.moves import Move
from offbook.explore.oracles import CRASH, HANG, BrokenInvariant
from offbook.explore.playing import Behaviour, Job, Stage
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.child import (
    StackFile,
    end_process,
    fork_process,
    receive_message,
    send_message,
)

GRACE = 2.0  # seconds in which an idle worker ends
# The patience with a script that may hang: seconds, and times the slowest behaviour so far.
LEAST_PATIENCE, SLOWER, SLOWER_THAN_FIRST = 1.0, 10, 3

OpenStage = Callable[[], Stage]
Message = Behaviour | BaseException


class _Worker:
    """A fork of this process with a stage: it gets jobs, and sends the behaviours."""

    def __init__(self, open_stage: OpenStage, stacks: StackFile, temp: str) -> None:
        jobs, self._jobs = os.pipe()
        self._messages, messages = os.pipe()
        self._stacks = stacks
        self.has_played = False

        def work() -> None:
            os.close(self._jobs)
            os.close(self._messages)
            stacks.register()
            tempfile.tempdir = temp  # what a killed worker leaves is removed with it
            _work(open_stage, jobs, messages)

        self._pid = fork_process(work)
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

    def find_place(self) -> str:
        """Return the innermost line of the user's code that the worker is in, or ""."""
        return self._stacks.find_place(self._pid)

    def close(self, *, kill: bool = True) -> int:
        """End the worker and return its exit code."""
        if not kill:
            self.send(())  # another worker may have the pipe open, so its end alone says nothing
        os.close(self._jobs)
        os.close(self._messages)
        return end_process(self._pid, 0 if kill else GRACE)


def _send(pipe: int, message: object) -> None:
    send_message(pipe, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))


def _receive(pipe: int) -> Any:
    """Return the next message. Raises EOFError if the other process has ended."""
    content = receive_message(pipe)
    if content is None:
        raise EOFError
    return pickle.loads(content)  # noqa: S301 - written by our own fork


def _work(open_stage: OpenStage, jobs: int, messages: int) -> None:
    """Play what is sent, until no job is sent."""
    announce = partial(_send, messages)
    offered: object = None
    with suppress(EOFError, BrokenPipeError), open_stage() as stage:
        while received := _receive(jobs):
            for job in received:
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


class Pace:
    """How long behaviours take, and the keys of the hangs that are known: they are not waited for.

    The players of a search share it.
    """

    def __init__(self) -> None:
        self.first = self.slowest = 0.0
        self.known_hangs: set[str] = set()

    @property
    def patience(self) -> float:
        """The seconds after which a script that may hang counts as one that does."""
        return max(LEAST_PATIENCE, SLOWER * self.slowest, SLOWER_THAN_FIRST * self.first)


class Player:
    """Plays jobs in a worker, each within `deadline` seconds; without one, in this process."""

    def __init__(
        self, open_stage: OpenStage, deadline: float | None, pace: Pace | None = None
    ) -> None:
        self._open_stage = open_stage
        self._deadline = deadline if hasattr(os, "fork") else None
        self._worker: _Worker | None = None
        self._stage: Stage | None = None
        self._pace = pace or Pace()
        self._sent: tuple[Job, ...] = ()

    def __enter__(self) -> Self:
        if self._deadline is None:
            self._stage = self._open_stage()
        else:
            self._temp = make_temp_folder()
            self._stacks = StackFile(str(self._temp))
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
        limit = self._pace.patience
        return limit if self._deadline is None else min(self._deadline, limit)

    def start(self, *jobs: Job) -> None:
        """Let the worker begin with jobs, for the next call of `play`, which has the same ones."""
        if self._stage is None and jobs:
            self._get_worker()[0].send(jobs)
            self._sent = jobs

    def play(self, *jobs: Job, seconds: float | None = None) -> Iterator[Behaviour]:
        """Yield a behaviour for each job, in order; `seconds` is the time for each."""
        if self._stage is not None:
            yield from map(self._stage.play, jobs)
            return
        waiting = [*jobs]
        while waiting:
            worker, is_new = self._get_worker()
            if not self._sent:
                worker.send(waiting)
            self._sent = ()
            while waiting:
                began = time.monotonic()
                message = self._receive(worker, seconds or self._deadline or math.inf)
                if isinstance(message, BrokenInvariant):
                    yield self._observe(waiting.pop(0), message)
                    break  # the others are for the next worker
                if not isinstance(message, Behaviour):
                    raise message
                del waiting[0]
                worker.has_played = True
                seconds_taken = time.monotonic() - began
                if is_new:  # the first behaviour imports what it needs
                    self._pace.first = max(self._pace.first, seconds_taken)
                else:
                    self._pace.slowest = max(self._pace.slowest, seconds_taken)
                is_new = False
                yield message

    def play_one(self, job: Job, seconds: float | None = None) -> Behaviour:
        """Return the behaviour of a job."""
        (behaviour,) = self.play(job, seconds=seconds)
        return behaviour

    def _get_worker(self) -> tuple[_Worker, bool]:
        worker = self._worker or _Worker(self._open_stage, self._stacks, str(self._temp))
        self._worker = worker
        return worker, not worker.has_played

    def _receive(self, worker: _Worker, seconds: float) -> Message | BrokenInvariant:
        """Return the next message of the worker; if none comes, end it and return the violation."""
        first = self.patience if self._pace.known_hangs else seconds
        try:
            message = worker.receive(first)
            if message is None:
                hang = self._describe_hang(worker, first)
                if hang.key not in self._pace.known_hangs and first < seconds:
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
        moves = [] if job.seed else [*job.moves]
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
        place = worker.find_place()
        where = f": it is in {place}" if place else ""
        message = f"the agent did not end within {seconds:g} s{where}"
        return BrokenInvariant(HANG, message, f"{HANG}: {re.sub(r':[0-9]+ in ', ' ', place)}")


class Players:
    """Plays behaviours in several workers at once, and single scripts in the first one."""

    def __init__(self, open_stage: OpenStage, deadline: float | None, count: int = 1) -> None:
        self.pace = Pace()
        self._players = [Player(open_stage, deadline, self.pace) for _ in range(count)]
        self.first = self._players[0]
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            for player in self._players:
                opened.enter_context(player)
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def __len__(self) -> int:
        return len(self._players)

    def play(self, jobs: Sequence[Job]) -> list[Behaviour]:
        """Return the behaviours of the jobs, in their order."""
        count = len(self._players)
        shares = [jobs[number::count] for number in range(count)]
        for player, share in zip(self._players[1:], shares[1:], strict=True):
            player.start(*share)
        played = [
            [*player.play(*share)] for player, share in zip(self._players, shares, strict=True)
        ]
        return [played[number % count][number // count] for number in range(len(jobs))]
