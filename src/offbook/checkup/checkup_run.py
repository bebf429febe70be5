"""A check-up: the scenarios against one agent, each in a new process."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path

import msgspec

from offbook.checkup.outcomes import OUTCOMES, KnownAgent, ScenarioVerdict, judge_exit, judge_hang
from offbook.checkup.playing import STATUSES, CheckupResult, play
from offbook.checkup.scenarios import BY_ID, CheckupScenario
from offbook.determinism.run_context import SystemClock
from offbook.errors import UsageError, signal_name
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.runs.child import Child, wait_for
from offbook.trace.events import VERDICT, Event, Verdict, verdict_data
from offbook.trace.recorder import Recorder

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
    temp = make_temp_folder()
    show = progress or _show_nothing
    try:
        children = _Children(target, prompt, folder.absolute(), deadline, str(temp))
        try:
            first = children.learn()
            waiting = [one for one in scenarios if one.id not in first]
            show(0, len(waiting))
            rest = children.play(waiting, lambda done: show(done, len(waiting)))
        finally:
            children.end()
    finally:
        remove_temp_folder(temp)
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


class _Children:
    """The processes in which scenarios are played."""

    def __init__(
        self, target: object, prompt: str, folder: Path, deadline: float, temp: str
    ) -> None:
        self._target = target
        self._prompt = prompt
        self._folder = folder
        self._deadline = deadline
        self._temp = temp
        self._known = KnownAgent()
        self._running: dict[Child, CheckupScenario] = {}

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
        self._known = KnownAgent(answers=answer.answers, source=answer.source, sink=answer.sink)
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
        waiting = [*scenarios]
        found: dict[str, CheckupResult] = {}
        at_once = min(MOST_AT_ONCE, os.cpu_count() or 1)
        while waiting or self._running:
            while waiting and len(self._running) < at_once:
                self._start(waiting.pop(0))
            now = time.monotonic()
            ends = min(child.started for child in self._running) + self._deadline
            for child in wait_for([*self._running], ends - now):
                if child.read():
                    self._collect(child, found)
            now = time.monotonic()
            for child in [*self._running]:
                if now >= child.started + self._deadline:
                    self._collect(child, found, judge_hang(self._deadline, child.find_place()))
            progress(len(found))
        return found

    def _start(self, scenario: CheckupScenario) -> None:
        trace = self._folder / f"{scenario.id}.jsonl"
        trace.unlink(missing_ok=True)  # of an earlier check-up
        work = partial(play, self._target, scenario, self._prompt, trace, self._known)
        self._running[Child(work, self._temp)] = scenario

    def _collect(
        self,
        child: Child,
        found: dict[str, CheckupResult],
        judgement: ScenarioVerdict | None = None,
    ) -> None:
        scenario = self._running.pop(child)
        trace = self._folder / f"{scenario.id}.jsonl"
        result: CheckupResult | None = None if judgement else child.value
        code = child.end()
        if result is None:
            how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with {code}"
            judgement = judgement or judge_exit(how)
            result = CheckupResult(scenario.id, *judgement, requests=1)
            _write_verdict(trace, scenario, judgement)
        seconds = round(time.monotonic() - child.started, 3)
        written = str(trace) if trace.is_file() else ""
        found[scenario.id] = msgspec.structs.replace(result, trace=written, seconds=seconds)

    def end(self) -> None:
        """End the processes that are left, as after Ctrl-C."""
        for child in self._running:
            child.end()
        self._running.clear()


def _import(names: Sequence[str]) -> None:
    """Import what the agent has imported: each process would do so again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            with suppress(Exception):  # a module that is none of the import system
                import_module(name)


def _write_verdict(trace: Path, scenario: CheckupScenario, judgement: ScenarioVerdict) -> None:
    """Append the outcome to the trace of a process that could not do so."""
    if not trace.is_file():
        return
    text = f"{judgement.outcome}: {judgement.reason}"
    verdict = Verdict(f"checkup {scenario.id}", STATUSES[judgement.outcome], text)
    seq = trace.read_bytes().count(b"\n")
    now = SystemClock().millis()
    recorder = Recorder(trace, ts=now, append=True)
    recorder.record(Event(now, VERDICT, verdict_data(verdict), seq=seq))
    recorder.close()
