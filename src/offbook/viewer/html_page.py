"""The page: the built viewer with the data of traces in it.

The data are lines of JSON, compressed with gzip and written in base 85: a quarter larger than the
compressed bytes, where base 64 is a third larger. An object is a record, an array an event of the
last trace:

    {"page": {"title": "…", "offbook": "1.0.0"}}          about the page
    {"trace": {"name": "…", "path": "…"}}                 a trace begins
    [12, "agent.step", {…}]                               12 ms after the event before
    [0, "ui.confirm", {…}, {"id": "…", "parent": "…"}]    with further fields, if it has any
    {"continue": 0}                                       more events of this trace, by its number
    {"faults": [{"line": 7, "reason": "…"}]}              the damaged lines of this trace
    {"run": {…}}                                          an eval run begins: its summary
    {"case": {…}}                                         a result of this run
    {"summary": {…}}                                      the run has ended: its summary
    {"comparison": {…}}                                   two traces, aligned
    {"differences": {…}}                                  this run and the one before it
    {"coverage": {…}}                                     the parts of the agent that were run
    {"clear": true}                                       what follows replaces everything before

A page of a server has no data. `live=URL` names a stream of server-sent events; each message has
such lines, `encode_record(…)` and `encode_event(…)`. A message has an id; after an interruption
the browser sends the last one as `Last-Event-ID`. An event named `end` ends the stream.
"""

from __future__ import annotations

import contextlib
import html
import zlib
from base64 import b85encode
from importlib.resources import files
from statistics import fmean
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from offbook.checks.agent_coverage import AgentCoverage, CoverageReader
from offbook.checks.comparison import compare_paths
from offbook.errors import FormatError
from offbook.files import parse_json, read_lines, read_text
from offbook.runs.result_identity import REAL_MODEL
from offbook.secrets import hide_lines, known_secret_bytes
from offbook.trace.events import Event
from offbook.trace.reader import LineFault, Trace
from offbook.trace.recorder import to_json_value
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from offbook.trace.redaction import Redaction

# The characters of Python's base 85 that mean something in HTML are replaced.
HTML_SAFE = bytes.maketrans(b"&<>", b",.:")
GZIP = zlib.MAX_WBITS | 16
LEVEL = 9
BLOCK = 1 << 20

# The files of an eval run: see docs/guides/evals.md.
RESULTS, SUMMARY, RUN = "results.jsonl", "summary.json", "run.json"
MAX_TRACES = 5000

_encode = msgspec.json.Encoder(enc_hook=repr).encode
_decode_line = msgspec.json.Decoder(dict[str, Any]).decode


class PageTrace(NamedTuple):
    """One trace of a page: its name, its events, and where it was read.

    `about` are further fields: `{"test": {"outcome": "failed", "message": "…"}}` is the test.
    """

    name: str
    events: Iterable[Event]
    path: str = ""
    faults: Sequence[LineFault] = ()
    about: Mapping[str, Any] = MappingProxyType({})


def render_page(
    traces: Iterable[PageTrace] = (),
    *,
    title: str = "",
    records: Iterable[Mapping[str, Any]] = (),
    live: str = "",
) -> str:
    """Return a page of these traces, as one HTML text.

    `records` are further lines: runs, their cases, a comparison. With `live`, the page has no
    data and follows the stream at this URL of its server.
    """
    data = "" if live else _compress(page_lines(traces, title, records))
    meta = f'<meta name="offbook-live" content="{html.escape(live)}">' if live else ""
    template = files("offbook.viewer").joinpath("viewer.html").read_text(encoding="utf-8")
    # split, not replace: no text of a trace is searched for a placeholder
    parts: list[str] = []
    values = {
        "CONNECT": "'self'" if live else "'none'",
        "META": meta,
        "TITLE": html.escape(title or "Offbook"),
        "DATA": data,
    }
    rest = template
    for name, value in values.items():
        before, _, rest = rest.partition(f"%{name}%")
        parts += [before, value]
    return "".join([*parts, rest])


