"""All complete lines of a trace are read; damaged ones are reported with their number."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.trace import Event, LineFault, Recorder, Trace, read_trace


def write(path: Path, count: int) -> bytes:
    recorder = Recorder(path, ts=1)
    for seq in range(1, count + 1):
        recorder.record(Event(seq, "x", {"text": "ü" * seq}, seq))
    recorder.close()
    return path.read_bytes()


@given(st.data())
def test_a_trace_cut_anywhere_gives_its_complete_lines_and_the_number_of_the_torn_one(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    path = tmp_path_factory.mktemp("torn") / "t.jsonl"
    raw = write(path, 6)
    cut = data.draw(st.integers(0, len(raw)))
    path.write_bytes(raw[:cut])
    events, faults = read_trace(path)
    whole = raw[:cut].count(b"\n")
    rest = raw[:cut].rpartition(b"\n")[2]
    complete = bool(rest) and raw[cut : cut + 1] == b"\n"  # only its line end is missing
    assert [event.seq for event in events] == list(range(1, whole + complete))
    torn = LineFault(
        whole + 1, "the line is incomplete", torn=True, text=rest[:100].decode("utf-8", "replace")
    )
    assert faults == ([] if complete or not rest else [torn])


@pytest.mark.parametrize("line", [b"garbage", b"{}", b"\xff\xfe", b'{"ts":1}', b"[1]"])
def test_a_corrupt_line_in_the_middle_is_numbered_and_the_rest_is_read(tmp_path: Path, line: bytes):
    path = tmp_path / "t.jsonl"
    lines = write(path, 4).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line + b"\n", *lines[2:]]))
    events, faults = read_trace(path)
    assert [event.seq for event in events] == [1, 2, 3, 4]
    assert [fault.line for fault in faults] == [3]
    assert faults[0].reason
    assert faults[0].text == line.decode("utf-8", "replace")


def test_a_torn_line_is_read_when_it_is_complete(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    raw = write(path, 3)
    path.write_bytes(raw[:-5])
    trace = Trace(path)
    assert [event.seq for event in trace] == [1, 2]
    path.write_bytes(raw)
    assert [event.seq for event in trace] == [3]
    assert trace.faults == []


def test_each_iteration_reads_only_the_new_events(tmp_path: Path):
    recorder = Recorder(tmp_path / "t.jsonl", ts=1)
    trace = Trace(recorder.path)
    for seq in (1, 2):
        recorder.record(Event(1, "x", seq=seq))
        assert [event.seq for event in trace] == [seq]
    assert list(trace) == []
    recorder.close()


def test_a_trace_of_a_newer_version_is_rejected_with_a_fix(tmp_path: Path):
    path = tmp_path / "t.jsonl"
    path.write_text(
        '{"ts":1,"event":"_meta.trace","data":{"format":"offbook.trace","version":99}}\n'
    )
    with pytest.raises(FormatError, match="version 99, newer than 1") as caught:
        read_trace(path)
    assert "upgrade" in caught.value.hint
    assert caught.value.line == 1


@pytest.mark.parametrize(
    "data",
    ['{"format":"other","version":1}', '{"format":"offbook.trace"}', "{}", '{"version":"1"}'],
)
def test_the_header_of_another_format_is_rejected(tmp_path: Path, data: str):
    path = tmp_path / "t.jsonl"
    path.write_text(f'{{"ts":1,"event":"_meta.trace","data":{data}}}\n')
    with pytest.raises(FormatError, match="not an Offbook trace") as caught:
        read_trace(path)
    assert f"{path}:1" in str(caught.value)


def test_a_file_without_a_header_is_read(tmp_path: Path):
    path = tmp_path / "session.jsonl"
    path.write_text('{"ts":5,"event":"ux.terminal.write","data":{"bytes":"aGk="}}\n\n')
    events, faults = read_trace(path)
    assert (events, faults) == ([Event(5, "ux.terminal.write", {"bytes": "aGk="})], [])


def test_a_missing_trace_is_an_error_with_its_path(tmp_path: Path):
    with pytest.raises(FormatError, match="cannot read the trace: No such file") as caught:
        read_trace(tmp_path / "none.jsonl")
    assert "none.jsonl" in str(caught.value)
