"""The context of a run: its time and ids, and its variables where no run is at hand.

    clock = FrozenClock(tick=5)       # every run at the same time
    stable_id("call_", "bash", "1")   # the same id for the same parts

No other module reads the clock or creates ids.

A `ContextVar` is inherited by asyncio tasks and not by threads. Inside of `propagate_to_threads`,
the variables created by `thread_variable` are set in each thread that is started, for each job of
a thread pool, and for each function that runs at the exit of the process. Nothing else is: with a
whole context, libraries such as anyio would believe that they still run in the event loop of the
thread that started them.

The context of events (`ContextScope`) follows awaits and tasks, and never leaks to other tasks.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import inspect
import sys
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar, Token, copy_context
from functools import cache, partial, wraps
from hashlib import blake2b
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Mapping
    from types import FrameType

P = ParamSpec("P")
T = TypeVar("T")

EPOCH = 1_700_000_000
"""The second at which every rehearsal takes place."""


class Clock(Protocol):
    """A source of the time, in milliseconds since 1970."""

    def millis(self) -> int:
        """Return the time now."""
        ...

    def timer(self) -> float:
        """Return a time for durations, in milliseconds."""
        ...


_real_time_ns = time.time_ns  # a tape replaces it for its run


class SystemClock:
    """The time of the machine."""

    def millis(self) -> int:
        """Return the time now."""
        return _real_time_ns() // 1_000_000

    def timer(self) -> float:
        """Return a time that never goes back."""
        return time.perf_counter_ns() / 1_000_000


class FrozenClock:
    """A time that is fixed, or moves `tick` milliseconds each time it is read."""

    def __init__(self, start: int = EPOCH * 1000, tick: int = 0) -> None:
        self._now = start
        self._tick = tick

    def millis(self) -> int:
        """Return the time now; afterwards it is one tick later."""
        now = self._now
        self._now += self._tick
        return now

    def timer(self) -> float:
        """Return the time now, without a tick."""
        return self._now

    def advance(self, millis: int) -> None:
        """Move the time forward."""
        self._now += millis


class IdCounter:
    """Counted ids, for each prefix from 1: `call-1`, `call-2`, `run-1`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, prefix: str) -> str:
        """Return the next id with this prefix."""
        count = self._counts.get(prefix, 0) + 1
        self._counts[prefix] = count
        return f"{prefix}-{count}"


def stable_id(prefix: str, *parts: str, length: int = 24) -> str:
    """Return an id that looks like a provider's, and is always the same for the same parts."""
    digest = blake2b("\0".join(parts).encode(), digest_size=32).hexdigest()
    return f"{prefix}{digest[:length]}"


# --- Variables

EMPTY: dict[str, Any] = {}

_variables: list[ContextVar[Any]] = []
_origin: ContextVar[str] = ContextVar("offbook_origin", default="")

Values = list[tuple[ContextVar[Any], Any]]


def thread_variable(name: str) -> ContextVar[Any]:
    """Create a variable that is propagated to threads; it is None where it is not set."""
    variable: ContextVar[Any] = ContextVar(name, default=None)
    _variables.append(variable)
    return variable