def render_traces(paths: Iterable[Path]) -> str:
    """Return a page of these trace files: the report format `html`."""
    found = list(paths)
    traces = [read_page_trace(path, path.name) for path in found]
    page = render_page(traces, title=", ".join(path.stem for path in found[:3]))
    require_events(traces)
    return page


def require_events(traces: Sequence[PageTrace]) -> None:
    """Raise FormatError if none of these trace files, which were read, has an event."""
    if traces and not any(isinstance(each.events, Trace) and each.events.total for each in traces):
        raise FormatError("no events in this trace", path=traces[0].path)


def read_page_trace(path: Path, name: str) -> PageTrace:
    """Return a trace file as a trace of a page. It is read while the page is rendered."""
    trace = Trace(path)
    return PageTrace(name, trace, str(path), trace.faults)


# --- Lines


def encode_record(record: Mapping[str, Any] | tuple[object, ...]) -> bytes:
    """Return the line of a record, without its line end."""
    try:
        return _encode(record)
    except UnicodeEncodeError:  # a lone surrogate
        return _encode(to_json_value(record))


def encode_event(event: Event, previous: Event | None) -> bytes:
    """Return the line of an event, without its line end; `previous` is the one before it."""
    fields: dict[str, Any] = {}
    if event.seq and event.seq != (previous.seq + 1 if previous is not None else 1):
        fields["seq"] = event.seq
    if event.id:
        fields["id"] = event.id
    if event.context:
        fields["context"] = event.context
    if event.parent:
        fields["parent"] = event.parent
    elapsed = event.ts - (0 if previous is None else previous.ts)
    line = (elapsed, event.event, event.data)
    return encode_record((*line, fields) if fields else line)


def page_lines(
    traces: Iterable[PageTrace], title: str, records: Iterable[Mapping[str, Any]]
) -> Iterator[bytes]:
    """Yield the lines of a page of these traces."""
    yield encode_record({"page": {"title": title, "offbook": VERSION}})
    for record in records:
        yield encode_record(record)
    coverage = AgentCoverage()
    for trace in traces:
        reader = CoverageReader(coverage)
        yield encode_record({"trace": {"name": trace.name, "path": trace.path, **trace.about}})
        previous: Event | None = None
        for event in trace.events:
            if reader.wants(event.event):
                # data of a foreign shape name no part
                with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
                    reader.on_event(event)
            yield encode_event(event, previous)
            previous = event
        reader.on_close()
        if trace.faults:
            yield encode_record({"faults": [fault._asdict() for fault in trace.faults]})
    if coverage.percent is not None:
        yield encode_record({"coverage": coverage.as_json()})


def masked_lines(lines: Iterable[bytes]) -> bytes:
    """Return lines as they leave: each with its line end, and without secrets."""
    return hide_lines(b"\n".join([*lines, b""]), known_secret_bytes())


def _compress(lines: Iterable[bytes]) -> str:
    """Return the lines compressed, as a text for a script element."""
    compressor = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP, zlib.DEF_MEM_LEVEL + 1)
    parts: list[bytes] = []
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size > BLOCK:
            parts.append(compressor.compress(masked_lines(block)))
            block, size = [], 0
    parts += [compressor.compress(masked_lines(block)), compressor.flush()]
    return b85encode(b"".join(parts)).translate(HTML_SAFE).decode("ascii")


# --- Sources: trace files, folders of traces, and the directories of eval runs


def read_sources(paths: Sequence[Path]) -> tuple[list[PageTrace], list[dict[str, Any]]]:
    """Return the traces and the further records of files and folders, in their order."""
    traces: list[PageTrace] = []
    records: list[dict[str, Any]] = []
    for path in paths:
        if path.is_dir():
            is_run = (path / RESULTS).is_file()
            found, about = read_run_directory(path) if is_run else (_read_folder(path), [])
            # of two folders, the traces may have the same names
            prefix = f"{path.resolve().name}/" if len(paths) > 1 else ""
            traces += [trace._replace(name=f"{prefix}{trace.name}") for trace in found]
            records += about
        else:
            traces.append(read_page_trace(path, path.name))
    return traces, records


