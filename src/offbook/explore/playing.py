"""One behaviour of the model, played against a new world, and its result."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import copy_context
from inspect import (
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from offbook.determinism.run_context import is_library, snapshot_variables
from offbook.errors import PlaybookError, UnknownOutcome, UsageError
from offbook.exchange.model import Tool
from offbook.explore.generated_model import ArgumentValues, GeneratedModel, PatientPlaybook
from offbook.explore.moves import Move, build_turn, find_values, run_rendered
from offbook.explore.sdk_conversions import SdkConversions, share_ssl_contexts
from offbook.files import ReusedFolder
from offbook.runs.api import drive
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.runs.run import Run, SyncBridge, watch_termination
from offbook.subjects.frameworks.framework import is_documented_end
from offbook.trace.events import REQUEST

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from offbook.exchange.model import ModelSource
    from offbook.sources.playbook.actions import Turn

T = TypeVar("T")
World = Callable[[], object]
Invariant = Callable[[Run, Any], object]

CRASH = "no unhandled exception"


class BrokenInvariant(msgspec.Struct, frozen=True):
    """A broken invariant: its name, and how it was broken.

    Two violations with one `key` are the same bug; the message may differ from run to run.
    """

    invariant: str
    message: str
    key: str


class Job(msgspec.Struct, frozen=True):
    """A behaviour to play: that of a seed, the moves of a script, or its text as it is pasted.

    Only with `records`, a trace is written. With `announces`, each move is reported when it is
    made: of a behaviour that hangs, this is all that is known.
    """

    seed: str = ""
    steps: int = 0
    moves: tuple[Move, ...] = ()
    text: str = ""
    records: bool = False
    announces: bool = False


class Behaviour(msgspec.Struct, frozen=True):
    """A played behaviour: the moves of the model, what the agent did, and the violations.

    It is plain data, so that it can come from another process. `gave_up` is the error with which
    the agent ended in a documented way. `undecided` are the invariants that gave no verdict, each
    with the error. `state` is a text that is equal for equal states of the world, and `seen` are
    the values in the results of the tools.
    """

    moves: tuple[Move, ...]
    violations: tuple[BrokenInvariant, ...] = ()
    gave_up: str = ""
    undecided: tuple[tuple[str, UsageError], ...] = ()
    state: str = ""
    requests: int = 0
    tools: tuple[Tool, ...] = ()
    seen: tuple[Any, ...] = ()
    notes: Mapping[str, str] = {}
    trace: str = ""


class _SharedLoop(SyncBridge):
    """One event loop for all runs: frameworks keep connections and certificates with the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = asyncio.Runner()
        self._loop = self._owner.get_loop()
        self._context = copy_context()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, without a new handler of Ctrl-C each time."""
        restore = snapshot_variables()

        async def run_in_scopes() -> T:
            restore()
            return await work

        task = self._loop.create_task(run_in_scopes(), context=self._context)
        return self._loop.run_until_complete(task)

    def close(self) -> None:
        """End what the agent left running; the loop stays open for the next run."""
        self._context = copy_context()
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(_wait_for(tasks))

    def end(self) -> None:
        """Close the loop."""
        self._owner.close()


async def _wait_for(tasks: Iterable[asyncio.Task[Any]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)


class Stage:
    """Plays behaviours against new worlds, in one event loop. Close it at the end.

    `world` returns a rehearsal or an agent to drive, and the state that the invariants read:
    `(rehearsal, state)`. An exception of `gives_up` is a documented way to end. `trace` is the file
    of worlds that name none. `last_run` is the run of the last behaviour.
    """

    def __init__(
        self,
        world: World,
        prompt: str,
        invariants: Iterable[Invariant],
        gives_up: tuple[type[BaseException], ...] = (),
        values: Mapping[str, Sequence[Any]] | None = None,
        trace: Path | None = None,
    ) -> None:
        self.prompt = prompt
        self.script: Turn | None = None  # what a job without moves plays
        self.last_run: Run | None = None
        self._invariants = {name_of(invariant): invariant for invariant in invariants}
        self._arguments = ArgumentValues(values or {}, prompt)
        self._world = world
        self._gives_up = gives_up
        self._bridge = _SharedLoop()
        self._folder = ReusedFolder()
        self._trace = trace
        self._stop_watching = watch_termination()
        self._stop_sharing = share_ssl_contexts()
        self._conversions = SdkConversions()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bridge.end()
        self._folder.remove()
        self._stop_watching()
        self._stop_sharing()
        self._conversions.stop()

    def play(self, job: Job, announce: Callable[[Move], object] | None = None) -> Behaviour:
        """Play a behaviour; `announce` gets each move that a generated model makes."""
        if job.seed:
            model = GeneratedModel(self._arguments, seed=job.seed, steps=job.steps)
            if announce is not None:
                model.announce = announce
            return self.play_model(model, job)
        turn = run_rendered(job.text) if job.text else self.script
        turn = build_turn(self.prompt, job.moves, []) if turn is None else turn
        # Without the automatic assertions of a test.
        return self._play(PatientPlaybook(), turn, job, lambda: job.moves)

    def play_model(self, model: GeneratedModel, job: Job) -> Behaviour:
        """Play a model that makes its own moves."""
        return self._play(model, self.prompt, job, lambda: model.moves)

    def _play(
        self, source: ModelSource, script: Turn | str, job: Job, moves: Callable[[], Iterable[Move]]
    ) -> Behaviour:
        defaults = RehearsalDefaults(
            source,
            self._bridge,
            auto_assert=False,
            folder=self._folder,
            in_memory=not job.records,
            trace=self._trace if job.records else None,
        )
        with use_defaults(defaults):
            rehearsal, state = _open(self._world)
        self._conversions.start()  # the world may have loaded an SDK
        error: BaseException | None = None
        try:
            try:
                run = rehearsal.run(script)
            # Errors of the test end the search; those of the agent are what it looks for.
            except (UsageError, PlaybookError):
                raise
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever the agent does wrong
                error = raised
                run = cast("Run", rehearsal.latest_run)
            self.last_run = run
            violations, undecided = self._check(run, state)
            error = None if error is None else _innermost(error)
            gave_up = error is not None and (
                isinstance(error, self._gives_up) or is_documented_end(error)
            )
            if error is not None and not gave_up:
                violations.append(_crash(error))
            results = run.events.tool_results
            return Behaviour(
                tuple(moves()),
                tuple(violations),
                type(error).__name__ if gave_up else "",
                tuple(undecided),
                describe_state(state, run),
                len(run.events.named(REQUEST)),
                # Only what is asked for: it is sent to another process.
                _list_tools(run, source),
                () if job.seed else tuple(v for result in results for v in find_values(result)),
                self._arguments.notes,
                str(rehearsal.trace) if job.records else "",
            )
        finally:
            rehearsal.dispose(failed=True)

    def _check(
        self, run: Run, state: object
    ) -> tuple[list[BrokenInvariant], list[tuple[str, UsageError]]]:
        violations: list[BrokenInvariant] = []
        undecided: list[tuple[str, UsageError]] = []
        for name, invariant in [*self._invariants.items()]:
            try:
                holds = invariant(run, state)
            except AssertionError as error:
                message = str(error).strip() or "the assertion failed"
                violations.append(BrokenInvariant(name, message, name))
            except Exception as error:  # noqa: BLE001 - an error of the test, reported as one
                undecided.append((name, _not_decided(name, error)))
                del self._invariants[name]  # the others go on
            else:
                if message := _read_result(name, holds):
                    violations.append(BrokenInvariant(name, message, name))
        return violations, undecided


def _open(world: World) -> tuple[Rehearsal, object]:
    """Return the rehearsal and the state of a new world."""
    made = world()
    pair = cast("tuple[object, ...]", made) if isinstance(made, tuple) else (made, None)
    if len(pair) != 2:  # noqa: PLR2004 - the rehearsal and the state
        raise UsageError(
            f"the world has {len(pair)} parts, not two",
            hint="return drive(agent), or (drive(agent), state)",
        )
    subject, state = pair
    return (subject if isinstance(subject, Rehearsal) else drive(subject)), state


def _list_tools(run: Run, source: ModelSource) -> tuple[Tool, ...]:
    """Return the tools that the agent offered."""
    if isinstance(source, GeneratedModel):
        return tuple(source.tools.values())
    return tuple({tool.name: tool for request in run.requests for tool in request.tools}.values())


def _innermost(error: BaseException) -> BaseException:
    """Return the error, or the first one of a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _crash(error: BaseException) -> BrokenInvariant:
    """Return the violation for an exception.

    The function of the user in which it was raised identifies the bug: the message and the line may
    change.
    """
    kind = type(error).__name__
    message = f"the agent raised {kind}: {error}"
    return BrokenInvariant(CRASH, message, f"{CRASH}: {kind} {_place_of(error.__traceback__)}")


