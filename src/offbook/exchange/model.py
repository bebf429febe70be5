"""A model as the rest of Offbook sees it: a source that turns a `Request` into a `Reply`.

Playbooks, mocks, cassettes and live providers all implement `ModelSource`; sessions, servers and
judges call it. A source returns a whole reply; `sources/live.py` passes on the events of one that
is still arriving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, runtime_checkable

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.messages import (
    JSON,
    RAW_ARGUMENTS,
    AnyBlock,
    History,
    Message,
    Text,
    ToolCall,
    ToolResult,
    find_calls,
    find_prompt,
    join_text,
)

if TYPE_CHECKING:
    from types import CoroutineType


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
        messages = self.messages
        new = messages.since("assistant")
        # `type`: quicker than `isinstance`, see `find_calls`
        results = tuple(
            [block for message in new for block in message.blocks if type(block) is ToolResult]
        )
        if not results and len(new) < len(messages) and (calls := self.text_calls):
            from offbook.exchange.text_calls import parse_results  # for one client only

            return parse_results(calls, new)
        if self.metadata and (failed := self.metadata.get(FAILED_CALLS)):
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

    @property
    def text_calls(self) -> dict[str, ToolCall]:
        """The calls of the model's latest message if the client sends them as a text, by id."""
        latest = self.messages.latest("assistant")
        if latest is None or TEXT_CALLS not in (text := latest.text):
            return {}
        from offbook.exchange.text_calls import parse_calls  # as above

        return parse_calls(text.rpartition(TEXT_CALLS)[2])


FAILED_CALLS = "failed_calls"  # in the metadata: whether each tool failed, by the id of its call
REFUSED_CALLS = "refused_calls"  # in the metadata: the calls that the framework did not run

DETAILS_OF_CALLS = "details_of_calls"  # likewise: what a tool returned besides its content
AGENT_KEY = "agent"  # in the metadata: the name of the agent that sent the request

SIDE_REPLY = "auxiliary ("  # the role of a fixed reply begins so

# smolagents sends its calls and results as texts; a message with calls begins so.
TEXT_CALLS = "Calling tools:\n"

StopReason = Literal["stop", "tool_use", "length", "stop_sequence", "refusal", "error"]
# What providers, SDKs and their spans call these.
STOP_REASONS: dict[str, StopReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "completed": "stop",
    "tool_use": "tool_use",
    "tool_calls": "tool_use",
    "tool-calls": "tool_use",
    "tool_call": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "content_filter": "refusal",
    "content-filter": "refusal",
    "error": "error",
}


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
    def sent_blocks(self) -> tuple[AnyBlock, ...]:
        """The blocks that Claude sends: an empty reply has none."""
        return () if self.blocks == (Text(""),) else self.blocks

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the reply."""
        return find_calls(self.blocks)

    @property
    def message(self) -> Message:
        """The reply as the next message of the conversation."""
        return Message("assistant", self.blocks)


class Conversation(msgspec.Struct, frozen=True):
    """A conversation of a run: its latest request, the digest of its head, and the reply.

    `start` is the number of messages in its first request.
    """

    request: Request
    reply: Reply
    head: str
    start: int

    @property
    def calls(self) -> frozenset[str]:
        """The ids of the calls in the reply."""
        return frozenset([call.id for call in self.reply.calls])


@runtime_checkable
class ModelSource(Protocol):
    """A source of replies: a script, a recording or a real provider.

    A source raises `ModelError` where a provider would return an error status, and any other
    exception only if the run must fail (for example, a script that does not match).

    One that notes the results of its tool calls has `missing_result()`: it returns the error for a
    call whose result never came back, or None.
    """

    async def reply(self, request: Request, /) -> Reply:
        """Return the reply to this request."""
        ...


def can_relay(source: object) -> bool:
    """Return whether this source can emit events before its reply is complete."""
    # An optional attribute: most sources return whole replies and do not have it.
    return bool(getattr(source, "relays", False))


def answers_at_once(source: object) -> bool:
    """Return whether the replies of this source never wait: it awaits nothing, and calls no code
    that may. Its class says so of its own `reply`: that of a subclass may wait.
    """  # noqa: D205 - one sentence
    for kind in type(source).__mro__:
        if "reply" in vars(kind):
            return "at_once" in vars(kind) and bool(getattr(source, "at_once", False))
    return False


# --- JSON schemas: of tool parameters, and of the events of a run


class SchemaError(msgspec.Struct, frozen=True):
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
        try:
            # `is_valid` builds no error objects: valid values are the usual case.
            if validator.is_valid(value):
                return []
            return [
                SchemaError(tuple(error.instance_path), error.message, error.instance)
                for error in validator.iter_errors(value)
            ]
        except UnicodeEncodeError:  # half a character, which no validator reads
            import json

            text = json.dumps(value, ensure_ascii=False, default=repr)
            return find_errors(json.loads(text.encode(errors="replace")))

    return find_errors


def argument_checker(tool: Tool) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that returns what the schema of a tool forbids of arguments, or ""."""
    schema = tool.schema
    properties: Any = schema.get("properties")
    closed = not schema.get("additionalProperties") and "patternProperties" not in schema
    known: Any = properties if closed else None
    validate: SchemaValidator | None = None
    if tool.kind == "function":
        with suppress(UsageError):  # the schema itself is invalid: an error of the agent
            validate = compile_validator(schema, tool.name)

    def find_problem(arguments: Mapping[str, Any]) -> str:
        if tool.kind != "function" or RAW_ARGUMENTS in arguments:
            return ""
        for name in arguments if known else ():
            if name not in known:
                return f"it has no {name!r}; {did_you_mean(name, known)}"
        errors = validate(arguments) if validate is not None else []
        if not errors:
            return ""
        place = ".".join(str(part) for part in errors[0].path)
        return f"{place}: {errors[0].message}" if place else errors[0].message

    return find_problem


