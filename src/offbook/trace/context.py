"""The context of a run: its mocks and faults, its watchers, and the context of its events.

The variables are for code that is called without a run at hand. The context of events follows
awaits and tasks, and never leaks to other tasks.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from contextvars import ContextVar, Token, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from offbook.determinism.thread_context import thread_variable

if TYPE_CHECKING:
    from asyncio import Task
    from collections.abc import Callable, Mapping
    from types import FrameType

    from offbook.determinism.faults import FaultInjector

P = ParamSpec("P")
T = TypeVar("T")

EMPTY: dict[str, Any] = {}

current_llm: ContextVar[Any] = thread_variable("offbook_llm")
"""The `LlmScope` of `with_llm_mocks`, or None."""

current_host: ContextVar[Any] = thread_variable("offbook_host")
"""The `HostScope` of `with_host_mocks`, or None."""

current_faults: ContextVar[FaultInjector | None] = thread_variable("offbook_faults")
"""The faults of the current run, in all its tasks and threads; None without any."""

live_listener: ContextVar[Callable[[Any], None] | None] = ContextVar("offbook-live", default=None)
"""Called with the events of every new hub, for a program that watches; see `live_events`."""


keep_wire: ContextVar[bool] = ContextVar("offbook-wire", default=False)
"""True if new hubs get the bytes of exchanges, too; see `sources/server/wire_recording.py`."""


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
        scopes = _scopes.get()
        self.outer = scopes.get(self._owner)
        self._frame = _async_generator(sys._getframe(1))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
        self._task = _current_task() if self._frame else None
        self.context = {**current_context(self._owner, self._base), **self._added}
        self._token: Token[Mapping[object, ContextScope]] = _scopes.set(
            {**scopes, self._owner: self}
        )
        return self.context

    def __exit__(self, *_: object) -> None:
        try:
            _scopes.reset(self._token)
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
        if frame is None or _current_task() is not self._task:
            return False
        # The frame of a suspended generator has no caller. A finished one may have kept its last
        # caller (Python 3.13), which is why `_exited` is asked first.
        return self._exited or frame.f_back is None


NO_SCOPES: Mapping[object, ContextScope] = {}
_scopes: ContextVar[Mapping[object, ContextScope]] = ContextVar("offbook_scopes", default=NO_SCOPES)


def current_context(owner: object, base: dict[str, Any]) -> dict[str, Any]:
    """Return the context of the current code for this owner; outside any scope it is `base`."""
    scopes = _scopes.get()
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


def _current_task() -> Task[Any] | None:
    import asyncio  # loaded already, where an async generator runs

    try:
        return asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return None
