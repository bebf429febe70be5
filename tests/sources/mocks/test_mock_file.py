"""A mock file is read strictly: whatever is wrong with it is named with its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError, FutureVersion
from offbook.exchange.messages import Text, Thinking, ToolCall
from offbook.sources.mocks.mock_file import Mock, parse_mocks, read_mocks

HEADER = '{"schemaVersion": 1}\n'
NEW = '"id": "a", "scope": "default", "consume": "once"'


def one(text: str) -> Mock:
    [mock] = parse_mocks(text, "m.jsonl").mocks
    return mock


@pytest.mark.parametrize(
    "text,line,what",
    [
        ('{"text": "a"}\n\n{"text": ', 3, "invalid JSON"),
        ('{"txt": "a"}', 1, "did you mean 'text'"),
        ('{"text": 5}', 1, "Expected `str`"),
        ('{"input_tokens": "x"}', 1, "input_tokens"),
        ('{"input_tokens": -1}', 1, "input_tokens"),
        ('{"match": "*", "consume_match": "yes"}', 1, "consume_match"),
        ('{"tool_calls": [{"arguments": {}}]}', 1, "name"),
        ('{"tool_calls": [{"name": "a", "arguments": [1]}]}', 1, "an object"),
        ('{"tool_calls": [{"name": "a", "argumets": {}}]}', 1, "did you mean 'arguments'"),
        ('{"error": {"category": "rate_limt"}}', 1, "did you mean 'rate_limit'"),
        ('{"error": {"kind": "sometimes"}}', 1, "unknown error kind"),
        ('{"error": {"message": "x"}}', 1, "needs a category"),
        ('{"error": {"category": "timeout", "retry_after_ms": -1}}', 1, "not negative"),
        ('{"error": {"status": 99}}', 1, "HTTP status"),
        ('{"stop_reason": "end_trun"}', 1, "did you mean 'end_turn'"),
        ('{"text": "ab", "stream_chunks": ["a", "c"]}', 1, "do not add up"),
        ('{"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}}', 1, "total"),
        ('{"blocks": [{"type": "output_txt"}]}', 1, "did you mean 'output_text'"),
        ('["text"]', 1, "one JSON object"),
        ('{"text": "a"}\n# a remark', 2, "no comments"),
        ('// a remark\n{"text": "a"}', 1, "no comments"),
        ('{"text": "a", "id": "x"}', 1, "newer format"),
        ('{"text": "a"}\n{"schemaVersion": 1}', 2, "first line only"),
        ('{"schemaVersion": 1, "strictScope": true}', 1, "did you mean 'strictScopes'"),
        ('{"schemaVersion": 0}', 1, "no such schemaVersion"),
        (HEADER + '{"text": "a"}', 2, "no 'id'"),
        (HEADER + '{"id": " ", "scope": "default", "consume": "once"}', 2, "no 'id'"),
        (HEADER + '{"id": "a", "scope": "default", "consume": "twice"}', 2, "consume"),
        (HEADER + f"{{{NEW}}}\n{{{NEW}}}", 3, "on line 2 already"),
        (HEADER + f'{{{NEW}, "match": "*", "consume_match": true}}', 2, "older format"),
        (HEADER + f'{{{NEW}, "cache_creation_input_tokens": 1}}', 2, "older format"),
        (HEADER + f'{{{NEW}, "tool_calls": [{{"name": "a", "args": {{}}}}]}}', 2, "'arguments'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, line: int, what: str):
    with pytest.raises(FormatError) as error:
        parse_mocks(text, "m.jsonl")
    assert error.value.line == line
    assert str(error.value).startswith(f"m.jsonl:{line}: ")
    assert what in str(error.value)


def test_a_file_from_the_future_is_refused_politely():
    with pytest.raises(FutureVersion, match="newer Offbook"):
        parse_mocks('{"schemaVersion": 2}', "m.jsonl")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(FormatError, match=r"nowhere\.jsonl: cannot be read"):
        read_mocks("nowhere.jsonl")


def test_thoughts_words_and_calls_come_in_this_order():
    mock = one('{"tool_calls": [{"name": "a", "args": {"x": 1}}], "text": "t", "thinking": "h"}')
    assert mock.blocks == (Thinking("h"), Text("t"), ToolCall("", "a", {"x": 1}))
    assert mock.stop == "tool_use"


def test_blocks_keep_their_own_order():
    mock = one(
        '{"text": "t", "blocks": [{"type": "tool_call", "id": "c", "name": "a", "arguments": {}},'
        ' {"type": "output_text", "text": "t", "visibility": "public"}]}'
    )
    assert mock.blocks == (ToolCall("c", "a", {}), Text("t"))


def test_arguments_win_over_args():
    mock = one('{"tool_calls": [{"name": "a", "args": {"x": 1}, "arguments": {"x": 2}}]}')
    assert mock.blocks == (ToolCall("", "a", {"x": 2}),)


def test_chunks_are_the_text_where_there_is_none():
    mock = one('{"stream_chunks": ["Hel", "lo"]}')
    assert mock.blocks == (Text("Hello"),)


@pytest.mark.parametrize(
    "fields,usage",
    [
        ("", (0, 30, 0, 0)),
        ('"input_tokens": 4, "output_tokens": 5', (4, 5, 0, 0)),
        ('"usage": {"prompt_tokens": 4, "completion_tokens": 5, "total_tokens": 9}', (4, 5, 0, 0)),
        ('"input_tokens": 1, "usage": {"input_tokens": 4}', (1, 30, 0, 0)),
        ('"cache_read_tokens": 2, "cache_creation_input_tokens": 3', (0, 30, 2, 3)),
    ],
)
def test_tokens_are_found_under_all_their_names(fields: str, usage: tuple[int, ...]):
    found = one(f"{{{fields}}}").usage
    assert (found.input, found.output, found.cache_read, found.cache_write) == usage


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_read_or_refused_with_its_line(text: str):
    line: int | None = -1
    try:
        parse_mocks(text, "m.jsonl")
    except FormatError as error:
        line = error.line
    assert line
