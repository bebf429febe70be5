"""`assert`: hold assertions against a run; each verdict goes into its trace."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from offbook.checks.assertions.snapshots import SnapshotMatches
from offbook.checks.assertions.table import judge_all, read_assertion
from offbook.checks.evidence import Evidence
from offbook.determinism.clock import SystemClock
from offbook.errors import UsageError
from offbook.runs.tools.review import propose
from offbook.runs.workspace import ID, Workspace, Workspaces
from offbook.trace.events import VERDICT, Event
from offbook.trace.reader import Trace, refuse_corrupt
from offbook.trace.recorder import Recorder
from offbook.trace.verdicts import Verdict, describe


class Result(msgspec.Struct, frozen=True, omit_defaults=True):
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


class Checked(msgspec.Struct, frozen=True):
    """What became of all."""

    passed: bool
    results: list[Result]
    failed_count: int


def check(workspace_id: str, assertions: Sequence[Any], *, approved: str = "") -> Checked:
    """Judge every assertion, and stop at none.

    Snapshots that do not match wait in the workspace, or where `approved` ones are.
    """
    if not assertions:
        raise UsageError("there are no assertions", hint="nothing checked is not a pass")
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded
    evidence = Evidence(Trace(session), workspace.path)
    verdicts = judge_all(assertions, evidence)
    refuse_corrupt(evidence.faults, session)
    where = approved or workspace.id
    pairs = zip(assertions, verdicts, strict=True)
    verdicts = [_propose(workspace, raw, verdict, where) for raw, verdict in pairs]
    _record(session, verdicts)
    failed = sum(not verdict.holds for verdict in verdicts)
    return Checked(not failed, [_result(verdict) for verdict in verdicts], failed)


def _propose(workspace: Workspace, raw: object, verdict: Verdict, where: str) -> Verdict:
    """Let what a snapshot should have been wait for a review, where it does not match."""
    try:
        assertion = read_assertion(raw)
    except UsageError:
        return verdict
    if not isinstance(assertion, SnapshotMatches) or not ID.match(assertion.snapshot_id):
        return verdict
    pending = propose(workspace, assertion, holds=verdict.holds)
    if pending is None:
        return verdict
    told = f"{verdict.message}\nreview it: offbook snapshot review {where}"
    context = {**verdict.context, "pending": str(pending)}
    return msgspec.structs.replace(verdict, message=told, context=context)


def _record(session: Path, verdicts: Sequence[Verdict]) -> None:
    """Tell verdicts to the trace of a run."""
    ts = SystemClock().millis()
    recorder = Recorder(session, ts=ts, more=True)
    for number, verdict in enumerate(verdicts, 1):
        recorder.record(Event(ts, VERDICT, describe(verdict), number))
    recorder.close()


def _result(verdict: Verdict) -> Result:
    return Result(
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
