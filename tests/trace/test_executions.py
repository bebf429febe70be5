"""The events of a trace say which tools ran, and what they did other than the conversation says."""

from collections.abc import Callable
from operator import add
from typing import Any

import pytest

from offbook.errors import FormatError, UnknownOutcome
from offbook.exchange import Image, Text
from offbook.exchange.messages import join_text
from offbook.trace import (
    Event,
    Events,
    ExecutionReader,
    KnownTools,
    read_executions,
    same_result,
)

REPLIED = Event(0, "model.reply", {})


def text(*lines: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": line} for line in lines]


def event(name: str, call_id: str, tool: str = "refund", **data: Any) -> Event:
    return Event(0, name, {"call_id": call_id, "tool": tool, **data})


def called(call_id: str = "1", *, tool: str = "refund", **data: Any) -> Event:
    return event("tool.call", call_id, tool, **{"input": {"n": 7}, "observed": True, **data})


def unseen(call_id: str = "1", *, tool: str = "refund") -> Event:
    return called(call_id, tool=tool, observed=False)


def started(call_id: str = "1", *, tool: str = "refund", number: int = 1, **data: Any) -> Event:
    return event("tool.start", call_id, tool, **{"input": {"n": 7}, "number": number, **data})


def ended(call_id: str = "1", *, tool: str = "refund", number: int = 1, **data: Any) -> Event:
    fields = {"ms": 1500, "is_error": False, "number": number, **data}
    return event("tool.end", call_id, tool, **fields)


def result(call_id: str = "1", *, tool: str = "refund", **data: Any) -> Event:
    fields = {"content": text("done"), "is_error": False, **data}
    return event("tool.result", call_id, tool, **fields)


# The events -> each execution: input, failed, mocked, seconds, text
RAN: dict[str, tuple[list[Event], list[tuple[Any, ...]]]] = {
    "a tool that was seen": (
        [called(), started(), ended(), result(is_error=True)],
        [({"n": 7}, False, False, 1.5, "done")],
    ),
    "a tool that failed": (
        [called(), started(), ended(is_error=True), result()],
        [({"n": 7}, True, False, 1.5, "done")],
    ),
    "another input": (
        [called(), started(input={"n": 8}), ended()],
        [({"n": 8}, False, False, 1.5, "")],
    ),
    "what it returned": (
        [called(), started(), ended(content=text("own")), result()],
        [({"n": 7}, False, False, 1.5, "own")],
    ),
    "what it returned, as it was sent": (
        [called(), started(), ended(content=text("[1, 2]")), result(content=text("[1,2]"))],
        [({"n": 7}, False, False, 1.5, "[1,2]")],
    ),
    "what it returned, never sent": (
        [called(), started(), ended(content=text("own"))],
        [({"n": 7}, False, False, 1.5, "own")],
    ),
    "a mock": (
        [called(), started(), ended(mocked=True), result()],
        [({"n": 7}, False, True, 1.5, "done")],
    ),
    "a mock by its result": (
        [called(), started(), ended(), result(mocked=True)],
        [({"n": 7}, False, True, 1.5, "done")],
    ),
    "no mock, whatever its result says": (
        [called(), started(), ended(mocked=False), result(mocked=True)],
        [({"n": 7}, False, False, 1.5, "done")],
    ),
    "twice for one call": (
        [called(), started(), ended(content=text("a")), started(number=2), ended(number=2),
         result()],
        [({"n": 7}, False, False, 1.5, "a"), ({"n": 7}, False, False, 1.5, "done")],
    ),
    "still running": ([called(), started()], [({"n": 7}, None, False, None, "")]),
    "still running, with a result": (
        [called(), started(), result()],
        [({"n": 7}, None, False, None, "done")],
    ),
    "without a call": ([started(""), ended("")], [({"n": 7}, False, False, 1.5, "")]),
    "refused by the framework": ([called(), started(), ended(ran=False), result()], []),
    "refused, without a call": ([started(""), ended("", ran=False)], []),
    "refused, and not refused": (
        [called(), started(), ended(ran=False), started(number=2), ended(number=2)],
        [({"n": 7}, False, False, 1.5, "")],
    ),
    "the end of another one": (
        [called(), started(), ended(number=2)],
        [({"n": 7}, None, False, None, "")],
    ),
    "by its result": ([unseen(), result()], [({"n": 7}, False, False, None, "done")]),
    "failed, by its result": (
        [unseen(), result(is_error=True)],
        [({"n": 7}, True, False, None, "done")],
    ),
    "with another input, by its result": (
        [unseen(), result(input={"n": 8})],
        [({"n": 8}, False, False, None, "done")],
    ),
    "by a result without a call": ([result()], [(None, False, False, None, "done")]),
    "by a result without an id": ([result("")], []),
    "not executed, says its result": ([unseen(), result(executed=False)], []),
    "observed and not seen": ([called(), result()], []),
    "with an input of a hook": (
        [unseen(), event("hook.tool_call", "1", input={"n": 9}), result()],
        [({"n": 9}, False, False, None, "done")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("events, ran", RAN.values(), ids=RAN)
def test_the_evidence_says_what_ran(events: list[Event], ran: list[tuple[Any, ...]]):
    found = read_executions(events, strict=True).executions
    assert [
        (one.input, one.failed, one.mocked, one.seconds, join_text(one.content)) for one in found
    ] == ran


# The events of one call -> whether the tool ran, whether it failed, whether it counts as a use
USES: dict[str, tuple[list[Event], tuple[bool | None, bool | None, bool]]] = {
    "it ran": ([called(), started(), ended()], (True, False, True)),
    "it ran and failed": ([called(), started(), ended(is_error=True)], (True, True, True)),
    "it ran without a call": ([started(""), ended("")], (True, False, True)),
    "observed and not seen": ([called()], (False, None, False)),
    "observed and not seen, with a result": ([called(), result()], (False, False, False)),
    "observed and not seen, with an error": (
        [called(), result(is_error=True)],
        (False, True, False),
    ),
    "unknown": ([unseen()], (None, None, False)),
    "blocked": ([unseen(), event("tool.blocked", "1")], (False, None, False)),
    "refused": ([unseen(), started(), ended(ran=False)], (False, None, False)),
    "not executed": ([unseen(), result(executed=False)], (False, False, False)),
    "of an earlier version": ([called(observed=None)], (None, None, True)),
    "of an earlier version, blocked": (
        [called(observed=None), event("tool.blocked", "1")],
        (False, None, False),
    ),
}


@pytest.mark.parametrize("events, use", USES.values(), ids=USES)
def test_a_use_of_a_tool_is_one_that_ran(
    events: list[Event], use: tuple[bool | None, bool | None, bool]
):
    if events[0].data.get("observed", True) is None:
        del events[0].data["observed"]
    (found,) = read_executions(events).uses
    assert (found.ran, found.failed, found.counts) == use
    assert (found.tool, found.input, found.event) == ("refund", {"n": 7}, events[0])


def test_the_calls_of_one_reply_ran_in_the_order_of_the_reply():
    calls = [REPLIED, called("1", tool="a"), called("2", tool="b")]
    later = [REPLIED, called("3", tool="c")]
    ran = [started("2", tool="b"), started("", tool="own"), started("1", tool="a")]
    reader = read_executions([*calls, *ran, *later, started("3", tool="c")])
    assert [one.tool for one in reader.executions] == ["a", "b", "own", "c"]


def test_a_call_that_did_not_run_is_between_those_that_did():
    calls = [called(str(number), tool=tool) for number, tool in enumerate("abcd")]
    ran = [started("3", tool="d"), started("1", tool="b")]
    reader = read_executions([REPLIED, *calls, *ran, REPLIED, called("5", tool="e")])
    assert [(use.tool, use.ran) for use in reader.uses] == [
        ("a", False),
        ("b", True),
        ("c", False),
        ("d", True),
        ("e", False),
    ]


def test_a_tool_that_runs_later_is_after_the_calls_that_did_not_run():
    replies = [REPLIED, called("1", tool="a"), REPLIED, called("2", tool="b")]
    reader = read_executions([*replies, started("2", tool="b"), started("1", tool="a")])
    assert [use.tool for use in reader.uses] == ["b", "a"]


@pytest.mark.parametrize("keep", [True, False])
def test_a_call_without_evidence_is_unknown(keep: bool):  # noqa: FBT001 - a parameter
    reader = ExecutionReader(keep=keep)
    for one in [unseen("1"), unseen("2", tool="find"), result("1"), called("3")]:
        reader.on_event(one)
    assert [call.data.tool for call in reader.unknown] == ["find"]


def test_without_keep_only_open_calls_and_executions_are_kept():
    reader = ExecutionReader(keep=False)
    events = [called(), started(), ended(), called("2"), started("2"), ended("2", ran=False)]
    for one in [*events, called("3"), started("3"), result("1")]:
        reader.on_event(one)
    assert (reader.calls, reader.executions) == ([], [])
    assert [one.started for one in reader.running] == [started("3")]
    assert reader.call_of(result("1")) is None
    assert reader.call_of(result("2")) is not None


def test_a_call_of_an_earlier_run_counts_if_it_ran_in_this_one():
    earlier = [REPLIED, called("1", tool="a"), called("2", tool="b")]
    reader = read_executions([started("2", tool="b"), called("3", tool="c")], earlier)
    assert [(use.tool, use.ran) for use in reader.uses] == [("b", True), ("c", False)]


def test_an_event_returns_its_execution():
    reader = ExecutionReader()
    events = [called(), started(), ended(), result(), unseen("2"), result("2"), ended("9")]
    found = [reader.on_event(one) for one in events]
    assert [None if one is None else one.ended for one in found] == [
        None, True, True, True, None, True, None
    ]  # fmt: skip
    assert found[1] is found[2] is found[3]


def test_an_execution_ends_by_its_end_or_its_result():
    reader = ExecutionReader()
    execution = reader.on_event(started())
    assert execution is not None
    assert not execution.ended
    reader.on_event(ended())
    assert execution.ended


# Events of another tool, with fewer fields
NAMES = ("tool.call", "tool.start", "tool.end", "tool.result", "tool.blocked", "hook.tool_call")
BARE = [Event(0, name, {}) for name in NAMES]


def test_fields_that_are_missing_are_empty():
    (execution,) = read_executions(BARE).executions
    assert (execution.tool, execution.input, execution.failed, execution.seconds) == (
        "",
        {},
        False,
        0.0,
    )
    (call,) = read_executions(BARE).calls
    assert (call.data.tool, call.data.call_id, call.blocked, call.result) == ("", "", False, None)
    result_only = read_executions([Event(0, "tool.result", {"call_id": "1"})]).executions[0]
    assert (result_only.tool, result_only.failed, result_only.content) == ("", None, ())


@pytest.mark.parametrize("name", ["tool.call", "tool.start", "tool.end", "tool.result"])
def test_a_strict_reader_refuses_an_event_without_its_fields(name: str):
    with pytest.raises(FormatError):
        read_executions([Event(0, name, {})], strict=True)


def test_an_event_with_wrong_fields_is_ignored():
    assert read_executions([called(), event("tool.start", "1", number="x")]).executions == []


# --- Two results

SAME = [
    ("[1, 2]", "[1,2]"),
    ("{'a': None}", '{"a": null}'),
    ("None", "null"),
    ("True", "true"),
    ("(1, 2)", "(1,2)"),
    ("'one'", '"one"'),
    (" one\n", "one"),
]
DIFFERENT = [("1", "2"), ("one", "two"), ("[1, 2]", "[2, 1]"), ("{a", "{b"), ("os.sep", "'/'")]


@pytest.mark.parametrize("own, sent", SAME)
def test_results_are_the_same_in_the_writing_of_python_and_json(own: str, sent: str):
    assert same_result((Text(own),), (Text(sent),))


@pytest.mark.parametrize("own, sent", DIFFERENT)
def test_results_of_another_value_differ(own: str, sent: str):
    assert not same_result((Text(own),), (Text(sent),))


def test_results_of_another_image_differ():
    shown = (Text("a"), Image("AAAA", "image/png"))
    assert same_result(shown, shown)
    assert not same_result(shown, shown[:1])


def test_two_texts_are_the_same_as_one_of_two_lines():
    assert same_result((Text("one"), Text("two")), (Text("one\ntwo"),))


# --- What a tool did other than its call and its result say

# The events -> the changes: what, expected, got
CHANGED: dict[str, tuple[list[Event], list[tuple[str, str, str]]]] = {
    "nothing": ([called(), started(), ended(content=text("done")), result()], []),
    "another input": (
        [called(), started(input={"n": 8}), ended()],
        [("input", 'refund({"n":7})', 'refund({"n":8})')],
    ),
    "an input that was converted": ([called(), started(input={"n": "7"}), ended()], []),
    "an input with a default": ([called(), started(input={"n": 7, "m": 1}), ended()], []),
    "an input with less": ([called(), started(input={}), ended()], []),
    "an input without an argument": (
        [called(input={"n": 7, "m": 1}), started(input={"n": 7}), ended()],
        [("input", 'refund({"n":7,"m":1})', 'refund({"n":7})')],
    ),
    "another tool under the id of the call": (
        [called(), started(), started(tool="pay", number=2), ended(tool="pay", number=2), ended()],
        [("unasked", "", 'pay({"n":7})')],
    ),
    "a tool with the prefix of its server": (
        [called(tool="mcp__shop__refund"), started(), ended()],
        [],
    ),
    "another input, by its result": ([unseen(), result(input={"n": 8})], []),
    "an unknown input": ([called(), started(input=None), ended()], []),
    "an input that is no object": (
        [called(), started(input="7"), ended()],
        [("input", 'refund({"n":7})', 'refund("7")')],
    ),
    "an equal input that is no object": ([called(input="7"), started(input="7"), ended()], []),
    "without a call": (
        [started(""), ended("")],
        [("unasked", "", 'refund({"n":7})')],
    ),
    "without a call, by its result": ([result("9")], []),
    "one of two inputs": (
        [called(input={"n": 7, "m": 1}), started(input={"n": 7, "m": 2}), ended()],
        [("input", 'refund({"n":7,"m":1})', 'refund({"n":7,"m":2})')],
    ),
    "again": (
        [called(), started(), ended(), started(number=2), ended(number=2)],
        [("again", "refund: once", "refund: 2 times")],
    ),
    "again after an error": (
        [called(), started(), ended(is_error=True), started(number=2), ended(number=2)],
        [],
    ),
    "again and again, once after an error": (
        [called(), started(), ended(), started(number=2), ended(number=2, is_error=True),
         started(number=3), ended(number=3)],
        [("again", "refund: once", "refund: 3 times")],
    ),
    "not executed": (
        [called(), result()],
        [("unexecuted", "refund: it did not run", "refund: done")],
    ),
    "not executed, with an error": ([called(), result(is_error=True)], []),
    "blocked": ([called(), event("tool.blocked", "1"), result()], []),
    "refused": ([called(), started(), ended(ran=False), result()], []),
    "by its result only": ([unseen(), result()], []),
    "another result": (
        [called(), started(), ended(content=text("own")), result()],
        [("returned", "refund: own", "refund: done")],
    ),
    "another result of the last execution": (
        [called(), started(), ended(content=text("own"), is_error=True), started(number=2),
         ended(number=2, content=text("done")), result()],
        [],
    ),
    "the text of an error": (
        [called(), started(), ended(content=text("own"), is_error=True), result()],
        [],
    ),
    "still running": ([called(), started(), result()], []),
    "the result of another call": (
        [called(), called("2"), started("2"), ended("2", content=text("own")), result("2")],
        [("returned", "refund: own", "refund: done")],
    ),
    "the results of a reply as one text": (
        [called("1"), called("2"), started("1"), ended("1", content=text("a")), started("2"),
         ended("2", content=text("b")), result("1", content=text("a", "b")),
         result("2", content=text("a", "b"))],
        [],
    ),
    "another result in the results of a reply": (
        [called("1"), called("2"), started("1"), ended("1", content=text("a")), started("2"),
         ended("2", content=text("c")), result("1", content=text("a", "b")),
         result("2", content=text("a", "b"))],
        [("returned", "refund: c", "refund: a b")],
    ),
    "more than it returned": (
        [called(), started(), ended(content=text("done")), result(content=text("done", "more"))],
        [("returned", "refund: done", "refund: done more")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("events, changes", CHANGED.values(), ids=CHANGED)
def test_what_a_tool_did_is_compared_with_its_call_and_its_result(
    events: list[Event], changes: list[tuple[str, str, str]]
):
    found = Events([REPLIED, *events]).changes
    assert [(change.what, change.expected, change.got) for change in found] == changes


# --- The tools that ran, for a test


def test_the_tools_that_ran_are_a_list_if_all_is_known():
    tools = KnownTools(["a", "b"])
    assert tools == ["a", "b"]
    assert tools != ["a"]
    assert (len(tools), list(tools), tools[0], tools[-1], tools[:1]) == (
        2, ["a", "b"], "a", "b", ["a"]
    )  # fmt: skip
    assert "a" in tools
    assert "c" not in tools
    assert add(tools, ["c"]) == ["a", "b", "c"]
    assert add(["c"], tools) == ["c", "a", "b"]
    assert tools.index("b") == 1


def test_what_is_certain_is_known_beside_an_unknown_tool():
    tools = KnownTools(["a"], ["b", "b"])
    assert "a" in tools
    assert "c" not in tools
    assert tools[0] == "a"
    assert tools.count("a") == 1
    assert tools.known() == ["a"]


QUESTIONS: list[Callable[[Any], object]] = [
    len,
    list,
    bool,
    lambda tools: tools == ["a"],
    lambda tools: tools != ["a"],
    lambda tools: tools[1],
    lambda tools: tools[-1],
    lambda tools: tools[:1],
    lambda tools: "b" in tools,
    lambda tools: 1 in tools,
    lambda tools: tools.count("b"),
    lambda tools: tools.index("a"),
    lambda tools: tools.copy(),
    lambda tools: add(tools, []),
    lambda tools: add([], tools),
    lambda tools: tools * 1,
    lambda tools: 1 * tools,
    lambda tools: [*reversed(tools)],
    lambda tools: tools < ["b"],
    lambda tools: tools <= ["a"],
    lambda tools: tools > [],
    lambda tools: tools >= ["a"],
]


@pytest.mark.parametrize("ask", QUESTIONS)
def test_what_depends_on_an_unknown_tool_is_unknown(ask: Callable[[Any], object]):
    with pytest.raises(UnknownOutcome, match="unknown whether 'b' ran"):
        ask(KnownTools(["a"], ["b", "b"]))
