"""Hypothesis strategies for conversations and replies that providers accept."""

from hypothesis import strategies as st

from offbook.exchange import (
    AnyBlock,
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

words = st.text(min_size=1, max_size=40)
names = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
arguments = st.dictionaries(names, values, max_size=3)
images = st.builds(Image, st.just("AAAA"), st.just("image/png"))
counts = st.integers(0, 10**6)
STOPS: list[StopReason] = ["stop", "length", "refusal"]


@st.composite
def usages(draw: st.DrawFn, *, cached: bool) -> Usage:
    """Draw token counts: cached tokens are part of the input, reasoning of the output."""
    read, written, rest = draw(counts), draw(counts) if cached else 0, draw(counts)
    thought, reply = draw(counts), draw(counts)
    return Usage(read + written + rest, thought + reply, read, written, thought)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """Draw the blocks of a reply: at most one thinking block, then texts, then calls."""
    blocks: list[AnyBlock] = []
    if draw(st.booleans()):
        blocks.append(Thinking(draw(words), draw(st.sampled_from(["", "c2VhbGVk"]))))
    pieces = draw(st.lists(words, max_size=4))
    if pieces:
        blocks.append(Text("".join(pieces)))
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    blocks += [ToolCall(f"call_{index}", name, value) for index, (name, value) in enumerate(calls)]
    stop: StopReason = "tool_use" if calls else draw(st.sampled_from(STOPS))
    chunks = tuple(pieces) if draw(st.booleans()) else ()
    return Reply(tuple(blocks), stop, step=draw(st.integers(0, 9)), chunks=chunks)


@st.composite
def rounds(draw: st.DrawFn, number: int) -> list[Message]:
    """Draw a turn: a reply, the results of its calls, and the next prompt."""
    reply: list[AnyBlock] = []
    if draw(st.booleans()):
        reply.append(Thinking(draw(words), draw(st.sampled_from(["", "c2VhbGVk"]))))
    reply.append(Text(draw(words)))
    built = draw(st.lists(st.tuples(names, arguments), max_size=3))
    calls = [ToolCall(f"call_{number}_{index}", *call) for index, call in enumerate(built)]
    answers = [
        ToolResult(
            call.id,
            tuple(draw(st.lists(st.builds(Text, words), min_size=1, max_size=1))),
            draw(st.booleans()),
        )
        for call in calls
    ]
    messages = [Message("assistant", (*reply, *calls))]
    if draw(st.booleans()):
        messages += [Message("tool", (response,)) for response in answers]
    elif answers:
        messages.append(Message("tool", tuple(answers)))
    if not answers or draw(st.booleans()):
        messages.append(Message("user", (Text(draw(words)), *draw(st.lists(images, max_size=1)))))
    return messages


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """Draw a conversation and its tools."""
    messages = [Message("user", (Text(draw(words)),))]
    for number in range(draw(st.integers(0, 3))):
        messages += draw(rounds(number))
    tools = draw(st.lists(names, max_size=3, unique=True))
    return Request(
        History(messages),
        draw(st.text(max_size=20)),
        tuple(Tool(name, draw(st.text(max_size=9)), {"type": "object"}) for name in tools),
        draw(names),
        {"temperature": 0.5, "max_tokens": 7} if draw(st.booleans()) else {},
        stream=draw(st.booleans()),
    )
