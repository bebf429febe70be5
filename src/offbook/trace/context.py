"""The context of what is emitted: it follows awaits and tasks, and never leaks to a neighbour."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import sys
from contextvars import ContextVar, Token, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

P = ParamSpec("P")
T = TypeVar("T")

NOTHING: dict[str, Any] = {}


class ContextScope:
    """Adds to the context of one bus, as long as a `with` block lasts.

    A `with` inside an async generator would go on holding in the consumer's code between two
    values: there the scope holds only while the generator itself runs, or a task that it started.
    """

    __slots__ = ("_added", "_base", "_frame", "_owner", "_task", "_token", "context", "outer")

    def __init__(self, owner: object, base: dict[str, Any], added: dict[str, Any]) -> None:
        self._owner = owner
        self._base = base
        self._added = added
        self._frame: FrameType | None = None
        self.context = base

    def __enter__(self) -> dict[str, Any]:
        scopes = _scopes.get()
        self.outer = scopes.get(self._owner)
        self._frame = _generator(sys._getframe(1))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no other way to know
        self._task = _task() if self._frame else None
        self.context = {**current_context(self._owner, self._base), **self._added}
        self._token: Token[Mapping[object, ContextScope]] = _scopes.set(
            {**scopes, self._owner: self}
        )
        return self.context

    def __exit__(self, *_: object) -> None:
        try:
            _scopes.reset(self._token)
        except ValueError:  # another task closed the generator: here the scope rests for good
            return
        self._frame = None

    def holding(self) -> ContextScope | None:
        """This scope, or the nearest one outside it that holds here."""
        scope: ContextScope | None = self
        while scope is not None and scope.rests():
            scope = scope.outer
        return scope

    def rests(self) -> bool:
        """Whether its generator is between two values, and the consumer's code is running."""
        frame = self._frame
        return frame is not None and frame.f_back is None and _task() is self._task


NOWHERE: Mapping[object, ContextScope] = {}
_scopes: ContextVar[Mapping[object, ContextScope]] = ContextVar("offbook_scopes", default=NOWHERE)


def current_context(owner: object, base: dict[str, Any]) -> dict[str, Any]:
    """The context that holds here for this owner; what it has outside any scope is `base`."""
    scope = _scopes.get().get(owner)
    if scope is None:
        return base
    scope = scope.holding()
    return base if scope is None else scope.context


def bind_context(function: Callable[P, T]) -> Callable[P, T]:
    """This function with the context of here, for a thread or an executor to run."""
    context = copy_context()

    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return context.copy().run(function, *args, **kwargs)

    return run


def _generator(frame: FrameType) -> FrameType | None:
    """The frame, if it is an async generator that gives values; not one that is a `with` block."""
    if not frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return None
    driver = frame.f_back
    within = driver is not None and driver.f_code.co_filename == contextlib.__file__
    return None if within else frame


def _task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
