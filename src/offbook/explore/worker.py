"""The processes that play behaviours, on an engine: one that hangs is killed and replaced.

An agent may hang in a busy loop, in C code or with a handler for every signal: only another process
can end it. A process plays many behaviours, all on one stage.
"""

from __future__ import annotations

import gc
import pickle
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import msgspec

from offbook.errors import OffbookError, RunError, UsageError
from offbook.explore.moves import Move
from offbook.explore.oracles import CRASH, HANG, BrokenInvariant
from offbook.explore.playing import Behaviour, Invariant, Job, Stage, World
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.engines import Engine, FinishedJob, LocalEngine, Result, RunJobs, no_setup

if TYPE_CHECKING:
    from offbook.explore.moves import Script
    from offbook.explore.tool_policy import ToolPolicy

# How long a script may take: the deadline, a part of it when it hung once, and in the tries to
# shorten it not much longer than the slowest behaviour so far.
Limit = Literal["deadline", "again", "try"]
AGAIN = 0.25  # of the deadline
LEAST_PATIENCE, SLOWER, SLOWER_THAN_FIRST = 2.0, 10, 3  # seconds, and times the slowest
# The least for a hang that is a finding already: most behaviours take much less.
LEAST_OF_KNOWN = 0.5


GARBAGE = 20_000  # new objects before a process of a search looks for cycles; 700 by default


# --- In a process of an engine


class StagePlan(NamedTuple):
    """What a process opens its stage with. A cluster gets it as a pickle."""

    world: World
    prompts: Sequence[str]
    invariants: Sequence[Invariant | ToolPolicy]
    gives_up: tuple[type[BaseException], ...] = ()
    values: Mapping[str, Sequence[Any]] | None = None
    trace: Path | None = None
    without: Sequence[str] = ()
    script: Script | None = None
    faults: tuple[str, ...] = ()

    def open(self) -> Stage:
        """Return a new stage."""
        stage = Stage(
            self.world,
            self.prompts,
            self.invariants,
            self.gives_up,
            self.values,
            self.trace,
            self.without,
        )
        stage.script, stage.faults = self.script, self.faults
        return stage


class SentJob(NamedTuple):
    """A behaviour to play within so many seconds; with `whole`, no known hang makes them fewer."""

    number: int
    job: Job
    seconds: float
    whole: bool = False

    def __hash__(self) -> int:  # the arguments of calls have no hash
        return self.number


class Played(NamedTuple):
    """A behaviour, or the error of the test, and its time; the first imports what it needs."""

    behaviour: Behaviour | BaseException
    seconds: float
    is_first: bool


class JobPlayer:
    """The function of the engine: it plays a job; the first one of a process opens the stage."""

    def __init__(self, plan: StagePlan) -> None:
        self._plan = plan
        self._stage: Stage | None = None
        self._offered: object = None

    def __reduce__(self) -> tuple[type[JobPlayer], tuple[StagePlan]]:
        return type(self), (self._plan,)

    def __call__(self, sent: SentJob) -> Played:
        """Play a behaviour."""
        began, is_first = time.monotonic(), self._stage is None
        try:
            behaviour = self._play(sent.job)
        except BaseException as error:  # noqa: BLE001 - raised in the process of the search
            behaviour = _picklable(error)
        return Played(behaviour, time.monotonic() - began, is_first)

    def _play(self, job: Job) -> Behaviour:
        if self._stage is None:
            gc.set_threshold(GARBAGE)  # to look for cycles more often takes 5 % of the time
            self._stage = self._plan.open()
        stage = self._stage
        if job.announces:
            with Path(job.announces).open("ab", buffering=0) as file:
                return stage.play(job, lambda move: file.write(pickle.dumps(move)))
        behaviour = stage.play(job)
        if not job.seed:
            return behaviour
        if behaviour.tools == self._offered:  # sent once
            return msgspec.structs.replace(behaviour, tools=())
        self._offered = behaviour.tools or self._offered
        return behaviour


def _picklable(error: BaseException) -> BaseException:
    """Return the error, or one with its text if it cannot be sent."""
    with suppress(Exception):  # of a class of the user
        if isinstance(pickle.loads(pickle.dumps(error)), type(error)):  # noqa: S301 - our own bytes
            return error
    if isinstance(error, OffbookError):
        return type(error)(error.what, hint=error.hint)
    return RunError(f"the world raised {type(error).__name__}: {error}")


# --- In the process of the search


