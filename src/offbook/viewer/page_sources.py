"""The sources of a page: trace files, folders of traces, and the directories of eval runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.comparison import compare_paths
from offbook.errors import FormatError
from offbook.files import parse_json, read_lines, read_text
from offbook.trace.reader import Trace
from offbook.viewer.html_page import PageTrace, read_page_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from offbook.trace.redaction import Redaction

# The files of an eval run: see docs/guides/evals.md.
RESULTS, SUMMARY, RUN = "results.jsonl", "summary.json", "run.json"
MAX_TRACES = 5000

_decode_line = msgspec.json.Decoder(dict[str, Any]).decode


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
        return read_sources([before, after])  # the page compares the cases
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
