"""One behaviour of the model, played against a new world, and its result."""

from __future__ import annotations

import asyncio
import marshal
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from copy import copy
from inspect import (
    isasyncgenfunction,
    iscoroutine,
    iscoroutinefunction,
    isgeneratorfunction,
)
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

import msgspec

from offbook.determinism.run_context import apply_patch, snapshot_variables
from offbook.errors import PlaybookError, UsageError
from offbook.explore.generated_model import PatientPlaybook
from offbook.explore.moves import find_values
from offbook.files import ReusedFolder
from offbook.runs.api import drive
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.runs.run import Run, SyncBridge, watch_termination

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.exchange.model import ModelSource
    from offbook.explore.moves import Move
    from offbook.sources.playbook.actions import Turn


MODULES = ("openai._utils._transform",)
SCALARS = frozenset({str, int, float, bool, type(None)})
DISCRIMINATORS = frozenset({"type", "role"})  # the keys whose values choose a type
MOST_FORMS = 4096
MARSHAL = 2  # the version: the bytes of later ones depend on more than the value


class SdkConversions:
    """Skips the conversions that are known to change nothing, in the SDKs that are loaded."""

    def __init__(self) -> None:
        self._unchanged: set[tuple[int, int, object]] = set()
        self._types: dict[int, object] = {}  # kept, so that no other type gets the id of one
        self._undo: dict[str, list[Callable[[], None]]] = {}

    def start(self) -> None:
        """Patch the SDKs that were loaded since the last call."""
        for name in MODULES:
            module = sys.modules.get(name)
            if module is not None and name not in self._undo:
                wrappers = {
                    "_transform_recursive": self._convert,
                    "_async_transform_recursive": self._convert_async,
                }
                self._undo[name] = [
                    apply_patch(module, function, wrapper)
                    for function, wrapper in wrappers.items()
                    if hasattr(module, function)  # another version may not have it
                ]

    def stop(self) -> None:
        """Remove the patches."""
        for undo in [undo for patches in self._undo.values() for undo in patches]:
            undo()
        self._undo.clear()

    def _convert(
        self, original: Callable[..., Any], data: object, *, annotation: Any, inner_type: Any = None
    ) -> Any:
        key = self._key(data, annotation, inner_type)
        if key in self._unchanged:
            return copy(data)
        converted = original(data, annotation=annotation, inner_type=inner_type)
        return self._note(key, data, converted)

    async def _convert_async(
        self, original: Callable[..., Any], data: object, *, annotation: Any, inner_type: Any = None
    ) -> Any:
        key = self._key(data, annotation, inner_type)
        if key in self._unchanged:
            return copy(data)
        converted = await original(data, annotation=annotation, inner_type=inner_type)
        return self._note(key, data, converted)

    def _key(
        self, data: object, annotation: object, inner_type: object
    ) -> tuple[int, int, object] | None:
        """Return the types and the form of JSON; None for anything else."""
        try:
            form = describe_form(data)
        except (TypeError, RecursionError):
            return None
        # The ids of the types: the hash of a union is computed from all its members.
        self._types[id(annotation)] = annotation
        self._types[id(inner_type)] = inner_type
        return id(annotation), id(inner_type), form

    def _note(self, key: tuple[int, int, object] | None, data: object, converted: Any) -> Any:
        if key is not None and len(self._unchanged) < MOST_FORMS and _same(data, converted):
            self._unchanged.add(key)
        return converted


def describe_form(value: object) -> object:
    """Return the keys and types of JSON, with the values of discriminators.

    Raises TypeError for other values: files, dates, models, and the SDK's marks for no value.
    """
    kind = type(value)
    if kind in SCALARS:
        return kind
    if kind is list:  # each item is converted alone, so their number and order do not matter
        return list, frozenset(map(describe_form, cast("list[object]", value)))
    if kind is not dict:
        raise TypeError(f"{kind.__name__} is not JSON")
    form: list[object] = []
    for key, item in cast("dict[object, object]", value).items():
        if type(key) is not str:
            raise TypeError(f"{type(key).__name__} is not a key of JSON")
        chosen = key in DISCRIMINATORS and type(item) is str
        form += (key, item if chosen else describe_form(item))
    return (dict, *form)


def _same(data: Any, converted: Any) -> bool:
    """Return whether two values are equal, in the types and the order of keys too."""
    try:
        return marshal.dumps(data, MARSHAL) == marshal.dumps(converted, MARSHAL)
    except ValueError:
        return False


# ------------------------------------------------------------------------- ssl contexts
# TLS contexts that are made once for a search.
#
# A client of an SDK reads the certificates of all authorities when it is made: up to 50 ms of CPU,
# several times what a behaviour takes. A search makes a client for each behaviour.


