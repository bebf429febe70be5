"""What a Converse request is made of, as far as it is read here; the rest is left alone."""

from __future__ import annotations

import msgspec

from offbook.errors import ModelError
from offbook.exchange.foreign import Bodies
from offbook.exchange.messages import JSON

NAME = "bedrock"


class Use(msgspec.Struct, frozen=True):
    """The model calls a tool."""

    toolUseId: str  # noqa: N815 - Amazon's name, as all of them here
    name: str
    input: JSON | None = None


class Bytes(msgspec.Struct, frozen=True):
    """Where the bytes of an image are."""

    bytes: str = ""


class Picture(msgspec.Struct, frozen=True):
    """An image."""

    format: str = "png"
    source: Bytes = Bytes()


class Said(msgspec.Struct, frozen=True):
    """A piece of what a tool answered."""

    text: str | None = None
    json: msgspec.Raw = msgspec.Raw()
    image: Picture | None = None


class Result(msgspec.Struct, frozen=True):
    """What a tool answered."""

    toolUseId: str  # noqa: N815 - as it stands on the wire
    content: list[Said] = []
    status: str = "success"


class Thought(msgspec.Struct, frozen=True):
    """What the model thought, with its seal."""

    text: str = ""
    signature: str = ""


class Reasoning(msgspec.Struct, frozen=True):
    """A thought that can be read, or one that cannot."""

    reasoningText: Thought | None = None  # noqa: N815 - as it stands on the wire
    redactedContent: str = ""  # noqa: N815 - as it stands on the wire


class Part(msgspec.Struct, frozen=True):
    """One block of a message: exactly one of these."""

    text: str | None = None
    toolUse: Use | None = None  # noqa: N815 - as it stands on the wire
    toolResult: Result | None = None  # noqa: N815 - as it stands on the wire
    reasoningContent: Reasoning | None = None  # noqa: N815 - as it stands on the wire
    image: Picture | None = None


class Turn(msgspec.Struct, frozen=True):
    """One message."""

    role: str
    content: list[Part]


class Schema(msgspec.Struct, frozen=True):
    """The parameters of a tool."""

    json: JSON = {}


class Spec(msgspec.Struct, frozen=True):
    """A tool."""

    name: str
    description: str = ""
    inputSchema: Schema = Schema()  # noqa: N815 - as it stands on the wire


class Offer(msgspec.Struct, frozen=True):
    """A tool that is offered, or a mark in the cache."""

    toolSpec: Spec | None = None  # noqa: N815 - as it stands on the wire


class Config(msgspec.Struct, frozen=True):
    """The tools that are offered."""

    tools: list[Offer] = []


class Body(msgspec.Struct, frozen=True):
    """A request."""

    messages: list[Turn] | None = None
    system: list[Part] | None = None
    toolConfig: Config | None = None  # noqa: N815 - as it stands on the wire
    inferenceConfig: JSON | None = None  # noqa: N815 - as it stands on the wire
    additionalModelRequestFields: JSON | None = None  # noqa: N815 - as it stands on the wire
    guardrailConfig: JSON | None = None  # noqa: N815 - as it stands on the wire
    outputConfig: JSON | None = None  # noqa: N815 - as it stands on the wire


_body = Bodies(Body)


def read_body(data: bytes) -> tuple[Body, JSON]:
    """The body, and what is beside it; Bedrock's refusal of what it cannot read."""
    try:
        return _body.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"The model returned the following errors: {error}", status=400) from error
