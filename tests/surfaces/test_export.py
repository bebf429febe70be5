"""`offbook report --format otlp`: a file of spans, a collector that is down, empty traces."""

import json
from pathlib import Path

import pytest

from offbook import say, session, when
from tests.surfaces.conftest import Offbook

HEADER = '{"ts":0,"event":"_meta.trace","data":{"format":"offbook.trace","version":1}}\n'


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """The trace of a run."""
    path = tmp_path / "trace.jsonl"
    with session(trace=path) as rehearsal:
        rehearsal.run(when("Greet me", [say("Hi.")]))
    return path


def test_a_file_has_one_document_per_trace(trace: Path, offbook_command: Offbook):
    output = trace.with_name("spans.json")
    assert offbook_command("report", "--format", "otlp", trace, trace, "-o", output).code == 0
    documents = [json.loads(line) for line in output.read_text().splitlines()]
    assert [list(document) for document in documents] == [["resourceSpans"]] * 2


def test_stdout_has_nothing_but_the_spans(trace: Path, offbook_command: Offbook):
    assert list(json.loads(offbook_command("report", "--format", "otlp", trace).out)) == [
        "resourceSpans"
    ]


def test_exported_spans_can_be_imported(trace: Path, offbook_command: Offbook):
    spans, mocks = trace.with_name("spans.json"), trace.with_name("mocks.jsonl")
    offbook_command("report", "--format", "otlp", trace, "-o", spans)
    assert offbook_command("import", spans, "-o", mocks).code == 0
    assert "Hi." in mocks.read_text()


def test_a_collector_that_is_down_does_not_stop_the_other_traces(
    trace: Path, offbook_command: Offbook
):
    pytest.importorskip("opentelemetry.proto")
    outcome = offbook_command(
        "report", "--format", "otlp", trace, trace, "--to", "http://127.0.0.1:9"
    )
    assert outcome.code == 1
    assert outcome.err.count("the collector cannot be reached") == 2


def test_a_trace_without_spans_is_an_error(tmp_path: Path, offbook_command: Offbook):
    empty = tmp_path / "empty.jsonl"
    empty.write_text(HEADER)
    outcome = offbook_command("report", "--format", "otlp", empty)
    assert (outcome.code, outcome.out) == (2, "")
    assert "no run and no request in this trace" in outcome.err
