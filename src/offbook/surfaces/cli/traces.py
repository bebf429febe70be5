"""`offbook show`, `compare`, `report` and `review`: read what runs left.

`show`, `compare` and `report` read stored traces and cassettes. `review` shows all pending changes
of expected files, with one key for each decision; without a terminal it lists them, and the
commands that decide.
"""

from __future__ import annotations

import shlex
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.capability import PENDING, load
from offbook.checks.expected_files import PendingChange, Review, in_ci, list_pending
from offbook.cli_options import (
    FILE_PATH,
    FiniteFloat,
    describe_difference,
    echo,
    json_option,
    preset_option,
    print_json,
    read_redactions,
    redact_option,
    use_colour,
)
from offbook.errors import (
    CollectorError,
    FormatError,
    OffbookError,
    UsageError,
    counted,
    did_you_mean,
)
from offbook.options import require_some
from offbook.reports.styled_lines import StyledLine, StyledText, print_lines
from offbook.secrets import escape_controls
from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.reports.report import Suite
    from offbook.trace.reader import Trace


SHOW_EXAMPLE = """\b
Example:
  offbook show .offbook/traces/test_shop.py-test_refund.jsonl
  offbook show trace.jsonl --json
  offbook show tests/refund.yaml 2
  offbook show tests/refund.yaml --stats
  offbook show tests/

\b
A cassette is shown in one line for each interaction, or one with its whole
conversation; a folder as the list of its cassettes.

\b
Exit codes:
  0  shown; the last line of a trace may be incomplete, as after a crash
  1  a line in the middle of a trace is unreadable; the others were shown
  2  nothing could be read
"""
SHOWN_FAULTS = 10
CASSETTE_SUFFIXES = {".yaml", ".yml", ".json"}


@click.command("show", epilog=SHOW_EXAMPLE)
@click.argument("path", type=FILE_PATH, metavar="TRACE|CASSETTE|FOLDER")
@click.argument("number", type=int, required=False)
@click.option("--full", is_flag=True, help="Show whole texts instead of their beginnings.")
@click.option(
    "--times/--no-times",
    default=None,
    help="Show durations, tokens and costs. Default: on a terminal.",
)
@click.option("--stats", is_flag=True, help="Count the interactions, models, tokens of a cassette.")
@json_option
def show(
    path: Path,
    number: int | None,
    *,
    full: bool,
    times: bool | None,
    stats: bool,
    as_json: bool,
) -> int:
    """Show a trace as a tree, a cassette, or the cassettes of a folder.

    The tree has turns, model messages, tool calls, questions and verdicts.
    """
    if path.is_dir() or path.suffix in CASSETTE_SUFFIXES:
        from offbook.surfaces.cli import cassette

        if path.is_dir():
            cassette.show_folder(path, as_json=as_json)
        else:
            cassette.show_cassette(path, number, stats=stats, as_json=as_json)
        return 0
    if number is not None:
        raise UsageError("only a cassette has interactions with a number", where=str(path))
    from offbook.reports.json_report import count_events
    from offbook.reports.styled_lines import print_lines
    from offbook.reports.terminal import TraceTree
    from offbook.trace.reader import Trace

    reader = Trace(path, masked=True)
    if as_json:
        counts = count_events(reader)
        print_json({"trace": str(path), **msgspec.to_builtins(counts), "faults": reader.faults})
        return _report_faults(reader, empty=not counts.events)
    shows_times = sys.stdout.isatty() if times is None else times
    lines = TraceTree(full=full, times=shows_times).render(reader)
    first = next(lines, None)
    if first is not None:
        print_lines(chain([first], lines), sys.stdout, colour=use_colour())
        sys.stdout.flush()
    return _report_faults(reader, empty=first is None)


def _report_faults(reader: Trace, *, empty: bool) -> int:
    """Print the unreadable lines of a trace, and return the exit code."""
    for fault in reader.faults[:SHOWN_FAULTS]:
        echo(f"offbook: {reader.path}:{fault.line}: {fault.reason}", err=True)
    more = len(reader.faults) - SHOWN_FAULTS
    if more > 0:
        echo(f"offbook: … and {more} more unreadable lines", err=True)
    if empty:
        raise FormatError("no events in this trace", path=reader.path)
    # an incomplete last line is expected after a crash
    return int(any(not fault.torn for fault in reader.faults))


