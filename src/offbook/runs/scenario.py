"""Scenario files: setup, run, assert and report, written down once and run by anybody."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from offbook.checks.assertions.snapshots import SnapshotMatches
from offbook.checks.assertions.table import read_assertion
from offbook.checks.snapshot import FOLDER as SNAPSHOTS
from offbook.errors import FormatError, OffbookError, UsageError
from offbook.files import convert, locate, parse_json, parse_yaml, read_text, write_whole
from offbook.reports.report import Attempt, Case, Suite, collect
from offbook.runs.judges import BUILT_IN
from offbook.runs.repeat import Failure, Kind, Retry, repeat
from offbook.runs.tools.check import Checked, check
from offbook.runs.tools.cleanup import cleanup
from offbook.runs.tools.evaluate import Evaluated, evaluate
from offbook.runs.tools.replay import FOLDER as CASSETTES
from offbook.runs.tools.report import REPORTS, Format, report
from offbook.runs.tools.review import PENDING, in_ci
from offbook.runs.tools.run import Ran, run
from offbook.runs.tools.setup import setup
from offbook.runs.workspace import Workspace, Workspaces
from offbook.trace.reader import Trace

SUFFIXES = (".yaml", ".yml", ".json")
APART = {CASSETTES, "snapshots"}
REPORTS_FOLDER = Path(".offbook/reports")


class SetupStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the workspace holds at first."""

    fixtures: dict[str, str] = {}
    config: dict[str, Any] = {}
    scratchpad: str | None = None


class RunStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the loop works on, and who does the work; playbook and cassette stand beside."""

    task: str
    backend: str = "mock"
    orchestrator: str = ""
    command: tuple[str, ...] = ()
    playbook: str = ""
    cassette: str = ""
    max_iterations: int = 5
    max_runtime_secs: float = 300.0
    env: dict[str, str] = {}
    mock_responses: list[Any] = []


class EvaluateStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a judge scores, and who it is; its file stands beside the scenario."""

    evaluations: list[Any]
    judge: str = ""
    judge_backend: str = ""
    judge_command: tuple[str, ...] = ()
    judge_preset: str = BUILT_IN
    judge_model: str = ""
    tested_model: str = ""
    chain_of_thought: bool = True
    force: bool = False
    env: dict[str, str] = {}


class ReportStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report that outlives the workspace."""

    format: Format
    include_traces: bool = False


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One scenario, as its file says; the approved `snapshots` are in a folder beside it."""

    name: str = ""
    snapshots: str = ""
    setup: SetupStep = SetupStep()
    run: RunStep
    assertions: list[Any] = msgspec.field(name="assert")
    evaluate: EvaluateStep | None = None
    report: tuple[ReportStep, ...] = ()
    retry: Retry = Retry()


class Played(msgspec.Struct, frozen=True, kw_only=True):
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


def read_scenario(path: Path) -> Scenario:
    """A scenario from its file; whatever is wrong is told with its line, before anything runs."""
    text = read_text(path)
    value = parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)
    scenario = convert(value, Scenario, path=path, text=text)
    if not scenario.assertions:
        line = locate(text, "$.assert")
        raise FormatError("there are no assertions", path=path, line=line, hint="assert something")
    for number, raw in enumerate(scenario.assertions):
        try:
            read_assertion(raw)
        except UsageError as error:
            line = locate(text, f"$.assert[{number}]")
            raise FormatError(error.what, path=path, line=line, hint=error.hint) from error
    return _resolve(scenario, path)


def _resolve(scenario: Scenario, path: Path) -> Scenario:
    """The scenario with the files that stand beside it named by their whole paths."""

    def beside(name: str) -> str:
        return str(path.parent / name) if name and (path.parent / name).exists() else name

    run_, judged = scenario.run, scenario.evaluate
    run_ = msgspec.structs.replace(
        run_, playbook=beside(run_.playbook), cassette=beside(run_.cassette)
    )
    if judged is not None:
        judged = msgspec.structs.replace(
            judged, judge=beside(judged.judge), judge_preset=beside(judged.judge_preset)
        )
    folder = str(path.parent / scenario.snapshots) if scenario.snapshots else ""
    return msgspec.structs.replace(
        scenario, name=scenario.name or path.stem, run=run_, evaluate=judged, snapshots=folder
    )


def find_scenarios(paths: Iterable[Path]) -> list[Scenario]:
    """The scenarios of these files and folders; names differ, for reports are called by them."""
    found: dict[str, Path] = {}
    scenarios: list[Scenario] = []
    for path in _expand(paths):
        scenario = read_scenario(path)
        slug = _slug(scenario.name)
        if slug in found:
            raise FormatError(
                f"the name {scenario.name!r} is taken", path=path, hint=f"by {found[slug]}"
            )
        found[slug] = path
        scenarios.append(scenario)
    return scenarios


def _expand(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and not _serves(p, path))
        if not inside:
            raise UsageError("there is no scenario in this folder", where=str(path))
        yield from inside


def _serves(path: Path, root: Path) -> bool:
    """Whether a file belongs to scenarios, and is none."""
    return bool(APART & set(path.relative_to(root).parts[:-1]))


async def play_all(
    scenarios: Sequence[Scenario],
    *,
    jobs: int = 0,
    reports: Path = REPORTS_FOLDER,
    told: Callable[[Played], None] | None = None,
) -> list[Played]:
    """Play scenarios side by side; each is told when it is over."""
    turns = asyncio.Semaphore(jobs or os.cpu_count() or 1)

    async def play_one(scenario: Scenario) -> Played:
        async with turns:
            played = await play(scenario, reports=reports)
        if told is not None:
            told(played)
        return played

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(play_one(scenario)) for scenario in scenarios]
    return [task.result() for task in tasks]


