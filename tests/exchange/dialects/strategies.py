"""Conversations and replies of every shape that a provider would accept."""

from hypothesis import strategies as st

from offbook.exchange.messages import (
    AnyBlock,
    History,
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from offbook.exchange.model import Reply, Request, StopReason, Tool, Usage

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
    """Tokens that add up: the cached ones are a part of the input, thoughts of the output."""
    read, written, rest = draw(counts), draw(counts) if cached else 0, draw(counts)
    thought, said = draw(counts), draw(counts)
    return Usage(read + written + rest, thought + said, read, written, thought)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """A thought at most, then texts, then calls; or nothing at all."""
    blocks: list[AnyBlock] = []
    if draw(st.booleans()):
        blocks.append(Thinking(draw(words), draw(st.sampled_from(["", "c2VhbGVk"]))))
    pieces = draw(st.lists(words, max_size=4))
    if pieces:
        blocks.append(Text("".join(pieces)))
    calls = draw(st.lists(st.tuples(names, arguments), max_size=3))
    blocks += [ToolCall(f"call_{at}", name, given) for at, (name, given) in enumerate(calls)]
    stop: StopReason = "tool_use" if calls else draw(st.sampled_from(STOPS))
    chunks = tuple(pieces) if draw(st.booleans()) else ()
    return Reply(tuple(blocks), stop, step=draw(st.integers(0, 9)), chunks=chunks)


@st.composite
def rounds(draw: st.DrawFn, number: int) -> list[Message]:
    """What the model did, what came of it, and what the user said then."""
    said: list[AnyBlock] = []
    if draw(st.booleans()):
        said.append(Thinking(draw(words), draw(st.sampled_from(["", "c2VhbGVk"]))))
    said.append(Text(draw(words)))
    made = draw(st.lists(st.tuples(names, arguments), max_size=3))
    calls = [ToolCall(f"call_{number}_{at}", *call) for at, call in enumerate(made)]
    answers = [
        ToolResult(
            call.id,
            tuple(draw(st.lists(st.builds(Text, words), min_size=1, max_size=1))),
            draw(st.booleans()),
        )
        for call in calls
    ]
    messages = [Message("assistant", (*said, *calls))]
    if draw(st.booleans()):
        messages += [Message("tool", (answer,)) for answer in answers]
    elif answers:
        messages.append(Message("tool", tuple(answers)))
    if not answers or draw(st.booleans()):
        messages.append(Message("user", (Text(draw(words)), *draw(st.lists(images, max_size=1)))))
    return messages


@st.composite
def requests(draw: st.DrawFn) -> Request:
    """A whole conversation and the tools for it."""
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
