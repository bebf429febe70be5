"""What an agent asks of a model."""

from __future__ import annotations

import msgspec

from offbook.exchange.history import History
from offbook.exchange.messages import JSON, Message


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the agent offers to the model; `schema` is that of its parameters.

    What is no function keeps its own options in `schema`: the grammar of a custom tool, say. What
    else a provider lets be said of a function is `more`: examples of its use, who may call it.
    """

    name: str
    description: str = ""
    schema: JSON = {}
    namespace: str = ""
    kind: str = "function"
    strict: bool = False
    more: JSON = {}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question to the model: the whole conversation, and under which conditions.

    `parameters` are the provider's sampling and format options as they came; `metadata` is what
    is known about the asker (endpoint, dialect, session headers), which no model ever sees.
    """

    messages: History = msgspec.field(default_factory=History)
    system: str = ""
    tools: tuple[Tool, ...] = ()
    model: str = ""
    parameters: JSON = {}
    metadata: JSON = {}
    stream: bool = False

    @property
    def prompt(self) -> str:
        """The text of the latest user message."""
        latest = self.messages.latest("user")
        return "" if latest is None else latest.text

    @property
    def first(self) -> str:
        """The text of the first user message."""
        return next((m.text for m in self.messages if m.role == "user"), "")

    @property
    def offered(self) -> tuple[str, ...]:
        """The names of the tools offered."""
        return tuple(tool.name for tool in self.tools)

    @property
    def fresh(self) -> tuple[Message, ...]:
        """What came after the model last spoke: tool results, or a new prompt."""
        messages = self.messages
        at = len(messages)
        while at and messages[at - 1].role != "assistant":
            at -= 1
        return messages[at:]
