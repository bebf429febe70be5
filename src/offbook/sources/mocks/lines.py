"""The lines of a mock file.

One JSON object a line, nothing else but blank lines. A first line `{"schemaVersion": 1}` asks for
the newer format, in which every line has an `id`, a `scope` and a `consume`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec

from offbook.errors import FormatError, FutureVersion, UsageError, nearest
from offbook.exchange.messages import JSON, AnyBlock, Text, Thinking, ToolCall
from offbook.exchange.reply import Stop, Usage
from offbook.files import convert, parse_json, read_text
from offbook.sources.mocks.globs import Glob
from offbook.sources.mocks.refusals import Refusal

VERSION = 1
OUTPUT_TOKENS = 30
WANTED = 'write {"id": "a", "scope": "default", "consume": "once", …}'
Count = Annotated[int, msgspec.Meta(ge=0)]
Cost = Annotated[float, msgspec.Meta(ge=0)]
STOPS: dict[str, Stop] = {
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


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a mock file: what it does not know is an error."""


class Header(Strict, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The first line of the newer format."""

    schema_version: int
    strict_scopes: bool = False


class Called(Strict, frozen=True, forbid_unknown_fields=True):
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


class Tokens(Strict, frozen=True, forbid_unknown_fields=True):
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


class Line(Strict, frozen=True, forbid_unknown_fields=True):
    """One line as it is written."""

    match: str | None = None
    consume_match: bool | None = None
    id: str | None = None
    scope: str | None = None
    consume: Literal["once", "sticky"] | None = None
    text: str = ""
    tool_calls: tuple[Called, ...] = ()
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
    error: Refusal | None = None
    usage: Tokens | None = None
    logprobs: tuple[Any, ...] | None = None
    stream_chunks: tuple[str, ...] | None = None
    raw_tool_calls: Any = None
    simulated_cost_usd: Cost | None = None


class Mock(msgspec.Struct, frozen=True):
    """A line as it will be used: what it answers, for whom, and how often."""

    number: int
    line: Line
    id: str
    scope: str
    sticky: bool
    glob: Glob | None
    blocks: tuple[AnyBlock, ...]
    stop: Stop
    usage: Usage
    counted: bool

    @property
    def shown(self) -> str:
        """The line, in a few words."""
        if self.glob is None:
            return f"line {self.number} (the next in order)"
        return f"line {self.number} ({self.glob.pattern!r})"


class Script(msgspec.Struct, frozen=True):
    """A whole mock file."""

    mocks: tuple[Mock, ...]
    path: str = ""
    strict: bool = False
    versioned: bool = False


def read_mocks(path: Path | str) -> Script:
    """A mock file, all of it or none: the first line that is wrong is an error."""
    file = Path(path)
    return parse_mocks(read_text(file), str(path))


def parse_mocks(text: str, path: str = "") -> Script:
    """The text of a mock file."""
    header: Header | None = None
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
    return Script(tuple(mocks), path, strict, header is not None)


def _read_header(value: JSON, first: bool, path: str, number: int) -> Header:  # noqa: FBT001 - read here only
    if not first:
        raise FormatError("a header stands on the first line only", path=path, line=number)
    header = convert(value, Header, path=path, line=number)
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
    line = convert(value, Line, path=path, line=number)
    try:
        (_check_new if versioned else _check_old)(line)
        if line.error is not None:
            line.error.check()
        return _prepare(line, number)
    except UsageError as error:
        raise FormatError(error.what, path=path, line=number, hint=error.hint) from error


def _check_old(line: Line) -> None:
    for name in ("id", "scope", "consume"):
        if getattr(line, name) is not None:
            raise UsageError(
                f"{name!r} belongs to the newer format",
                hint='begin the file with {"schemaVersion": 1}, or leave it out',
            )


def _check_new(line: Line) -> None:
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


def _check_ids(mocks: list[Mock], path: str, header: Header | None) -> None:
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


def _prepare(line: Line, number: int) -> Mock:
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


def _read_stop(reason: str | None, *, calls: bool) -> Stop:
    if reason is None:
        return "tool_use" if calls else "stop"
    if reason not in STOPS:
        raise UsageError(f"unknown stop_reason {reason!r}", hint=nearest(reason, STOPS))
    return STOPS[reason]


def _count(line: Line) -> tuple[Usage, bool]:
    """The tokens, and whether those of the prompt were counted by the author."""
    more = line.usage or Tokens()
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


def _compose(line: Line) -> tuple[AnyBlock, ...]:
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
            raise UsageError(f"unknown type of block: {other!r}", hint=nearest(str(other), known))


def _call(id_: str, name: str, given: Any) -> ToolCall:
    if not isinstance(given, dict):
        raise UsageError(f"the arguments of {name!r} are an object, not {given!r}")
    return ToolCall(id_, name, cast("JSON", given))
