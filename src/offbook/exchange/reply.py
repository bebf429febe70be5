"""What a model answers."""

from __future__ import annotations

from typing import Literal

import msgspec

from offbook.exchange.messages import AnyBlock, Message, ToolCall, find_calls, join_text

Stop = Literal["stop", "tool_use", "length", "stop_sequence", "refusal", "error"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens, as the provider counts them; `input` holds the cached ones too."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of the model, and why it stopped there.

    `step` is the place in the script that gave it (a playbook action, a mock line, an
    interaction of a cassette), counted from 1; 0 where there is no script. `chunks` are the
    pieces in which the text came, when they are known, and `delays` the milliseconds before
    each.
    """

    blocks: tuple[AnyBlock, ...] = ()
    stop: Stop = "stop"
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    step: int = 0
    role: str = ""
    chunks: tuple[str, ...] = ()
    delays: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """What the model said, without its thoughts."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tools it asks for."""
        return find_calls(self.blocks)

    @property
    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        return Message("assistant", self.blocks)
