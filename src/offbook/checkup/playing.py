"""One scenario, played against an agent in this process, and its result."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from inspect import isfunction
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checkup.kit import NotApplicable, find_source_and_sink
from offbook.checkup.outcomes import (
    KnownAgent,
    Outcome,
    ScenarioEvidence,
    ScenarioVerdict,
    is_empty,
    judge,
)
from offbook.checkup.scenario_model import ScenarioModel, signal_command
from offbook.checkup.scenarios import CheckupScenario
from offbook.determinism.faults import Faults
from offbook.errors import PlaybookError, UsageError
from offbook.runs.api import drive
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.runs.run import Run
from offbook.subjects.frameworks.callable import find_prompt_keyword
from offbook.trace.events import REQUEST, Verdict, VerdictStatus

HOLD = 2.0  # seconds in which a client should give up a connection without data
DELAY = 0.5  # seconds that a slow response or tool takes longer
STATUSES: dict[Outcome, VerdictStatus] = {
    "survived": "pass",
    "degraded": "warn",
    "broke": "fail",
    "unknown": "no_data",
}


class CheckupResult(msgspec.Struct, frozen=True):
    """The outcome of a scenario, and the file of its trace.

    `misuse` is an error of the usage, such as an object that cannot be driven. `answers` and
    `results` are of a baseline.
    """

    id: str
    outcome: Outcome
    rule: str
    reason: str
    trace: str = ""
    requests: int = 0
    seconds: float = 0
    misuse: str = ""
    tool: str = ""
    tools: tuple[str, ...] = ()
    source: str = ""
    sink: str = ""
    answers: bool = True
    results: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()


def play(
    target: object, scenario: CheckupScenario, prompt: str, trace: Path, known: KnownAgent
) -> CheckupResult:
    """Play a scenario; `known` is what the baseline has shown."""
    model = ScenarioModel(
        scenario.script,
        prompt,
        preferred=known.tool,
        always=scenario.always,
        answers=scenario.answers,
    )
    try:
        run_scenario = _play_in_loop if scenario.group == "cancellation" else _play
        return run_scenario(target, scenario, prompt, trace, known, model)
    except NotApplicable as reason:
        return CheckupResult(scenario.id, "unknown", "not applicable", str(reason))
    except UsageError as error:
        misused = CheckupResult(
            scenario.id, "unknown", "not applicable", error.what, misuse=str(error)
        )
        return msgspec.structs.replace(misused, requests=model.requests)


def _play(
    target: object,
    scenario: CheckupScenario,
    prompt: str,
    trace: Path,
    known: KnownAgent,
    model: ScenarioModel,
) -> CheckupResult:
    with use_defaults(_defaults(model, scenario, trace)):
        rehearsal = open_target(target, _list_mocks(scenario, known))
    try:
        error: BaseException | None = None
        try:
            run = rehearsal.run(prompt)
        except PlaybookError:
            raise
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever the agent does wrong
            error, run = raised, cast("Run", rehearsal.latest_run)
        return _judge(scenario, model, rehearsal, run, error, known)
    finally:
        with suppress(Exception):
            rehearsal.dispose(failed=True)


def _play_in_loop(
    target: object,
    scenario: CheckupScenario,
    prompt: str,
    trace: Path,
    known: KnownAgent,
    model: ScenarioModel,
) -> CheckupResult:
    """Play a scenario in an event loop, where the run of the agent is a task to cancel."""

    async def play() -> CheckupResult:
        with use_defaults(_defaults(model, scenario, trace)):
            rehearsal = open_target(target, {})
            work = rehearsal.run(prompt)
        task = asyncio.ensure_future(work.complete())
        loop = asyncio.get_running_loop()
        if rehearsal.subject.model_access == "endpoint":
            model.cancel = signal_command
        else:
            model.loop = loop
            model.cancel = lambda _: cast("None", loop.call_soon(task.cancel))
        error: BaseException | None = None
        try:
            await task
        except (Exception, SystemExit, asyncio.CancelledError) as raised:  # noqa: BLE001 - as above
            error = raised
        try:
            return _judge(scenario, model, rehearsal, work, error, known)
        finally:
            with suppress(Exception):
                await rehearsal.dispose(failed=True)

    return asyncio.run(play())


def _defaults(model: ScenarioModel, scenario: CheckupScenario, trace: Path) -> RehearsalDefaults:
    faults = Faults(scenario.faults, rate=1, hold=HOLD, delay=DELAY) if scenario.faults else None
    return RehearsalDefaults(model, auto_assert=False, trace=trace, faults=faults)


def _list_mocks(scenario: CheckupScenario, known: KnownAgent) -> dict[str, Any]:
    """Return the results that replace those of the agent's tools."""
    if scenario.result is None:
        return {}
    if not scenario.injects:
        return {known.tool: scenario.result} if known.tool else {}
    if not known.source or not known.sink:
        raise NotApplicable("the agent has no tool that reads and one that changes something")
    return {known.source: scenario.result, known.sink: "done"}


