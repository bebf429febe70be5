"""A check-up: one scenario played against an agent, and all of them, each in a new process."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any, cast

import msgspec

from offbook.checkup.outcomes import (
    OUTCOMES,
    KnownAgent,
    Outcome,
    ScenarioEvidence,
    ScenarioVerdict,
    is_empty,
    judge,
    judge_exit,
    judge_hang,
)
from offbook.checkup.scenario_model import (
    NotApplicable,
    ScenarioModel,
    find_source_and_sink,
    signal_command,
)
from offbook.checkup.scenarios import BY_ID, CheckupScenario
from offbook.checkup.wording import read_answer
from offbook.determinism.faults import Faults
from offbook.determinism.run_context import SystemClock
from offbook.errors import PlaybookError, RunError, UsageError
from offbook.runs.api import drive
from offbook.runs.engines import FinishedJob, LocalEngine, LostJob
from offbook.runs.rehearsal import Rehearsal, RehearsalDefaults, use_defaults
from offbook.runs.run import Run
from offbook.subjects.frameworks.callable import find_prompt_keyword
from offbook.trace.events import REQUEST, VERDICT, Event, Verdict, VerdictStatus
from offbook.trace.recorder import Recorder

HOLD = 2.0  # seconds in which a client should give up a connection without data
DELAY = 0.5  # seconds that a slow response or tool takes longer
STATUSES: dict[Outcome, VerdictStatus] = {
    "survived": "pass",
    "degraded": "warn",
    "broke": "fail",
    "unknown": "no_data",
}


JudgeRun = Callable[[Rehearsal, Run, BaseException | None], "CheckupResult"]


class CheckupResult(msgspec.Struct, frozen=True):
    """The outcome of a scenario, and the file of its trace.

    `misuse` is an error of the usage, such as an object that cannot be driven. `answers`, `answer`
    and `results` are of a baseline.
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
    answer: str = ""
    results: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()


def play(
    target: object, scenario: CheckupScenario, prompt: str, trace: Path, known: KnownAgent
) -> CheckupResult:
    """Play a scenario; `known` is what the baseline has shown.

    Many agents ask a person before a powerful tool only. So if there was no question, that tool is
    called, with a mock in its place.
    """
    found = _play_once(target, scenario, prompt, trace, known, _list_mocks(scenario, known))
    unasked = scenario.group == "people" and found.rule == "not played"
    if unasked and known.sink not in {"", found.tool}:
        known = msgspec.structs.replace(known, tool=known.sink)
        again = _play_once(target, scenario, prompt, trace, known, {known.sink: "done"})
        return found if again.rule == "not applicable" else again
    return found


def _play_once(
    target: object,
    scenario: CheckupScenario,
    prompt: str,
    trace: Path,
    known: KnownAgent,
    mocks: dict[str, Any],
) -> CheckupResult:
    model = ScenarioModel(
        scenario.script,
        prompt,
        preferred=known.tool,
        always=scenario.always,
        answers=scenario.answers,
    )
    faults = Faults(scenario.faults, rate=1, hold=HOLD, delay=DELAY) if scenario.faults else None
    defaults = RehearsalDefaults(model, auto_assert=False, trace=trace, faults=faults)

    def open_rehearsal() -> Rehearsal:
        with use_defaults(defaults):
            return open_target(target, mocks)

    judge_run = partial(_judge, scenario, model, known)
    try:
        if scenario.group == "cancellation":
            return asyncio.run(_play_in_loop(open_rehearsal, prompt, judge_run, model))
        return _play(open_rehearsal, prompt, judge_run)
    except NotApplicable as reason:
        return CheckupResult(scenario.id, "unknown", "not applicable", str(reason))
    except UsageError as error:
        misused = CheckupResult(
            scenario.id, "unknown", "not applicable", error.what, misuse=str(error)
        )
        return msgspec.structs.replace(misused, requests=model.requests)


def _play(
    open_rehearsal: Callable[[], Rehearsal], prompt: str, judge_run: JudgeRun
) -> CheckupResult:
    rehearsal = open_rehearsal()
    try:
        error: BaseException | None = None
        try:
            run = rehearsal.run(prompt)
        except PlaybookError:
            raise
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - whatever the agent does wrong
            error, run = raised, cast("Run", rehearsal.latest_run)
        return judge_run(rehearsal, run, error)
    finally:
        with suppress(Exception):
            rehearsal.dispose(failed=True)


