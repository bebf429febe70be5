"""A model as the rest of Offbook sees it: a source that turns a `Request` into a `Reply`.

Playbooks, mocks, cassettes and live providers all implement `ModelSource`; sessions, servers and
judges call it. A source returns a whole reply; `exchange/relay.py` passes on the events of one that
is still arriving.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from offbook.determinism.clock import stable_id
from offbook.errors import UsageError
from offbook.exchange.messages import (
    JSON,
    AnyBlock,
    History,
    Message,
    ToolCall,
    ToolResult,
    find_calls,
    find_prompt,
    join_text,
)


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool that the agent offers to the model; `schema` is the schema of its parameters.

    A tool of another `kind` than `function` keeps its options in `schema`, for example the grammar
    of a custom tool. `more` has the provider-specific fields of a function, such as usage examples.
    """

    name: str
    description: str = ""
    schema: JSON = {}
    namespace: str = ""
    kind: str = "function"
    strict: bool = False
    more: JSON = {}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to the model: the whole conversation, the tools and the options.

    `parameters` are the provider's sampling and format options, unchanged. `metadata` describes the
    client (endpoint, dialect, session headers); it is never sent to a model.
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
    def first_prompt(self) -> str:
        """The text of the first user message, without what the client injected."""
        return find_prompt(self.messages)

    @property
    def latest_prompt(self) -> str:
        """The text of the latest user message, without what the client injected."""
        return find_prompt(reversed(self.messages))

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The names of the offered tools."""
        return tuple([tool.name for tool in self.tools])  # without a generator: per request

    @property
    def new_messages(self) -> tuple[Message, ...]:
        """The messages after the model's latest one: tool results, or a new prompt."""
        return self.messages.since("assistant")

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results among the new messages, with what the subject saw of their tools."""
        new = self.new_messages
        results = tuple([result for message in new for result in message.results])
        before = len(self.messages) - len(new)
        if not results and before and TEXT_CALLS in (text := self.messages[before - 1].text):
            from offbook.exchange.text_results import parse_results

            return parse_results(text.rpartition(TEXT_CALLS)[2], new)
        if failed := self.metadata.get(FAILED_CALLS):
            details = self.metadata.get(DETAILS_OF_CALLS, {})
            return tuple(
                msgspec.structs.replace(
                    result,
                    failed=failed.get(result.call_id),
                    details=details.get(result.call_id, result.details),
                )
                if result.failed is None
                else result
                for result in results
            )
        return results


FAILED_CALLS = "failed_calls"  # in the metadata: whether each tool failed, by the id of its call
REFUSED_CALLS = "refused_calls"  # in the metadata: the calls that the framework did not run

DETAILS_OF_CALLS = "details_of_calls"  # likewise: what a tool returned besides its content

# smolagents sends its calls and results as texts; a message with calls begins so.
TEXT_CALLS = "Calling tools:\n"

# The ids of tool calls as a provider writes them, and the length of what follows the prefix.
CALL_IDS = {"anthropic": ("toolu_01", 22), "bedrock": ("tooluse_", 22)}
OPENAI_CALL_ID = ("call_", 24)


def make_call_id(request: Request, number: int) -> str:
    """Return the id of the n-th tool call of a run, in the form of the request's provider."""
    prefix, length = CALL_IDS.get(request.metadata.get("dialect", ""), OPENAI_CALL_ID)
    return stable_id(prefix, str(number), length=length)


StopReason = Literal["stop", "tool_use", "length", "stop_sequence", "refusal", "error"]


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Token counts of the provider; `input` includes the cached tokens."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of the model and the reason why it stopped.

    `step` is the number, from 1, of the script entry that produced it (a playbook action, a line
    of a mock file, an interaction of a cassette); 0 without a script. `chunks` are the parts in
    which the text was streamed, if known, and `delays` the milliseconds before each of them.
    `fault` is what goes wrong with its delivery, or None.
    """

    blocks: tuple[AnyBlock, ...] = ()
    stop: StopReason = "stop"
    usage: Usage = Usage()
    model: str = ""
    id: str = ""
    step: int = 0
    role: str = ""
    chunks: tuple[str, ...] = ()
    delays: tuple[float, ...] = ()
    fault: Any = None  # a `Fault`, which few runs have: its module is not imported here

    @property
    def text(self) -> str:
        """The text of the reply, without its reasoning."""
        return join_text(self.blocks)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the reply."""
        return find_calls(self.blocks)

    @property
    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        return Message("assistant", self.blocks)


@runtime_checkable
class ModelSource(Protocol):
    """A source of replies: a script, a recording or a real provider.

    A source raises `ModelError` where a provider would return an error status, and any other
    exception only if the run must fail (for example, a script that does not match).
    """

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply to this request."""
        ...


def can_relay(source: object) -> bool:
    """Return whether this source can emit events before its reply is complete."""
    # An optional attribute: most sources return whole replies and do not have it.
    return bool(getattr(source, "relays", False))


@runtime_checkable
class AwaitsResults(Protocol):
    """A source that notes which of its tool calls have been answered by a result."""

    def missing_result(self) -> Exception | None:
        """Return the error for a call whose result never came back, or None."""
        ...


# --- JSON schemas: of tool parameters, and of the events of a run


class SchemaError(NamedTuple):
    """A value that a schema does not allow: its path, the rule, and the value itself."""

    path: tuple[str | int, ...]
    message: str
    value: Any


SchemaValidator = Callable[[Any], list[SchemaError]]


def compile_validator(
    schema: dict[str, Any], where: str, *, kind: str = "JSON schema", hint: str = ""
) -> SchemaValidator:
    """Return a function that returns the errors of a value. `kind` names the schema in errors."""
    try:
        raw = msgspec.json.encode(schema, order="sorted")
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"the {kind} is not JSON: {error}", where=where) from error
    return _compile(raw, where, kind, hint)


# Every session registers the same built-in tools: compiling their schemas once saves most of the
# time that a session needs to open.
@lru_cache(maxsize=512)
def _compile(raw: bytes, where: str, kind: str, hint: str) -> SchemaValidator:
    import jsonschema_rs  # imported here because `import offbook` must stay fast

    try:
        validator = jsonschema_rs.validator_for(raw.decode())
    except (jsonschema_rs.ValidationError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"invalid {kind}: {reason}", where=where, hint=hint) from error

    def find_errors(value: Any) -> list[SchemaError]:
        # `is_valid` builds no error objects: valid values are the usual case.
        if validator.is_valid(value):
            return []
        return [
            SchemaError(tuple(error.instance_path), error.message, error.instance)
            for error in validator.iter_errors(value)
        ]

    return find_errors
