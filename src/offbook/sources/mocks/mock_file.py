"""The errors of a mock file: what they are called, and which status they have on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import msgspec

from offbook.errors import FormatError, FutureVersion, ModelError, UsageError, did_you_mean
from offbook.exchange.messages import JSON, AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.model import StopReason, Usage
from offbook.files import convert, parse_json, read_text
from offbook.sources.mocks.globs import Glob

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


# --- The errors of a mock file: what they are called, and which status they have on the wire.

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
BY_STATUS = {
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
BY_REASON = {
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
KINDS = ("transient", "terminal")


class MockError(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the provider answers instead of a reply."""

    category: str | None = None
    message: str | None = None
    status: int | None = None
    kind: str | None = None
    reason: str | None = None
    retry_after_ms: int | None = None

    def check(self) -> None:
        """Refuse what could never be answered."""
        if self.category is not None and self.category not in STATUSES:
            raise UsageError(
                f"unknown error category {self.category!r}",
                hint=did_you_mean(self.category, STATUSES),
            )
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(
                f"unknown error kind {self.kind!r}", hint=did_you_mean(self.kind, KINDS)
            )
        if self.status is not None and not 100 <= self.status <= 999:  # noqa: PLR2004 - three digits
            raise UsageError(f"error.status is an HTTP status code, not {self.status}")
        if self.retry_after_ms is not None and self.retry_after_ms < 0:
            raise UsageError("error.retry_after_ms is not negative")
        if not (self.category or self.status or self.kind or self.reason):
            raise UsageError(
                "an error needs a category, a status, a kind or a reason",
                hint='write {"error": {"category": "rate_limit"}}',
            )

    @property
    def named(self) -> str:
        """Its category: as written, or as its status, its reason or its kind suggest."""
        if self.category:
            return self.category
        if self.status in BY_STATUS:
            return BY_STATUS[self.status]
        if self.reason in BY_REASON:
            return BY_REASON[self.reason]
        return "server_error" if self.kind == "transient" else "generic"

    @property
    def text(self) -> str:
        """Its message, or one put together from the rest."""
        if self.message is not None:
            return self.message
        first = "mock LLM error" if self.status is None else f"HTTP {self.status} mock LLM error"
        why = "/".join(filter(None, (self.kind, self.reason)))
        return f"{first} ({why})" if why else first

    def error(self) -> ModelError:
        """The error to raise."""
        after = self.retry_after_ms
        return ModelError(
            self.text,
            status=self.status or STATUSES[self.named],
            category=self.named,
            retry_after=None if after is None else after / 1000,
            details={k: v for k, v in (("kind", self.kind), ("reason", self.reason)) if v},
        )


# --- The lines of a mock file.

VERSION = 1
OUTPUT_TOKENS = 30
WANTED = 'write {"id": "a", "scope": "default", "consume": "once", …}'
Count = Annotated[int, msgspec.Meta(ge=0)]
Cost = Annotated[float, msgspec.Meta(ge=0)]
STOPS: dict[str, StopReason] = {
    "stop": "stop",
    "end_turn": "stop",
    "completed": "stop",
    "tool_use": "tool_use",
    "tool_calls": "tool_use",
    "tool_call": "tool_use",
    "function_call": "tool_use",
    "length": "length",
    "max_tokens": "length",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "content_filter": "refusal",
    "error": "error",
}