async def _play_in_loop(
    open_rehearsal: Callable[[], Rehearsal], prompt: str, judge_run: JudgeRun, model: ScenarioModel
) -> CheckupResult:
    """Play a scenario in an event loop, where the run of the agent is a task to cancel."""
    rehearsal = open_rehearsal()
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
        return judge_run(rehearsal, work, error)
    finally:
        with suppress(Exception):
            await rehearsal.dispose(failed=True)


def _list_mocks(scenario: CheckupScenario, known: KnownAgent) -> dict[str, Any]:
    """Return the results that replace those of the agent's tools."""
    if scenario.result is None:
        return {}
    if not scenario.injects:
        return {known.tool: scenario.result} if known.tool else {}
    if not known.source or not known.sink:
        return {}  # the script knows the reason
    return {known.source: scenario.result, known.sink: "done"}


def open_target(target: object, mocks: dict[str, Any]) -> Rehearsal:
    """Return the rehearsal of an agent, or of a function of the prompt.

    A function without parameters is called: it returns one of them, or `drive(agent)`.
    """
    made: Any = target
    if isfunction(target) and find_prompt_keyword(target) is None:
        from offbook.determinism.network_guard import block_network
        from offbook.runs.wiring import set_missing_keys

        with block_network(), set_missing_keys():
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
    known: KnownAgent,
    rehearsal: Rehearsal,
    run: Run,
    error: BaseException | None,
) -> CheckupResult:
    kept: object = getattr(rehearsal.subject, "error", None)  # an error of the provider ended it
    if error is None and isinstance(kept, Exception):
        error = kept
    answer = None if error is not None else run.output
    judgement = judge(ScenarioEvidence(scenario, model, run, answer, error, known))
    rehearsal.hub.emit_verdict(_to_verdict(scenario, judgement))
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
        answer=read_answer(answer) if is_baseline else "",
        results=tuple(r.text for r in run.events.tool_results if r.text) if is_baseline else (),
        loaded=tuple(sys.modules) if is_baseline else (),
    )


def _to_verdict(scenario: CheckupScenario, judgement: ScenarioVerdict) -> Verdict:
    """Return the outcome as the trace has it."""
    return Verdict(
        f"checkup {scenario.id}",
        STATUSES[judgement.outcome],
        f"{judgement.outcome}: {judgement.reason}",
        context={"does": scenario.does, "expected": scenario.expected, "rule": judgement.rule},
    )


# --- All scenarios, each in a new process of an engine


GRACE = 5.0  # seconds after the deadline of a command, in which its process ends
MOST_AT_ONCE = 4
MOST_TOOLS = 3  # that are tried until one works
Progress = Callable[[int, int], object]


class Checkup(msgspec.Struct, frozen=True):
    """The results of a check-up, in the order of the scenarios."""

    agent: str
    prompt: str
    results: tuple[CheckupResult, ...]

    @property
    def counts(self) -> dict[str, int]:
        """The number of scenarios by outcome."""
        found = Counter(result.outcome for result in self.results)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def broken(self) -> list[CheckupResult]:
        """The scenarios in which the agent broke."""
        return [result for result in self.results if result.outcome == "broke"]


def run_checkup(
    target: object,
    prompt: str,
    scenarios: Sequence[CheckupScenario],
    *,
    name: str,
    folder: Path,
    deadline: float,
    progress: Progress | None = None,
) -> Checkup:
    """Play these scenarios against an agent; the traces are written to the folder.

    Raises `UsageError` if the agent cannot be driven or never sends a request, and if no scenario
    could be played.
    """
    show = progress or _show_nothing
    player = _Player(target, prompt, folder.absolute(), deadline)
    first = player.learn()
    waiting = [one for one in scenarios if one.id not in first]
    show(0, len(waiting))
    rest = player.play(waiting, lambda done: show(done, len(waiting)))
    found = {**first, **rest}
    results = tuple(found[scenario.id] for scenario in scenarios)
    if all(result.outcome == "unknown" for result in results):
        raise UsageError(
            f"nothing was checked: {results[0].id}: {results[0].reason}",
            hint="offbook checkup --list has all scenarios",
        )
    return Checkup(name, prompt, results)


def _show_nothing(_done: int, _of: int) -> None:
    """Show no progress."""


