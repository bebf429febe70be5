"""Context variables that follow the work of a run into its threads, and the user's line of code.

A `ContextVar` is inherited by asyncio tasks and not by threads. Inside of `propagate_to_threads`,
the variables created by `thread_variable` are set in each thread that is started, and for each job
of a thread pool. Nothing else is: with a whole context, libraries such as anyio would believe that
they still run in the event loop of the thread that started them.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType

_variables: list[ContextVar[Any]] = []
_origin: ContextVar[str] = ContextVar("offbook_origin", default="")

Values = list[tuple[ContextVar[Any], Any]]


def thread_variable(name: str) -> ContextVar[Any]:
    """Create a variable that is propagated to threads; it is None where it is not set."""
    variable: ContextVar[Any] = ContextVar(name, default=None)
    _variables.append(variable)
    return variable


class VariableScope:
    """Sets a variable in a `with` block; four times as fast as a generator, for each prompt."""

    __slots__ = ("_token", "_value", "_variable")

    def __init__(self, variable: ContextVar[Any], value: object) -> None:
        self._variable = variable
        self._value = value

    def __enter__(self) -> None:
        self._token = self._variable.set(self._value)

    def __exit__(self, *_: object) -> None:
        # A fixture may be closed in another context than it was opened in; that one is gone.
        with suppress(ValueError):
            self._variable.reset(self._token)


def use_variable(variable: ContextVar[Any], value: object) -> VariableScope:
    """Set a variable in a block."""
    return VariableScope(variable, value)


@contextmanager
def propagate_to_threads() -> Generator[None]:
    """Propagate the thread variables to the threads that are started in this block."""
    from offbook.determinism.patch import apply_patch

    with ExitStack() as stack:
        stack.callback(apply_patch(Thread, "start", _start_thread))
        stack.callback(apply_patch(ThreadPoolExecutor, "submit", _submit))
        yield


def snapshot_variables() -> Callable[[], None]:
    """Return a function that sets the thread variables of the caller in another context."""
    values = [(variable, variable.get()) for variable in _variables]

    def restore() -> None:
        for variable, value in values:
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


def _current_values() -> Values:
    values = [(variable, value) for variable in _variables if (value := variable.get()) is not None]
    return [*values, (_origin, call_origin())] if values else []


def _run_with(values: Values, work: Callable[..., Any], *args: Any, **named: Any) -> Any:
    with ExitStack() as stack:
        for variable, value in values:
            stack.callback(variable.reset, variable.set(value))
        return work(*args, **named)


def call_origin() -> str:
    """Return the user's line that is running; in a library's thread, the one that started it."""
    return call_site() or _origin.get()


def call_site() -> str:
    """Return `file:line in function` of the innermost frame that is the user's own code."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the only way to see the caller
    while frame is not None:
        code = frame.f_code
        if not _is_library(code.co_filename):
            return f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        frame = frame.f_back
    return ""


@cache
def _is_library(file: str) -> bool:
    return file.startswith(("<", *_library_folders()))


@cache
def _library_folders() -> tuple[str, ...]:
    """Return the folders of Python, of the installed packages and of Offbook itself."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    paths = {Path(sysconfig.get_paths()[name]) for name in names}
    offbook = str(Path(__file__).resolve().parents[1])
    return (offbook, *{str(form) for path in paths for form in (path, path.resolve())})
