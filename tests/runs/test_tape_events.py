"""The trace of a run with a tape: the tape, the requests to other servers, the MCP servers."""

from __future__ import annotations

from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from offbook import Cassette, Playbook, Recording, Trace
from offbook.checks.comparison import compare_traces
from tests.runs.test_http_tracks import FIND, in_loop, keys, shop, url_of, with_urllib
from tests.runs.test_tapes import ONCE, Shop, served_tools

__all__ = ["keys", "shop"]  # fixtures


def run(rehearse: Any, source: Any, trace: Path) -> Trace:
    with rehearse(source=source, trace=trace) as rehearsal:
        rehearsal.run("Go")
    return Trace(trace)


def record(rehearse: Any, script: list[Any], tmp_path: Path, tracks: str) -> Trace:
    playbook = Playbook()
    playbook.load(*script)
    with Recording(playbook, tmp_path / "tape.yaml", tracks=tracks) as source:
        return run(rehearse, source, tmp_path / "recorded.jsonl")


def data_of(trace: Trace, name: str) -> list[dict[str, Any]]:
    return [event.data for event in trace if event.event == name]


@pytest.fixture
def traces(shop: ThreadingHTTPServer, tmp_path: Path) -> list[Trace]:
    """A run with requests of its tools, recorded and replayed."""
    rehearse = in_loop(with_urllib, url_of(shop))
    recorded = record(rehearse, FIND, tmp_path, "model,http")
    tape = Cassette(tmp_path / "tape.yaml", tracks="model,http")
    return [recorded, run(rehearse, tape, tmp_path / "replayed.jsonl")]


def test_a_trace_names_its_tape_once(traces: list[Trace], tmp_path: Path):
    tape = {"file": str(tmp_path / "tape.yaml"), "tracks": ["model", "http"]}
    assert [data_of(trace, "cassette.tape") for trace in traces] == [
        [tape | {"recorded": True}],
        [tape | {"recorded": False}],
    ]


def test_a_trace_has_the_requests_to_other_servers(traces: list[Trace], shop: ThreadingHTTPServer):
    for trace, replayed in zip(traces, (False, True), strict=True):
        assert data_of(trace, "http.call") == [
            {
                "method": "GET",
                "url": f"{url_of(shop)}/orders/{number}",
                "status": 200,
                "replayed": replayed,
            }
            for number in (7, 8, 7)
        ]


def test_a_replay_has_the_trace_of_its_recording_and_a_verdict(traces: list[Trace]):
    differing = [row.after for row in compare_traces(*traces).rows if row.differs]
    assert [event and event.title for event in differing] == ["pass cassette replayed"]


def test_another_request_is_a_difference(traces: list[Trace]):
    changed = [
        event if event.event != "http.call" else type(event)(event.ts, event.event, {"url": "x"})
        for event in traces[1]
    ]
    assert not compare_traces(traces[0], changed).same


def test_the_tool_of_an_mcp_server_names_it(tmp_path: Path):
    trace = record(served_tools(Shop()), [ONCE], tmp_path, "model,tools")
    assert [data["server"] for data in data_of(trace, "tool.start")] in (["shop"], ["mcp"])
