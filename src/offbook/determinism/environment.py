"""Environment variables of this process, for the time of a run."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

_lock = Lock()
# Each variable that was changed: its value before, and those of the open blocks. Blocks of
# concurrent runs may end in any order.
_changes: dict[str, list[str | None]] = {}


@contextmanager
def set_environment(variables: Mapping[str, str]) -> Generator[None]:
    """Set environment variables in this block."""
    with _lock:
        for name, value in variables.items():
            _changes.setdefault(name, [os.environ.get(name)]).append(value)
            os.environ[name] = value
    _forget_variables()
    try:
        yield
    finally:
        with _lock:
            for name, value in variables.items():
                values = _changes[name]
                del values[
                    len(values) - 1 - values[::-1].index(value)
                ]  # not the first: it was before
                if len(values) == 1:
                    del _changes[name]
                if values[-1] is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = values[-1]
        _forget_variables()


def read_environment() -> dict[str, str]:
    """Return the environment as it is without the variables that open blocks have set."""
    with _lock:
        found: dict[str, str | None] = {**os.environ}
        found.update({name: values[0] for name, values in _changes.items()})
    return {name: value for name, value in found.items() if value is not None}


def _forget_variables() -> None:
    if (langsmith := sys.modules.get("langsmith.utils")) is not None:
        langsmith.get_env_var.cache_clear()  # it remembers what it has read
