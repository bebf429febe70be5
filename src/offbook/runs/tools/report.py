"""`report`: tell the verdicts of a run in a format that CI reads."""

from __future__ import annotations

from typing import Literal

import msgspec

from offbook.errors import UsageError, nearest
from offbook.files import write_whole
from offbook.reports.ctrf import Ctrf
from offbook.reports.data import Data
from offbook.reports.junit import JUnit
from offbook.reports.report import Attempt, Report, collect
from offbook.reports.tap import Tap
from offbook.runs.workspace import Workspaces
from offbook.trace.reader import Trace, refuse_corrupt

Format = Literal["junit", "tap", "ctrf", "json"]
REPORTS: dict[str, Report] = {"junit": JUnit(), "tap": Tap(), "ctrf": Ctrf(), "json": Data()}


class Reported(msgspec.Struct, frozen=True):
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
    format: Format,  # noqa: A002 - the word of the tool
    test_name: str,
    *,
    include_traces: bool = False,
    output_path: str | None = None,
    history: tuple[Attempt, ...] = (),
    trace_path: str = "",
) -> Reported:
    """Write the verdicts of a workspace's run, and say how many there were."""
    kind = REPORTS.get(format)
    if kind is None:
        raise UsageError(f"there is no report {format!r}", hint=nearest(str(format), REPORTS))
    workspace = Workspaces().find(workspace_id)
    session = workspace.recorded
    trace = (trace_path or str(session)) if include_traces else ""
    events = Trace(session)
    suite = collect(events, test_name, trace=trace, history=history)
    refuse_corrupt(events.faults, session)  # a verdict may be lost
    path = workspace.place(output_path or f"reports/{format}.{kind.suffix}")
    write_whole(path, kind.render(suite))
    return Reported(
        str(path),
        format,
        len(suite.cases),
        suite.count("passed"),
        suite.count("failed") + suite.count("error"),
        suite.count("skipped"),
        (suite.stop - suite.start) / 1000,
        any(case.flaky for case in suite.cases),
    )
