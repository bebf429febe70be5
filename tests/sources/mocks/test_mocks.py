"""Lines answer in order, then patterns in the order of the file; a miss shows the nearest line."""

import json
from typing import Any

import pytest

from offbook.errors import ModelError, ScriptMismatch, UsageError
from offbook.exchange import History, Message, Reply, Request, Text, ToolCall, ToolResult, user
from offbook.sources import join_values
from offbook.sources.mocks import RECEIPTS, Mocks, lint_mocks, parse_mocks

HEADER: dict[str, Any] = {"schemaVersion": 1}
STRICT: dict[str, Any] = {"schemaVersion": 1, "strictScopes": True}


def ask(text: str, *, scope: str = "", system: str = "") -> Request:
    return Request(History([user(text)]), system, metadata={"scope": scope} if scope else {})


async def say(mocks: Mocks, *prompts: str) -> list[str]:
    return [(await mocks.reply(ask(prompt))).text for prompt in prompts]


async def test_lines_without_a_pattern_answer_in_order_and_once():
    mocks = Mocks([{"text": "first"}, {"text": "second"}])
    assert await say(mocks, "a", "b") == ["first", "second"]
    with pytest.raises(ScriptMismatch, match=r"(?s)matched prompt: .*used up: 2 lines"):
        await say(mocks, "c")


@pytest.mark.parametrize("lines", [5, {"text": "a"}, None])
def test_values_that_are_not_lines_are_rejected(lines: Any):
    with pytest.raises(UsageError, match="mocks must be a file or a list of lines"):
        Mocks(lines)


async def test_a_line_without_a_pattern_answers_before_one_that_matches():
    mocks = Mocks([{"match": "*", "text": "pattern"}, {"text": "queue"}])
    assert await say(mocks, "a", "a", "a") == ["queue", "pattern", "pattern"]


async def test_consumed_patterns_advance_in_the_order_of_the_file():
    lines = [{"match": "*go*", "consume_match": True, "text": str(n)} for n in range(3)]
    mocks = Mocks(lines)
    assert await say(mocks, "go", "go", "go") == ["0", "1", "2"]
    with pytest.raises(ScriptMismatch, match=r"line 1 \('\*go\*'\) matches, but is used up"):
        await say(mocks, "go")


@pytest.mark.parametrize(
    "header, line, message",
    [
        (HEADER, {"scope": "other"}, r"line 2 \(the next in order\) matches, .*'other'"),
        (STRICT, {"scope": "default"}, r"line 2 \(the next in order\) matches, .*'default'"),
        (HEADER, {"scope": "other", "match": "*go*"}, r"line 2 \('\*go\*'\) matches, .*'other'"),
        (HEADER, {"scope": "shared", "match": "*x*"}, r'"scope":"agent.main","consume":"once"'),
    ],
)
async def test_a_miss_in_a_file_with_scopes_names_them(
    header: dict[str, Any], line: dict[str, Any], message: str
):
    mocks = Mocks([header, {"id": "a", "consume": "once", "text": "a", **line}])
    with pytest.raises(
        ScriptMismatch, match=rf"(?s)scope of the request: 'agent.main'.*{message}"
    ) as missed:
        await say(mocks, "go")
    assert "used up" not in str(missed.value)


async def test_the_line_that_a_miss_suggests_answers_the_request():
    line = {"id": "a", "scope": "shared", "consume": "once", "match": "*x*", "text": "a"}
    with pytest.raises(ScriptMismatch) as missed:
        await say(Mocks([HEADER, line]), "go")
    added = json.loads(str(missed.value).partition("such as ")[2])
    assert await say(Mocks([HEADER, line, added]), "go") == ["…"]


async def test_a_growing_conversation_is_matched_as_a_whole_and_not_mixed_with_others():
    mocks = Mocks([{"match": "*one*two*", "text": "both"}, {"match": "*", "text": "other"}])
    start = History([user("one")])
    histories = [start, start.plus(user("two")), start.plus(user("too")), History([user("two")])]
    histories += [start, start.plus(user("two"), user("three"))]
    histories += [History([user("one"), user("two")])]
    replies = [(await mocks.reply(Request(history))).text for history in histories]
    assert replies == ["other", "both", "other", "other", "other", "both", "both"]