def read_run_directory(folder: Path) -> tuple[list[PageTrace], list[dict[str, Any]]]:
    """Return the traces of an eval run, and the records of its summary and its results."""
    summary: dict[str, Any] = {}
    if (folder / SUMMARY).is_file():
        summary = parse_json(read_text(folder / SUMMARY), folder / SUMMARY)
    records: list[dict[str, Any]] = [{"run": {**summary, "name": folder.name}}]
    records += [{"case": result} for result in read_lines(folder / RESULTS, _decode_line, "result")]
    return [*_read_traces(folder)], records


def read_comparison(
    before: Path, after: Path, redaction: Redaction
) -> tuple[list[PageTrace], list[dict[str, Any]]]:
    """Return two traces, folders of traces or eval runs, and the record that compares them."""
    if (before / RESULTS).is_file() and (after / RESULTS).is_file():
        traces, records = read_sources([before, after])  # the page compares the cases
        second = next(n for n in range(1, len(records)) if "run" in records[n])
        sides = records[:second], records[second:]
        first, last = ([each["case"] for each in side if "case" in each] for side in sides)
        return traces, [*records, {"differences": compare_results(first, last)}]
    comparison = compare_paths(before, after, redaction)
    traces = [
        read_page_trace(path, f"{side}: {compared.name}")._replace(
            about={"side": side, "pair": compared.name}
        )
        for compared in comparison.traces
        for side, root in (("before", before), ("after", after))
        for path in (root / compared.name if root.is_dir() else root,)
    ]
    return traces, [{"comparison": msgspec.to_builtins(comparison)}]


def _read_folder(folder: Path) -> list[PageTrace]:
    traces = [*_read_traces(folder)]
    if not traces:
        raise FormatError(
            "no traces in this folder",
            path=folder,
            hint="name a trace (.jsonl), a folder of traces, or the directory of an eval run",
        )
    return traces


def _read_traces(folder: Path) -> Iterator[PageTrace]:
    """Yield the traces of a folder and its folders; other files of lines are left out."""
    paths = sorted(path for path in folder.rglob("*.jsonl") if path.is_file())
    for path in paths[:MAX_TRACES]:
        if path.name != RESULTS and is_trace(path):
            yield read_page_trace(path, str(path.relative_to(folder)))


def is_trace(path: Path) -> bool:
    """Return whether the first line of a file is an event."""
    reader = Trace(path)
    try:
        with path.open("rb") as file:
            raw = file.readline()
        event = reader.read_line(raw, 1)
    except (OSError, FormatError):
        return False
    return event is not None or reader.version > 0


# --- The differences of two eval runs, case by case, with their intervals

METRICS = ("latency_ms", "cost_usd", "tokens", "score")


def compare_results(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the difference of each metric over the cases that both runs have."""
    from offbook.checks.trial_statistics import compare_metrics  # few pages compare runs

    found = compare_metrics(_means(before), _means(after), ("pass_rate", *METRICS))
    return {
        metric: {
            "mean": difference.mean,
            "low": difference.interval.low,
            "high": difference.interval.high,
            "p_value": difference.p_value,
            "significant": difference.significant,
        }
        for metric, difference in found.items()
    }


def _means(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the means of the trials of each case, by its pack and id."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in results:
        case = values.setdefault((str(result.get("pack", "")), str(result["id"])), {})
        case.setdefault("pass_rate", []).append(float(result.get("status", "pass") == "pass"))
        metrics = cast("Mapping[str, Any]", result.get("metrics") or {})
        for metric in METRICS:
            # The time of a scripted run is that of the machine.
            scripted = result.get("kind") == "subject" and result.get("unidentified") != REAL_MODEL
            if metrics.get(metric) is not None and not (metric == "latency_ms" and scripted):
                case.setdefault(metric, []).append(float(metrics[metric]))
    return {
        case: {metric: fmean(numbers) for metric, numbers in found.items()}
        for case, found in values.items()
    }