def _place_of(trace: TracebackType | None) -> str:
    """Return the innermost function of the user in a traceback; without one, the innermost."""
    place = last = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        last = f"{code.co_filename}:{code.co_name}"
        place = place if is_library(code.co_filename) else last
        trace = trace.tb_next
    return place or last


def _not_decided(name: str, error: Exception) -> UsageError:
    """Return the error for an invariant that gave no verdict."""
    if isinstance(error, UnknownOutcome):
        return UsageError(
            f"the invariant {name} cannot be decided: {error.what}",
            hint="check what the tool did: let the world return (drive(agent), state); or read"
            " run.executed.known(), the tools that certainly ran",
        )
    return UsageError(
        f"the invariant {name} raised {type(error).__name__}: {error}",
        hint="an invariant fails by an assertion, or by returning False",
    )


def check_invariant(invariant: object) -> None:
    """Raise for an invariant that is no function, or whose call would not run it."""
    if not callable(invariant):
        raise UsageError(
            f"an invariant must be a function of the run and the state, not {invariant!r}"
        )
    kinds = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
    if any(is_kind(invariant) for is_kind in kinds):
        raise UsageError(
            f"the invariant {name_of(invariant)} would never run: it is async or a generator",
            hint="write a plain `def` that asserts, or returns True or False",
        )