# ------------------------------------------------------------------------- tool aliases
# Tool aliases: one script for agents that have different names for the same tool.
#
# A script with `call("shell", {"command": "ls"})` runs against every agent that has a shell tool,
# whatever its name. `AliasedSource` translates: replies to the agent use the agent's tool names;
# requests to the source, and the trace, use the names of the script.


class ToolAlias(msgspec.Struct, frozen=True):
    """The agent's name of a tool, and of its parameters if they differ.

    For example, Claude Code's `read`: `ToolAlias("Read", {"path": "file_path"})`.
    """

    tool: str
    params: Mapping[str, str] = {}

    def translate(self, call: ToolCall) -> ToolCall:
        """Return the call with the agent's names."""
        arguments = {self.params.get(key, key): value for key, value in call.arguments.items()}
        return msgspec.structs.replace(call, name=self.tool, arguments=arguments)

    def rename(self, schema: JSON) -> JSON:
        """Return the schema of the agent's tool with the names of the script."""
        names = {given: name for name, given in self.params.items()}
        properties = cast("JSON", schema.get("properties") or {})
        if names.keys().isdisjoint(properties):
            return schema
        required = cast("list[str]", schema.get("required") or [])
        return {
            **schema,
            "properties": {names.get(key, key): value for key, value in properties.items()},
            "required": [names.get(key, key) for key in required],
        }


ToolAliases = Mapping[str, ToolAlias]

# The tools of Claude Code, as a command and in its SDK.
CLAUDE_CODE_ALIASES: ToolAliases = {
    "shell": ToolAlias("Bash"),
    "bash": ToolAlias("Bash"),
    "read": ToolAlias("Read", {"path": "file_path"}),
    "write": ToolAlias("Write", {"path": "file_path"}),
    "edit": ToolAlias("Edit", {"path": "file_path", "old": "old_string", "new": "new_string"}),
}