class use_variable:  # noqa: N801 - used as a function
    """Set a variable in a `with` block: four times as fast as a generator, for each prompt."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        # A fixture may be closed in another context than it was opened in; that one is gone.
        try:  # noqa: SIM105 - `suppress` is slow, for each prompt
            self._variable.reset(self._token)
        except ValueError:
            pass


@contextmanager
def propagate_to_threads() -> Generator[None]:
    """Propagate the thread variables to the threads that are started in this block."""
    from concurrent.futures import ThreadPoolExecutor

    with ExitStack() as stack:
        stack.callback(apply_patch(Thread, "start", _start_thread))
        stack.callback(apply_patch(ThreadPoolExecutor, "submit", _submit))
        for name in ("start_new_thread", "start_new"):
            stack.callback(apply_patch(_thread, name, _start_new_thread))
        stack.callback(apply_patch(atexit, "register", _register))
        yield


def snapshot_variables() -> Callable[[], None]:
    """Return a function that sets the thread variables of the caller in another context."""
    values = [(variable, variable.get()) for variable in _variables]

    def restore() -> None:
        for variable, value in values:
            if variable.get() is not value:
                variable.set(value)

    return restore


def _start_thread(original: Callable[[Thread], None], thread: Thread) -> None:
    values = _current_values()
    if values:
        thread.run = partial(_run_with, values, thread.run)
    original(thread)


def _submit(original: Callable[..., Any], pool: object, work: Any, *args: Any, **named: Any) -> Any:
    values = _current_values()
    work = partial(_run_with, values, work) if values else work
    return original(pool, work, *args, **named)


def _start_new_thread(
    original: Callable[..., int], work: Any, args: Any, *named: dict[str, Any]
) -> int:
    values = _current_values()
    return original(partial(_run_with, values, work) if values else work, args, *named)


def _register(original: Callable[..., Any], work: Any, *args: Any, **named: Any) -> Any:
    values = _current_values()
    original(_AtExit(work, values) if values else work, *args, **named)
    return work


class _AtExit:
    """A function that runs at the exit of the process with these values."""

    def __init__(self, work: Callable[..., Any], values: Values) -> None:
        self._work = work
        self._values = values

    def __call__(self, *args: Any, **named: Any) -> Any:
        return _run_with(self._values, self._work, *args, **named)

    def __eq__(self, other: object) -> bool:  # `atexit.unregister` looks for the function
        return self._work == other

    def __hash__(self) -> int:
        return hash(self._work)


def _current_values() -> Values:
    values = [(variable, value) for variable in _variables if (value := variable.get()) is not None]
    return [*values, (_origin, call_origin())] if values else []


def _run_with(values: Values, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with ExitStack() as stack:
        for variable, value in values:
            stack.callback(variable.reset, variable.set(value))
        return work(*args, **named)


# --- The variables of a run: its mocks and faults, and its watchers

current_llm: ContextVar[Any] = thread_variable("offbook_llm")
"""The `LlmScope` of `with_llm_mocks`, or None."""

current_host: ContextVar[Any] = thread_variable("offbook_host")
"""The `HostScope` of `with_host_mocks`, or None."""

current_clock: ContextVar[Any] = thread_variable("offbook_clock")
"""The `RunClock` of the tape whose run the current code is in, or None."""

live_listener: ContextVar[Callable[[Any], None] | None] = ContextVar("offbook-live", default=None)
"""Called with the events of every new hub, for a program that watches; see `live_events`."""

keep_wire: ContextVar[bool] = ContextVar("offbook-wire", default=False)
"""True if new hubs get the bytes of exchanges, too; see `sources/server/endpoint.py`."""


# --- The context of events


class ContextScope:
    """Adds keys to the context of one hub for a `with` block.

    A context variable set inside an async generator is also visible to the consumer's code
    between two values, since both run in one task. There a scope is active only while the
    generator itself runs, or a task that it started.
    """

    __slots__ = (
        *("_added", "_base", "_exited", "_frame", "_owner", "_task", "_token"),
        *("context", "outer"),
    )

    def __init__(self, owner: object, base: dict[str, Any], added: dict[str, Any]) -> None:
        self._owner = owner
        self._base = base
        self._added = added
        self._frame: FrameType | None = None
        self._exited = False
        self.context = base

    def __enter__(self) -> dict[str, Any]:
        scopes = context_scopes.get()
        self.outer = scopes.get(self._owner)
        self._frame = _async_generator(sys._getframe(1))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
        self._task = current_task() if self._frame else None
        self.context = {**current_context(self._owner, self._base), **self._added}
        self._token: Token[Mapping[object, ContextScope]] = context_scopes.set(
            {**scopes, self._owner: self}
        )
        return self.context

    def __exit__(self, *_: object) -> None:
        try:
            context_scopes.reset(self._token)
        except ValueError:
            # Another task closed the generator, so the variable still has this scope in the
            # task that entered it. Only a flag can end it there.
            self._exited = True
            return
        self._frame = None

    def innermost_active(self) -> ContextScope | None:
        """Return this scope, or the nearest enclosing one that is active in the current code."""
        scope: ContextScope | None = self
        while scope is not None and scope.is_suspended():
            scope = scope.outer
        return scope

    def is_suspended(self) -> bool:
        """Return whether the generator of this scope is between two values, or was closed."""
        frame = self._frame
        if frame is None or current_task() is not self._task:
            return False
        # The frame of a suspended generator has no caller. A finished one may have kept its last
        # caller (Python 3.13), which is why `_exited` is asked first.
        return self._exited or frame.f_back is None


NO_SCOPES: Mapping[object, ContextScope] = {}
context_scopes: ContextVar[Mapping[object, ContextScope]] = ContextVar(
    "offbook_scopes", default=NO_SCOPES
)


def current_context(owner: object, base: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the current code for this owner; outside any scope it is `base`."""
    scopes = context_scopes.get()
    scope = scopes.get(owner) if scopes else None
    scope = None if scope is None else scope.innermost_active()
    return base if scope is None else scope.context