async def test_a_line_is_found_among_a_thousand_similar_ones():
    mocks = Mocks([{"match": f"*order {n}*", "text": str(n)} for n in reversed(range(1000))])
    assert await say(mocks, "order 7", "the order 999!", "my order 42 please") == ["7", "999", "42"]


def test_the_text_to_match_contains_every_value_of_the_conversation():
    conversation = History(
        [
            user("hi"),
            Message(
                "assistant", (Text("ok"), ToolCall("c1", "read", {"path": "p", "a": ["x", 1]}))
            ),
            Message("tool", (ToolResult("c1", (Text("content"),)),)),
        ]
    )
    assert join_values(conversation).split("\n") == [
        *("hi", "user"),
        *("ok", "assistant", "x", "p", "c1", "read"),
        *("content", "tool", "c1"),
    ]


async def test_a_pattern_without_a_star_does_not_match_an_equal_prompt():
    with pytest.raises(ScriptMismatch):
        await say(Mocks([{"match": "hi", "text": "no"}]), "hi")


async def test_the_system_prompt_is_not_matched():
    mocks = Mocks([{"match": "*captain*", "text": "no"}])
    with pytest.raises(ScriptMismatch):
        await mocks.reply(ask("hi", system="you are a captain"))


async def test_a_miss_shows_the_prompt_the_nearest_line_and_a_line_to_add():
    mocks = Mocks([{"match": "*cancel my flight*", "text": ""}, {"match": "*refund ordr 7*"}])
    with pytest.raises(ScriptMismatch) as miss:
        await say(mocks, "please refund order 7 " + "x" * 300)
    message = str(miss.value)
    assert f'matched prompt: "please refund order 7 {"x" * 178}..."' in message
    assert "nearest: line 2 ('*refund ordr 7*')" in message
    assert 'add a line, such as {"match":"*please refund order 7' in message


async def test_an_error_line_raises_a_provider_error():
    mocks = Mocks(
        [{"error": {"status": 503, "kind": "transient", "reason": "x", "retry_after_ms": 2500}}]
    )
    with pytest.raises(ModelError) as error:
        await say(mocks, "a")
    assert (error.value.status, error.value.category) == (503, "overloaded")
    assert error.value.retry_after == 2.5
    assert error.value.message == "HTTP 503 mock LLM error (transient/x)"
    assert error.value.details == {"kind": "transient", "reason": "x"}


async def test_generated_call_ids_are_unique_in_a_run_and_written_ones_are_kept():
    calls = {"tool_calls": [{"name": "a"}, {"name": "b", "id": "mine"}]}
    mocks = Mocks([calls, calls])
    replies: list[Reply] = [await mocks.reply(ask("x")) for _ in range(2)]
    (first, mine), (second, _) = ([call.id for call in reply.calls] for reply in replies)
    assert mine == "mine"
    assert first != second
    assert first.startswith("call_")


async def test_without_a_count_the_input_tokens_are_the_bytes_of_the_prompt():
    reply = await Mocks([{"text": "a"}]).reply(ask("é"))
    assert (reply.usage.input, reply.usage.output) == (len("é\nuser".encode()), 30)
    assert (reply.model, reply.step) == ("mock", 1)


async def test_chunks_are_kept():
    reply = await Mocks([{"stream_chunks": ["Hel", "lo"]}]).reply(ask("x"))
    assert reply.chunks == ("Hel", "lo")


def line(id_: str, scope: str, consume: str = "once", **more: Any) -> dict[str, Any]:
    return {"id": id_, "scope": scope, "consume": consume, "text": id_, **more}


