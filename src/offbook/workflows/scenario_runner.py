"""Plays scenarios: each in a workspace of its own, side by side, as often as it may be tried."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from offbook.checks.file_assertions import SnapshotMatches
from offbook.checks.registry import parse_assertion
from offbook.checks.snapshot import SNAPSHOT_FOLDER as SNAPSHOTS
from offbook.errors import OffbookError, UsageError
from offbook.files import copy_atomic, write_atomic
from offbook.reports.report import Attempt, Case, Suite, collect_suite
from offbook.trace.reader import Trace
from offbook.workflows.loop_run import run
from offbook.workflows.scenario import AttemptFailure, FailureKind, Scenario, run_with_retries, slug
from offbook.workflows.snapshots import PENDING_SUFFIX, in_ci
from offbook.workflows.tools import REPORTS, CheckResult, check, cleanup, report, setup
from offbook.workflows.workspace import CASSETTES, Workspace, Workspaces

if TYPE_CHECKING:
    from offbook.workflows.evaluation import EvaluateResult
    from offbook.workflows.loop_cassette import RecordResult

REPORTS_FOLDER = Path(".offbook/reports")


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a scenario."""

    name: str
    passed: bool
    flaky: bool
    attempts: int
    seconds: float
    error: str = ""
    failure_history: tuple[Attempt, ...] = ()
    results: list[Any] = []
    evaluations: list[Any] = []
    reports: list[str] = []
    session: str = ""
    suite: Suite | None = None


async def run_scenarios(
    scenarios: Sequence[Scenario],
    *,
    jobs: int = 0,
    reports: Path = REPORTS_FOLDER,
    recording: bool = False,
    on_result: Callable[[ScenarioResult], None] | None = None,
) -> list[ScenarioResult]:
    """Play scenarios side by side; each is told when it is over.

    When `recording`, those with a cassette play their real agent, and keep it there.
    """
    turns = asyncio.Semaphore(jobs or os.cpu_count() or 1)

    async def play_one(scenario: Scenario) -> ScenarioResult:
        async with turns:
            played = await run_scenario(scenario, reports=reports, recording=recording)
        if on_result is not None:
            on_result(played)
        return played

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play_one(scenario)) for scenario in scenarios]
    return [task.result() for task in tasks]


def write_reports(played: Sequence[ScenarioResult], paths: Mapping[str, Path]) -> None:
    """One report over all scenarios, for each format that has a path."""
    suites = [one.suite for one in played if one.suite is not None]
    for name, path in paths.items():
        write_atomic(path, REPORTS[name].render(*suites))


async def run_scenario(
    scenario: Scenario, *, reports: Path = REPORTS_FOLDER, recording: bool = False
) -> ScenarioResult:
    """Play a scenario, as often as it may be tried, each time in a workspace of its own."""
    start = time.monotonic()

    async def attempt(history: tuple[Attempt, ...]) -> tuple[_Attempt, AttemptFailure | None]:
        return await _run_attempt(scenario, reports, history, recording=recording)

    repeated = await run_with_retries(attempt, scenario.retry)
    tried, failure = repeated.value, repeated.failure
    return ScenarioResult(
        name=scenario.name,
        passed=failure is None,
        flaky=repeated.flaky,
        attempts=repeated.attempts,
        seconds=round(time.monotonic() - start, 3),
        error=failure.error if failure else "",
        failure_history=repeated.history,
        results=list(tried.checked.results) if tried.checked else [],
        evaluations=list(tried.evaluated.evaluations) if tried.evaluated else [],
        reports=tried.reports,
        session=tried.session,
        suite=_complete(tried.suite, scenario.name, failure),
    )


def _complete(suite: Suite | None, name: str, failure: AttemptFailure | None) -> Suite:
    """The suite of a scenario; one that failed is never told as if it had not."""
    known = suite or Suite(name, ())
    if failure is None or not (known.green or not known.cases):
        return known
    case = Case("the scenario", "error", message=failure.error, kind=failure.kind)
    return msgspec.structs.replace(known, cases=(*known.cases, case))


class _Attempt(msgspec.Struct):
    """What one try left behind."""

    checked: CheckResult | None = None
    evaluated: EvaluateResult | None = None
    reports: list[str] = []
    session: str = ""
    suite: Suite | None = None


async def _run_attempt(
    scenario: Scenario, folder: Path, history: tuple[Attempt, ...], *, recording: bool = False
) -> tuple[_Attempt, AttemptFailure | None]:
    workspace = f"{slug(scenario.name)}-{uuid.uuid4().hex[:8]}"
    tried = _Attempt()
    try:
        setup(workspace, **msgspec.structs.asdict(scenario.setup))
    except OffbookError as error:
        return tried, AttemptFailure("error", str(error))
    try:
        ran = await _run(scenario, Workspaces().find(workspace), recording=recording)
        approved = scenario.snapshots or "FOLDER, with `snapshots: FOLDER` in the scenario"
        tried.checked = check(workspace, scenario.assertions, approved=approved)
        _take_back(scenario, Workspaces().find(workspace))
        if scenario.evaluate is not None:
            from offbook.workflows.evaluation import evaluate

            step = msgspec.structs.asdict(scenario.evaluate)
            tried.evaluated = await evaluate(workspace, **step)
        failure = find_failure(ran, tried.checked, tried.evaluated)
        if failure or any(step.include_traces for step in scenario.report):
            kept = folder / f"{slug(scenario.name)}.jsonl"
            tried.session = str(copy_atomic(Path(ran.session_file), kept))
        tried.reports = _report(workspace, scenario, folder, history, tried.session)
        events = Trace(Path(ran.session_file))
        tried.suite = collect_suite(events, scenario.name, trace=tried.session, history=history)
    except OffbookError as error:
        failure = AttemptFailure("error", str(error))
    finally:
        with suppress(UsageError):  # the agent may have removed it
            cleanup(workspace)
    return tried, failure


