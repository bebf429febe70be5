"""A check-up: the scenarios against one agent, each in a new process."""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path

import msgspec

from offbook.checkup.outcomes import OUTCOMES, KnownAgent, ScenarioVerdict, judge_exit, judge_hang
from offbook.checkup.playing import STATUSES, CheckupResult, play
from offbook.checkup.scenarios import BY_ID, CheckupScenario
from offbook.determinism.run_context import SystemClock
from offbook.errors import RunError, UsageError
from offbook.runs.engines import FinishedJob, LocalEngine, LostJob
from offbook.trace.events import VERDICT, Event, Verdict
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
        late = judge_hang(item.late, item.place) if item.late else None
        judgement = late or judge_exit(item.reason)
        _write_verdict(self._trace_of(item.job), BY_ID[item.job], judgement)
        return CheckupResult(item.job, *judgement, requests=1)


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
    recorder.record(Event(now, VERDICT, verdict.as_dict(), seq=seq))
    recorder.close()
