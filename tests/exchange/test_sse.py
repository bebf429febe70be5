"""Server-sent events are written and read as the standard says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.sse import Event, frame, read

lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@pytest.mark.parametrize(
    "stream, events",
    [
        (b"data: a\n\n", [Event("a")]),
        (b"data:a\n\n", [Event("a")]),
        (b"data:  a\n\n", [Event(" a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [Event("a"), Event("b"), Event("c")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [Event("a", "e"), Event("b")]),
        (b"data: a\ndata: b\n\n", [Event("a\nb")]),
        (b": a comment\n\ndata: a\nid: 7\nretry: 9\n\n", [Event("a")]),
        (b"event: e\n\ndata: a\n\n", [Event("a")]),
        (b"data\n\n", [Event("")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Event("a")]),
        (b"data: a\n\ndata: b", [Event("a"), Event("b")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream_is_read(stream: bytes, events: list[Event]) -> None:
    assert list(read(stream)) == events


@given(st.lists(st.tuples(lines, st.sampled_from(["", "message", "response.created"]))))
def test_what_is_written_is_read_again(said: list[tuple[str, str]]) -> None:
    stream = b"".join(frame(data.encode(), name) for data, name in said)
    assert list(read(stream)) == [Event(data, name) for data, name in said]
