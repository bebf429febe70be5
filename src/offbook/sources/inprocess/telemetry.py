"""Switch off the tracing of known SDKs in this process, as for commands.

Their threads would send it after the run, to their own servers.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from offbook.determinism.patch import apply_patch
from offbook.exchange.providers import QUIET_ENV

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

_lock = Lock()
_users = 0
_before: dict[str, str | None] = {}


@contextmanager
def disable_telemetry() -> Generator[None]:
    """Switch off tracing and telemetry in this block; blocks may overlap."""
    global _users  # noqa: PLW0603 - the environment is global, too
    with ExitStack() as stack:
        # OpenAI Agents reads its variable once, perhaps before this block.
        if (agents := sys.modules.get("agents.tracing.provider")) is not None:
            for name in ("create_trace", "create_span"):
                stack.callback(apply_patch(agents.DefaultTraceProvider, name, _create_disabled))
        with _lock:
            if not _users:
                _before.update(set_environment(QUIET_ENV))
            _users += 1
        try:
            yield
        finally:
            with _lock:
                _users -= 1
                if not _users:
                    set_environment(_before)
                    _before.clear()


def set_environment(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Set environment variables, or remove those that are None; return what they were."""
    before = {name: os.environ.get(name) for name in variables}
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    if (langsmith := sys.modules.get("langsmith.utils")) is not None:
        langsmith.get_env_var.cache_clear()  # it remembers what it has read
    return before


def _create_disabled(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return original(*args, **{**named, "disabled": True})
