"""Scenario files: one YAML or JSON file with the steps setup, run, assert, evaluate and report.

    setup: {fixtures: {src/main.py: "print()"}}
    run: {task: Add error handling, mock_responses: [LOOP_COMPLETE]}
    assert: [{type: exit_code, expected: 0}]
    report: [{format: junit}]
    retry: {max_attempts: 3, retry_on: [timeout]}

The fields of a step are the parameters of the tool of the same name. Files are decoded strictly:
an unknown field or assertion is reported with its line before anything runs.

    results = await run_scenarios(find_scenarios([Path("scenarios/")]))
    all(result.passed for result in results)

A scenario calls the same tools as a person would: setup, run, check, evaluate, report, cleanup.
Each attempt runs in a new workspace, several scenarios at once.
`offbook scenario run` is the command.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import click
import msgspec

from offbook.checks.assertion import parse_assertion
from offbook.cli_options import FILE_PATH, echo, json_option, live_options, print_json
from offbook.errors import FormatError, OffbookError, UsageError, require_known
from offbook.files import (
    convert,
    copy_atomic,
    find_line,
    parse_document,
    read_text,
    require_kind,
    write_atomic,
)
from offbook.options import require_some
from offbook.reports.report import Attempt, Case, Suite, collect_suite, find_report
from offbook.runs.agents import BACKENDS
from offbook.trace.events import FileLine
from offbook.trace.reader import Trace
from offbook.workflows.loop_tools import ORCHESTRATORS, MockResponses, run
from offbook.workflows.presets import read_preset
from offbook.workflows.tools import (
    CheckResult,
    ReportFormat,
    check,
    cleanup,
    refuse_unknown_hat,
    report,
    setup,
)
from offbook.workflows.workspace import CASSETTES, Workspace, Workspaces

if TYPE_CHECKING:
    from offbook.workflows.cassette_tools import RecordResult
    from offbook.workflows.loop_tools import RunResult
    from offbook.workflows.result_tools import EvaluateResult


SUFFIXES = (".yaml", ".yml", ".json")
DATA_FOLDERS = {CASSETTES, "snapshots"}  # their files belong to scenarios and are none
FailureKind = Literal["timeout", "rate_limit", "mock_exhausted", "assertion_failure", "error"]
REPORTS_FOLDER = Path(".offbook/reports")
T = TypeVar("T")


class SetupStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The initial content of the workspace."""

    fixtures: dict[str, str] = {}
    config: dict[str, Any] = {}
    scratchpad: str | None = None


class RunStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The task and the agent; `playbook` and `cassette` are relative to the scenario file.

    With a cassette, the answers are replayed, and the agent is only used to record it.
    """

    task: str
    backend: str = "mock"
    orchestrator: str = ""
    command: tuple[str, ...] = ()
    playbook: str = ""
    cassette: str = ""
    max_iterations: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_runtime_secs: Annotated[float, msgspec.Meta(gt=0)] | None = None
    env: dict[str, str] = {}
    mock_responses: list[Any] = []
    faults: dict[str, Any] | list[str] | None = None


class EvaluateStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The evaluations and their judge; its files are relative to the scenario file."""

    evaluations: list[Any]
    judge: str = ""
    judge_backend: str = ""
    judge_command: tuple[str, ...] = ()
    judge_preset: str = "judge"
    judge_model: str = ""
    tested_model: str = ""
    chain_of_thought: bool = True
    force: bool = False
    env: dict[str, str] = {}


class ReportStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report, copied out of the workspace before that is removed."""

    format: ReportFormat
    include_traces: bool = False


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The number of attempts, and the failures to retry; `no_retry_on` wins over `retry_on`."""

    max_attempts: int = 1
    backoff_ms: int = 0
    retry_on: tuple[FailureKind, ...] = ()
    no_retry_on: tuple[FailureKind, ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, got {self.max_attempts}")
        if self.backoff_ms < 0:
            raise ValueError(f"backoff_ms must be at least 0, got {self.backoff_ms}")

    def allows(self, kind: str) -> bool:
        """Return whether to retry this kind of failure; an empty `retry_on` means all."""
        return kind not in self.no_retry_on and (not self.retry_on or kind in self.retry_on)


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One scenario file; `snapshots` is the folder of its approved snapshots."""

    name: str = ""
    snapshots: str = ""
    setup: SetupStep = SetupStep()
    run: RunStep
    assertions: list[Any] = msgspec.field(name="assert")
    evaluate: EvaluateStep | None = None
    report: tuple[ReportStep, ...] = ()
    retry: RetryPolicy = RetryPolicy()
    # where each assertion is written: set by the reader, under a name that no file has
    places: tuple[FileLine, ...] = msgspec.field(default=(), name="<places>")


def read_scenario(path: Path) -> Scenario:
    """Return the scenario of a file, with the files that it names as full paths."""
    require_kind(path, "scenario")
    text = read_text(path)
    scenario = convert(parse_document(text, path), Scenario, path=path, text=text)
    if not scenario.assertions:
        raise FormatError(
            "missing assertions",
            path=path,
            line=find_line(text, "$.assert"),
            hint="a scenario without assertions cannot pass",
        )
    preset = read_preset(scenario.setup.config, path=path, text=text, at="$.setup.config")

    @contextmanager
    def located(at: str) -> Generator[int]:
        """Yield the line of a part, and add it to the errors of that part."""
        line = find_line(text, at)
        try:
            yield line or 0
        except UsageError as error:
            raise FormatError(error.what, path=path, line=line, hint=error.hint) from error

    # The parts are decoded here only to check them; the run decodes them again.
    if scenario.run.faults is not None:
        from offbook.determinism.faults import parse_faults  # few scenarios have faults

        with located("$.run.faults"):
            parse_faults(scenario.run.faults)
    names = {"backend": ("mock", "replay", *BACKENDS), "orchestrator": ("", *ORCHESTRATORS)}
    for key, known in names.items():
        with located(f"$.run.{key}"):
            require_known(f"unknown {key}", getattr(scenario.run, key), known)
    responses = scenario.run.mock_responses
    if scenario.run.backend == "mock" and not (responses or scenario.run.cassette):
        with located("$.run"):
            MockResponses(responses)
    for number, raw in enumerate(responses):
        with located(f"$.run.mock_responses[{number}]"):
            MockResponses([raw])
    places: list[FileLine] = []
    for number, raw in enumerate(scenario.assertions):
        with located(f"$.assert[{number}]") as line:
            places.append(FileLine(str(path), line))
            assertion = parse_assertion(raw)
            refuse_unknown_hat(raw, preset)
        if scenario.snapshots:
            from offbook.workflows.snapshot_tools import check_approved

            check_approved(path.parent / scenario.snapshots, assertion)

    def sibling(name: str) -> str:
        # A name without a file may be something else: a provider, a cassette of the workspace.
        return str(path.parent / name) if name and (path.parent / name).exists() else name

    run, evaluate = scenario.run, scenario.evaluate
    run = msgspec.structs.replace(
        run,
        playbook=sibling(run.playbook),
        cassette=run.cassette and str(path.parent / run.cassette),
    )
    if evaluate is not None:
        evaluate = msgspec.structs.replace(
            evaluate, judge=sibling(evaluate.judge), judge_preset=sibling(evaluate.judge_preset)
        )
    snapshots = str(path.parent / scenario.snapshots) if scenario.snapshots else ""
    name = scenario.name or path.stem
    return msgspec.structs.replace(
        scenario,
        name=name,
        run=run,
        evaluate=evaluate,
        snapshots=snapshots,
        places=tuple(places),
    )


def find_scenarios(paths: Iterable[Path]) -> list[Scenario]:
    """Return the scenarios of these files and folders; their names must be different."""
    paths_by_slug: dict[str, Path] = {}
    scenarios: list[Scenario] = []
    for path in _expand(paths):
        scenario = read_scenario(path)
        name = slug(scenario.name)  # the file name of its reports: compared instead of the name
        if name in paths_by_slug:
            raise FormatError(
                f"duplicate scenario name {scenario.name!r}",
                path=path,
                hint=f"also in {paths_by_slug[name]}",
            )
        paths_by_slug[name] = path
        scenarios.append(scenario)
    return scenarios


def _expand(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        files = sorted(
            file
            for file in path.rglob("*")
            if file.suffix in SUFFIXES and not DATA_FOLDERS & set(file.relative_to(path).parts[:-1])
        )
        # An empty folder would be a run without failures.
        yield from require_some(files, "no scenario file in this folder", where=path)


def slug(name: str) -> str:
    """Return a name as a file name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_").lower()[:60] or "scenario"


# --- Running them


class ScenarioResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a scenario over all its attempts."""

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
    warnings: tuple[str, ...] = ()


class AttemptFailure(msgspec.Struct, frozen=True):
    """The reason why an attempt failed."""

    kind: FailureKind
    error: str


class RetryResult(msgspec.Struct, Generic[T], frozen=True):
    """The value of the last attempt, and the failures of all."""

    value: T
    failure: AttemptFailure | None
    attempts: int
    history: tuple[Attempt, ...]

    @property
    def flaky(self) -> bool:
        """True if it passed only after a failure."""
        return self.failure is None and bool(self.history)


AttemptFunction = Callable[[tuple[Attempt, ...]], Awaitable[tuple[T, AttemptFailure | None]]]


async def run_with_retries(
    attempt: AttemptFunction[T],
    policy: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> RetryResult[T]:
    """Call `attempt` with the earlier failures until it passes or may not be retried.

    The delay between attempts doubles each time.
    """
    history: tuple[Attempt, ...] = ()
    number = 1
    while True:
        value, failure = await attempt(history)
        if failure is None:
            return RetryResult(value, None, number, history)
        history = (*history, Attempt(number, failure.error, failure.kind))
        if number >= policy.max_attempts or not policy.allows(failure.kind):
            return RetryResult(value, failure, number, history)
        if policy.backoff_ms:
            await sleep(policy.backoff_ms * 2 ** (number - 1) / 1000)
        number += 1


async def run_scenarios(
    scenarios: Sequence[Scenario],
    *,
    jobs: int = 0,
    reports: Path = REPORTS_FOLDER,
    recording: bool = False,
    on_result: Callable[[ScenarioResult], None] | None = None,
) -> list[ScenarioResult]:
    """Run scenarios in parallel, and call `on_result` when each has finished.

    With `recording`, scenarios with a cassette run their real agent and record it.
    """
    # Threads would not help: a scenario waits for processes, or is over in a few milliseconds.
    slots = asyncio.Semaphore(jobs or os.cpu_count() or 1)

    async def run_in_slot(scenario: Scenario) -> ScenarioResult:
        async with slots:
            result = await run_scenario(scenario, reports=reports, recording=recording)
        if on_result is not None:
            on_result(result)
        return result

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_in_slot(scenario)) for scenario in scenarios]
    return [task.result() for task in tasks]


def write_reports(results: Sequence[ScenarioResult], paths: Mapping[str, Path]) -> None:
    """Write one report of all scenarios for each format with a path."""
    suites = [result.suite for result in results if result.suite is not None]
    for name, path in paths.items():
        write_atomic(path, find_report(name).render(*suites))


async def run_scenario(
    scenario: Scenario, *, reports: Path = REPORTS_FOLDER, recording: bool = False
) -> ScenarioResult:
    """Run a scenario with its retries, each attempt in a new workspace."""
    start = time.monotonic()

    async def attempt(history: tuple[Attempt, ...]) -> tuple[_Attempt, AttemptFailure | None]:
        return await _run_attempt(scenario, reports, history, recording=recording)

    outcome = await run_with_retries(attempt, scenario.retry)
    last, failure = outcome.value, outcome.failure
    suite = last.suite or Suite(scenario.name, ())
    if failure is not None and (suite.green or not suite.cases):
        # The run itself failed: a suite without a failed case would be reported as passed.
        file = str(scenario.places[0].context["file"]) if scenario.places else ""
        case = Case("the scenario", "error", message=failure.error, kind=failure.kind, file=file)
        suite = msgspec.structs.replace(suite, cases=(*suite.cases, case))
    return ScenarioResult(
        name=scenario.name,
        passed=failure is None,
        flaky=outcome.flaky,
        attempts=outcome.attempts,
        seconds=round(time.monotonic() - start, 3),
        error=failure.error if failure else "",
        failure_history=outcome.history,
        results=list(last.checked.results) if last.checked else [],
        evaluations=list(last.evaluated.evaluations) if last.evaluated else [],
        reports=last.reports,
        session=last.session,
        suite=suite,
        warnings=last.warnings,
    )


class _Attempt(msgspec.Struct):
    """The results of the steps of one attempt, as far as it came."""

    checked: CheckResult | None = None
    evaluated: EvaluateResult | None = None
    reports: list[str] = []
    session: str = ""
    suite: Suite | None = None
    warnings: tuple[str, ...] = ()


async def _run_attempt(
    scenario: Scenario, folder: Path, history: tuple[Attempt, ...], *, recording: bool = False
) -> tuple[_Attempt, AttemptFailure | None]:
    """Run all steps of a scenario in a new workspace, and copy out what is kept."""
    # A random part: the same scenario may run in several processes at once.
    workspace_id = f"{slug(scenario.name)}-{uuid.uuid4().hex[:8]}"
    attempt = _Attempt()
    try:
        made = setup(workspace_id, **msgspec.structs.asdict(scenario.setup))
        attempt.warnings = made.warnings
    except OffbookError as error:
        return attempt, AttemptFailure("error", str(error))
    try:
        workspace = Workspaces().find(workspace_id)
        if scenario.snapshots:
            from offbook.workflows.snapshot_tools import copy_approved

            copy_approved(Path(scenario.snapshots), workspace)
        outcome = await _run_loop(scenario, workspace, recording=recording)
        attempt.warnings += outcome.warnings
        approved = scenario.snapshots or "FOLDER, with `snapshots: FOLDER` in the scenario"
        attempt.checked = check(
            workspace_id, scenario.assertions, approved=approved, places=scenario.places
        )
        if scenario.snapshots:
            from offbook.workflows.snapshot_tools import copy_pending, in_ci

            if not in_ci():
                copy_pending(scenario.assertions, workspace, Path(scenario.snapshots))
        if scenario.evaluate is not None:
            # Few scenarios have a judge, and its imports take as long as a mocked run.
            from offbook.workflows.result_tools import evaluate

            options = msgspec.structs.asdict(scenario.evaluate)
            attempt.evaluated = await evaluate(workspace_id, **options)
        failure = find_failure(outcome, attempt.checked, attempt.evaluated)
        session = Path(outcome.session_file)
        # The workspace is removed, so a failure needs a copy of its session.
        if failure or any(step.include_traces for step in scenario.report):
            copy = folder / f"{slug(scenario.name)}.jsonl"
            attempt.session = str(copy_atomic(session, copy))
        for step in scenario.report:
            written = report(
                workspace_id,
                step.format,
                scenario.name,
                include_traces=step.include_traces,
                history=history,
                trace_path=attempt.session,
            )
            # `junit.xml`, `ctrf.json`, `tap`, `json`
            suffix = find_report(step.format).suffix
            suffix = suffix if suffix == step.format else f"{step.format}.{suffix}"
            target = folder / f"{slug(scenario.name)}.{suffix}"
            attempt.reports.append(str(copy_atomic(Path(written.report_path), target)))
        attempt.suite = collect_suite(
            Trace(session), scenario.name, trace=attempt.session, history=history
        )
    except OffbookError as error:
        failure = AttemptFailure("error", str(error))
    finally:
        with suppress(UsageError):  # the agent may have removed it
            cleanup(workspace_id)
    return attempt, failure


async def _run_loop(
    scenario: Scenario, workspace: Workspace, *, recording: bool
) -> RunResult | RecordResult:
    """Run the agent, replay its cassette, or run the agent and record the cassette."""
    options = msgspec.structs.asdict(scenario.run)
    if not scenario.run.cassette:
        return await run(workspace.id, **options)
    if options.pop("faults"):
        raise UsageError("a cassette has no faults", hint="remove run.faults, or run.cassette")
    cassette = Path(options.pop("cassette"))
    inside = workspace.resolve(f"{CASSETTES}/{cassette.stem}.yaml")
    if recording:
        for name in ("mock_responses", "orchestrator"):
            if options.pop(name, None):
                raise UsageError(f"a cassette records a real agent, not {name}")
        if options["backend"] in {"mock", "replay"}:
            raise UsageError(
                "missing agent to record", hint="run.backend names it, and run.cassette the file"
            )
        from offbook.workflows.cassette_tools import record  # for recordings only

        # Recorded in the workspace first: a failed recording leaves the old cassette.
        recorded = await record(workspace.id, cassette.stem, **options)
        if not recorded.error:
            copy_atomic(inside, cassette)
        return recorded
    try:
        with workspace.writes_own(inside):
            copy_atomic(cassette, inside)
    except FileNotFoundError as error:
        raise UsageError(
            "cassette not found",
            where=str(cassette),
            hint="fix: offbook scenario run FILE --record",
        ) from error
    limits = {name: options[name] for name in ("task", "max_iterations", "max_runtime_secs")}
    return await run(workspace.id, backend="replay", cassette=cassette.stem, **limits)


def find_failure(
    outcome: RunResult | RecordResult, checked: CheckResult, evaluated: EvaluateResult | None = None
) -> AttemptFailure | None:
    """Return the reason why an attempt failed: an error of the run, or a failed check."""
    messages = [f"{item.name}: {item.message}" for item in checked.results if not item.passed]
    for score in evaluated.evaluations if evaluated else ():
        if not score.passed:
            why = score.error or f"{score.score} is less than {score.threshold}: {score.reasoning}"
            messages.append(f"{score.criterion} {score.target}: {why}")
    if not messages and not outcome.error:
        return None
    # The kind decides about a retry. An error of the run matters more than failed assertions.
    kind: FailureKind = "error" if outcome.error else "assertion_failure"
    if outcome.termination_reason == "MaxRuntime":
        kind = "timeout"
        messages.insert(0, "the loop reached its time limit")
    elif "rate_limit" in outcome.error:
        kind = "rate_limit"
    elif "mock_exhausted" in outcome.error:
        kind = "mock_exhausted"
    return AttemptFailure(kind, "\n".join(filter(None, (outcome.error, *messages))))


@click.group("scenario", epilog="\b\nExample:\n  offbook scenario run scenarios/ --jobs 4")
def scenario() -> None:
    """Run scenario files."""


@scenario.command(
    "run",
    epilog="""\b
Example:
  offbook scenario run scenarios/ --jobs 4
  offbook scenario run flow.yaml --reports out --fail-on-flaky
  offbook scenario run auth.yaml --record
  offbook scenario run scenarios/ --junit out/junit.xml --ctrf out/ctrf.json

\b
Exit codes:
  0  every scenario passed
  1  a scenario failed, or was flaky with --fail-on-flaky
  2  wrong usage, or a file that cannot be read
""",
)
@click.argument("files", metavar="FILE…", nargs=-1, required=True, type=FILE_PATH)
@click.option("--jobs", default=0, help="Scenarios to run at once. Default: one per core.")
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".offbook/reports"),
    show_default=True,
    help="Folder for the reports of each scenario.",
)
@click.option("--junit", type=FILE_PATH, help="Write one JUnit report of all scenarios.")
@click.option("--tap", type=FILE_PATH, help="Write one TAP report of all scenarios.")
@click.option("--tap13", type=FILE_PATH, help="The same in TAP 13, for prove.")
@click.option("--ctrf", type=FILE_PATH, help="Write one CTRF report of all scenarios.")
@click.option("--record", is_flag=True, help="Run the real agents and record their cassettes.")
@click.option("--fail-on-flaky", is_flag=True, help="Treat flaky scenarios as failures.")
@json_option
@live_options
def run_scenario_files(
    files: tuple[Path, ...],
    *,
    jobs: int,
    reports: Path,
    record: bool,
    fail_on_flaky: bool,
    as_json: bool,
    **combined: Path | None,
) -> int:
    """Run scenario files and folders of them, in parallel."""
    import asyncio

    import msgspec

    # All files are read before the first scenario runs: a mistake in the last one costs no time.
    scenarios = find_scenarios(files)
    finished = 0

    def print_result(result: ScenarioResult) -> None:
        nonlocal finished
        finished += 1
        sign = "✗" if not result.passed else "~" if result.flaky else "✓"
        attempts = f", {result.attempts} attempts" if result.attempts > 1 else ""
        position = f" [{finished}/{len(scenarios)}]" if len(scenarios) > 1 else ""
        # With --json, stdout is for the JSON alone.
        echo(f"{sign} {result.name} ({result.seconds:.2f} s{attempts}){position}", err=as_json)
        for line in result.error.splitlines():
            echo(f"    {line}", err=as_json)
        for warning in result.warnings:
            echo(f"offbook: {result.name}: {warning}", err=True)
        if result.session and not result.passed:
            echo(f"    session: {result.session}", err=as_json)

    results = asyncio.run(
        run_scenarios(
            scenarios, jobs=jobs, reports=reports, recording=record, on_result=print_result
        )
    )
    write_reports(results, {name: path for name, path in combined.items() if path is not None})
    passed = sum(result.passed for result in results)
    failed = len(results) - passed
    flaky = sum(result.flaky for result in results)
    if as_json:
        rows = [msgspec.structs.asdict(result) for result in results]
        for row in rows:
            row.pop("suite")  # the reports have it; the JSON has results and evaluations
        print_json({"passed": passed, "failed": failed, "flaky": flaky, "scenarios": rows})
    else:
        echo(f"{passed} passed, {failed} failed, {flaky} flaky")
    return int(failed > 0 or (fail_on_flaky and flaky > 0))
