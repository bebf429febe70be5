"""Runs packs: plans the trials, passes them to an engine, and writes each result.

summary = run_pack([Path("offbook.eval.toml")], RunOptions())
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from offbook.determinism.network_guard import block_network
from offbook.errors import UsageError
from offbook.evals.case_evaluation import EvalOptions, case_fingerprint, evaluate_case
from offbook.evals.judging import JudgeOptions
from offbook.evals.local_engine import DEFAULT_TIMEOUT, LostTrial, Result, Trial, run_local
from offbook.evals.pack import LoadedPack
from offbook.evals.pack_file import order_ladders, read_pack
from offbook.evals.run_directory import (
    CACHE,
    PACK_SHIFT,
    ROOT,
    TRACES,
    CaseResult,
    CaseSummary,
    RunDirectory,
    RunPlan,
    RunSummary,
    new_run_id,
    read_plan,
    read_results,
    summarize_cases,
    summarize_run,
)
from offbook.files import write_atomic

COST_LIMIT = "cost limit"
Progress = Callable[["RunProgress"], None]


class RunOptions(msgspec.Struct, frozen=True):
    """The options of a run.

    `shard` is (i, n): every n-th case from i on. `resume` continues the run in `output`.
    """

    output: str = ""
    resume: bool = False
    jobs: int = 1
    trials: int | None = None
    shard: tuple[int, int] = (1, 1)
    cost_limit: float | None = None
    cache: bool = False
    timeout: float = DEFAULT_TIMEOUT
    live: bool = False
    judge: str = ""
    judge_model: str = ""
    only: tuple[str, ...] = ()
    engine: Literal["local", "ray"] = "local"
    address: str = ""


class RunProgress(msgspec.Struct):
    """The progress of a run; `known` results of an earlier run took no time now."""

    total: int
    done: int = 0
    failed: int = 0
    cost_usd: float = 0
    tokens: int = 0
    started: float = 0
    known: int = 0

    @property
    def seconds_left(self) -> float:
        """The estimated time until the end."""
        elapsed = time.monotonic() - self.started
        return elapsed / max(1, self.done - self.known) * (self.total - self.done)


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that has ended: its directory, summary and cases."""

    folder: Path
    summary: RunSummary
    cases: list[CaseSummary]


class Evaluator:
    """Evaluates trials in a worker; it is made before the workers are forked."""

    def __init__(self, packs: Sequence[LoadedPack], options: RunOptions, folder: Path) -> None:
        self.packs = packs
        self.options = options
        self.folder = folder.resolve()
        judge = JudgeOptions(options.judge, options.judge_model, options.live)
        self.case_options = EvalOptions(judge, str((folder / TRACES).resolve()))
        self._guard: Any = None
        # Imported before the workers are forked, so that each of them need not do it.
        if any(case.mode == "subject" for loaded in packs for case in loaded.pack.cases):
            import_module("offbook.evals.subject_cases")

    def __enter__(self) -> Self:
        # No request leaves the machine unless the run allows it.
        self._guard = nullcontext() if self.options.live else block_network()
        self._guard.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(*error)
        self._guard = None

    def __call__(self, trial: Trial) -> CaseResult:
        """Return the result of a trial. A worker enters the guard once, for all its life."""
        if self._guard is None:
            self.__enter__()
        pack = self.packs[trial.pack]
        number = (trial.pack << PACK_SHIFT) + trial.case
        cases = pack.pack.cases
        if trial.case < len(cases):
            return evaluate_case(pack, cases[trial.case], self.case_options, trial.trial, number)
        from offbook.evals.ladder import evaluate_ladder  # few packs have ladders

        ladder = pack.pack.ladders[trial.case - len(cases)]
        return evaluate_ladder(pack, ladder, number, self.folder)


def run_pack(
    paths: Iterable[Path], options: RunOptions, progress: Progress | None = None
) -> FinishedRun:
    """Run packs and return the summary. An interrupted run keeps what is done."""
    packs = [read_pack(path) for path in paths]
    if not packs:
        raise UsageError("no eval pack", hint="offbook eval new writes one")
    trials = plan_trials(packs, options)
    if not trials:
        raise UsageError("no case is selected", hint="an empty run is not a pass")
    name = packs[0].id if len(packs) == 1 else "packs"
    folder = Path(options.output) if options.output else ROOT / new_run_id(name)
    directory = RunDirectory(folder)
    with closing(directory):
        return _Run(packs, options, directory, trials, progress).execute()