class StrictStruct(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a mock file: what it does not know is an error."""


class MockHeader(StrictStruct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The first line of the newer format."""

    schema_version: int
    strict_scopes: bool = False


class MockCall(StrictStruct, frozen=True, forbid_unknown_fields=True):
    """A tool call, with its arguments under either name."""

    name: str
    arguments: Any = msgspec.UNSET
    args: Any = msgspec.UNSET
    id: str = ""
    type: str = ""

    @property
    def given(self) -> JSON:
        """Its arguments."""
        for found in (self.arguments, self.args):
            if found is not msgspec.UNSET:
                return cast("JSON", found)
        return {}


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
    logprobs: tuple[Any, ...] | None = None
    stream_chunks: tuple[str, ...] | None = None
    raw_tool_calls: Any = None
    simulated_cost_usd: Cost | None = None


class Mock(msgspec.Struct, frozen=True):
    """A line as it will be used: what it answers, for whom, and how often."""

    number: int
    line: MockLine
    id: str
    scope: str
    sticky: bool
    glob: Glob | None
    blocks: tuple[AnyBlock, ...]
    stop: StopReason
    usage: Usage
    counted: bool

    @property
    def shown(self) -> str:
        """The line, in a few words."""
        if self.glob is None:
            return f"line {self.number} (the next in order)"
        return f"line {self.number} ({self.glob.pattern!r})"


class MockFile(msgspec.Struct, frozen=True):
    """A whole mock file."""

    mocks: tuple[Mock, ...]
    path: str = ""
    strict: bool = False
    versioned: bool = False


def read_mocks(path: Path | str) -> MockFile:
    """A mock file, all of it or none: the first line that is wrong is an error."""
    file = Path(path)
    return parse_mocks(read_text(file), str(path))


def parse_mocks(text: str, path: str = "") -> MockFile:
    """The text of a mock file."""
    header: MockHeader | None = None
    mocks: list[Mock] = []
    first = True
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        if raw.lstrip().startswith(("#", "//")):
            raise FormatError(
                "a mock file has no comments", path=path, line=number, hint="leave the line out"
            )
        value = parse_json(raw.strip(), path, number)
        if not isinstance(value, dict):
            raise FormatError(
                "a line is one JSON object",
                path=path,
                line=number,
                hint='write {"text": "…"}, each on a line of its own',
            )
        if "schemaVersion" in value:
            header = _read_header(cast("JSON", value), first, path, number)
        else:
            mocks.append(_read_line(cast("JSON", value), header is not None, path, number))
        first = False
    _check_ids(mocks, path, header)
    strict = header is not None and header.strict_scopes
    return MockFile(tuple(mocks), path, strict, header is not None)


def _read_header(value: JSON, first: bool, path: str, number: int) -> MockHeader:  # noqa: FBT001 - read here only
    if not first:
        raise FormatError("a header stands on the first line only", path=path, line=number)
    header = convert(value, MockHeader, path=path, line=number)
    if header.schema_version > VERSION:
        raise FutureVersion(
            f"schemaVersion {header.schema_version} is newer than {VERSION}",
            path=path,
            line=number,
            hint="read it with a newer Offbook",
        )
    if header.schema_version != VERSION:
        raise FormatError("there is no such schemaVersion", path=path, line=number, hint="write 1")
    return header


def _read_line(value: JSON, versioned: bool, path: str, number: int) -> Mock:  # noqa: FBT001 - as above
    line = convert(value, MockLine, path=path, line=number)
    try:
        (_check_new if versioned else _check_old)(line)
        if line.error is not None:
            line.error.check()
        return _prepare(line, number)
    except UsageError as error:
        raise FormatError(error.what, path=path, line=number, hint=error.hint) from error


def _check_old(line: MockLine) -> None:
    for name in ("id", "scope", "consume"):
        if getattr(line, name) is not None:
            raise UsageError(
                f"{name!r} belongs to the newer format",
                hint='begin the file with {"schemaVersion": 1}, or leave it out',
            )


def _check_new(line: MockLine) -> None:
    for name in ("id", "scope", "consume"):
        if not (getattr(line, name) or "").strip():
            raise UsageError(f"this line has no {name!r}", hint=WANTED)
    if line.consume_match is not None:
        raise UsageError("'consume_match' is of the older format", hint='write "consume": "once"')
    if line.cache_creation_input_tokens is not None:
        raise UsageError(
            "'cache_creation_input_tokens' is of the older format",
            hint="write 'cache_write_tokens'",
        )
    if any(call.args is not msgspec.UNSET for call in line.tool_calls):
        raise UsageError("'args' is of the older format", hint="write 'arguments'")


def _check_ids(mocks: list[Mock], path: str, header: MockHeader | None) -> None:
    seen: dict[str, int] = {}
    for mock in mocks if header else ():
        if mock.id in seen:
            raise FormatError(
                f"the id {mock.id!r} is on line {seen[mock.id]} already",
                path=path,
                line=mock.number,
                hint="give each line an id of its own",
            )
        seen[mock.id] = mock.number


def _prepare(line: MockLine, number: int) -> Mock:
    usage, counted = _count(line)
    blocks = _compose(line)
    calls = any(isinstance(block, ToolCall) for block in blocks)
    sticky = line.consume == "sticky" or (
        line.consume is None and line.match is not None and not line.consume_match
    )
    return Mock(
        number,
        line,
        (line.id or f"line-{number}").strip(),
        line.scope or "default",
        sticky,
        None if line.match is None else Glob(line.match),
        blocks,
        _read_stop(line.stop_reason, calls=calls),
        usage,
        counted,
    )


def _read_stop(reason: str | None, *, calls: bool) -> StopReason:
    if reason is None:
        return "tool_use" if calls else "stop"
    if reason not in STOPS:
        raise UsageError(f"unknown stop_reason {reason!r}", hint=did_you_mean(reason, STOPS))
    return STOPS[reason]


def _count(line: MockLine) -> tuple[Usage, bool]:
    """The tokens, and whether those of the prompt were counted by the author."""
    more = line.usage or MockUsage()
    read = _first(line.cache_read_tokens, more.cache_read_tokens, more.cache_read_input_tokens, 0)
    write = _first(
        line.cache_write_tokens,
        line.cache_creation_input_tokens,
        more.cache_write_tokens,
        more.cache_creation_input_tokens,
        0,
    )
    given = _first(line.input_tokens, more.input_tokens, more.prompt_tokens, -1)
    output = _first(line.output_tokens, more.output_tokens, more.completion_tokens, OUTPUT_TOKENS)
    total = more.total_tokens
    if total is not None and total != max(given, 0) + output:
        raise UsageError(f"usage.total_tokens is {total}, not {max(given, 0)} + {output}")
    return Usage(max(given, 0), output, read, write), given >= 0


def _first(*counts: int | None) -> int:
    return next(count for count in counts if count is not None)


def _compose(line: MockLine) -> tuple[AnyBlock, ...]:
    text = line.text
    if line.stream_chunks:
        whole = "".join(line.stream_chunks)
        if text and text != whole:
            raise UsageError("stream_chunks do not add up to text", hint="leave one of them out")
        text = whole
    thought = line.thinking or line.thinking_summary
    calls = [_call(call.id, call.name, call.given) for call in line.tool_calls]
    if line.blocks:
        blocks = [_read_block(block) for block in line.blocks]
        known = any(isinstance(block, ToolCall) for block in blocks)
        return (*blocks, *(() if known else calls))
    thinking = [Thinking(thought)] if thought else []
    return (*thinking, *([Text(text)] if text else []), *calls)


def _read_block(block: JSON) -> AnyBlock:
    match block.get("type"):
        case "output_text" | "text":
            return Text(str(block.get("text", "")))
        case "thinking" | "reasoning":
            return Thinking(str(block.get("text", block.get("thinking", ""))))
        case "tool_call" | "tool_use":
            given = block.get("arguments", block.get("args", block.get("input", {})))
            return _call(str(block.get("id", "")), str(block.get("name", "")), given)
        case other:
            known = ("output_text", "reasoning", "tool_call")
            raise UsageError(
                f"unknown type of block: {other!r}", hint=did_you_mean(str(other), known)
            )


def _call(id_: str, name: str, given: Any) -> ToolCall:
    if not isinstance(given, dict):
        raise UsageError(f"the arguments of {name!r} are an object, not {given!r}")
    return ToolCall(id_, name, cast("JSON", given))


# --- What is wrong with a mock file that can be read: lines that nothing will ever reach.

SCOPES = frozenset({"default", "shared", "compaction"})


class MockFinding(msgspec.Struct, frozen=True):
    """Something about one line; `unreachable` and `unused` lines could as well be removed."""

    path: str
    line: int
    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.message}"


