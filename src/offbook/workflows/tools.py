"""`setup`: make a workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec

from offbook.checks.context import CheckContext
from offbook.checks.file_assertions import SnapshotMatches
from offbook.checks.registry import evaluate_all, parse_assertion
from offbook.checks.snapshot import capture_snapshot
from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError, did_you_mean
from offbook.files import convert, write_atomic
from offbook.reports.ctrf import CtrfReport
from offbook.reports.json_report import JsonReport
from offbook.reports.junit import JUnitReport
from offbook.reports.report import Attempt, Report, collect_suite
from offbook.reports.tap import TapReport
from offbook.trace.events import VERDICT, Event, Verdict, verdict_data
from offbook.trace.inspection import EventFilter, build_timeline, list_records, summarize
from offbook.trace.reader import Trace, raise_if_corrupt
from offbook.trace.recorder import Recorder
from offbook.workflows.presets import read_preset
from offbook.workflows.snapshots import INITIAL, propose_snapshot, store_snapshot
from offbook.workflows.workspace import NAME_PATTERN, Workspace, Workspaces

# --- `setup`: make a workspace.


class SetupResult(msgspec.Struct, frozen=True):
    """A workspace that was made."""

    workspace_path: str
    workspace_id: str
    created_files: list[str]


def setup(
    workspace_id: str,
    *,
    fixtures: Mapping[str, str] | None = None,
    config: Mapping[str, Any] | None = None,
    scratchpad: str | None = None,
) -> SetupResult:
    """Make an isolated workspace with these files, this configuration and this scratchpad."""
    if not isinstance(cast("Any", config), Mapping | None):
        raise UsageError("config is an object", hint='{"event_loop": {"max_iterations": 3}}')
    read_preset(config)  # what is wrong with it is told here, and not when it runs
    workspaces = Workspaces()
    workspaces.remove_stale()
    workspace, files = workspaces.create(
        workspace_id, fixtures=fixtures, config=config, scratchpad=scratchpad
    )
    if files:
        store_snapshot(workspace, INITIAL, capture_snapshot(workspace.path))
    return SetupResult(str(workspace.path), workspace_id, files)


# --- `assert`: hold assertions against a run; each verdict goes into its trace.


class AssertionResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one assertion: of which type it is, and what it is called in reports."""

    assertion: str
    passed: bool
    status: str
    name: str
    expected: Any = None
    actual: Any = None
    message: str = ""
    path: str = ""
    context: dict[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """What became of all."""

    passed: bool
    results: list[AssertionResult]
    failed_count: int


def check(workspace_id: str, assertions: Sequence[Any], *, approved: str = "") -> CheckResult:
    """Judge every assertion, and stop at none.

    Snapshots that do not match wait in the workspace, or where `approved` ones are.
    """
    if not assertions:
        raise UsageError("there are no assertions", hint="nothing checked is not a pass")
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded
    evidence = CheckContext(Trace(session), workspace.path)
    verdicts = evaluate_all(assertions, evidence)
    raise_if_corrupt(evidence.faults, session)
    where = approved or workspace.id
    pairs = zip(assertions, verdicts, strict=True)
    verdicts = [_with_pending(workspace, raw, verdict, where) for raw, verdict in pairs]
    _record_verdicts(session, verdicts)
    failed = sum(not verdict.holds for verdict in verdicts)
    return CheckResult(not failed, [_assertion_result(verdict) for verdict in verdicts], failed)


def _with_pending(workspace: Workspace, raw: object, verdict: Verdict, where: str) -> Verdict:
    """Let what a snapshot should have been wait for a review, where it does not match."""
    try:
        assertion = parse_assertion(raw)
    except UsageError:
        return verdict
    if not isinstance(assertion, SnapshotMatches) or not NAME_PATTERN.match(assertion.snapshot_id):
        return verdict
    pending = propose_snapshot(workspace, assertion, holds=verdict.holds)
    if pending is None:
        return verdict
    told = f"{verdict.message}\nreview it: offbook workspace review {where}"
    context = {**verdict.context, "pending": str(pending)}
    return msgspec.structs.replace(verdict, message=told, context=context)


def _record_verdicts(session: Path, verdicts: Sequence[Verdict]) -> None:
    """Tell verdicts to the trace of a run."""
    ts = SystemClock().millis()
    recorder = Recorder(session, ts=ts, append=True)
    for number, verdict in enumerate(verdicts, 1):
        recorder.record(Event(ts, VERDICT, verdict_data(verdict), number))
    recorder.close()


def _assertion_result(verdict: Verdict) -> AssertionResult:
    return AssertionResult(
        verdict.check.partition(" ")[0],
        verdict.holds,
        verdict.status,
        verdict.check,
        verdict.expected,
        verdict.actual,
        verdict.message,
        str(verdict.context.get("path", "")),
        verdict.context,
    )


# --- `inspect`: look into the session of a run.

InspectFormat = Literal["json", "summary", "timeline"]
INSPECT_FORMATS = ("json", "summary", "timeline")


def inspect(
    workspace_id: str,
    *,
    filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word of the tool
    limit: int = 100,
    format: InspectFormat = "json",  # noqa: A002 - as above
) -> dict[str, Any]:
    """Events, a summary, or a timeline of a workspace's run."""
    wanted = convert(filter or {}, EventFilter, path="filter")
    if not isinstance(cast("Any", limit), int) or limit < 1:
        raise UsageError(f"limit is {limit!r}", hint="ask for at least one record")
    session = Workspaces().find(workspace_id).recorded
    trace = Trace(session, count=format == "summary")
    if format == "json":
        told: dict[str, Any] = msgspec.to_builtins(list_records(trace, wanted, limit))
    elif format == "summary":
        chosen = trace if wanted == EventFilter() else wanted.select(trace)
        told = msgspec.to_builtins(summarize(chosen))
    elif format == "timeline":
        moments = build_timeline(trace, wanted)
        told = {"timeline": msgspec.to_builtins(moments)}
        if not moments:
            told["message"] = "no iteration records"
    else:
        raise UsageError(
            f"there is no format {format!r}", hint=did_you_mean(str(format), INSPECT_FORMATS)
        )
    faults = [
        {"line": fault.line, "why": fault.reason, "text": fault.text} for fault in trace.faults
    ]
    if faults:
        told["faults"] = faults
        told["truncated_tail"] = trace.faults[-1].torn
    return told


# --- `report`: tell the verdicts of a run in a format that CI reads.

ReportFormat = Literal["junit", "tap", "ctrf", "json"]
REPORTS: dict[str, Report] = {
    "junit": JUnitReport(),
    "tap": TapReport(),
    "ctrf": CtrfReport(),
    "json": JsonReport(),
}


class ReportResult(msgspec.Struct, frozen=True):
    """A report that was written."""

    report_path: str
    format: str
    tests: int
    passed: int
    failed: int
    skipped: int
    duration_secs: float
    flaky: bool = False


def report(
    workspace_id: str,
    format: ReportFormat,  # noqa: A002 - the word of the tool
    test_name: str,
    *,
    include_traces: bool = False,
    output_path: str | None = None,
    history: tuple[Attempt, ...] = (),
    trace_path: str = "",
) -> ReportResult:
    """Write the verdicts of a workspace's run, and say how many there were."""
    kind = REPORTS.get(format)
    if kind is None:
        raise UsageError(f"there is no report {format!r}", hint=did_you_mean(str(format), REPORTS))
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded
    trace = (trace_path or str(session)) if include_traces else ""
    events = Trace(session)
    suite = collect_suite(events, test_name, trace=trace, history=history)
    raise_if_corrupt(events.faults, session)  # a verdict may be lost
    path = workspace.place(output_path or f"reports/{format}.{kind.suffix}")
    write_atomic(path, kind.render(suite))
    return ReportResult(
        str(path),
        format,
        len(suite.cases),
        suite.count("passed"),
        suite.count("failed") + suite.count("error"),
        suite.count("skipped"),
        (suite.stop - suite.start) / 1000,
        any(case.flaky for case in suite.cases),
    )


# --- `cleanup`: remove a workspace.


class CleanupResult(msgspec.Struct, frozen=True):
    """A workspace that is gone, and what was kept of it."""

    deleted: bool
    preserved_files: list[str]


def cleanup(workspace_id: str, *, preserve_session: bool = False) -> CleanupResult:
    """Remove a workspace, keeping its session where that is wanted."""
    kept = Workspaces().remove(workspace_id, preserve_session=preserve_session)
    return CleanupResult(deleted=True, preserved_files=kept)