COMPARE_EXAMPLE = """\b
Example:
  offbook compare before.jsonl after.jsonl
  offbook compare main-traces/ branch-traces/ --json
  offbook compare run.yaml run.fork-39.yaml
  offbook compare a.jsonl b.jsonl --redact '{"patterns": {"port": "port \\\\d+"}}'

\b
Times of the run, ids and temporary folders do not count. Tokens, cost
and time are shown and do not change the exit code.

\b
Exit codes:
  0  the traces are the same
  1  they differ; the first divergence is shown
  2  a trace cannot be read, or the folders have no trace in common
"""


@click.command("compare", epilog=COMPARE_EXAMPLE)
@click.argument("before", type=FILE_PATH)
@click.argument("after", type=FILE_PATH)
@redact_option
@preset_option
@json_option
def compare(
    before: Path, after: Path, *, redact: tuple[str, ...], preset: tuple[str, ...], as_json: bool
) -> int:
    """Compare two traces, two folders of traces, aligned by content, or two tapes."""
    if {before.suffix, after.suffix} <= {".yaml", ".yml"}:
        return _compare_tapes(before, after, as_json=as_json)
    from offbook.checks.comparison import compare_paths, render_comparison
    from offbook.trace.redaction import Redaction

    comparison = compare_paths(before, after, Redaction(read_redactions(redact, preset)))
    if as_json:
        print_json(comparison)
    else:
        echo("\n".join(render_comparison(comparison)))
    return int(not comparison.same)


def _compare_tapes(before: Path, after: Path, *, as_json: bool) -> int:
    """Print the interaction in which two tapes part."""
    from offbook.sources.cassette.maintenance import find_parting

    parting = find_parting(before, after)
    if as_json:
        print_json(parting)
    else:
        echo("\n".join(parting.lines(before, after)))
    return int(not parting.same)


COVERAGE = ("coverage", "coverage-json")
OTLP = "otlp"
REPORT_EXAMPLE = """\b
Example:
  offbook report trace.jsonl --format junit -o report.xml
  offbook report trace.jsonl other.jsonl --format html -o report.html
  offbook report trace.jsonl --format markdown >> "$GITHUB_STEP_SUMMARY"
  offbook report traces/ --format coverage --fail-under 80
  offbook report .offbook/traces/*.jsonl --format otlp --to http://127.0.0.1:4318

\b
coverage shows which tools, hooks, answers, hats, nodes and handoffs the runs have
used. A tool is covered if a call of it succeeded. Blocked calls, refused arguments
and failures are counted, and do not cover it. `pytest --offbook-coverage` measures
a run of pytest.

\b
With otlp, runs, requests and tool calls become spans by the OpenTelemetry
conventions for generative AI: one OTLP document per line, which `offbook import`
reads, too. --to needs `pip install 'offbook[otel]'`.

\b
Exit codes:
  0  the report is written, also when it contains failures
  1  the collector of --to did not accept the spans of a trace; the coverage is
     below --fail-under, or the traces have no parts of an agent
  2  wrong usage, or a trace that cannot be read
"""


@click.command("report", epilog=REPORT_EXAMPLE)
@click.argument("paths", metavar="TRACE|FOLDER...", nargs=-1, required=True, type=FILE_PATH)
@click.option(
    "--format",
    "format_",
    metavar="FORMAT",
    required=True,
    help="junit, tap, tap13, ctrf, json, markdown, github, badge, coverage, coverage-json, "
    "otlp, or one of a capability: html.",
)
@click.option("-o", "--output", metavar="FILE", type=FILE_PATH, help="Default: standard output.")
@click.option("--to", metavar="URL", help="Send the spans of otlp to a collector, over HTTP.")
@click.option(
    "--fail-under",
    type=FiniteFloat(0, 100, min_open=True),
    metavar="PERCENT",
    help="Exit with 1 if the coverage is lower.",
)
@click.option("--agent", metavar="NAME", default="", help="The coverage of one of several agents.")
def report(
    paths: tuple[Path, ...],
    *,
    format_: str,
    output: Path | None,
    to: str | None,
    fail_under: float | None,
    agent: str,
) -> int:
    """Write the verdicts of traces as a report, their coverage, or OpenTelemetry spans."""
    from offbook.files import write_atomic

    traces = [trace for path in paths for trace in _list_traces(path)]
    code = 0
    if fail_under is not None and format_ not in COVERAGE:
        raise UsageError("--fail-under is a limit of the coverage", hint="--format coverage")
    if agent and format_ not in COVERAGE:
        raise UsageError("--agent selects a coverage", hint="--format coverage")

    if to is not None and (output is not None or format_ != OTLP):
        raise UsageError("--to sends spans", hint="--format otlp --to URL, without --output")
    from offbook.reports.report import FORMATS

    others = {name: target for each in load_capabilities() for name, target in each.reports.items()}
    if format_ == OTLP:
        documents = [_render_spans(path) for path in traces]
        if to is not None:
            sent = [_send_spans(path, text, to) for path, text in documents]
            return int(not all(sent))
        text = "".join(f"{text}\n" for _, text in documents)
    elif format_ in COVERAGE:
        text, code = _measure_coverage(traces, format_, fail_under, agent)
    elif format_ in others:
        text = load(others[format_])(traces)
    elif format_ in FORMATS:
        text = _render_suites(format_, traces)
    else:
        hint = did_you_mean(format_, [*FORMATS, *COVERAGE, OTLP, *others])
        raise UsageError(f"unknown report format {format_!r}", hint=hint)
    if output is None and format_ == "github":
        from offbook.reports.github import write_commands

        write_commands(text, sys.stdout)
    elif output is None:
        sys.stdout.write(escape_controls(text))
    else:
        write_atomic(output, text)
        echo(output)
    return code


