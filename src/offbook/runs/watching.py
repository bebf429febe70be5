"""Watches the runs of a command: events as they happen, and spans at the end.

With events on stdout, everything else that offbook and the agent print goes to stderr.
"""

from __future__ import annotations

import base64
import fcntl
import os
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import SplitResult, unquote, urlsplit

from offbook.determinism.run_context import live_listener, use_variable
from offbook.errors import CollectorError, OffbookError, RunError, UsageError
from offbook.reports.otel_spans import count_spans, export_spans
from offbook.secrets import excerpt, hide_bytes, known_secret_bytes
from offbook.trace.correlation import CORRELATION_ID
from offbook.trace.events import Event
from offbook.trace.reader import Trace
from offbook.trace.recorder import PRIVATE_MODE, encode_event

if TYPE_CHECKING:
    from offbook.trace.events import Event

STDOUT, STDERR = 1, 2


@contextmanager
def watch_runs(events: str | None, otlp: str | None) -> Generator[None]:
    """Write the events of all runs inside to a file, `-` for stdout; send their spans to `otlp`."""
    with ExitStack() as stack:
        files = [] if events is None else [stack.enter_context(_open(events))]
        if otlp is not None:
            _split_address(otlp)  # before the run
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


# --- Spans go to a collector over OTLP/HTTP, as protobuf: not every receiver reads JSON

TRACES_PATH = "/v1/traces"
TIMEOUT = 10.0
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
ID_FIELDS = ("traceId", "spanId", "parentSpanId")
MAX_BODY, MAX_READ = 300, 20_000  # characters of a refusal that are shown, and bytes of it


def send_spans(document: Mapping[str, Any], url: str) -> int:
    """Send the spans of an OTLP document to a collector, and return how many they are.

    `url` is the address of the collector, or of its path for traces. The headers come from the
    variable OTEL_EXPORTER_OTLP_HEADERS, as for every exporter.
    """
    address = _split_address(url)
    if not address.path.endswith(TRACES_PATH):
        address = address._replace(path=address.path.rstrip("/") + TRACES_PATH)
    body, count = _encode(document)
    request = urllib.request.Request(  # noqa: S310 - the scheme is checked above
        address.geturl(),
        body,
        {"content-type": "application/x-protobuf", "user-agent": "offbook", **_headers()},
    )
    # No proxy of the environment: the collector is where the user said.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT):
            return count
    except urllib.error.HTTPError as error:
        text = excerpt(error.read(MAX_READ).decode("utf-8", "replace"), MAX_BODY)
        raise CollectorError(
            f"the collector refused the spans: HTTP {error.code} {text}".rstrip(), where=url
        ) from error
    except (urllib.error.URLError, OSError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        raise CollectorError(
            f"the collector cannot be reached: {reason}",
            where=url,
            hint="start it, or write the spans to a file: "
            "offbook report TRACE --format otlp -o spans.json",
        ) from error


def _split_address(url: str) -> SplitResult:
    """Return the parts of the address of a collector."""
    with suppress(ValueError):  # a bracket that is not closed
        address = urlsplit(url)
        if address.scheme in {"http", "https"} and address.netloc:
            return address
    raise UsageError(f"invalid address of a collector: {url!r}", hint="http://127.0.0.1:4318")


def _encode(document: Mapping[str, Any]) -> tuple[bytes, int]:
    try:
        from google.protobuf.json_format import ParseDict
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
            ExportTraceServiceRequest,
        )
    except ImportError as error:
        raise UsageError(
            "spans are sent with opentelemetry-proto, which is not installed",
            hint="pip install 'offbook[otel]'",
        ) from error
    converted = _with_base64_ids(document)
    message = ParseDict(converted, ExportTraceServiceRequest())
    count = sum(
        len(scope.spans) for resource in message.resource_spans for scope in resource.scope_spans
    )
    return message.SerializeToString(), count


def _with_base64_ids(value: Any) -> Any:
    """Return the document with ids in base64: OTLP writes them in hex, protobuf's JSON does not."""
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if key in ID_FIELDS
            else _with_base64_ids(item)
            for key, item in fields.items()
        }
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in cast("list[Any]", value)]
    return value


def _headers() -> dict[str, str]:
    pairs = [pair.partition("=") for pair in os.environ.get(HEADERS_VARIABLE, "").split(",")]
    return {unquote(name.strip()): unquote(value.strip()) for name, sign, value in pairs if sign}


# --- Events as they happen: one JSON object a line. It is written before the emitter goes on, so
# nothing is lost when the process ends. Secrets are masked, as in a trace.


class LiveEvents:
    """Writes events to file descriptors. Forked processes and threads may share it."""

    def __init__(self, *files: int) -> None:
        # Of each file the rest of a line whose writing was interrupted.
        self._unwritten = dict.fromkeys(files, b"")
        self._known = known_secret_bytes()
        self._lock = threading.RLock()
        self._processes = tempfile.TemporaryFile()  # noqa: SIM115 - locked by one process at a time

    def write(self, event: Event) -> None:
        """Write one event; do nothing after the end."""
        with self._lock:
            if not self._unwritten:
                return
            line = hide_bytes(encode_event(event), self._known) + b"\n"
            fcntl.lockf(self._processes, fcntl.LOCK_EX)
            try:
                for file in [*self._unwritten]:
                    self._write(file, line)
            finally:
                fcntl.lockf(self._processes, fcntl.LOCK_UN)

    def _write(self, file: int, line: bytes) -> None:
        self._unwritten[file] += line
        try:
            while rest := self._unwritten[file]:
                self._unwritten[file] = rest[os.write(file, rest) :]
        except BrokenPipeError:  # the reader has seen enough: the run goes on
            del self._unwritten[file]
        except OSError as error:
            del self._unwritten[file]
            reason = error.strerror or str(error)
            raise RunError(f"cannot write the events: {reason}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._unwritten.clear()
        self._processes.close()
