"""The tracing of the SDKs in this process, switched off for the time of a run, as for commands.

Their threads would send it after the run.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from offbook.determinism.environment import set_environment
from offbook.determinism.run_context import apply_patch
from offbook.exchange.providers import QUIET_ENV

if TYPE_CHECKING:
    from collections.abc import Callable, Generator


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


def _drop_span(original: Callable[..., Any], processor: Any, span: Any) -> Any:
    """Drop a span that would be sent somewhere; a test may read those that are kept in memory."""
    # OpenTelemetry has no public way from the processor to its exporter.
    batch = getattr(processor, "_batch_processor", processor)
    exporter = getattr(batch, "_exporter", getattr(processor, "span_exporter", None))
    return original(processor, span) if "in_memory" in type(exporter).__module__ else None


def _create_disabled(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    return original(*args, **{**named, "disabled": True})