def write_reports(played: Sequence[Played], paths: Mapping[str, Path]) -> None:
    """One report over all scenarios, for each format that has a path."""
    suites = [one.suite for one in played if one.suite is not None]
    for name, path in paths.items():
        write_whole(path, REPORTS[name].render(*suites))


async def play(scenario: Scenario, *, reports: Path = REPORTS_FOLDER) -> Played:
    """Play a scenario, as often as it may be tried, each time in a workspace of its own."""
    start = time.monotonic()

    async def attempt(history: tuple[Attempt, ...]) -> tuple[_Tried, Failure | None]:
        return await _try(scenario, reports, history)

    repeated = await repeat(attempt, scenario.retry)
    tried, failure = repeated.value, repeated.failure
    return Played(
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


def _complete(suite: Suite | None, name: str, failure: Failure | None) -> Suite:
    """The suite of a scenario; one that failed is never told as if it had not."""
    known = suite or Suite(name, ())
    if failure is None or not (known.green or not known.cases):
        return known
    case = Case("the scenario", "error", message=failure.error, kind=failure.kind)
    return msgspec.structs.replace(known, cases=(*known.cases, case))


class _Tried(msgspec.Struct):
    """What one try left behind."""

    checked: Checked | None = None
    evaluated: Evaluated | None = None
    reports: list[str] = []
    session: str = ""
    suite: Suite | None = None


async def _try(
    scenario: Scenario, folder: Path, history: tuple[Attempt, ...]
) -> tuple[_Tried, Failure | None]:
    workspace = f"{_slug(scenario.name)}-{uuid.uuid4().hex[:8]}"
    tried = _Tried()
    try:
        setup(workspace, **msgspec.structs.asdict(scenario.setup))
    except OffbookError as error:
        return tried, Failure("error", str(error))
    try:
        ran = await run(workspace, **_bring(scenario, Workspaces().find(workspace)))
        approved = scenario.snapshots or "FOLDER, with `snapshots: FOLDER` in the scenario"
        tried.checked = check(workspace, scenario.assertions, approved=approved)
        _take_back(scenario, Workspaces().find(workspace))
        if scenario.evaluate is not None:
            step = msgspec.structs.asdict(scenario.evaluate)
            tried.evaluated = await evaluate(workspace, **step)
        failure = find_failure(ran, tried.checked, tried.evaluated)
        if failure or any(step.include_traces for step in scenario.report):
            tried.session = _keep(Path(ran.session_file), folder / f"{_slug(scenario.name)}.jsonl")
        tried.reports = _report(workspace, scenario, folder, history, tried.session)
        events = Trace(Path(ran.session_file))
        tried.suite = collect(events, scenario.name, trace=tried.session, history=history)
    except OffbookError as error:
        failure = Failure("error", str(error))
    finally:
        with suppress(UsageError):  # the agent may have removed it
            cleanup(workspace)
    return tried, failure


def _bring(scenario: Scenario, workspace: Workspace) -> dict[str, Any]:
    """The options of the run, when the cassette and the snapshots are in the workspace."""
    options = msgspec.structs.asdict(scenario.run)
    cassette = Path(scenario.run.cassette)
    if cassette.is_file():
        _keep(cassette, workspace.place(f"{CASSETTES}/{cassette.stem}.yaml"))
        options["cassette"] = cassette.stem
    if scenario.snapshots:
        for path in Path(scenario.snapshots).glob("*.json"):
            if not path.name.endswith(PENDING):
                _keep(path, workspace.place(f"{SNAPSHOTS}/{path.name}"))
    return options


def _take_back(scenario: Scenario, workspace: Workspace) -> None:
    """Let the snapshots that do not match wait beside those that are approved; not in CI."""
    if not scenario.snapshots or in_ci():
        return
    for assertion in map(read_assertion, scenario.assertions):
        if not isinstance(assertion, SnapshotMatches):
            continue
        name = f"{assertion.snapshot_id}{PENDING}"
        pending, place = workspace.place(f"{SNAPSHOTS}/{name}"), Path(scenario.snapshots) / name
        if pending.is_file():
            _keep(pending, place)
        else:
            place.unlink(missing_ok=True)


def find_failure(ran: Ran, checked: Checked, judged: Evaluated | None = None) -> Failure | None:
    """Why a run failed, if it did: a script that ran dry fails whatever was asserted."""
    wrong = [f"{r.assertion}: {r.message}" for r in checked.results if not r.passed]
    for one in judged.evaluations if judged else ():
        if not one.passed:
            why = one.error or f"{one.score} is less than {one.threshold}: {one.reasoning}"
            wrong.append(f"{one.criterion} {one.target}: {why}")
    if not wrong and not ran.error:
        return None
    return Failure(_kind(ran), "\n".join(filter(None, (ran.error, *wrong))))


def _kind(ran: Ran) -> Kind:
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
        target = folder / f"{_slug(scenario.name)}.{suffix}"
        kept.append(_keep(Path(written.report_path), target))
    return kept


def _keep(path: Path, target: Path) -> str:
    """Copy a file out of the workspace, whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    making = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        shutil.copyfile(path, making)
        making.replace(target)
    finally:
        making.unlink(missing_ok=True)
    return str(target)


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_").lower()[:60] or "scenario"
