"""Try again what failed for a reason that may pass, and remember that it failed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from offbook.checks.judge import JUDGE_HAT
from offbook.checks.registry import parse_assertion
from offbook.errors import FormatError, UsageError
from offbook.files import convert, find_line, parse_json, read_text
from offbook.reports.report import Attempt
from offbook.workflows.tools import ReportFormat
from offbook.workflows.workspace import CASSETTES
from offbook.yaml_files import parse_yaml

# --- Try again what failed for a reason that may pass, and remember that it failed.

T = TypeVar("T")
FailureKind = Literal["timeout", "rate_limit", "mock_exhausted", "assertion_failure", "error"]


class RetryPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often to try, and after which failures; one in both lists is not tried again."""

    max_attempts: int = 1
    backoff_ms: int = 0
    retry_on: tuple[FailureKind, ...] = ()
    no_retry_on: tuple[FailureKind, ...] = ()

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}: try at least once")
        if self.backoff_ms < 0:
            raise ValueError(f"backoff_ms is {self.backoff_ms}")

    def allows(self, kind: str) -> bool:
        """Whether a failure of this kind is tried again; of any, when none is named."""
        return kind not in self.no_retry_on and (not self.retry_on or kind in self.retry_on)


class AttemptFailure(msgspec.Struct, frozen=True):
    """Why a try failed."""

    kind: FailureKind
    error: str


class RetryResult(msgspec.Struct, Generic[T], frozen=True):
    """What came of all tries: the last one's value, and the failures before it."""

    value: T
    failure: AttemptFailure | None
    attempts: int
    history: tuple[Attempt, ...]

    @property
    def flaky(self) -> bool:
        """Whether it passed only after it had failed."""
        return self.failure is None and bool(self.history)


AttemptFunction = Callable[[tuple[Attempt, ...]], Awaitable[tuple[T, AttemptFailure | None]]]


async def run_with_retries(
    attempt: AttemptFunction[T],
    retry: RetryPolicy,
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> RetryResult[T]:
    """Try until it passes or may not be tried again; the wait doubles each time.

    Each try is told what failed before it.
    """
    history: tuple[Attempt, ...] = ()
    number = 1
    while True:
        value, failure = await attempt(history)
        if failure is None:
            return RetryResult(value, None, number, history)
        history = (*history, Attempt(number, failure.error, failure.kind))
        if number >= retry.max_attempts or not retry.allows(failure.kind):
            return RetryResult(value, failure, number, history)
        if retry.backoff_ms:
            await sleep(retry.backoff_ms * 2 ** (number - 1) / 1000)
        number += 1


# --- Scenario files: setup, run, assert and report, written down once, read strictly.

SUFFIXES = (".yaml", ".yml", ".json")
DATA_FOLDERS = {CASSETTES, "snapshots"}


class SetupStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the workspace holds at first."""

    fixtures: dict[str, str] = {}
    config: dict[str, Any] = {}
    scratchpad: str | None = None


class RunStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the loop works on, and who does the work; playbook and cassette stand beside.

    With a cassette, the answers are from there; the agent is only for recording it.
    """

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
    judge_preset: str = JUDGE_HAT
    judge_model: str = ""
    tested_model: str = ""
    chain_of_thought: bool = True
    force: bool = False
    env: dict[str, str] = {}


class ReportStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report that outlives the workspace."""

    format: ReportFormat
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
    retry: RetryPolicy = RetryPolicy()


def read_scenario(path: Path) -> Scenario:
    """A scenario from its file; whatever is wrong is told with its line, before anything runs."""
    text = read_text(path)
    value = parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)
    scenario = convert(value, Scenario, path=path, text=text)
    if not scenario.assertions:
        line = find_line(text, "$.assert")
        raise FormatError("there are no assertions", path=path, line=line, hint="assert something")
    for number, raw in enumerate(scenario.assertions):
        try:
            parse_assertion(raw)
        except UsageError as error:
            line = find_line(text, f"$.assert[{number}]")
            raise FormatError(error.what, path=path, line=line, hint=error.hint) from error
    return _resolve(scenario, path)


def _resolve(scenario: Scenario, path: Path) -> Scenario:
    """The scenario with the files that stand beside it named by their whole paths."""

    def beside(name: str) -> str:
        return str(path.parent / name) if name and (path.parent / name).exists() else name

    run_, judged = scenario.run, scenario.evaluate
    run_ = msgspec.structs.replace(
        run_,
        playbook=beside(run_.playbook),
        cassette=run_.cassette and str(path.parent / run_.cassette),
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
        name = slug(scenario.name)
        if name in found:
            raise FormatError(
                f"the name {scenario.name!r} is taken", path=path, hint=f"by {found[name]}"
            )
        found[name] = path
        scenarios.append(scenario)
    return scenarios


def _expand(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(
            p for p in path.rglob("*") if p.suffix in SUFFIXES and not _is_data_file(p, path)
        )
        if not inside:
            raise UsageError("there is no scenario in this folder", where=str(path))
        yield from inside


def _is_data_file(path: Path, root: Path) -> bool:
    """Whether a file belongs to scenarios, and is none."""
    return bool(DATA_FOLDERS & set(path.relative_to(root).parts[:-1]))


def slug(name: str) -> str:
    """A name as files have it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_").lower()[:60] or "scenario"