def _read_result(name: str, result: object) -> str:
    """Return why an invariant is broken, or ""; raise if its result does not say so."""
    match result:
        case None | True:
            return ""
        case False:
            return "it returned False"
        case (bool() as holds, str() as reason):
            return "" if holds else reason or "it returned False"
        case _:
            pass
    if iscoroutine(result):
        result.close()
    raise UsageError(
        f"the invariant {name} returned {type(result).__name__}, which is no verdict",
        hint="assert, or return True, False or (False, reason)",
    )


def name_of(invariant: Invariant) -> str:
    """Return the name of an invariant in reports."""
    return getattr(invariant, "__name__", None) or repr(invariant)


def describe_state(state: object, run: Run) -> str:
    """Return a text for the state of the world; without one, for the results of the run.

    Values that differ from run to run, such as ids, are replaced by their order of appearance.
    """
    results = run.events.tool_results
    home = type(state).__module__.partition(".")[0]
    text = _describe(state, home, set()) if state is not None else repr([r.text for r in results])
    values = dict.fromkeys(value for result in results for value in find_values(result))
    for number, value in enumerate(values):
        if isinstance(value, str):
            text = text.replace(value, f"<{number}>")
    return text


def _describe(value: object, home: str, inside: set[int]) -> str:
    """Return the contents of a value, without addresses.

    Of objects only those of the user's own package are opened: the inside of a framework's agent or
    of a database connection is not the state of the world.
    """
    if value is None or isinstance(value, (str, int, float, bytes)):
        return repr(value)
    if id(value) in inside:  # an object that contains itself
        return "…"
    inside = {*inside, id(value)}
    if isinstance(value, dict):
        items = cast("dict[object, object]", value).items()
        return "{" + ", ".join(f"{k!r}: {_describe(v, home, inside)}" for k, v in items) + "}"
    if isinstance(value, (list, tuple)):
        parts = cast("list[object]", value)
        return "[" + ", ".join(_describe(part, home, inside) for part in parts) + "]"
    if isinstance(value, (set, frozenset)):
        members = cast("set[object]", value)
        return "{" + ", ".join(sorted(_describe(part, home, inside) for part in members)) + "}"
    kind = type(value)
    if kind.__module__.partition(".")[0] != home:
        return kind.__name__
    fields = getattr(value, "__dict__", None)
    if fields is None and isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
    return f"{kind.__name__}{_describe(fields, home, inside) if fields else ''}"