def parse_tool_aliases(
    names: Mapping[str, str | ToolAlias] | None, known: ToolAliases
) -> dict[str, ToolAlias]:
    """Return a user's aliases; a string that is a `known` alias has the meaning of that alias."""
    aliases: dict[str, ToolAlias] = {}
    for name, target in (names or {}).items():
        if isinstance(cast("object", target), str) and target:
            aliases[name] = known.get(cast("str", target), ToolAlias(cast("str", target)))
        elif isinstance(target, ToolAlias):
            aliases[name] = target
        else:
            raise UsageError(
                f"tool_aliases[{name!r}]: expected a tool name or a ToolAlias, got {target!r}",
                hint=f'write tool_aliases={{{name!r}: "…"}}, or ToolAlias("…", {{…}})',
            )
    return aliases


class AliasedSource:
    """A source whose script and agent use different names for the same tools.

    The `given` aliases of the user always apply. The `known` aliases of the agent apply only if
    the script uses them; otherwise the agent's tools keep their names. A name that the agent
    offers as a tool is never translated.
    """

    def __init__(self, source: ModelSource, *, given: ToolAliases, known: ToolAliases) -> None:
        self._source = source
        self._given = given
        self._known = known
        # The names that a script can call in addition to the agent's tools.
        self.aliases = frozenset((*given, *known))
        self._active: dict[str, ToolAlias] = dict(given)
        self._unaliased: set[str] = set()
        self._original_calls: dict[str, ToolCall] = {}

    def activate(self, called: Iterable[str]) -> None:
        """Activate the known aliases among the tool names that the script calls."""
        for name in called:
            if name in self._known:
                self._active.setdefault(name, self._known[name])
            elif name not in self._active:
                self._unaliased.add(name)

    def original_call(self, call: ToolCall) -> ToolCall:
        """Return a call of the agent with the names of the script; its values are the agent's."""
        original = self._original_calls.get(call.id)
        if original is None:
            return call
        alias = self._active[original.name]
        if call.name != alias.tool:
            return call
        names = {given: name for name, given in alias.params.items()}
        arguments = {names.get(key, key): value for key, value in call.arguments.items()}
        return msgspec.structs.replace(call, name=original.name, arguments=arguments)

    def reply(self, request: Request, /) -> CoroutineType[Any, Any, Reply]:
        """Return the source's reply with the agent's names."""
        # The usual case: the script uses the names of the agent.
        return self._translate(request) if self._active else self._source.reply(request)

    async def _translate(self, request: Request) -> Reply:
        offered = request.tool_names
        reply = await self._source.reply(self._with_script_names(request))
        blocks: list[AnyBlock] = []
        for block in reply.blocks:
            if isinstance(block, ToolCall) and block.name not in offered:
                alias = self._active.get(block.name)
                if alias is not None:
                    # The results of the call come back with its id, so the id is the key.
                    self._original_calls[block.id] = block
                    block = alias.translate(block)  # noqa: PLW2901 - the block of the reply
            blocks.append(block)
        return msgspec.structs.replace(reply, blocks=tuple(blocks))

    def _with_script_names(self, request: Request) -> Request:
        offered = request.tool_names
        tools: list[Tool] = []
        for tool in request.tools:
            aliased = [
                msgspec.structs.replace(tool, name=name, schema=alias.rename(tool.schema))
                for name, alias in self._active.items()
                if alias.tool == tool.name and name not in offered
            ]
            # A script can use both: `call("shell")` and the agent's own `call("Bash")`.
            if not aliased or tool.name in self._unaliased:
                tools.append(tool)
            tools += aliased
        messages = request.messages
        if self._original_calls:
            messages = History(self._restore_names(message) for message in messages)
        return msgspec.structs.replace(request, tools=tuple(tools), messages=messages)

    def _restore_names(self, message: Message) -> Message:
        if not message.calls and not message.results:
            return message
        originals = self._original_calls
        blocks: list[AnyBlock] = []
        for block in message.blocks:
            if isinstance(block, ToolCall):
                blocks.append(self.original_call(block))
            elif isinstance(block, ToolResult) and block.call_id in originals:
                # Another name than that of the call is kept, and an empty one.
                original = originals[block.call_id].name
                is_own = block.name == self._active[original].tool
                blocks.append(msgspec.structs.replace(block, name=original) if is_own else block)
            else:
                blocks.append(block)
        return Message(message.role, tuple(blocks))
