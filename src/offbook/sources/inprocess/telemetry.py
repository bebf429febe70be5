"""Environment variables and tracing of the SDKs in this process, for the time of a run.

Their tracing is switched off, as for commands: their threads would send it after the run.
"""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import apply_patch
from offbook.exchange.providers import QUIET_ENV

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

_lock = Lock()
# Each variable that was changed: its value before, and those of the open blocks. Blocks of
# concurrent runs may end in any order.
_changes: dict[str, list[str | None]] = {}


@contextmanager
def disable_telemetry() -> Generator[None]:
    """Switch off tracing and telemetry in this block."""
    with ExitStack() as stack:
        # OpenAI Agents reads its variable once, perhaps before this block.
        if (agents := sys.modules.get("agents.tracing.provider")) is not None:
            for name in ("create_trace", "create_span"):
                stack.callback(apply_patch(agents.DefaultTraceProvider, name, _create_disabled))
        # A thread that was started before this block would export the spans of this block later.
        if (otel := sys.modules.get("opentelemetry.sdk.trace.export")) is not None:
            stack.callback(apply_patch(otel.BatchSpanProcessor, "on_end", _drop_span))
        stack.enter_context(set_environment(QUIET_ENV))
        yield


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


def _drop_span(original: Callable[..., Any], processor: Any, span: Any) -> Any:
    """Drop a span that would be sent somewhere; a test may read those that are kept in memory."""
    # OpenTelemetry has no public way from the processor to its exporter.
    batch = getattr(processor, "_batch_processor", processor)
    exporter = getattr(batch, "_exporter", getattr(processor, "span_exporter", None))
    return original(processor, span) if "in_memory" in type(exporter).__module__ else None


def _create_disabled(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return original(*args, **{**named, "disabled": True})
