"""The trace of a run with a tape: the tape, the requests to other servers, the MCP servers."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest

from offbook import Cassette, Playbook, Recording, Trace, call, drive, say, when
from offbook.checks.comparison import compare_traces
from offbook.errors import CheckFailed, ReplayMismatch
from offbook.testing import host_call, register_host_provider, with_host_mocks
from tests.runs.test_http_tracks import FIND, in_loop, keys, shop, url_of, with_urllib
from tests.runs.test_tapes import ONCE, Shop, served_tools
from tests.subjects.frameworks.test_tool_runners import openai_loop

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


# --- Calls of the host


def asking(clock: Any, again: int = 1) -> Any:
    """An agent that asks its host for the time before it asks the model."""

    def agent(prompt: str) -> str:
        with registered_clock(clock), with_host_mocks([], allow=["clock"]):
            times = [host_call("clock.now_ms") for _ in range(again)]
        return openai_loop(f"{prompt} at {times}", lambda _: "found")

    return partial(cast("Any", drive), agent)


@contextmanager
def registered_clock(clock: Any) -> Generator[None]:
    undo = register_host_provider("clock", clock)
    try:
        yield
    finally:
        undo()


class Clock:
    """A clock that goes on with each call, unless it is unplugged."""

    def __init__(self) -> None:
        self.now = 0

    def now_ms(self) -> int:
        self.now += 1
        return self.now


class Unplugged:
    """A clock that must not be read."""

    def now_ms(self) -> int:
        raise AssertionError("the clock was read")


TIMED = [when("Go at [1, 2]", [call("find_order", {"number": 7}), say("Done.")])]


@pytest.fixture
def timed_tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    record(asking(Clock(), 2), TIMED, tmp_path, "all")
    return tmp_path / "tape.yaml"


def test_calls_of_the_host_are_replayed_without_it(timed_tape: Path, tmp_path: Path):
    tape = Cassette(timed_tape, tracks="all")
    trace = run(asking(Unplugged(), 2), tape, tmp_path / "replayed.jsonl")
    assert [data["result"] for data in data_of(trace, "host.call")] == [1, 2]
    assert tape.verdict().status == "pass"


def test_a_call_of_the_host_that_was_not_recorded_fails(timed_tape: Path, tmp_path: Path):
    with pytest.raises(ReplayMismatch, match=r"host:clock\.now_ms ran more often than recorded"):
        run(asking(Unplugged(), 3), Cassette(timed_tape, tracks="all"), tmp_path / "t.jsonl")


def test_a_call_of_the_host_that_does_not_happen_fails(timed_tape: Path, tmp_path: Path):
    with pytest.raises((CheckFailed, ReplayMismatch)):
        run(asking(Unplugged(), 1), Cassette(timed_tape, tracks="all"), tmp_path / "t.jsonl")
