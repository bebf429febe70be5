"""Server-sent events are written and read as the standard says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange.dialects.streaming import SseEvent, encode_sse, parse_sse

lines = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@pytest.mark.parametrize(
    "stream, events",
    [
        (b"data: a\n\n", [SseEvent("a")]),
        (b"data:a\n\n", [SseEvent("a")]),
        (b"data:  a\n\n", [SseEvent(" a")]),
        (b"data: a\r\n\r\ndata: b\r\rdata: c\n\n", [SseEvent("a"), SseEvent("b"), SseEvent("c")]),
        (b"event: e\ndata: a\n\ndata: b\n\n", [SseEvent("a", "e"), SseEvent("b")]),
        (b"data: a\ndata: b\n\n", [SseEvent("a\nb")]),
        (b": a comment\n\ndata: a\nid: 7\nretry: 9\n\n", [SseEvent("a")]),
        (b"event: e\n\ndata: a\n\n", [SseEvent("a")]),
        (b"data\n\n", [SseEvent("")]),
        (b"\xef\xbb\xbfdata: a\n\n", [SseEvent("a")]),
        (b"data: a\n\ndata: b", [SseEvent("a"), SseEvent("b")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream_is_read(stream: bytes, events: list[SseEvent]) -> None:
    assert list(parse_sse(stream)) == events


@given(st.lists(st.tuples(lines, st.sampled_from(["", "message", "response.created"]))))
def test_what_is_written_is_read_again(said: list[tuple[str, str]]) -> None:
    stream = b"".join(encode_sse(data.encode(), name) for data, name in said)
    assert list(parse_sse(stream)) == [SseEvent(data, name) for data, name in said]