class Players:
    """Plays behaviours on an engine, each within `deadline` seconds; without one, in this process.

    Single scripts are played in a process of this machine.
    """

    def __init__(
        self, plan: StagePlan, deadline: float | None, engine: Engine | None = None
    ) -> None:
        self._plan = plan
        self._deadline = deadline
        self._engine = engine or LocalEngine()
        self._stage: Stage | None = None
        self._first = self._slowest = 0.0  # seconds: of first and of later behaviours
        self._finished = False  # whether any behaviour has
        self._known_hangs: set[str] = set()  # their keys: such a hang is not waited for
        self.found_hangs: set[str] = set()  # those with a script: of another one none is needed
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            if self._deadline is None:
                self._stage = opened.enter_context(self._plan.open())
            else:
                _load_modules()
                self._folder = make_temp_folder()
                opened.callback(remove_temp_folder, self._folder)
                self._run_fresh = self._start(LocalEngine(fresh=True), opened)
                self._run = self._run_here = self._start(self._engine, opened)
                if not isinstance(self._engine, LocalEngine):
                    self._run_here = self._start(LocalEngine(), opened)
            self._opened = opened.pop_all()
        return self

    def _start(self, engine: Engine, opened: ExitStack) -> RunJobs:
        player = JobPlayer(self._plan)
        return opened.enter_context(engine.open(player, self._timeout_of, no_setup))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._opened.__exit__(kind, error, trace)

    def _seconds(self, limit: Limit) -> float:
        deadline = self._deadline or 0
        if limit == "deadline" or not self._finished:
            return deadline
        least = LEAST_OF_KNOWN if self.found_hangs else LEAST_PATIENCE
        seconds = max(least, SLOWER * self._slowest, SLOWER_THAN_FIRST * self._first)
        return min(deadline, max(seconds, AGAIN * deadline if limit == "again" else 0))

    def _timeout_of(self, sent: SentJob) -> float:
        if self._known_hangs and not sent.whole:
            return min(sent.seconds, self._seconds("try"))
        return sent.seconds

    def play(self, jobs: Sequence[Job]) -> list[Behaviour]:
        """Return the behaviours of the jobs, in their order."""
        if self._stage is not None:
            return [*map(self._stage.play, jobs)]
        results: dict[int, Result] = {}
        sent = [SentJob(number, job, self._deadline or 0) for number, job in enumerate(jobs)]
        for result in self._run(sent):
            self._learn(result)
            results[result.job.number] = result
        return [self._read(results[number]) for number in range(len(jobs))]

    def play_one(self, job: Job, limit: Limit = "deadline", *, fresh: bool = False) -> Behaviour:
        """Return the behaviour of a job; if `fresh`, it is played in a new process."""
        if self._stage is not None:
            return self._stage.play(job)
        sent = SentJob(0, job, self._seconds(limit), whole=limit == "again")
        (result,) = self._run_fresh([sent]) if fresh else self._run_here([sent])
        self._learn(result)
        return self._read(result)

    def _learn(self, result: Result) -> None:
        """Note how long a behaviour took, and where one hangs."""
        if isinstance(result, FinishedJob):
            played: Played = result.value
            self._finished = True
            if played.is_first:
                self._first = max(self._first, played.seconds)
            else:
                self._slowest = max(self._slowest, played.seconds)
        elif result.late and result.late >= (self._deadline or 0):
            self._known_hangs.add(_describe_hang(result.late, result.place).key)

    def _read(self, result: Result) -> Behaviour:
        """Return the behaviour of a result; that of a process without an end is a violation."""
        if isinstance(result, FinishedJob):
            behaviour: Behaviour | BaseException = result.value.behaviour
            if isinstance(behaviour, BaseException):
                raise behaviour
            return behaviour
        sent: SentJob = result.job
        if not result.late:
            how = result.reason
            crash = BrokenInvariant(CRASH, f"the process of the agent {how}", f"{CRASH}: {how}")
            return self._observe(sent.job, crash)
        hang = _describe_hang(result.late, result.place)
        if not self._finished and self._plan.script is None:
            self._check_speed()
        if hang.key in self.found_hangs and sent.job.seed:
            return Behaviour((), (hang,), requests=1)
        if result.late < sent.seconds and hang.key not in self._known_hangs:
            (result,) = self._run_here([sent._replace(whole=True)])
            self._learn(result)
            return self._read(result)
        return self._observe(sent.job, hang)

    def _check_speed(self) -> None:
        """Raise if the deadline is too short for the agent, whatever the model does."""
        (result,) = self._run_here([SentJob(0, Job(), self._deadline or 0)])
        self._learn(result)
        if isinstance(result, FinishedJob) or not result.late:
            return
        where = f"; it was in {result.place}" if result.place else ""
        raise UsageError(
            f"the agent needs more than {result.late:g} s to start and to end after a reply"
            f" without a call{where}",
            hint="raise --deadline (deadline=…); if it never ends, run it alone first",
        )

    def _observe(self, job: Job, violation: BrokenInvariant) -> Behaviour:
        """Return the behaviour of a job that had no end; its moves are reported in another try."""
        if not job.seed:
            return Behaviour(job.moves, (violation,), requests=1)
        announced = self._folder / "moves"
        announced.write_bytes(b"")
        again = msgspec.structs.replace(job, announces=str(announced))
        (result,) = self._run_here([SentJob(0, again, self._seconds("try"))])
        if isinstance(result, FinishedJob) and isinstance(result.value.behaviour, Behaviour):
            moves: tuple[Move, ...] = result.value.behaviour.moves  # this time it ended
        else:
            moves = tuple(_read_moves(announced))
        return Behaviour(moves, (violation,), requests=1)


def _load_modules() -> None:
    """Import what every process needs, before it is a fork: this takes as long as 20 behaviours."""
    from offbook.determinism.run_context import is_library
    from offbook.exchange.model import compile_validator
    from offbook.exchange.providers import all_providers
    from offbook.secrets import hide_secrets

    for name in ("session", "extensions"):
        import_module(f"offbook.subjects.session.{name}")
    compile_validator({}, "")
    all_providers()
    is_library("")
    hide_secrets("")  # builds its tables


def _read_moves(path: Path) -> Iterator[Move]:
    with path.open("rb") as file, suppress(EOFError):
        while True:
            yield pickle.load(file)  # noqa: S301 - written by our own fork


def _describe_hang(seconds: float, place: str) -> BrokenInvariant:
    """Return the violation for an agent that did not end, with the place where it was."""
    where = f": it is in {place}" if place else ""
    message = f"the agent did not end within {seconds:g} s{where}"
    return BrokenInvariant(HANG, message, f"{HANG}: {re.sub(r':[0-9]+ in ', ' ', place)}")