def open_target(target: object, mocks: dict[str, Any]) -> Rehearsal:
    """Return the rehearsal of an agent, or of a function of the prompt.

    A function without parameters is called: it returns one of them, or `drive(agent)`.
    """
    made: Any = target
    if isfunction(target) and find_prompt_keyword(target) is None:
        from offbook.determinism.network_guard import block_network

        with block_network():
            try:
                made = cast("Callable[[], object]", target)()
            except Exception as error:
                raise UsageError(
                    f"{target.__name__} raised {type(error).__name__}: {error}",
                    hint="a function without parameters returns an agent, or drive(agent)",
                ) from error
        if isinstance(made, tuple):  # with the state of a world
            made = next(iter(cast("tuple[object, ...]", made)), None)
    if not isinstance(made, Rehearsal):
        try:
            return drive(made, mock_tools=mocks or None, allow_unused_mocks=True)
        except UsageError as error:
            if mocks:
                raise NotApplicable("the tools of this agent cannot be replaced") from error
            raise
    if mocks:
        made.dispose(failed=True)
        raise NotApplicable("the function drives the agent itself: its tools cannot be replaced")
    return made


def _judge(
    scenario: CheckupScenario,
    model: ScenarioModel,
    rehearsal: Rehearsal,
    run: Run,
    error: BaseException | None,
    known: KnownAgent,
) -> CheckupResult:
    kept: object = getattr(rehearsal.subject, "error", None)  # an error of the provider ended it
    if error is None and isinstance(kept, Exception):
        error = kept
    answer = None if error is not None else run.output
    judgement = judge(ScenarioEvidence(scenario, model, run, answer, error, known))
    emit(rehearsal, scenario, judgement)
    source, sink = "", ""
    with suppress(NotApplicable):
        functions = [tool for tool in model.tools if tool.kind == "function"]
        source, sink = (tool.name for tool in find_source_and_sink(functions))
    is_baseline = scenario.group == "baseline"
    return CheckupResult(
        scenario.id,
        *judgement,
        requests=len(run.events.named(REQUEST)),
        tool=model.tool,
        tools=tuple(tool.name for tool in model.tools if tool.kind == "function"),
        source=source,
        sink=sink,
        answers=not is_empty(answer),
        results=tuple(r.text for r in run.events.tool_results if r.text) if is_baseline else (),
        loaded=tuple(sys.modules) if is_baseline else (),
    )


def emit(rehearsal: Rehearsal, scenario: CheckupScenario, judgement: ScenarioVerdict) -> None:
    """Write the outcome into the trace."""
    verdict = Verdict(
        f"checkup {scenario.id}",
        STATUSES[judgement.outcome],
        f"{judgement.outcome}: {judgement.reason}",
        context={"does": scenario.does, "expected": scenario.expected, "rule": judgement.rule},
    )
    rehearsal.hub.emit_verdict(verdict)