def plan_trials(packs: Sequence[LoadedPack], options: RunOptions) -> list[Trial]:
    """Return the trials to run: of all cases and ladders, of this shard."""
    shard, count = options.shard
    trials: list[Trial] = []
    known: set[str] = set()
    for number, loaded in enumerate(packs):
        pack = loaded.pack
        ids = [case.id for case in pack.cases]
        ladders = {ladder.id: n for n, ladder in enumerate(pack.ladders)}
        items = [
            (case_id, position, options.trials or pack.trials_of(pack.cases[position]))
            for position, case_id in enumerate(ids)
        ]
        # Ladders run after those that they depend on.
        items += [
            (ladder.id, len(ids) + ladders[ladder.id], 1) for ladder in order_ladders(pack.ladders)
        ]
        known.update(case_id for case_id, _, _ in items)
        for case_id, position, repeats in items:
            if options.only and case_id not in options.only:
                continue
            # By the id: a case stays in its shard when another one is added.
            if count > 1 and zlib.crc32(case_id.encode()) % count != shard - 1:
                continue
            trials += [Trial(number, position, n) for n in range(1, repeats + 1)]
    if missing := [name for name in options.only if name not in known]:
        from offbook.errors import did_you_mean

        raise UsageError(f"unknown case {missing[0]!r}", hint=did_you_mean(missing[0], known))
    return trials