@pytest.mark.parametrize(
    "header,lines,scopes,expected",
    [
        (HEADER, [line("main", "agent.main"), line("d", "default")], ["", ""], "main d"),
        (HEADER, [line("s", "shared"), line("d", "default")], ["x.y"] * 2, "s d"),
        (STRICT, [line("s", "shared", "sticky")], ["x.y"] * 2, "s s"),
        (HEADER, [line("j", "j.j", "sticky", match="*"), line("o", "j.j")], ["j.j"] * 3, "o j j"),
        (HEADER, [line("a", "shared", match="*"), line("b", "shared", match="*")], ["", ""], "a b"),
    ],
)
async def test_scopes_fall_back_to_shared_and_to_default(
    header: dict[str, Any], lines: list[dict[str, Any]], scopes: list[str], expected: str
):
    mocks = Mocks([header, *lines])
    assert [(await mocks.reply(ask("x", scope=s))).text for s in scopes] == expected.split()


async def test_strict_scopes_do_not_fall_back_to_default_and_receipts_show_it():
    mocks = Mocks([STRICT, line("d", "default"), line("s", "shared")])
    await mocks.reply(ask("x", scope="agent.main"))
    with pytest.raises(ScriptMismatch):
        await mocks.reply(ask("x", scope="agent.main"))
    hit, miss = mocks.receipts
    assert (hit.id, hit.resolved_scope, hit.fell_through, hit.remaining) == ("s", "shared", True, 1)
    assert (miss.matched, miss.requested_scope) == (False, "agent.main")


def test_an_empty_file_is_rejected():
    with pytest.raises(UsageError, match="no mock lines"):
        Mocks([])


def test_the_linter_reports_unreachable_lines():
    file = parse_mocks(
        """
        {"match": "*order*", "text": "a"}
        {"match": "*refund order*", "text": "b"}
        {"match": "*once*", "consume_match": true}
        {"match": "*once*", "consume_match": true}
        {"match": "exact", "text": "c"}
        {"match": "*", "text": "d"}
        {"match": "*late*", "text": "e"}
        {"text": "queue", "consume_match": true}
        """,
        "m.jsonl",
    )
    assert [(finding.line, finding.kind) for finding in lint_mocks(file)] == [
        (3, "unreachable"),
        (6, "suspicious"),
        (8, "unreachable"),
        (9, "suspicious"),
    ]
    assert (
        str(lint_mocks(file)[0])
        == "m.jsonl:3: unreachable: line 2 ('*order*') always matches first"
    )


async def test_the_linter_reports_lines_that_a_run_did_not_use():
    mocks = Mocks([{"match": "*a*", "text": "A"}, {"match": "*b*", "text": "B"}])
    await say(mocks, "a")
    assert [(f.line, f.kind) for f in lint_mocks(mocks.file, mocks.unused)] == [(2, "unused")]


def test_a_sticky_line_without_a_pattern_hides_the_rest_of_its_scope():
    file = parse_mocks(
        '{"schemaVersion": 1}\n'
        '{"id": "p", "scope": "a.b", "consume": "once", "match": "*x*"}\n'
        '{"id": "s", "scope": "a.b", "consume": "sticky"}\n'
        '{"id": "o", "scope": "elsewhere", "consume": "once"}\n'
    )
    found = [(finding.line, finding.kind) for finding in lint_mocks(file)]
    assert found == [(2, "unreachable"), (4, "suspicious")]


PROBE = Request(
    History((user("quota"),)), model="claude-haiku", metadata={"user-agent": "claude-cli/2.1"}
)


async def test_a_side_request_takes_no_line_in_order():
    mocks = Mocks(
        [
            {"text": "For the agent."},
            {"match": "*quota*", "text": "For the probe.", "consume_match": True},
        ]
    )
    assert (await mocks.reply(PROBE)).text == "For the probe."
    side_reply = await mocks.reply(PROBE)
    assert side_reply.role == "auxiliary (Claude Code quota)"
    assert (await mocks.reply(ask("Work"))).text == "For the agent."


async def test_only_the_latest_receipts_are_kept():
    mocks = Mocks([{"match": "*", "text": "Always."}])
    for number in range(RECEIPTS + 5):
        await mocks.reply(ask(f"Question {number}"))
    assert len(mocks.receipts) == RECEIPTS
