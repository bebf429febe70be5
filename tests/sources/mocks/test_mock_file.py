"""A mock file is parsed strictly: an error names the line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offbook.errors import FormatError
from offbook.exchange import Text, Thinking, ToolCall
from offbook.sources.mocks import Mock, parse_mocks, read_mocks

HEADER = '{"schemaVersion": 1}\n'
NEW = '"id": "a", "scope": "default", "consume": "once"'


def parse_single(text: str) -> Mock:
    [mock] = parse_mocks(text, "m.jsonl").mocks
    return mock


@pytest.mark.parametrize(
    "text,line,message",
    [
        ('{"text": "a"}\n\n{"text": ', 3, "invalid JSON"),
        ('{"txt": "a"}', 1, "did you mean 'text'"),
        ('{"text": 5}', 1, "expected a text"),
        ('{"input_tokens": "x"}', 1, "input_tokens"),
        ('{"input_tokens": -1}', 1, "input_tokens"),
        ('{"match": "*", "consume_match": "yes"}', 1, "consume_match"),
        ('{"tool_calls": [{"arguments": {}}]}', 1, "name"),
        (
            '{"tool_calls": [{"name": "a", "arguments": [1]}]}',
            1,
            "the arguments of 'a': expected a mapping, got a list",
        ),
        ('{"tool_calls": [{"name": "a", "argumets": {}}]}', 1, "did you mean 'arguments'"),
        ('{"error": {"category": "rate_limt"}}', 1, "did you mean 'rate_limit'"),
        ('{"error": {"kind": "sometimes"}}', 1, "unknown error kind"),
        ('{"error": {"message": "x"}}', 1, "needs a category"),
        (
            '{"error": {"category": "timeout", "retry_after_ms": -1}}',
            1,
            "expected an integer >= 0 (at $.error.retry_after_ms)",
        ),
        ('{"error": {"status": 99}}', 1, "expected an integer >= 100 (at $.error.status)"),
        ('{"stop_reason": "end_trun"}', 1, "did you mean 'end_turn'"),
        ('{"text": "ab", "stream_chunks": ["a", "c"]}', 1, "do not add up"),
        ('{"usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 4}}', 1, "total"),
        ('{"blocks": [{"type": "output_txt"}]}', 1, "did you mean 'output_text'"),
        ('["text"]', 1, "one JSON object a line"),
        ('{"text": "a"}\n# a remark', 2, "comments are not allowed"),
        ('// a remark\n{"text": "a"}', 1, "comments are not allowed"),
        ('{"text": "a", "id": "x"}', 1, "newer format"),
        ('{"text": "a"}\n{"schemaVersion": 1}', 2, "on the first line only"),
        ('{"schemaVersion": 1, "strictScope": true}', 1, "did you mean 'strictScopes'"),
        ('{"schemaVersion": 0}', 1, "unknown schemaVersion 0"),
        (HEADER + '{"text": "a"}', 2, "missing 'id'"),
        (HEADER + '{"id": " ", "scope": "default", "consume": "once"}', 2, "missing 'id'"),
        (HEADER + '{"id": "a", "scope": "default", "consume": "twice"}', 2, "consume"),
        (HEADER + f"{{{NEW}}}\n{{{NEW}}}", 3, "already used on line 2"),
        (HEADER + f'{{{NEW}, "match": "*", "consume_match": true}}', 2, "older format"),
        (HEADER + f'{{{NEW}, "cache_creation_input_tokens": 1}}', 2, "older format"),
        (HEADER + f'{{{NEW}, "tool_calls": [{{"name": "a", "args": {{}}}}]}}', 2, "'arguments'"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number(text: str, line: int, message: str):
    with pytest.raises(FormatError) as error:
        parse_mocks(text, "m.jsonl")
    assert error.value.line == line
    assert str(error.value).startswith(f"m.jsonl:{line}: ")
    assert message in str(error.value)


def test_a_newer_version_is_rejected():
    with pytest.raises(FormatError, match="newer Offbook"):
        parse_mocks('{"schemaVersion": 2}', "m.jsonl")


def test_a_missing_file_is_reported_with_its_path():
    with pytest.raises(FormatError, match=r"nowhere\.jsonl: cannot be read"):
        read_mocks("nowhere.jsonl")


def test_thinking_text_and_calls_are_in_this_order():
    mock = parse_single(
        '{"tool_calls": [{"name": "a", "args": {"x": 1}}], "text": "t", "thinking": "h"}'
    )
    assert mock.reply.blocks == (Thinking("h"), Text("t"), ToolCall("", "a", {"x": 1}))
    assert mock.reply.stop == "tool_use"


def test_blocks_keep_their_own_order():
    mock = parse_single(
        '{"text": "t", "blocks": [{"type": "tool_call", "id": "c", "name": "a", "arguments": {}},'
        ' {"type": "output_text", "text": "t", "visibility": "public"}]}'
    )
    assert mock.reply.blocks == (ToolCall("c", "a", {}), Text("t"))


def test_arguments_win_over_args():
    mock = parse_single('{"tool_calls": [{"name": "a", "args": {"x": 1}, "arguments": {"x": 2}}]}')
    assert mock.reply.blocks == (ToolCall("", "a", {"x": 2}),)


def test_chunks_make_the_text_if_there_is_none():
    mock = parse_single('{"stream_chunks": ["Hel", "lo"]}')
    assert mock.reply.blocks == (Text("Hello"),)


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
def test_token_counts_are_read_under_all_their_names(fields: str, usage: tuple[int, ...]):
    counts = parse_single(f"{{{fields}}}").reply.usage
    assert (counts.input, counts.output, counts.cache_read, counts.cache_write) == usage


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_any_text_is_parsed_or_rejected_with_its_line(text: str):
    line: int | None = -1
    try:
        parse_mocks(text, "m.jsonl")
    except FormatError as error:
        line = error.line
    assert line
