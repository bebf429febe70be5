"""Hypothesis strategies for conversations, tools and replies of the OpenAI dialects.

They generate only values that survive a round trip; the docstring of each dialect lists the
values that it normalizes.
"""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from offbook.exchange import (
    RAW_ARGUMENTS,
    History,
    Image,
    Message,
    Reply,
    Request,
    StopReason,
    Text,
    Thinking,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)

words = st.text(min_size=1, max_size=30)
names = st.text("abcdefgh_-0123456789", min_size=1, max_size=8)
numbers = st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | st.text(max_size=8)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(names, values, max_size=3)
texts = st.builds(Text, words)
addresses = names.map("https://example.org/{}".format)
images = st.builds(Image, url=addresses) | st.builds(
    Image, st.just("aGk="), st.sampled_from(["image/png", "image/jpeg"])
)
contents = st.lists(texts | images, min_size=1, max_size=3).map(tuple)


def thoughts(*, sealed: bool) -> st.SearchStrategy[Thinking]:
    return st.builds(Thinking, words, st.text(max_size=5) if sealed else st.just(""))


@st.composite
def calls(draw: st.DrawFn, *, spaced: bool) -> tuple[ToolCall, ...]:
    built: list[ToolCall] = []
    for id_ in draw(st.lists(names, max_size=3, unique=True)):
        space = draw(st.just("") | names) if spaced else ""
        if draw(st.booleans()):
            built.append(
                ToolCall(id_, draw(names), {"input": draw(st.text(max_size=40))}, space, True)
            )
        else:
            raw = st.just({RAW_ARGUMENTS: "{not JSON"})
            built.append(ToolCall(id_, draw(names), draw(objects | raw), space))
    return tuple(built)


@st.composite
def spoken(draw: st.DrawFn, *, responses: bool) -> Message:
    """Draw the blocks of a reply: thinking, texts and calls, at least one."""
    thought = draw(st.lists(thoughts(sealed=responses), max_size=2 if responses else 1))
    reply = draw(st.lists(texts, max_size=2))
    request = draw(calls(spaced=responses))
    return Message("assistant", (*thought, *reply, *request) or (draw(texts),))


@st.composite
def conversations(draw: st.DrawFn, *, responses: bool) -> History:
    messages: list[Message] = []
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message("user", draw(contents)))
        if draw(st.booleans()):
            messages.append(Message("system", (draw(texts),)))
        for _ in range(draw(st.integers(0, 2))):
            message = draw(spoken(responses=responses))
            messages.append(message)
            for call in message.calls:
                content = draw(contents)
                messages.append(Message("tool", (ToolResult(call.id, content, None, call.name),)))
            if not message.calls:
                break
    return History(messages)


@st.composite
def tools(draw: st.DrawFn, *, responses: bool) -> tuple[Tool, ...]:
    built: list[Tool] = []
    for space in draw(st.lists(names, max_size=2, unique=True).map(lambda s: ["", *s])):
        for name in draw(st.lists(names, max_size=2)):
            kind = draw(st.sampled_from(["function", "custom"]))
            schema = draw(objects) | ({"type": "object"} if kind == "function" else {})
            strict = kind == "function" and draw(st.booleans())
            rendered = draw(st.text(max_size=9))
            built.append(Tool(name, rendered, schema, space if responses else "", kind, strict))
    return tuple(built)


@st.composite
def requests(draw: st.DrawFn, *, responses: bool, options: Sequence[str]) -> Request:
    name = "include" if responses else "modalities"  # an option that is a list
    known = [option for option in options if option not in {"stream_options", name}]
    lists = st.fixed_dictionaries({}, optional={name: st.none() | st.lists(scalars, max_size=2)})
    return Request(
        draw(conversations(responses=responses)),
        draw(st.text(max_size=20)),
        draw(tools(responses=responses)),
        draw(words),
        {**draw(st.dictionaries(st.sampled_from(known), values, max_size=3)), **draw(lists)},
        stream=draw(st.booleans()),
    )


@st.composite
def replies(draw: st.DrawFn, *, responses: bool) -> Reply:
    thought = draw(st.lists(thoughts(sealed=responses), max_size=2 if responses else 1))
    reply = draw(st.lists(texts, max_size=2 if responses else 1))
    request = draw(calls(spaced=responses))
    stops: list[StopReason] = ["tool_use", "length"] if request else ["stop", "length"]
    if reply and not request:
        stops.append("refusal")
    stop = draw(st.sampled_from(stops))
    counts = st.integers(0, 10**6)
    usage = Usage(draw(counts), draw(counts), draw(counts), 0, draw(counts))
    chunks = draw(st.lists(words, max_size=3)) if len(reply) == 1 else []
    if chunks:
        reply = [Text("".join(chunks))]
    prefix = "resp_" if responses else "chatcmpl-"
    id_ = prefix + draw(names)
    return Reply((*thought, *reply, *request), stop, usage, draw(words), id_, chunks=tuple(chunks))
