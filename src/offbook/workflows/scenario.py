"""Scenario files: one YAML or JSON file with the steps setup, run, assert, evaluate and report.

    setup: {fixtures: {src/main.py: "print()"}}
    run: {task: Add error handling, mock_responses: [LOOP_COMPLETE]}
    assert: [{type: exit_code, expected: 0}]
    report: [{format: junit}]
    retry: {max_attempts: 3, retry_on: [timeout]}

The fields of a step are the parameters of the tool of the same name. Files are decoded strictly:
an unknown field or assertion is reported with its line before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec

from offbook.checks.assertion import parse_assertion
from offbook.errors import FormatError, UsageError
from offbook.files import convert, find_line, parse_json, read_text
from offbook.trace.events import FileLine
from offbook.workflows.presets import read_preset
from offbook.workflows.tools import ReportFormat
from offbook.workflows.workspace import CASSETTES
from offbook.yaml_files import parse_yaml

SUFFIXES = (".yaml", ".yml", ".json")
DATA_FOLDERS = {CASSETTES, "snapshots"}  # their files belong to scenarios and are none
FailureKind = Literal["timeout", "rate_limit", "mock_exhausted", "assertion_failure", "error"]


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
    max_iterations: int = 5
    max_runtime_secs: float = 300.0
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
    text = read_text(path)
    value = parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)
    scenario = convert(value, Scenario, path=path, text=text)
    if not scenario.assertions:
        raise FormatError(
            "missing assertions",
            path=path,
            line=find_line(text, "$.assert"),
            hint="a scenario without assertions cannot pass",
        )
    read_preset(scenario.setup.config, path=path, text=text, at="$.setup.config")
    if scenario.run.faults is not None:
        from offbook.determinism.faults import parse_faults  # few scenarios have faults

        try:
            parse_faults(scenario.run.faults)
        except UsageError as error:
            line = find_line(text, "$.run.faults")
            raise FormatError(error.what, path=path, line=line, hint=error.hint) from error
    places: list[FileLine] = []
    # Assertions are decoded here only to check them; the run decodes them again.
    for number, raw in enumerate(scenario.assertions):
        line = find_line(text, f"$.assert[{number}]")
        places.append(FileLine(str(path), line or 0))
        try:
            parse_assertion(raw)
        except UsageError as error:
            raise FormatError(error.what, path=path, line=line, hint=error.hint) from error

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
        if not files:
            raise UsageError("no scenario file in this folder", where=str(path))
        yield from files


def slug(name: str) -> str:
    """Return a name as a file name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-_").lower()[:60] or "scenario"