async def _run(scenario: Scenario, workspace: Workspace, *, recording: bool) -> RunOutcome:
    """The run itself: of the agent, or of what is on its cassette."""
    _bring_snapshots(scenario, workspace)
    options = msgspec.structs.asdict(scenario.run)
    if not scenario.run.cassette:
        return await run(workspace.id, **options)
    cassette = Path(options.pop("cassette"))
    inside = workspace.place(f"{CASSETTES}/{cassette.stem}.yaml")
    if recording:
        recorded = await _record(workspace, cassette.stem, options)
        copy_atomic(inside, cassette)
        return recorded
    _bring_cassette(cassette, inside)
    limits = {name: options[name] for name in ("task", "max_iterations", "max_runtime_secs")}
    return await run(workspace.id, backend="replay", cassette=cassette.stem, **limits)


def _bring_snapshots(scenario: Scenario, workspace: Workspace) -> None:
    """Put the approved snapshots into the workspace."""
    for path in Path(scenario.snapshots).glob("*.json") if scenario.snapshots else ():
        if not path.name.endswith(PENDING_SUFFIX):
            copy_atomic(path, workspace.place(f"{SNAPSHOTS}/{path.name}"))


def _bring_cassette(cassette: Path, inside: Path) -> None:
    """Put the cassette into the workspace."""
    if not cassette.is_file():
        raise UsageError(
            "there is no cassette",
            where=str(cassette),
            hint="record it: offbook scenario run FILE --record",
        )
    copy_atomic(cassette, inside)


async def _record(workspace: Workspace, name: str, options: dict[str, Any]) -> RecordResult:
    for word in ("mock_responses", "orchestrator"):
        if options.pop(word, None):
            raise UsageError(f"a cassette is recorded from a real agent, and not from {word}")
    if options["backend"] in {"mock", "replay"}:
        raise UsageError(
            "which agent is to be recorded?", hint="run.backend names it, and run.cassette the file"
        )
    from offbook.workflows.loop_cassette import record

    return await record(workspace.id, name, **options)


def _take_back(scenario: Scenario, workspace: Workspace) -> None:
    """Let the snapshots that do not match wait beside those that are approved; not in CI."""
    if not scenario.snapshots or in_ci():
        return
    for assertion in map(parse_assertion, scenario.assertions):
        if not isinstance(assertion, SnapshotMatches):
            continue
        name = f"{assertion.snapshot_id}{PENDING_SUFFIX}"
        pending, place = workspace.place(f"{SNAPSHOTS}/{name}"), Path(scenario.snapshots) / name
        if pending.is_file():
            copy_atomic(pending, place)
        else:
            place.unlink(missing_ok=True)


class RunOutcome(Protocol):
    """What a failure is told from."""

    @property
    def termination_reason(self) -> str: ...
    @property
    def session_file(self) -> str: ...
    @property
    def error(self) -> str: ...


def find_failure(
    ran: RunOutcome, checked: CheckResult, judged: EvaluateResult | None = None
) -> AttemptFailure | None:
    """Why a run failed, if it did: a script that ran dry fails whatever was asserted."""
    wrong = [f"{r.name}: {r.message}" for r in checked.results if not r.passed]
    for one in judged.evaluations if judged else ():
        if not one.passed:
            why = one.error or f"{one.score} is less than {one.threshold}: {one.reasoning}"
            wrong.append(f"{one.criterion} {one.target}: {why}")
    if not wrong and not ran.error:
        return None
    return AttemptFailure(_failure_kind(ran), "\n".join(filter(None, (ran.error, *wrong))))


def _failure_kind(ran: RunOutcome) -> FailureKind:
    if ran.termination_reason == "MaxRuntime":
        return "timeout"
    if "rate_limit" in ran.error:
        return "rate_limit"
    if "mock_exhausted" in ran.error:
        return "mock_exhausted"
    return "error" if ran.error else "assertion_failure"


def _report(
    workspace: str,
    scenario: Scenario,
    folder: Path,
    history: tuple[Attempt, ...],
    session: str,
) -> list[str]:
    kept: list[str] = []
    for step in scenario.report:
        written = report(
            workspace,
            step.format,
            scenario.name,
            include_traces=step.include_traces,
            history=history,
            trace_path=session,
        )
        suffix = f"{step.format}.{REPORTS[step.format].suffix}"
        target = folder / f"{slug(scenario.name)}.{suffix}"
        kept.append(str(copy_atomic(Path(written.report_path), target)))
    return kept