def bind_context(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function bound to the current context, for a thread or an executor to call."""
    context = copy_context()

    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        # a copy for each call: two threads cannot be in one context at the same time
        return context.copy().run(function, *args, **kwargs)

    return call


def _async_generator(frame: FrameType) -> FrameType | None:
    """Return the frame if it is an async generator whose values are consumed.

    A generator that is an `asynccontextmanager` is meant to leave its scope to the `async with`.
    """
    if not frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return None
    driver = frame.f_back
    manager = driver is not None and driver.f_code.co_filename == contextlib.__file__
    return None if manager else frame


def current_task() -> Task[Any] | None:
    """Return the task that is running, if any."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None


# --- The user's line of code


def call_origin() -> str:
    """Return the user's line that is running; in a library's thread, the one that started it."""
    return call_site() or _origin.get()


def call_site() -> str:
    """Return `file:line in function` of the innermost frame that is the user's own code."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    while frame is not None:
        code = frame.f_code
        if not is_library(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


@cache
def is_library(file: str) -> bool:
    """Return whether a file is one of Python, of an installed package or of Offbook."""
    return file.startswith(("<", *_library_folders()))


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of Python, of the installed packages and of Offbook itself."""
    import sysconfig

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {Path(sysconfig.get_paths()[name]) for name in names}
    offbook = str(Path(__file__).resolve().parents[1])
    return (offbook, *{str(form) for path in paths for form in (path, path.resolve())})


# --- Wrappers around functions of other libraries: shared by all users, removed by the last

Wrapper = Callable[..., Any]
"""Called with the original function first, then with the arguments of the call."""


class PatchRegistry:
    """The patched functions of this process.

    Two runs at once, or one inside the other, share a patch, and the last to undo removes it. So
    a wrapper must find out from a `ContextVar` which run it works for.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._patches: dict[tuple[object, str], _Patch] = {}

    def apply(self, owner: object, name: str, wrapper: Wrapper) -> Callable[[], None]:
        """Wrap the function of this name; return a function that undoes it."""
        with self._lock:
            patch = self._patches.get((owner, name))
            # It is kept for the next test: to make one takes longer than to install it.
            if patch is None or not patch.install():
                patch = self._patches[owner, name] = _Patch(owner, name)
            patch.add(wrapper)
        return partial(self._undo, patch, wrapper)

    def _undo(self, patch: _Patch, wrapper: Wrapper) -> None:
        with self._lock:
            patch.discard(wrapper)
            if not patch.users:
                patch.restore()


class _Patch:
    """One replaced function. Its wrappers are called from the latest to the first."""

    def __init__(self, owner: object, name: str) -> None:
        self.target = owner, name
        self.users: dict[Wrapper, int] = {}
        self._inherited = name not in vars(owner)
        self._original = self._call = getattr(owner, name)

        @wraps(self._original)
        def replacement(*args: Any, **named: Any) -> Any:
            return self._call(*args, **named)

        @wraps(self._original)
        async def replacement_async(*args: Any, **named: Any) -> Any:
            return await self._call(*args, **named)

        # Libraries ask whether a function is async.
        awaited = inspect.iscoroutinefunction(self._original)
        self._replacement = replacement_async if awaited else replacement
        setattr(owner, name, self._replacement)

    def install(self) -> bool:
        """Replace the function; return False if another library has patched it."""
        owner, name = self.target
        if getattr(owner, name) is self._original:
            setattr(owner, name, self._replacement)
        return self.in_effect

    @property
    def in_effect(self) -> bool:
        """True unless another library has patched the function since."""
        owner, name = self.target
        return vars(owner).get(name) is self._replacement

    def add(self, wrapper: Wrapper) -> None:
        self.users[wrapper] = self.users.get(wrapper, 0) + 1
        self._chain()

    def discard(self, wrapper: Wrapper) -> None:
        self.users[wrapper] -= 1
        if not self.users[wrapper]:
            del self.users[wrapper]
        self._chain()

    def _chain(self) -> None:
        call = self._original
        for wrapper in self.users:
            call = partial(wrapper, call)
        self._call = call

    def restore(self) -> None:
        if not self.in_effect:
            return  # the patch of another library calls ours, which now calls the original only
        owner, name = self.target
        if self._inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, self._original)


apply_patch = PatchRegistry().apply
"""Wrap a function: `undo = apply_patch(socket.socket, "connect", wrapper)`, then `undo()`."""


# --- Audit events: Python announces connections, look-ups and opened files before they happen

AuditHandler = Callable[[str, tuple[Any, ...]], None]


class AuditHook:
    """The one audit hook of this process, and the handlers of each event.

    Python can never remove a hook. So there is a single one, installed when it is first needed,
    and handlers come and go. A handler that raises prevents the operation.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._installed = False
        # replaced, never changed in place: the hook reads it in any thread, without the lock
        self._handlers: dict[str, tuple[AuditHandler, ...]] = {}

    def watch(self, events: Iterable[str], handler: AuditHandler) -> Callable[[], bool]:
        """Call `handler` before each of these events; return a function that stops it.

        That function returns False if the handler was removed in another way before.
        """
        names = frozenset(events)
        with self._lock:
            self._handlers = self._handlers | {
                name: (*self._handlers.get(name, ()), handler) for name in names
            }
            if not self._installed:
                self._installed = True

                # A function, since a method takes twice as long: Python checks each time whether
                # the hook may be traced, which a method answers with an exception.
                def hook(event: str, args: tuple[Any, ...]) -> None:
                    for watcher in self._handlers.get(event, ()):
                        watcher(event, args)

                sys.addaudithook(hook)

        def stop() -> bool:
            with self._lock:
                remaining: dict[str, tuple[AuditHandler, ...]] = {}
                removed = 0
                for name, handlers in self._handlers.items():
                    left = list(handlers)
                    if name in names and handler in left:
                        left.remove(handler)  # once: a handler can be added twice
                        removed += 1
                    if left:
                        remaining[name] = tuple(left)
                self._handlers = remaining
                return removed == len(names)

        return stop


watch_audit_events = AuditHook().watch
