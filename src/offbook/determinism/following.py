"""Values that follow the work of a run into the threads that it starts.

A `ContextVar` goes along into asyncio tasks, but not into threads. While somebody `follows`, the
variables that were made here are handed on to every thread that is started, and to every job
given to a pool of threads; nothing else is, since a whole context would make libraries believe
that they are still in the event loop that they came from.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import partial
from threading import Thread
from typing import Any

from offbook.determinism.caller import call_site
from offbook.determinism.patches import lay

_followers: list[ContextVar[Any]] = []
_origin: ContextVar[str] = ContextVar("offbook_origin", default="")

Values = list[tuple[ContextVar[Any], Any]]


def follower(name: str) -> ContextVar[Any]:
    """A variable that follows into threads; it is None where nobody has set it."""
    variable: ContextVar[Any] = ContextVar(name, default=None)
    _followers.append(variable)
    return variable


def origin() -> str:
    """The user's own line at work here; in a thread, the one that started it."""
    return call_site() or _origin.get()


@contextmanager
def following() -> Generator[None]:
    """Let the followers follow into threads, for the time being."""
    with ExitStack() as stack:
        stack.callback(lay(Thread, "start", _start))
        stack.callback(lay(ThreadPoolExecutor, "submit", _submit))
        yield


def _start(original: Callable[[Thread], None], thread: Thread) -> None:
    values = _pack()
    if values:
        thread.run = partial(_work, values, thread.run)
    original(thread)


def _submit(original: Callable[..., Any], pool: object, work: Any, *args: Any, **named: Any) -> Any:
    values = _pack()
    work = partial(_work, values, work) if values else work
    return original(pool, work, *args, **named)


def _pack() -> Values:
    values = [(variable, value) for variable in _followers if (value := variable.get()) is not None]
    return [*values, (_origin, origin())] if values else []


def _work(values: Values, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with ExitStack() as stack:
        for variable, value in values:
            stack.callback(variable.reset, variable.set(value))
        return work(*args, **named)