def share_ssl_contexts() -> Callable[[], None]:
    """Let equal calls of `ssl.create_default_context` return one context; return the undo."""
    made: dict[Any, ssl.SSLContext] = {}

    def create(original: Callable[..., ssl.SSLContext], *args: Any, **options: Any) -> Any:
        try:
            key = (args, *sorted(options.items()))
            if key not in made:
                made[key] = original(*args, **options)
        except TypeError:  # an option without a hash
            return original(*args, **options)
        return made[key]

    return apply_patch(ssl, "create_default_context", create)


# ------------------------------------------------------------------------------ playing

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


class Behaviour(msgspec.Struct, frozen=True):
    """A played behaviour: the moves of the model, what the agent did, and the violations.

    `gave_up` is the error with which the agent ended in a documented way. `broken` are errors of
    the invariants themselves. `state` is a text that is equal for equal states of the world.
    """

    moves: tuple[Move, ...]
    run: Run
    violations: tuple[BrokenInvariant, ...] = ()
    gave_up: str = ""
    broken: tuple[tuple[str, Exception], ...] = ()
    state: str = ""


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
    `(rehearsal, state)`. An exception of `gives_up` is a documented way to end. Traces are
    written while `records` is true; `trace` is the file of worlds that name none.
    """

    def __init__(
        self,
        world: World,
        prompt: str,
        invariants: Iterable[Invariant],
        gives_up: tuple[type[BaseException], ...] = (),
        trace: Path | None = None,
    ) -> None:
        self.prompt = prompt
        self.invariants = {name_of(invariant): invariant for invariant in invariants}
        self._world = world
        self._gives_up = gives_up
        self._bridge = _SharedLoop()
        self._folder = ReusedFolder()
        self._trace = trace
        self.records = False
        self._stop_watching = watch_termination()
        self._stop_sharing = share_ssl_contexts()
        self._conversions = SdkConversions()
        self.played = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bridge.end()
        self._folder.remove()
        self._stop_watching()
        self._stop_sharing()
        self._conversions.stop()

    def play(self, model: ModelSource, moves: Callable[[], Iterable[Move]]) -> Behaviour:
        """Play a model that makes its own moves."""
        return self._play(model, self.prompt, moves)

    def play_script(self, turn: Turn, moves: Iterable[Move] = ()) -> Behaviour:
        """Play a script, without the automatic assertions of a test."""
        return self._play(PatientPlaybook(), turn, lambda: moves)

    def _play(
        self, source: ModelSource, script: Turn | str, moves: Callable[[], Iterable[Move]]
    ) -> Behaviour:
        self.played += 1
        defaults = RehearsalDefaults(
            source,
            self._bridge,
            auto_assert=False,
            folder=self._folder,
            in_memory=not self.records,
            trace=self._trace if self.records else None,
        )
        with use_defaults(defaults):
            rehearsal, state = _open(self._world)
        self._conversions.start()  # the world may have loaded an SDK
        error: Exception | None = None
        try:
            try:
                run = rehearsal.run(script)
            # Errors of the test end the search; those of the agent are what it looks for.
            except (UsageError, PlaybookError):
                raise
            except Exception as raised:  # noqa: BLE001 - whatever the agent does wrong
                error = raised
                run = cast("Run", rehearsal.latest_run)
            violations, broken = self._check(run, state)
            gave_up = error is not None and isinstance(error, self._gives_up)
            if error is not None and not gave_up:
                violations.append(_crash(error))
            return Behaviour(
                tuple(moves()),
                run,
                tuple(violations),
                type(error).__name__ if gave_up else "",
                tuple(broken),
                describe_state(state, run),
            )
        finally:
            rehearsal.dispose(failed=True)

    def _check(
        self, run: Run, state: object
    ) -> tuple[list[BrokenInvariant], list[tuple[str, Exception]]]:
        violations: list[BrokenInvariant] = []
        broken: list[tuple[str, Exception]] = []
        for name, invariant in self.invariants.items():
            try:
                holds = invariant(run, state)
            except AssertionError as error:
                message = str(error).strip() or "the assertion failed"
                violations.append(BrokenInvariant(name, message, name))
            except Exception as error:  # noqa: BLE001 - an error of the test, reported as one
                broken.append((name, error))
            else:
                if message := _read_result(name, holds):
                    violations.append(BrokenInvariant(name, message, name))
        return violations, broken


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


def _crash(error: Exception) -> BrokenInvariant:
    """Return the violation for an exception; its key is where it was raised."""
    # The function that raised identifies the bug; the message and the line may change.
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    place = f"{code.co_filename}:{code.co_name}" if code is not None else ""
    kind = type(error).__name__
    return BrokenInvariant(CRASH, f"the agent raised {kind}: {error}", f"{CRASH}: {kind} {place}")


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