class _Run:
    """One run in progress."""

    def __init__(
        self,
        packs: list[LoadedPack],
        options: RunOptions,
        directory: RunDirectory,
        trials: list[Trial],
        progress: Progress | None,
    ) -> None:
        self.packs, self.options, self.directory = packs, options, directory
        self.trials = trials
        self.version = version("offbook")
        self.state = RunProgress(len(trials), started=time.monotonic())
        self._progress = progress
        self._fingerprints: dict[tuple[int, int], str] = {}
        judge = Path(options.judge)
        content = judge.read_bytes() if judge.is_file() else b""
        names = f"{options.judge}\0{options.judge_model}\0".encode()
        self._judge = zlib.crc32(names + content)  # a cached result is of the same judge

    def execute(self) -> FinishedRun:
        """Run the trials that have no result yet, and write the summary."""
        done = self._load_finished()
        remaining = [trial for trial in self.trials if self._key(trial) not in done]
        plan = RunPlan(
            self.directory.path.name,
            [str(loaded.path) for loaded in self.packs],
            [loaded.digest for loaded in self.packs],
            datetime.now(UTC).isoformat(timespec="seconds"),
            self.version,
            {"shard": list(self.options.shard), "trials": self.options.trials},
        )
        self.directory.begin(plan)
        stopped = ""
        try:
            cached = set(self._from_cache(remaining))
            self.state.known = self.state.done
            stopped = self._run_remaining([t for t in remaining if t not in cached])
        except KeyboardInterrupt:
            self._finish(stopped="interrupted")
            raise
        return self._finish(stopped)

    def _key(self, trial: Trial) -> tuple[int, str, int]:
        pack = self.packs[trial.pack].pack
        if trial.case < len(pack.cases):
            return trial.pack, pack.cases[trial.case].id, trial.trial
        return trial.pack, pack.ladders[trial.case - len(pack.cases)].id, trial.trial

    def _fingerprint(self, trial: Trial) -> str:
        """Return the hash of what the result depends on; ladders have none."""
        key = (trial.pack, trial.case)
        if key not in self._fingerprints:
            loaded = self.packs[trial.pack]
            cases = loaded.pack.cases
            self._fingerprints[key] = (
                case_fingerprint(loaded, cases[trial.case], self.version)
                if trial.case < len(cases)
                else ""
            )
        return self._fingerprints[key]

    # --- Results that exist already

    def _load_finished(self) -> set[tuple[int, str, int]]:
        """Return the trials that an interrupted run has finished."""
        if not self.directory.has_results:
            if self.options.resume:
                raise UsageError("nothing to resume", where=str(self.directory.path))
            return set()
        if not self.options.resume:
            raise UsageError(
                "the directory has results of another run",
                where=str(self.directory.path),
                hint="continue it with --resume, or choose another --output",
            )
        plan = read_plan(self.directory.path)
        if plan.digests != [loaded.digest for loaded in self.packs]:
            raise UsageError(
                "the packs have changed since the run was interrupted",
                where=str(self.directory.path),
                hint="start a new run",
            )
        self.directory.repair()
        done: set[tuple[int, str, int]] = set()
        for result in read_results(self.directory.path):
            done.add((result.number >> PACK_SHIFT, result.id, result.trial))
            self._count(result)
        return done

    def _from_cache(self, trials: list[Trial]) -> list[Trial]:
        """Write the results that are known from earlier runs; return their trials."""
        if not self.options.cache:
            return []
        found: list[Trial] = []
        for trial in trials:
            path = self._cache_path(trial)
            if path is not None and path.is_file():
                result = msgspec.json.decode(path.read_bytes(), type=CaseResult)
                number = (trial.pack << PACK_SHIFT) + trial.case
                self._add(msgspec.structs.replace(result, cached=True, number=number))
                found.append(trial)
        return found

    def _cache_path(self, trial: Trial) -> Path | None:
        fingerprint = self._fingerprint(trial)
        if not fingerprint:
            return None
        name = f"{fingerprint}-{self._judge:08x}-{trial.trial}.json"
        return ROOT / CACHE / fingerprint[:2] / name

    # --- Running

    def _run_remaining(self, trials: list[Trial]) -> str:
        """Run the trials; return why it stopped early, or ""."""
        if not trials:
            return ""
        with closing(self._start_engine(trials)) as results:
            for item in results:
                result = self._lost(item) if isinstance(item, LostTrial) else item[1]
                trial = item.trial if isinstance(item, LostTrial) else item[0]
                if self.options.cache:
                    result = self._store(trial, result)
                self._add(result)
                limit = self.options.cost_limit
                unfinished = self.state.done < self.state.total
                if limit is not None and unfinished and self.state.cost_usd >= limit:
                    return f"{COST_LIMIT} of {limit:g} USD reached"
        return ""

    def _start_engine(self, trials: list[Trial]) -> Generator[Result]:
        evaluator = Evaluator(self.packs, self.options, self.directory.path)
        if self.options.engine == "ray":
            from offbook.evals.ray_engine import run_on_ray  # an extra

            return run_on_ray(
                trials, evaluator, address=self.options.address, timeout_of=self._timeout_of
            )
        return run_local(trials, evaluator, jobs=self.options.jobs, timeout_of=self._timeout_of)

    def _timeout_of(self, trial: Trial) -> float:
        cases = self.packs[trial.pack].pack.cases
        own = cases[trial.case].timeout_seconds if trial.case < len(cases) else None
        return own or self.options.timeout

    def _lost(self, lost: LostTrial) -> CaseResult:
        """Return the result of a trial whose process was lost."""
        trial = lost.trial
        pack = self.packs[trial.pack].pack
        number = (trial.pack << PACK_SHIFT) + trial.case
        _, case_id, _ = self._key(trial)
        if trial.case < len(pack.cases):
            case = pack.cases[trial.case]
            label, severity = case.label, pack.severity_of(case)
        else:
            ladder = pack.ladders[trial.case - len(pack.cases)]
            label, severity = ladder.label, ladder.gate
        return CaseResult(
            case_id,
            trial.trial,
            number,
            label,
            "error",
            severity,
            error=lost.reason,
            output=lost.output,
        )

    def _store(self, trial: Trial, result: CaseResult) -> CaseResult:
        """Keep a result for later runs; an error may be gone next time."""
        path = self._cache_path(trial)
        if path is None or result.status == "error":
            return result
        result = msgspec.structs.replace(result, fingerprint=self._fingerprint(trial))
        write_atomic(path, msgspec.json.encode(result, enc_hook=repr), durable=False)
        return result

    def _add(self, result: CaseResult) -> None:
        self.directory.append(result)
        self._count(result)
        if self._progress is not None:
            self._progress(self.state)

    def _count(self, result: CaseResult) -> None:
        self.state.done += 1
        self.state.failed += result.status != "pass"
        # A result of an earlier run costs nothing now.
        if not result.cached:
            self.state.cost_usd += result.spent_usd
        self.state.tokens += result.metrics.tokens or 0

    def _finish(self, stopped: str = "") -> FinishedRun:
        cases = summarize_cases(read_results(self.directory.path))
        planned = {(key[0], key[1]) for key in map(self._key, self.trials)}
        ran = {(case.pack, case.id) for case in cases}
        summary = summarize_run(
            self.directory.path.name,
            [loaded.id for loaded in self.packs],
            cases,
            cost=self.state.cost_usd,
            tokens=self.state.tokens,
            seconds=time.monotonic() - self.state.started,
            not_run=len(planned - ran),
            stopped=stopped,
        )
        self.directory.finish(summary)
        return FinishedRun(self.directory.path, summary, cases)