class _Player:
    """Plays scenarios, each in a new process of an engine."""

    def __init__(self, target: object, prompt: str, folder: Path, deadline: float) -> None:
        self._target = target
        self._prompt = prompt
        self._folder = folder
        self._deadline = deadline
        self._known = KnownAgent()

    def learn(self) -> dict[str, CheckupResult]:
        """Play the baseline: the tools of the agent, and one that works."""
        answer = self._play_one(BY_ID["baseline/answer"])
        if answer.misuse:
            raise UsageError(answer.misuse)
        if not answer.requests:
            raise UsageError(
                f"the agent sent no request to the model, so nothing was checked: {answer.reason}",
                hint="check that it calls a model, with a base URL or a host that Offbook knows:"
                " offbook doctor",
            )
        _import(answer.loaded)
        self._known = KnownAgent(
            answers=answer.answers, answer=answer.answer, source=answer.source, sink=answer.sink
        )
        found: CheckupResult | None = None
        for tool in ("", *answer.tools[:MOST_TOOLS]):
            self._known = msgspec.structs.replace(self._known, tool=tool)
            call = self._play_one(BY_ID["baseline/call"])
            found = found or call
            if call.outcome != "broke":
                found = call
                break
        assert found is not None  # noqa: S101 - it is tried once at least
        self._known = msgspec.structs.replace(self._known, tool=found.tool, results=found.results)
        return {answer.id: answer, found.id: found}

    def _play_one(self, scenario: CheckupScenario) -> CheckupResult:
        return self.play([scenario])[scenario.id]

    def play(
        self, scenarios: Sequence[CheckupScenario], progress: Callable[[int], object] = id
    ) -> dict[str, CheckupResult]:
        """Return the results of scenarios by id; several are played at once."""
        started: dict[str, float] = {}
        found: dict[str, CheckupResult] = {}

        def start_each() -> Iterator[str]:
            for scenario in scenarios:
                self._trace_of(scenario.id).unlink(missing_ok=True)  # of an earlier check-up
                started[scenario.id] = time.monotonic()
                yield scenario.id

        engine = LocalEngine(min(MOST_AT_ONCE, os.cpu_count() or 1), fresh=True)
        with closing(
            engine.submit(self._work, start_each(), timeout_of=lambda _: self._deadline)
        ) as results:
            for item in results:
                result = self._read(item)
                written = self._trace_of(item.job)
                found[item.job] = msgspec.structs.replace(
                    result,
                    trace=str(written) if written.is_file() else "",
                    seconds=round(time.monotonic() - started[item.job], 3),
                )
                progress(len(found))
        return found

    def _trace_of(self, name: str) -> Path:
        return self._folder / f"{name}.jsonl"

    def _work(self, name: str) -> CheckupResult | RunError:
        """Play a scenario, in its process."""
        trace = self._trace_of(name)
        try:
            return play(self._target, BY_ID[name], self._prompt, trace, self._known)
        except BaseException as error:  # noqa: BLE001 - raised by the check-up
            return RunError(f"a process failed with {type(error).__name__}: {error}")

    def _read(
        self, item: FinishedJob[str, CheckupResult | RunError] | LostJob[str]
    ) -> CheckupResult:
        if isinstance(item, FinishedJob):
            if isinstance(item.value, RunError):
                raise item.value
            return item.value
        trace = self._trace_of(item.job)
        if item.late:
            judgement = judge_hang(item.late, item.place, _count_requests(trace))
        else:
            judgement = judge_exit(item.reason)
        _write_verdict(trace, BY_ID[item.job], judgement)
        return CheckupResult(item.job, *judgement, requests=1)


def _import(names: Sequence[str]) -> None:
    """Import what the agent has imported: each process would do so again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with suppress(Exception):  # a module that is none of the import system
                import_module(name)


def _count_requests(trace: Path) -> int:
    return trace.read_bytes().count(f'"event":"{REQUEST}"'.encode()) if trace.is_file() else 0


def _write_verdict(trace: Path, scenario: CheckupScenario, judgement: ScenarioVerdict) -> None:
    """Append the outcome to the trace of a process that could not do so."""
    if not trace.is_file():
        return
    verdict = _to_verdict(scenario, judgement)
    seq = trace.read_bytes().count(b"\n")
    now = SystemClock().millis()
    recorder = Recorder(trace, ts=now, append=True)
    recorder.record(Event(now, VERDICT, verdict.as_dict(), seq=seq))
    recorder.close()
