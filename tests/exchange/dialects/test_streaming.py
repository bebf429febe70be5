"""Server-sent events, chunks of a text and byte templates."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.exchange import Reply, Text
from offbook.exchange.dialects import (
    PLACEHOLDER,
    ByteTemplate,
    FilledTemplate,
    SseEvent,
    encode_sse,
    parse_sse,
    split_fixed,
    split_reply_text,
    split_words,
)

# ------------------------------------------------------------------ server-sent events

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
        (b'data: a\n\ndata: {"b": 1}', [SseEvent("a"), SseEvent('{"b": 1}')]),
        (b"data: a\n\ndata: [DONE]", [SseEvent("a"), SseEvent("[DONE]")]),
        (b'data: a\n\ndata: {"b":', [SseEvent("a")]),
        (b"", []),
        (b"\n\n\n", []),
    ],
)
def test_a_stream_is_parsed(stream: bytes, events: list[SseEvent]) -> None:
    assert list(parse_sse(stream)) == events


@given(st.lists(st.tuples(lines, st.sampled_from(["", "message", "response.created"]))))
def test_encoded_events_are_parsed_to_the_same_events(events: list[tuple[str, str]]) -> None:
    stream = b"".join(encode_sse(data.encode(), name) for data, name in events)
    assert list(parse_sse(stream)) == [SseEvent(data, name) for data, name in events]


# ---------------------------------------------------------------------------- chunking


@given(st.text())
def test_chunks_join_to_the_text(text: str) -> None:
    assert "".join(split_words(text)) == text
    assert "".join(split_fixed(text)) == text
    assert all((*split_words(text), *split_fixed(text)))


def test_a_text_is_split_into_words() -> None:
    assert split_words("All done: it is  42.\n") == ["All", " done:", " it", " is", "  42.", "\n"]


def test_recorded_chunks_are_used_if_they_match() -> None:
    assert split_reply_text(Reply((Text("ab c"),), chunks=("a", "b c")), "ab c") == ("a", "b c")
    assert split_reply_text(Reply((Text("ab c"),), chunks=("x",)), "ab c") == ["ab", " c"]


# ---------------------------------------------------------------------- byte templates

ids = st.binary(min_size=1, max_size=9).filter(lambda name: PLACEHOLDER not in name)
chunk_parts = st.lists(
    st.lists(st.binary(max_size=5).map(lambda b: b.replace(PLACEHOLDER, b"x")), min_size=1)
)


def measure(chunks: Sequence[bytes]) -> bytes:
    """Join the chunks with their lengths, so that a wrong chunk is detected."""
    return b"".join(b"%d:%b" % (len(piece), piece) for piece in chunks)


@given(chunk_parts, st.lists(ids, min_size=1, max_size=4))
def test_every_placeholder_is_filled(parts: list[list[bytes]], ids: list[bytes]):
    template = ByteTemplate(PLACEHOLDER.join(piece) for piece in parts)
    for name in ids:
        expected = tuple(name.join(piece) for piece in parts)
        filled = FilledTemplate(template, name)
        assert tuple(filled) == expected
        assert filled == expected
        assert hash(filled) == hash(expected)
        assert filled[1:] == expected[1:]
        assert [filled[index] for index in range(len(filled))] == list(expected)
        assert filled.join(measure) == measure(expected)


def test_the_join_is_computed_once_per_id_length():
    calls: list[int] = []

    def join(chunks: Sequence[bytes]) -> bytes:
        calls.append(len(chunks))
        return b"".join(chunks)

    template = ByteTemplate((b"a\0b", b"\0"))
    assert [FilledTemplate(template, name).join(join) for name in (b"1", b"2", b"33")] == [
        b"a1b1",
        b"a2b2",
        b"a33b33",
    ]
    assert calls == [2, 2]
