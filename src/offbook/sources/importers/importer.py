"""The protocol of importers, and the reading of JSON that all of them share.

An importer reads the trace of another tool: requests to a model and its replies. Such traces
seldom contain whole requests. An imported exchange is therefore matched by its prompt, the latest
text of the user; if not even that was written down, by its position alone.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.capability import load
from offbook.errors import FormatError, ModelError, UsageError, did_you_mean, require_known
from offbook.exchange.dialects.provider_responses import is_json
from offbook.exchange.messages import parse_arguments
from offbook.exchange.model import Reply
from offbook.exchange.tool_track import ToolEnd, ToolRun
from offbook.files import parse_json, parse_yaml, parser_limits, read_text
from offbook.sources.cassette.format import response_from_error, response_from_reply
from offbook.sources.cassette.recording import Recording
from offbook.sources.mocks.mock_recording import (
    render_error_line,
    render_reply_line,
    write_mock_file,
)
from offbook.trace.agent_output import payload_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from offbook.exchange.model import Request

MAIN_HAT = "main"
# A body in a recording of HTTP, which is bytes.
_BINARY = re.compile(r"^([ -]*)(body|content|string): !!binary\b", re.MULTILINE)
MAX_COUNT = 2**63 - 1  # what OTLP, and a cassette, can count
Skipped = Counter[str]  # parts of a file that were not imported, by kind


class ImportedExchange(msgspec.Struct, frozen=True):
    """One exchange; `prompt` is None and `trace` is empty if the file does not have them.

    `results` are the results of tools in its request, by the ids of their calls. `cut` is true if
    the log of an agent ends before the model was asked again with the results of its calls.
    """

    reply: Reply
    prompt: str | None = None
    hat: str = MAIN_HAT
    provider: str = ""
    exit_code: int = 0
    duration_ms: float = 0
    error: ModelError | None = None
    usage_known: bool = False
    trace: str = ""
    results: dict[str, str] = {}
    cut: bool = False


class TraceRecord(msgspec.Struct, frozen=True):
    """One JSON object of a file, and the line in which it begins."""

    line: int
    value: dict[str, Any]


class Importer(Protocol):
    """One format of traces."""

    name: str

    def recognizes(self, records: list[TraceRecord]) -> bool:
        """Return whether the file is in this format."""
        ...

    def read(
        self, records: list[TraceRecord], path: Path, trace_id: str | None, skipped: Skipped
    ) -> list[ImportedExchange]:
        """Return the exchanges, of one trace only if `trace_id` is given; count the rest."""
        ...


def read_records(path: Path, skipped: Skipped) -> list[TraceRecord]:
    """Return the objects of a file: JSON, one a line, one document or a list of them, or YAML."""
    text = read_text(path).removeprefix("\ufeff")
    if path.suffix in {".yaml", ".yml"}:
        text = _BINARY.sub(r"\1base64_\2:", text)  # the parser drops the tag
        return [TraceRecord(1, as_fields(parse_yaml(text, path)))]
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise FormatError("the file is empty", path=path)
    first = lines[0][1]
    # A first line that is only the beginning of JSON: the file is one document.
    if len(lines) > 1 and not is_json(first) and (first.startswith("[") or first.strip() == "{"):
        lines = [(1, text)]
    # A tool that was killed leaves an incomplete last line.
    elif len(lines) > 1 and not text.endswith("\n") and not is_json(lines[-1][1]):
        skipped[f"torn line ({lines.pop()[0]})"] += 1
    records: list[TraceRecord] = []
    for line, raw in lines:
        # Without the spaces, half a character near the end is reported as a truncated file.
        value = parse_json(f"{raw}      ", path, line)
        for item in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if not isinstance(item, dict):
                raise FormatError(
                    f"expected an object, got {type(item).__name__}",
                    path=path,
                    line=line,
                    hint="a trace has one JSON object a line",
                )
            records.append(TraceRecord(line, cast("dict[str, Any]", item)))
    if not records:
        raise FormatError("the file has no records", path=path)
    return records


def unknown_trace_error(trace_id: str, known: Iterable[str], path: Path) -> FormatError:
    """Return the error for a trace id that is not in the file."""
    names = sorted({name for name in known if name})
    return FormatError(
        f"no record belongs to the trace {trace_id!r}",
        path=path,
        hint=did_you_mean(trace_id, names) if names else "it has no trace ids: omit --trace-id",
    )


# ------------------------------------------------------------------- values of unchecked JSON


def as_fields(value: Any) -> dict[str, Any]:
    """Return an object, or an empty one for every other value."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_items(value: Any) -> list[dict[str, Any]]:
    """Return the objects of a list, or none for every other value."""
    items = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", item) for item in items if isinstance(item, dict)]


def as_text(value: Any) -> str:
    """Return a text, or another value as JSON."""
    return payload_text(value)


def as_object(value: Any) -> dict[str, Any]:
    """Return the arguments of a call, given as an object or as JSON in a text.

    Others are kept as the model wrote them, under `$raw`.
    """
    return as_fields(value) or parse_arguments(as_text(value or None))


