"""The tracing of SDKs is switched off in a block."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from offbook.sources.inprocess import disable_telemetry


class BatchSpanProcessor:
    """OpenTelemetry's processor, without its thread."""

    def __init__(self, exporter: object) -> None:
        self._batch_processor = SimpleNamespace(_exporter=exporter)
        self.queue: list[str] = []

    def on_end(self, span: str) -> None:
        self.queue.append(span)


class NetworkExporter:
    pass


class InMemoryExporter:
    __module__ = "opentelemetry.sdk.trace.export.in_memory_span_exporter"


@pytest.mark.parametrize(
    "exporter, kept",
    [(NetworkExporter(), ["before", "after"]), (InMemoryExporter(), ["before", "inside", "after"])],
)
def test_spans_of_the_block_are_not_exported_later(
    monkeypatch: pytest.MonkeyPatch, exporter: object, kept: list[str]
):
    module: Any = ModuleType("opentelemetry.sdk.trace.export")
    module.BatchSpanProcessor = BatchSpanProcessor
    monkeypatch.setitem(sys.modules, module.__name__, module)
    processor = BatchSpanProcessor(exporter)
    processor.on_end("before")
    with disable_telemetry():
        processor.on_end("inside")
    processor.on_end("after")
    assert processor.queue == kept
