"""Every event is written as one complete line, whatever its data."""

import os
from collections.abc import Callable
from pathlib import Path
from threading import Thread, get_ident
from typing import Any

import msgspec
import pytest

from offbook.determinism.run_context import FrozenClock
from offbook.errors import UsageError
from offbook.exchange import Text, ToolResult
from offbook.trace import HEADER, VERSION, Event, Hub, Recorder
from offbook.trace.events import AgentEndData


def record(path: Path, *data: dict[str, Any]) -> list[dict[str, Any]]:
    recorder = Recorder(path, ts=1, subject="s")
    for seq, fields in enumerate(data, 1):
        recorder.record(Event(seq, "x", fields, seq))
    recorder.close()
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


def test_the_first_line_has_the_format_the_version_and_the_subject(tmp_path: Path):
    (first,) = record(tmp_path / "t.jsonl")
    assert first == {
        "ts": 1,
        "event": HEADER,
        "data": {"format": "offbook.trace", "version": VERSION, "subject": "s"},
    }


def test_an_event_is_on_disk_as_soon_as_it_is_recorded(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, ts=1)
    recorder.record(Event(2, "x", {"n": 1}, 1))
    assert path.read_bytes().endswith(b'{"ts":2,"event":"x","data":{"n":1},"seq":1}\n')
    recorder.close()


cycle: list[Any] = [1]
cycle.append(cycle)


@pytest.mark.parametrize(
    "value, expected",
    [
        ({3, 1}, [1, 3]),
        (Path("a"), "PosixPath('a')"),
        ({1: 2}, {"1": 2}),
        ({(1, 2): {1}}, {"(1, 2)": [1]}),
        ("\ud800x", "\\ud800x"),
        (
            ToolResult("1", (Text("a"),), details="\ud800"),
            {
                "type": "tool_result",
                "call_id": "1",
                "content": [{"type": "text", "text": "a"}],
                "is_error": False,
                "name": "",
                "details": "\\ud800",
            },
        ),
    ],
    ids=["set", "path", "number keys", "tuple keys", "half a surrogate", "struct"],
)
def test_a_value_that_json_does_not_have_is_written_as_its_nearest(
    tmp_path: Path, value: Any, expected: Any
):
    _, line = record(tmp_path / "t.jsonl", {"value": value})
    assert line["data"]["value"] == expected


def test_a_cycle_is_written_to_a_limited_depth(tmp_path: Path):
    _, line = record(tmp_path / "t.jsonl", {"value": cycle})
    assert line["data"]["value"][:1] == [1]