def _list_traces(path: Path) -> list[Path]:
    """Return a trace, or all traces of a folder."""
    found = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
    hint = "pytest --offbook-traces=all keeps the traces of all tests"
    return require_some(found, "no trace in this folder", where=path, hint=hint)


def _measure_coverage(
    traces: Sequence[Path], format_: str, fail_under: float | None, agent: str
) -> tuple[str, int]:
    """Return the parts of an agent that stored runs have used, and the exit code."""
    from offbook.checks.agent_coverage import AgentCoverage, read_coverage
    from offbook.secrets import outgoing
    from offbook.trace.reader import Trace, raise_if_corrupt

    coverage = AgentCoverage()
    found: set[bool] = set()
    for path in traces:
        trace = Trace(path)
        found.add(read_coverage(trace, coverage, agent))
        raise_if_corrupt(trace.faults, path)
    if True not in found:
        raise UsageError(f"no agent {agent!r} in {counted(len(traces), 'trace')}")
    percent = coverage.percent
    if percent is not None and fail_under is not None and percent < fail_under:
        echo(f"offbook: coverage {percent:.1f} % is under {fail_under:g} %", err=True)
    lines = "\n".join(coverage.render())
    if format_ == "coverage-json":
        lines = msgspec.json.format(msgspec.json.encode(coverage.as_json()), indent=2).decode()
    # Without any part of an agent, nothing was measured, which is not a pass.
    return f"{outgoing(lines)}\n", int(percent is None or percent < (fail_under or 0))


def _render_suites(format_: str, traces: Sequence[Path]) -> str:
    """Return the report of one suite for each trace."""
    from offbook.files import parser_limits
    from offbook.reports.report import collect_suite, find_report
    from offbook.trace.reader import Trace, raise_if_corrupt

    suites: list[Suite] = []
    for path in traces:
        trace = Trace(path, masked=True)
        with parser_limits(path):
            suites.append(collect_suite(trace, path.stem, trace=str(path)))
        raise_if_corrupt(trace.faults, path)  # a lost line may be a failed verdict
        if not trace.total:
            raise FormatError("no events in this trace", path=path)
    return find_report(format_).render(*suites)


def _render_spans(path: Path) -> tuple[Path, str]:
    """Return the path of a trace and its spans, as one OTLP document without secrets."""
    from offbook.files import parser_limits
    from offbook.reports.otel_spans import count_spans, export_spans
    from offbook.secrets import hide_secrets
    from offbook.trace.reader import Trace, raise_if_corrupt

    trace = Trace(path)
    with parser_limits(path):
        document = export_spans(trace)
    raise_if_corrupt(trace.faults, path)
    if not count_spans(document):
        raise FormatError("no run and no request in this trace", path=path)
    return path, hide_secrets(msgspec.json.encode(document).decode())


def _send_spans(path: Path, text: str, url: str) -> bool:
    from offbook.reports.otel_spans import count_spans
    from offbook.runs.watching import send_spans

    document = msgspec.json.decode(text)
    try:
        send_spans(document, url)
    except CollectorError as error:  # the next trace may be accepted
        echo(f"offbook: {path}: {error}", err=True)
        return False
    echo(f"{path}: {count_spans(document)} spans sent to {url}")
    return True


