"""The mock file format: one JSON object a line, parsed strictly.

    {"text": "PLAN: look at the orders first"}
    {"match": "*refund order*", "text": "Refunded."}
    {"match": "*slow*", "error": {"status": 503}}

A first line `{"schemaVersion": 1}` selects the newer format, in which every line has an `id`, a
`scope` and a `consume`. `lint_mocks` reports the lines of a valid file that can never answer.
"""

# No `from __future__ import annotations`: msgspec would compile the type of each field anew, and
# the first reply of a server would take 2 ms more.

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec

from offbook.errors import (
    FormatError,
    ModelError,
    UsageError,
    require_known,
)
from offbook.exchange.messages import JSON, AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import STOP_REASONS, Reply, Usage
from offbook.files import convert, parse_json, read_text
from offbook.options import decode
from offbook.trace.globs import Glob

if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = 1
OUTPUT_TOKENS = 30  # as Harn counts a reply without token counts
NEW_LINE = 'write {"id": "a", "scope": "default", "consume": "once", …}'
KNOWN_SCOPES = frozenset({"default", "shared", "compaction"})

# Each error category with its status on the wire.
STATUSES = {
    "timeout": 504,
    "auth": 401,
    "rate_limit": 429,
    "overloaded": 529,
    "server_error": 500,
    "transient_network": 503,
    "schema_validation": 422,
    "tool_error": 400,
    "tool_rejected": 400,
    "egress_blocked": 403,
    "cancelled": 499,
    "not_found": 404,
    "circuit_open": 503,
    "budget_exceeded": 402,
    "generic": 500,
    "invalid_request": 400,
}
CATEGORY_BY_STATUS = {
    401: "auth",
    403: "auth",
    404: "not_found",
    408: "timeout",
    410: "not_found",
    429: "rate_limit",
    500: "server_error",
    502: "server_error",
    503: "overloaded",
    504: "timeout",
    522: "timeout",
    524: "timeout",
    529: "overloaded",
}
CATEGORY_BY_REASON = {
    "rate_limit": "rate_limit",
    "timeout": "timeout",
    "network_error": "transient_network",
    "transient_network": "transient_network",
    "server_error": "server_error",
    "provider_error": "server_error",
    "provider_5xx": "server_error",
    "upstream_unavailable": "server_error",
    "auth_failure": "auth",
    "invalid_request": "invalid_request",
    "model_unavailable": "not_found",
}
ERROR_KINDS = ("transient", "terminal")


class MockError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A provider error in place of a reply."""

    category: str | None = None
    message: str | None = None
    status: Annotated[int, msgspec.Meta(ge=100, le=999)] | None = None
    kind: str | None = None
    reason: str | None = None
    retry_after_ms: Annotated[int, msgspec.Meta(ge=0)] | None = None

    def validate(self) -> None:
        """Raise `UsageError` for values that no provider sends."""
        if self.category is not None:
            require_known("unknown error category", self.category, STATUSES)
        if self.kind is not None:
            require_known("unknown error kind", self.kind, ERROR_KINDS)
        if not (self.category or self.status or self.kind or self.reason):
            raise UsageError(
                "an error needs a category, a status, a kind or a reason",
                hint='write {"error": {"category": "rate_limit"}}',
            )

    @property
    def inferred_category(self) -> str:
        """The category as written, or derived from the status, the reason or the kind."""
        if self.category:
            return self.category
        if self.status in CATEGORY_BY_STATUS:
            return CATEGORY_BY_STATUS[self.status]
        if self.reason in CATEGORY_BY_REASON:
            return CATEGORY_BY_REASON[self.reason]
        return "server_error" if self.kind == "transient" else "generic"

    @property
    def text(self) -> str:
        """The message as written, or one made of the other fields."""
        if self.message is not None:
            return self.message
        text = "mock LLM error" if self.status is None else f"HTTP {self.status} mock LLM error"
        cause = "/".join(filter(None, (self.kind, self.reason)))
        return f"{text} ({cause})" if cause else text

    def to_model_error(self) -> ModelError:
        """Return the exception to raise."""
        category = self.inferred_category
        return ModelError(
            self.text,
            status=self.status or STATUSES[category],
            category=category,
            retry_after=None if self.retry_after_ms is None else self.retry_after_ms / 1000,
            details={k: v for k, v in (("kind", self.kind), ("reason", self.reason)) if v},
        )


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a mock file; an unknown key is an error."""