def test_an_existing_trace_is_overwritten(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    record(path, {"n": 1})
    assert len(record(path, {"n": 2})) == 2


def test_missing_folders_are_created(tmp_path: Path):
    assert record(tmp_path / "deep" / "er" / "t.jsonl")


def test_a_path_that_cannot_be_written_is_an_error_with_the_path(tmp_path: Path):
    with pytest.raises(UsageError, match="cannot write the trace") as caught:
        Recorder(tmp_path, ts=1)
    assert str(tmp_path) in str(caught.value)


def test_a_line_written_in_parts_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write = os.write

    def write_little(file: int, data: bytearray) -> int:
        return write(file, bytes(data)[:7])

    monkeypatch.setattr(os, "write", write_little)
    _, line = record(tmp_path / "t.jsonl", {"text": "x" * 50})
    assert line["data"] == {"text": "x" * 50}


def test_a_closed_recorder_writes_nothing_and_can_be_closed_again(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, ts=1)
    recorder.close()
    size = path.stat().st_size
    recorder.record(Event(1, "x"))
    recorder.close()
    assert path.stat().st_size == size


EDITS: dict[str, Callable[[Path], object]] = {
    "moved": lambda path: path.rename(path.with_name("other")),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "appended": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
    "replaced": lambda path: (path.unlink(), path.write_bytes(b"")),
    "edited": lambda path: path.write_bytes(path.read_bytes().replace(b"offbook", b"OFFBOOK")),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
def test_a_recorder_notices_that_its_file_was_changed(
    tmp_path: Path, edit: Callable[[Path], object]
):
    recorder = Recorder(tmp_path / "t.jsonl", ts=1)
    edit(recorder.path)
    recorder.close()
    assert recorder.changed


def test_a_recorder_does_not_take_its_own_lines_for_a_change(tmp_path: Path):
    recorder = Recorder(tmp_path / "t.jsonl", ts=1)
    recorder.record(Event(2, "x", {"n": "é"}, 1))
    recorder.close()
    assert not recorder.changed


def record_hub(path: Path) -> tuple[Hub, Recorder]:
    hub, recorder = Hub(), Recorder(path, ts=1)
    hub.subscribe(recorder.record, plain=True)
    hub.recorder = recorder
    return hub, recorder


def read_names(path: Path) -> list[str]:
    return [msgspec.json.decode(line)["event"] for line in path.read_bytes().splitlines()]


def test_events_that_are_held_back_are_not_written_before_the_release(tmp_path: Path):
    hub, recorder = record_hub(tmp_path / "t.jsonl")
    hub.hold()
    hub.emit("a")
    assert read_names(recorder.path) == [HEADER]
    hub.release()
    assert read_names(recorder.path) == [HEADER, "a"]
    recorder.close()


def test_events_that_are_held_back_are_written_when_the_hub_is_closed(tmp_path: Path):
    hub, recorder = record_hub(tmp_path / "t.jsonl")
    hub.hold()
    hub.emit("a")
    hub.close()
    recorder.close()
    assert read_names(recorder.path) == [HEADER, "a"]


def test_an_event_of_another_thread_is_written_after_those_held_back(tmp_path: Path):
    hub, recorder = record_hub(tmp_path / "t.jsonl")
    hub.hold()
    hub.emit("a")
    other = Thread(target=lambda: hub.emit("b"))
    other.start()
    other.join()
    assert read_names(recorder.path) == [HEADER, "a", "b"]
    recorder.close()


def test_an_event_of_another_thread_takes_no_place_from_one_that_is_being_held_back(
    tmp_path: Path,
):
    class SlowClock(FrozenClock):
        def millis(self) -> int:
            if get_ident() == holding and hub.seq == 1:  # the second event is on its way
                other = Thread(target=lambda: hub.emit("other"))
                other.start()
                other.join()
            return super().millis()

    holding = get_ident()
    recorder = Recorder(tmp_path / "t.jsonl", ts=1)
    hub = Hub(SlowClock())
    hub.subscribe(recorder.record, plain=True)
    hub.recorder = recorder
    hub.hold()
    for stop in ("first", "second", "third"):
        hub.emit_data(AgentEndData(stop))
    hub.release()
    lines = [msgspec.json.decode(line) for line in recorder.path.read_bytes().splitlines()[1:]]
    written = [(line["seq"], line.get("data", {}).get("stop", line["event"])) for line in lines]
    assert written == [(1, "first"), (2, "other"), (3, "second"), (4, "third")]
    recorder.close()


def test_a_listener_that_subscribes_ends_the_holding_back(tmp_path: Path):
    hub, recorder = record_hub(tmp_path / "t.jsonl")
    hub.hold()
    hub.emit("a")
    seen: list[str] = []
    hub.subscribe(lambda event: seen.append(event.event))
    hub.emit("b")
    assert (seen, read_names(recorder.path)) == (["b"], [HEADER, "a", "b"])
    recorder.close()


def test_of_events_written_together_each_value_that_json_does_not_have_is_converted(
    tmp_path: Path,
):
    path = tmp_path / "t.jsonl"
    recorder = Recorder(path, ts=1)
    recorder.write([Event(1, "x", {"n": 1}, 1), Event(1, "x", {"n": {1: 2}}, 2)])
    recorder.close()
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["data"] for line in lines[1:]] == [{"n": 1}, {"n": {"1": 2}}]


@pytest.mark.parametrize("status", ["pass", "fail"])
def test_a_secret_next_to_the_status_of_a_check_is_hidden(tmp_path: Path, status: str):
    key = f"sk-proj-{'aB3dE5gH7' * 5}"
    (_, line) = record(tmp_path / "t.jsonl", {"key": key, "status": status})
    assert line["data"] == {"key": "[API_KEY]", "status": status}