def lint_mocks(script: MockFile, unused: Iterable[Mock] = ()) -> list[MockFinding]:
    """What can be said about the lines, and about those that a run has not used."""
    found = [*_unreachable(script), *_suspicious(script)]
    dead = {finding.line for finding in found if finding.kind == "unreachable"}
    told = "nothing in this run has asked for it"
    left = [mock for mock in unused if mock.number not in dead]
    found += [_finding(script, mock, "unused", told) for mock in left]
    return sorted(found, key=lambda finding: finding.line)


def _unreachable(script: MockFile) -> Iterator[MockFinding]:
    for at, mock in enumerate(script.mocks):
        for before in script.mocks if mock.glob else script.mocks[:at]:
            if before is not mock and _hides(before, mock, earlier=before.number < mock.number):
                why = f"{before.shown} always comes first"
                yield _finding(script, mock, "unreachable", why)
                break


def _hides(before: Mock, mock: Mock, *, earlier: bool) -> bool:
    """Whether one line answers whatever the other could, for ever."""
    if before.scope != mock.scope or not before.sticky:
        return False
    if before.glob is None:  # a line without a pattern goes before all that have one
        return earlier or mock.glob is not None
    return earlier and mock.glob is not None and before.glob.covers(mock.glob)


def _suspicious(script: MockFile) -> Iterator[MockFinding]:
    for mock in script.mocks:
        if mock.glob is not None and "*" not in mock.glob.pattern:
            told = f"without a star it has to be all that was said: '*{mock.glob.pattern}*'?"
            yield _finding(script, mock, "suspicious", told)
        if mock.glob is None and mock.line.consume_match is not None:
            yield _finding(script, mock, "suspicious", "consume_match needs a match")
        if mock.line.error is not None and (mock.line.text or mock.line.tool_calls):
            yield _finding(script, mock, "suspicious", "beside an error, text is never said")
        if script.versioned and mock.scope not in SCOPES and "." not in mock.scope:
            yield _finding(script, mock, "suspicious", f"unknown scope {mock.scope!r}")


def _finding(script: MockFile, mock: Mock, kind: str, message: str) -> MockFinding:
    return MockFinding(script.path, mock.number, kind, message)
