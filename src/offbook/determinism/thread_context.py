"""Values that follow the work of a run into the threads that it starts.

A `ContextVar` goes along into asyncio tasks, but not into threads. While somebody `follows`, the
variables that were made here are handed on to every thread that is started, and to every job
given to a pool of threads; nothing else is, since a whole context would make libraries believe
that they are still in the event loop that they came from.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from offbook.determinism.patch import apply_patch

if TYPE_CHECKING:
    from types import FrameType


# --- Who is to blame: the line of the user's own code that led to something.

HERE = str(Path(__file__).resolve().parents[1])


def call_site() -> str:
    """`file:line in function` of the innermost frame that is neither Python's nor a library's."""
    # the only way to see one's caller
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - there is no public way
    while frame is not None:
        code = frame.f_code
        if not _is_foreign(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


@cache
def _is_foreign(file: str) -> bool:
    return file.startswith(("<", *_foreign_folders()))


@cache
def _foreign_folders() -> tuple[str, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {Path(sysconfig.get_paths()[name]) for name in names}
    return (HERE, *{str(shown) for path in paths for shown in (path, path.resolve())})


# --- Values that follow the work of a run into the threads that it starts.

_followers: list[ContextVar[Any]] = []
_origin: ContextVar[str] = ContextVar("offbook_origin", default="")

Values = list[tuple[ContextVar[Any], Any]]


def thread_variable(name: str) -> ContextVar[Any]:
    """A variable that follows into threads; it is None where nobody has set it."""
    variable: ContextVar[Any] = ContextVar(name, default=None)
    _followers.append(variable)
    return variable


def call_origin() -> str:
    """The user's own line at work here; in a thread, the one that started it."""
    return call_site() or _origin.get()


@contextmanager
def propagate_to_threads() -> Generator[None]:
    """Let the followers follow into threads, for the time being."""
    with ExitStack() as stack:
        stack.callback(apply_patch(Thread, "start", _start))
        stack.callback(apply_patch(ThreadPoolExecutor, "submit", _submit))
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
    return [*values, (_origin, call_origin())] if values else []


def _work(values: Values, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with ExitStack() as stack:
        for variable, value in values:
            stack.callback(variable.reset, variable.set(value))
        return work(*args, **named)
