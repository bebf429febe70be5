"""What is said between an agent and a model, in no provider's words.

A conversation is a sequence of messages; a message is a role and its blocks.
Tool results stand in messages of their own, with the role `tool`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

JSON = dict[str, Any]

to_json = msgspec.json.Encoder(enc_hook=repr).encode
"""The bytes of a value as JSON; what that has no words for goes by its `repr`."""


class Block(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """One piece of a message."""


# What holds nothing but texts can be in no cycle: the collector need not look at it.


class Text(Block, frozen=True, omit_defaults=True, tag_field="type", tag="text", gc=False):
    """Words."""

    text: str


class Thinking(Block, frozen=True, omit_defaults=True, tag_field="type", tag="thinking", gc=False):
    """What the model thought before it spoke; `signature` is the provider's seal on it."""

    text: str
    signature: str = ""
    redacted: bool = False


class Image(Block, frozen=True, omit_defaults=True, tag_field="type", tag="image", gc=False):
    """A picture: base64 `data` of a `media_type`, or a `url`."""

    data: str = ""
    media_type: str = ""
    url: str = ""


class ToolCall(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_call"):
    """The model asks for a tool. `namespace` is for dialects that group tools by server."""

    id: str
    name: str
    arguments: JSON = {}
    namespace: str = ""
    custom: bool = False


class Foreign(Block, frozen=True, omit_defaults=True, tag_field="type", tag="foreign"):
    """What only one dialect has a word for, as it stood on the wire: a document, a web search."""

    kind: str
    data: JSON = {}
    dialect: str = ""


Content = Text | Image | Foreign


class ToolResult(Block, frozen=True, omit_defaults=True, tag_field="type", tag="tool_result"):
    """What a tool answered to the call with this id."""

    call_id: str
    content: tuple[Content, ...] = ()
    is_error: bool = False
    name: str = ""
    details: Any = None

    @property
    def text(self) -> str:
        """The text of the answer, blocks joined by line ends."""
        return join_text(self.content)


AnyBlock = Text | Thinking | Image | ToolCall | ToolResult | Foreign
Role = Literal["system", "user", "assistant", "tool"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message: who speaks, and what."""

    role: Role
    blocks: tuple[AnyBlock, ...] = ()

    @property
    def text(self) -> str:
        """The text of the message, blocks joined by line ends."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls in it."""
        return find_calls(self.blocks)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results in it."""
        return tuple([block for block in self.blocks if isinstance(block, ToolResult)])


def join_text(blocks: tuple[AnyBlock, ...]) -> str:
    """The text blocks, joined by line ends."""
    if len(blocks) == 1:  # nearly always
        (only,) = blocks
        return only.text if isinstance(only, Text) else ""
    return "\n".join(block.text for block in blocks if isinstance(block, Text))


def find_calls(blocks: tuple[AnyBlock, ...]) -> tuple[ToolCall, ...]:
    """The tool calls among the blocks."""
    for block in blocks:
        if isinstance(block, ToolCall):
            return tuple([block for block in blocks if isinstance(block, ToolCall)])
    return ()


def user(text: str) -> Message:
    """A user's message of one text."""
    return Message("user", (Text(text),))
