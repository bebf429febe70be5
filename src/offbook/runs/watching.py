"""Watches the runs of a command: events as they happen, and spans at the end.

With events on stdout, everything else that offbook and the agent print goes to stderr.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from offbook.determinism.run_context import live_listener, use_variable
from offbook.errors import OffbookError, UsageError
from offbook.reports.otel_spans import count_spans, export_spans
from offbook.runs.otlp_collector import send_spans
from offbook.trace.correlation import CORRELATION_ID
from offbook.trace.events import Event
from offbook.trace.live_events import LiveEvents
from offbook.trace.reader import Trace
from offbook.trace.recorder import PRIVATE_MODE

STDOUT, STDERR = 1, 2


@contextmanager
def watch_runs(events: str | None, otlp: str | None = None) -> Generator[None]:
    """Write the events of all runs inside to a file, `-` for stdout; send their spans to `otlp`."""
    with ExitStack() as stack:
        files = [] if events is None else [stack.enter_context(_open(events))]
        if otlp is not None:
            # A file and not a list: cases of evals run in forked processes.
            kept = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".jsonl"))
            files.append(kept.fileno())
            stack.callback(_send_all, Path(kept.name), otlp)  # also after Ctrl-C
        live = stack.enter_context(LiveEvents(*files))
        stack.enter_context(use_variable(live_listener, live.write))
        yield


def _send_all(path: Path, url: str) -> None:
    runs: dict[str, list[Event]] = {}
    for event in Trace(path):
        runs.setdefault(str(event.context.get(CORRELATION_ID)), []).append(event)
    for trace in runs.values():
        _send(trace, url)


def _send(trace: list[Event], url: str) -> None:
    """Send the spans of a run. A collector that is down does not change the result of the run."""
    try:
        document = export_spans(trace)
        if count_spans(document):
            send_spans(document, url)
    except OffbookError as error:
        print(f"offbook: the spans were not sent: {error}", file=sys.stderr)  # noqa: T201 - a remark


@contextmanager
def _open(target: str) -> Generator[int]:
    """Yield the descriptor for events. For stdout, other output goes to stderr meanwhile."""
    if target != "-":
        try:
            file = os.open(Path(target), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_MODE)
        except OSError as error:
            reason = error.strerror or str(error)
            raise UsageError(f"cannot write the events: {reason}", where=target) from error
        try:
            yield file
        finally:
            os.close(file)
        return
    sys.stdout.flush()
    file = os.dup(STDOUT)
    os.dup2(STDERR, STDOUT)
    try:
        yield file
    finally:
        sys.stdout.flush()
        os.dup2(file, STDOUT)
        os.close(file)
