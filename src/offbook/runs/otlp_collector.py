"""Sends spans to a collector over OTLP/HTTP, as protobuf: not every receiver reads JSON."""

from __future__ import annotations

import base64
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from offbook.errors import CollectorError, UsageError

TRACES_PATH = "/v1/traces"
TIMEOUT = 10.0
HEADERS_VARIABLE = "OTEL_EXPORTER_OTLP_HEADERS"
ID_FIELDS = ("traceId", "spanId", "parentSpanId")
MAX_BODY = 300  # characters of a refusal that are shown


def send_spans(document: Mapping[str, Any], url: str) -> int:
    """Send the spans of an OTLP document to a collector, and return how many they are.

    `url` is the address of the collector, or of its path for traces. The headers come from the
    variable OTEL_EXPORTER_OTLP_HEADERS, as for every exporter.
    """
    address = urlsplit(url)
    if address.scheme not in {"http", "https"} or not address.netloc:
        raise UsageError(f"invalid address of a collector: {url!r}", hint="http://127.0.0.1:4318")
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
        text = error.read(MAX_BODY).decode("utf-8", "replace")
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