KEYS = {
    "a": "accept",
    "r": "reject",
    "s": "skip",
    "A": "accept all",
    "u": "undo",
    "q": "quit",
}
KEYS_LINE = "  ".join(f"{key} {action}" for key, action in KEYS.items())
EXAMPLE = """\b
Example:
  offbook review
  offbook review tests/snapshots --accept one --accept two --json
  offbook review till/open-drawer
  offbook review flow --reject all

Pending are snapshots, golden transcripts and goldens of requests that do not match, as
FILE.proposed beside the expected file, and recordings that differ from their golden fixture.

\b
Keys:
  a accept, r reject, s skip, A accept all, u undo, q quit

\b
Exit codes:
  0  nothing is pending
  1  something is still pending
  2  wrong usage; in CI, any decision
"""


@click.command("review", epilog=EXAMPLE)
@click.argument("words", metavar="[FOLDER | WORKSPACE | NAME]…", nargs=-1)
@click.option("--accept", multiple=True, metavar="NAME|all", help="Approve it; repeatable.")
@click.option("--reject", multiple=True, metavar="NAME|all", help="Delete it; repeatable.")
@json_option
@click.pass_context
def review(
    context: click.Context,
    words: tuple[str, ...],
    *,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    as_json: bool,
) -> int:
    """Accept or reject changes of expected files, by keys or by name.

    Without a word, all pending changes in this folder are reviewed. A recording is accepted only if
    it is unedited and replays.
    """
    finders = [load(target) for target in context.meta.get(PENDING, tuple)()]
    pending = Review(list_pending(words, finders))
    # A script that has a terminal by chance must not wait for a key in CI.
    asks = sys.stdin.isatty() and not (accept or reject or as_json or in_ci())
    if pending.changes and asks:
        _ask_for_each(pending)
        return int(bool(pending.left))
    result = pending.decide(accept=accept, reject=reject)
    if as_json:
        print_json(result)
        return int(bool(result.left))
    for label, paths in (("accepted", result.accepted), ("rejected", result.rejected)):
        for path in paths:
            echo(f"{label} {path}")
    for change in pending.left:
        echo(f"pending {change.path} ({_state(change)})")
    if not pending.changes:
        echo("nothing is pending")
    elif pending.left:
        line = shlex.join(["offbook", "review", *words])
        name = shlex.quote(pending.left[0].name)
        echo(f"next: {line} in a terminal, or {line} --accept {name}, or --reject {name}")
    return int(bool(result.left))


def _ask_for_each(review: Review) -> None:
    changes = review.changes
    at = 0
    # What `u` goes back to: the position before an action, and the decisions made until then.
    history: list[tuple[int, int]] = []
    while True:
        finished = at >= len(changes)
        if finished:
            echo(_summarize(review))
            if not review.decisions:
                return
            echo("u undo  any other key: end")
        else:
            print_lines(
                _describe(changes[at], at + 1, len(changes)), sys.stdout, colour=use_colour()
            )
            echo(KEYS_LINE)
        key = _read_key()
        if key == "u":
            if not history:
                echo("nothing to undo")
                continue
            at, count = history.pop()
            while len(review.decisions) > count:
                review.undo()
            echo("undone")
            continue
        if finished:
            return
        if key == "q":
            echo(_summarize(review))
            return
        if key not in KEYS:
            echo(f"unknown key {escape_controls(key)!r}")
            continue
        history.append((at, len(review.decisions)))
        # Decisions apply at once: those before Ctrl-C stay, and each is whole.
        for change in changes[at:] if key == "A" else changes[at : at + 1]:
            try:
                if key in "aA":
                    review.accept(change)
                    echo(f"accepted {change.name}")
                elif key == "r":
                    review.reject(change)
                    echo(f"rejected {change.name}")
                at += 1
            except OffbookError as error:
                echo(f"not accepted: {error}" if key != "r" else f"not rejected: {error}")
                break
        if history[-1] == (at, len(review.decisions)):
            history.pop()  # nothing was done


def _read_key() -> str:
    try:
        key = click.getchar()
    except EOFError:  # Ctrl-D
        return "q"
    return key[:1]  # a key such as an arrow has several characters


def _summarize(review: Review) -> str:
    result = review.result
    counts = {
        "accepted": result.accepted,
        "rejected": result.rejected,
        "still pending": result.left,
    }
    return ", ".join(f"{len(paths)} {label}" for label, paths in counts.items() if paths)


def _state(change: PendingChange) -> str:
    return "new" if change.new else "changed"


def _describe(change: PendingChange, number: int, count: int) -> Iterator[StyledLine]:
    title = f"{change.kind} {escape_controls(change.name)}"
    place = f" {number} of {count} · {_state(change)} · {escape_controls(change.path)}"
    yield ()
    yield StyledText(title, "name"), StyledText(place, "faint")
    yield from describe_difference(change.difference)