def as_count(value: Any) -> int:
    """Return a number of tokens, which OTLP writes as a text; 0 if it is none."""
    number: Any = int(value) if isinstance(value, str) and value.isdecimal() else value
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        return 0
    return int(number) if abs(number) <= MAX_COUNT else 0


# ------------------------------------------------------------------------------ conversion

# In this order: the generic format accepts most files, so it comes last.
IMPORTERS = (
    "http_recordings:VcrImporter",
    "otlp:OtlpImporter",
    "platform_exports:LangSmithRunsImporter",
    "platform_exports:LangfuseImporter",
    "platform_exports:PhoenixImporter",
    "agent_logs:RalphImporter",
    "agent_logs:CodexImporter",
    "agent_logs:ClaudeImporter",
    "agent_logs:PiImporter",
    "agent_logs:GenericImporter",
)


def all_importers() -> list[Importer]:
    """Return one importer for each format."""
    return [load(f"offbook.sources.importers.{entry}")() for entry in IMPORTERS]


def read_trace(
    path: Path, kind: str = "", trace_id: str | None = None, skipped: Skipped | None = None
) -> list[ImportedExchange]:
    """Return the exchanges of a trace; without a `kind` its format is detected.

    Parts that cannot be imported are counted in `skipped`.
    """
    skipped = Skipped() if skipped is None else skipped
    importers = {importer.name: importer for importer in all_importers()}
    if kind:
        require_known("unknown trace format", kind, importers)
    records = read_records(path, skipped)
    with parser_limits(path):
        importer = importers.get(kind) or _detect(records)
        if importer is None:
            raise FormatError(
                "unknown trace format",
                path=path,
                line=records[0].line,
                hint=f"if it is one of these, name it with --kind: {', '.join(importers)}",
            )
        exchanges = importer.read(records, path, trace_id, skipped)
    if not exchanges:  # a cassette without interactions would be a test that checks nothing
        hint = f"read as {importer.name}"
        if skipped:
            hint += f"; skipped: {render_skipped(skipped)}"
        raise FormatError("the file contains no reply of a model", path=path, hint=hint)
    return exchanges


def _detect(records: list[TraceRecord]) -> Importer | None:
    return next((each for each in all_importers() if each.recognizes(records)), None)


def is_trace(path: Path) -> bool:
    """Return whether the format of a file is that of an importer."""
    return _detect(read_records(path, Skipped())) is not None


def render_skipped(skipped: Skipped) -> str:
    """Return what was not imported, for a message."""
    return ", ".join(f"{count} x {what}" for what, count in sorted(skipped.items()))


class _NoSource:
    """The source of a recording that only stores imported exchanges."""

    async def reply(self, request: Request, /) -> Reply:  # noqa: ARG002 - the protocol's
        raise UsageError("an import sends no requests")


def write_cassette(
    exchanges: Iterable[ImportedExchange], path: Path, *, replace: bool = False
) -> int:
    """Write exchanges to a cassette, and return how many; results of tools are a track of it."""
    exchanges = list(exchanges)
    results = _results_of_calls(exchanges)
    tracks = "model,tools" if any(results) else "model"
    with Recording(_NoSource(), path, replace=replace, tracks=tracks) as recording:
        for exchange, texts in zip(exchanges, results, strict=True):
            if exchange.error is not None:
                response = response_from_error(exchange.error, duration=exchange.duration_ms)
            else:
                response = response_from_reply(exchange.reply, duration=exchange.duration_ms)
                response = msgspec.structs.replace(response, exit_code=exchange.exit_code)
            recording.record_output(exchange.prompt, response, hat=exchange.hat)
            for call in exchange.reply.calls:
                if recording.tool_track is not None and call.id in texts:
                    run = ToolRun(call.name, call.arguments, call.id)
                    recording.tool_track.add(run, ToolEnd(texts[call.id]))
    return len(exchanges)


def _results_of_calls(exchanges: list[ImportedExchange]) -> list[dict[str, str]]:
    """Return the results of the calls of each exchange, from the next request that has them.

    An id that several replies use is looked up in the same trace only.
    """
    made = Counter(call.id for exchange in exchanges for call in exchange.reply.calls)

    def key(exchange: ImportedExchange, call_id: str) -> tuple[str, str]:
        return (exchange.trace if made[call_id] > 1 else "", call_id)

    found: list[dict[str, str]] = []
    later: dict[tuple[str, str], str] = {}
    for exchange in reversed(exchanges):
        calls = [call.id for call in exchange.reply.calls if key(exchange, call.id) in later]
        found.append({call_id: later[key(exchange, call_id)] for call_id in calls})
        later |= {key(exchange, call_id): text for call_id, text in exchange.results.items()}
    return found[::-1]


def write_mocks(exchanges: Iterable[ImportedExchange], path: Path) -> int:
    """Write exchanges as mocks, one a line in their order, and return how many."""
    lines = [
        render_error_line(exchange.error)
        if exchange.error is not None
        else render_reply_line(
            exchange.reply, provider=exchange.provider, counted=exchange.usage_known
        )
        for exchange in exchanges
    ]
    write_mock_file(path, lines)
    return len(lines)