class MockHeader(StrictStruct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The first line of the newer format."""

    schema_version: int
    strict_scopes: bool = False


class MockCall(StrictStruct, frozen=True, forbid_unknown_fields=True):
    """A tool call; its arguments have one of two keys.

    With `unanswered`, no request needs to have its result.
    """

    name: str
    arguments: Any = msgspec.UNSET
    args: Any = msgspec.UNSET
    id: str = ""
    type: str = ""
    unanswered: bool = False

    def to_tool_call(self) -> ToolCall:
        """Return the call; `arguments` wins over `args`."""
        arguments = self.args if self.arguments is msgspec.UNSET else self.arguments
        return _tool_call(self.id, self.name, {} if arguments is msgspec.UNSET else arguments)


Count = Annotated[int, msgspec.Meta(ge=0)]
Cost = Annotated[float, msgspec.Meta(ge=0)]


class MockUsage(StrictStruct, frozen=True, forbid_unknown_fields=True):
    """Token counts, under the names of either provider."""

    input_tokens: Count | None = None
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    completion_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    total_tokens: Count | None = None


class MockLine(StrictStruct, frozen=True, forbid_unknown_fields=True):
    """One line as it is written."""

    match: str | None = None
    consume_match: bool | None = None
    id: str | None = None
    scope: str | None = None
    consume: Literal["once", "sticky"] | None = None
    text: str = ""
    tool_calls: tuple[MockCall, ...] = ()
    model: str = "mock"
    provider: str = "mock"
    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None
    thinking: str | None = None
    thinking_summary: str | None = None
    stop_reason: str | None = None
    blocks: tuple[JSON, ...] | None = None
    error: MockError | None = None
    usage: MockUsage | None = None
    stream_chunks: tuple[str, ...] | None = None
    # Accepted for files of other tools, and not sent.
    logprobs: tuple[Any, ...] | None = None
    raw_tool_calls: Any = None
    simulated_cost_usd: Cost | None = None


class Mock(msgspec.Struct, frozen=True):
    """A line ready for use: its reply, its scope, and whether it answers more than once.

    `has_input_tokens` is False where the file does not count the tokens of the prompt.
    """

    number: int
    line: MockLine
    id: str
    scope: str
    sticky: bool
    glob: Glob | None
    reply: Reply
    has_calls: bool
    has_input_tokens: bool

    @property
    def label(self) -> str:
        """The name of the line in messages."""
        if self.glob is None:
            return f"line {self.number} (the next in order)"
        return f"line {self.number} ({self.glob.pattern!r})"


class MockFile(msgspec.Struct, frozen=True):
    """A whole mock file."""

    mocks: tuple[Mock, ...]
    path: str = ""
    strict: bool = False
    versioned: bool = False


class MockFinding(msgspec.Struct, frozen=True):
    """A finding about one line; `unreachable` and `unused` lines can be removed."""

    path: str
    line: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.message}"


def read_mocks(path: Path | str) -> MockFile:
    """Read a mock file; its first invalid line is an error."""
    return parse_mocks(read_text(Path(path)), str(path))


def parse_mocks(text: str, path: str = "") -> MockFile:
    """Parse the text of a mock file; `path` is for messages."""
    header: MockHeader | None = None
    mocks: list[Mock] = []
    lines_by_id: dict[str, int] = {}
    is_first = True
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        # JSON's own message for a comment would not say what is wrong.
        if raw.lstrip().startswith(("#", "//")):
            raise FormatError(
                "comments are not allowed in a mock file",
                path=path,
                line=number,
                hint="remove the line",
            )
        value = parse_json(raw.strip(), path, number)
        if not isinstance(value, dict):
            raise FormatError(
                f"expected one JSON object a line, got {type(value).__name__}",
                path=path,
                line=number,
                hint='write {"text": "…"} on one line',
            )
        if "schemaVersion" in value:
            if not is_first:
                raise FormatError(
                    "a header is allowed on the first line only", path=path, line=number
                )
            header = _parse_header(cast("JSON", value), path, number)
        else:
            mock = _parse_line(cast("JSON", value), header is not None, path, number)
            if header is not None and mock.id in lines_by_id:
                raise FormatError(
                    f"duplicate id {mock.id!r}, already used on line {lines_by_id[mock.id]}",
                    path=path,
                    line=number,
                    hint="use a different id on each line",
                )
            lines_by_id[mock.id] = number
            mocks.append(mock)
        is_first = False
    strict = header is not None and header.strict_scopes
    return MockFile(tuple(mocks), path, strict, header is not None)


def _parse_header(value: JSON, path: str, number: int) -> MockHeader:
    header = convert(value, MockHeader, path=path, line=number)
    if header.schema_version > VERSION:
        raise FormatError(
            f"schemaVersion {header.schema_version} is newer than {VERSION}",
            path=path,
            line=number,
            hint="read it with a newer Offbook",
        )
    if header.schema_version != VERSION:
        raise FormatError(
            f"unknown schemaVersion {header.schema_version}", path=path, line=number, hint="write 1"
        )
    return header


def _parse_line(value: JSON, versioned: bool, path: str, number: int) -> Mock:  # noqa: FBT001 - private
    line = convert(value, MockLine, path=path, line=number)
    try:
        _check_line(line, versioned=versioned)
        if line.error is not None:
            line.error.validate()
        usage, has_input_tokens = _parse_usage(line)
        blocks = _parse_blocks(line)
        # Without an explicit `consume`, a line with a pattern answers again and again.
        sticky = line.consume == "sticky" or (
            line.consume is None and line.match is not None and not line.consume_match
        )
        calls = any(isinstance(block, ToolCall) for block in blocks)
        stop = STOP_REASONS[line.stop_reason or ("tool_use" if calls else "stop")]
        if stop == "tool_use" and not calls:
            stop = "stop"
        chunks = line.stream_chunks or ()
        return Mock(
            number,
            line,
            (line.id or f"line-{number}").strip(),
            line.scope or "default",
            sticky,
            None if line.match is None else Glob(line.match),
            Reply(blocks, stop, usage, line.model, step=number, chunks=chunks),
            calls,
            has_input_tokens,
        )
    except UsageError as error:
        raise FormatError(error.what, path=path, line=number, hint=error.hint) from error


def _check_line(line: MockLine, *, versioned: bool) -> None:
    """Raise for an unknown stop reason, and for keys of the other format."""
    if line.stop_reason is not None:
        require_known("unknown stop_reason", line.stop_reason, STOP_REASONS)
    for name in ("id", "scope", "consume"):
        value = getattr(line, name)
        if versioned and not (value or "").strip():
            raise UsageError(f"missing {name!r}", hint=NEW_LINE)
        if not versioned and value is not None:
            raise UsageError(
                f"{name!r} belongs to the newer format",
                hint='add {"schemaVersion": 1} as the first line, or remove the key',
            )
    if not versioned:
        return
    # The newer format has one name for each of these.
    has_args = any(call.args is not msgspec.UNSET for call in line.tool_calls)
    for name, is_given, hint in (
        ("consume_match", line.consume_match is not None, '"consume": "once"'),
        ("args", has_args, "'arguments'"),
        (
            "cache_creation_input_tokens",
            line.cache_creation_input_tokens is not None,
            "'cache_write_tokens'",
        ),
    ):
        if is_given:
            raise UsageError(f"{name!r} belongs to the older format", hint=f"write {hint}")


def _parse_usage(line: MockLine) -> tuple[Usage, bool]:
    """Return the token counts, and whether the line counts those of the prompt."""
    nested = line.usage or MockUsage()
    # -1 marks a missing count: the source then counts the bytes of the prompt.
    prompt = _first_count(line.input_tokens, nested.input_tokens, nested.prompt_tokens, -1)
    output = _first_count(
        line.output_tokens, nested.output_tokens, nested.completion_tokens, OUTPUT_TOKENS
    )
    cache_read = _first_count(
        line.cache_read_tokens, nested.cache_read_tokens, nested.cache_read_input_tokens, 0
    )
    cache_write = _first_count(
        line.cache_write_tokens,
        line.cache_creation_input_tokens,
        nested.cache_write_tokens,
        nested.cache_creation_input_tokens,
        0,
    )
    total = nested.total_tokens
    if total is not None and total != max(prompt, 0) + output:
        raise UsageError(f"usage.total_tokens is {total}, not {max(prompt, 0)} + {output}")
    return Usage(max(prompt, 0), output, cache_read, cache_write), prompt >= 0


def _first_count(*counts: int | None) -> int:
    return next(count for count in counts if count is not None)


def _parse_blocks(line: MockLine) -> tuple[AnyBlock, ...]:
    """Return the content of the reply: `blocks`, or thinking, text and calls in this order."""
    text = line.text
    if line.stream_chunks:
        joined = "".join(line.stream_chunks)
        if text and text != joined:
            raise UsageError("stream_chunks do not add up to text", hint="remove one of them")
        text = joined
    calls = [call.to_tool_call() for call in line.tool_calls]
    if line.blocks:
        blocks: list[AnyBlock] = []
        for block in line.blocks:
            match block.get("type"):
                case "output_text" | "text":
                    blocks.append(Text(str(block.get("text", ""))))
                case "thinking" | "reasoning":
                    blocks.append(Thinking(str(block.get("text", block.get("thinking", "")))))
                case "tool_call" | "tool_use":
                    arguments = block.get("arguments", block.get("args", block.get("input", {})))
                    name = str(block.get("name", ""))
                    blocks.append(_tool_call(str(block.get("id", "")), name, arguments))
                case other:
                    known = ("output_text", "reasoning", "tool_call")
                    require_known("unknown block type", other, known)
        # Some recorders write the calls twice, as blocks and as tool_calls.
        has_calls = any(isinstance(block, ToolCall) for block in blocks)
        return tuple(blocks) if has_calls else (*blocks, *calls)
    thinking = line.thinking or line.thinking_summary
    return (
        *([Thinking(thinking)] if thinking else []),
        *([Text(text)] if text else []),
        *calls,
    )


def _tool_call(id_: str, name: str, arguments: Any) -> ToolCall:
    return ToolCall(id_, name, decode(arguments, dict[str, Any], f"the arguments of {name!r}"))


def lint_mocks(file: MockFile, unused: "Iterable[Mock]" = ()) -> list[MockFinding]:
    """Return the findings about a file, and about the lines that a run has not used."""
    findings: list[MockFinding] = []

    def report(mock: Mock, kind: str, message: str) -> None:
        findings.append(MockFinding(file.path, mock.number, kind, message))

    for index, mock in enumerate(file.mocks):
        # A line without a pattern is used before all that have one, wherever it is in the file.
        for earlier in file.mocks if mock.glob else file.mocks[:index]:
            if earlier is not mock and _hides(earlier, mock):
                report(mock, "unreachable", f"{earlier.label} always matches first")
                break
    # An unreachable line is of course unused: report it once.
    unreachable = {finding.line for finding in findings}
    for mock in file.mocks:
        if mock.glob is not None and "*" not in mock.glob.pattern:
            pattern = mock.glob.pattern
            report(
                mock,
                "suspicious",
                f"without a star it must equal the whole conversation: did you mean '*{pattern}*'?",
            )
        if mock.glob is None and mock.line.consume_match is not None:
            report(mock, "suspicious", "consume_match needs a match")
        if mock.line.error is not None and (mock.line.text or mock.line.tool_calls):
            report(mock, "suspicious", "text and tool_calls of an error are ignored")
        if file.versioned and mock.scope not in KNOWN_SCOPES and "." not in mock.scope:
            report(mock, "suspicious", f"unknown scope {mock.scope!r}")
    for mock in unused:
        if mock.number not in unreachable:
            report(mock, "unused", "no request of this run matched it")
    return sorted(findings, key=lambda finding: finding.line)


def _hides(hiding: Mock, mock: Mock) -> bool:
    """Return whether the first line answers every request that the second one could."""
    if hiding.scope != mock.scope or not hiding.sticky:
        return False
    is_earlier = hiding.number < mock.number
    if hiding.glob is None:
        return is_earlier or mock.glob is not None
    return is_earlier and mock.glob is not None and hiding.glob.covers(mock.glob)
