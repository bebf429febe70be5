"""Hypothesis strategies for conversations."""

from hypothesis import strategies as st

from offbook.exchange import Image, Message, Text, Thinking, Tool, ToolCall, ToolResult

# No letters that could form a secret, which a trace would redact.
words = st.text('xyz Äß☃😀\u2028\n\0"\\/{}[]', max_size=12)
names = st.sampled_from(["bash", "read", "plan_propose"])
# True == 1 in Python but not in JSON: no number here equals a boolean.
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(2, 2**63 - 1) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
json_objects = st.dictionaries(words, json_values, max_size=3)
texts = st.builds(Text, words)
images = st.builds(Image, words, st.just("image/png"))
blocks = st.one_of(
    texts,
    images,
    st.builds(Thinking, words, words),
    st.builds(ToolCall, words, names, json_objects),
    st.builds(
        ToolResult,
        words,
        st.lists(texts | images, max_size=2).map(tuple),
        st.booleans(),
        names,
        json_values,
    ),
)
messages = st.builds(
    Message,
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(blocks, max_size=3).map(tuple),
)
conversations = st.lists(messages, max_size=6)
tools = st.builds(Tool, names, words, json_objects)
