"""Runs packs: plans the trials, passes them to an engine, and writes each result.

summary = run_pack([Path("offbook.eval.toml")], RunOptions())
"""

from __future__ import annotations

import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext, suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from offbook.determinism.network_guard import block_network
from offbook.errors import UsageError, require_known
from offbook.evals.case_evaluation import evaluate_case, identify_case
from offbook.evals.case_kind import KINDS, ClassifierOptions, EvalOptions
from offbook.evals.pack import AnyCase, LoadedPack, SliceLimit
from offbook.evals.pack_file import order_ladders, read_pack
from offbook.evals.rubrics import JudgeOptions
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
    SliceSummary,
    new_run_id,
    read_cached,
    read_plan,
    read_results,
    slice_value,
    summarize_cases,
    summarize_run,
    summarize_slices,
    write_cached,
)
from offbook.options import require_some
from offbook.runs.engines import (
    DEFAULT_TIMEOUT,
    MAX_AHEAD,
    FinishedJob,
    LocalEngine,
    LostJob,
    Setup,
)
from offbook.runs.ray_engine import choose_engine
from offbook.runs.result_identity import MISSING, IdentityDigest, Surroundings, find_change
from offbook.sources.live import LiveLimits
from offbook.version import VERSION

COST_LIMIT = "cost limit"
AGREEMENTS = "agreements.json"  # of judges with their labelled examples
PACE = "live.json"  # the requests of the last minute, if they are limited
RETRIES = 4  # of a request that failed at a real provider
Progress = Callable[["RunProgress"], None]
_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder = msgspec.json.Decoder(CaseResult)


class Trial(NamedTuple):
    """One trial of a case: the positions of its pack and its case, and its number from 1."""

    pack: int
    case: int
    trial: int


class RunOptions(msgspec.Struct, frozen=True):
    """The options of a run.

    `shard` is (i, n): every n-th case from i on. `resume` continues the run in `output`, with
    `retry_errors` also the trials that ended with an error. `where` are values of metadata that a
    case must have, `by` the keys of metadata by which the summary has slices.
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
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    retries: int = RETRIES
    judge: str = ""
    judge_model: str = ""
    only: tuple[str, ...] = ()
    where: tuple[tuple[str, str], ...] = ()
    by: tuple[str, ...] = ()
    retry_errors: bool = False
    engine: Literal["local", "ray"] = "local"
    address: str = ""
    classifier: ClassifierOptions = ClassifierOptions()


class RunProgress(msgspec.Struct):
    """The progress of a run; `known` results of an earlier run took no time now."""

    total: int
    done: int = 0
    failed: int = 0
    cost_usd: float = 0
    tokens: int = 0
    started: float = 0
    known: int = 0
    first: float = 0  # the time of the first result of this run

    @property
    def seconds_left(self) -> float | None:
        """The estimated time until the end, from the second result of this run on.

        The time before the first one is that of the start: of processes, or of a cluster.
        """
        results = self.done - self.known - 1
        if results < 1:
            return None
        return (time.monotonic() - self.first) / results * (self.total - self.done)


class FinishedRun(msgspec.Struct, frozen=True):
    """A run that has ended: its directory, summary and cases, and those that it did not reach."""

    folder: Path
    summary: RunSummary
    cases: list[CaseSummary]
    not_run: list[CaseSummary] = []


class Evaluator:
    """Evaluates trials in a worker; it is made before the workers are forked.

    Each Python subject is imported in a separate process, and each trial runs in a fork of that:
    no trial sees what another one, or the import of another subject, has changed.
    """

    def __init__(self, packs: Sequence[LoadedPack], options: RunOptions, folder: Path) -> None:
        self.packs = packs
        self.options = case_options(options, folder.resolve())
        self._guard: Any = None
        # Imported before the workers are forked, so that each of them need not do it.
        for mode in {case.mode for loaded in packs for case in loaded.cases}:
            import_module(f"offbook.evals.{KINDS[mode]}")

    def __enter__(self) -> Self:
        # No request leaves the machine unless the run allows it.
        self._guard = nullcontext() if self.options.live else block_network()
        self._guard.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(*error)
        self._guard = None

    def subject_of(self, trial: Trial) -> Setup | None:
        """Return the Python subject of a trial; None for other cases."""
        loaded, case = self._find(trial)
        if case.mode != "subject" or not isinstance(case.subject, str):
            return None

        def load() -> None:
            from offbook.evals.subject_cases import load_subject

            self._block_network()
            os.environ.update(case.env)
            # An error of the import is that of the trial, which tries it again.
            with suppress(Exception):
                load_subject(loaded, case)

        key = (loaded.base, case.subject, case.shared, *sorted(case.env.items()))
        return Setup(key, load, case.shared)

    def __call__(self, trial: Trial) -> bytes:
        """Return the result of a trial, for another process."""
        return _encoder.encode(self.evaluate(trial))

    def evaluate(self, trial: Trial) -> CaseResult:
        """Return the result of a trial. It blocks the network for good."""
        self._block_network()
        return evaluate_case(*self._find(trial), self.options, trial.trial, number_of(trial))

    def _block_network(self) -> None:
        if self._guard is None:
            self.__enter__()

    def _find(self, trial: Trial) -> tuple[LoadedPack, Any]:
        loaded = self.packs[trial.pack]
        return loaded, loaded.cases[trial.case]


def case_options(options: RunOptions, folder: Path) -> EvalOptions:
    """Return the options of a run that its cases need."""
    limits = LiveLimits(
        options.requests_per_minute, options.tokens_per_minute, options.retries, str(folder / PACE)
    )
    judge = JudgeOptions(
        options.judge, options.judge_model, options.live, limits, str(folder / AGREEMENTS)
    )
    return EvalOptions(judge, str(folder / TRACES), str(folder), True, options.classifier)


def number_of(trial: Trial) -> int:
    """Return the number of the results of a case: that of its pack, and that of the case."""
    return (trial.pack << PACK_SHIFT) + trial.case


def run_pack(
    paths: Iterable[Path], options: RunOptions, progress: Progress | None = None
) -> FinishedRun:
    """Run packs and return the summary. An interrupted run keeps what is done."""
    packs = [read_pack(path) for path in paths]
    name_packs(require_some(packs, "no eval pack", hint="offbook eval new writes one"))
    trials = plan_trials(packs, options)
    require_some(trials, "no case is selected", hint="an empty run is not a pass")
    name = packs[0].id if len(packs) == 1 else "packs"
    folder = Path(options.output) if options.output else ROOT / new_run_id(name)
    directory = RunDirectory(folder)
    with closing(directory):
        return _Run(packs, options, directory, trials, progress).execute()


def run_case(loaded: LoadedPack, number: int, folder: Path) -> list[CaseResult]:
    """Return the results of all trials of one case of a pack, as a run has them."""
    case = loaded.cases[number]
    evaluator = Evaluator([loaded], RunOptions(), folder)
    trials = [Trial(0, number, n) for n in range(1, loaded.pack.trials_of(case) + 1)]
    results = LocalEngine().submit(
        evaluator,
        trials,
        timeout_of=lambda _: case.timeout_seconds or DEFAULT_TIMEOUT,
        setup_of=evaluator.subject_of,
    )
    return [read_result([loaded], item) for item in results]


def read_result(
    packs: Sequence[LoadedPack], item: FinishedJob[Trial, bytes] | LostJob[Trial]
) -> CaseResult:
    """Return the result of a trial; that of a lost process is an error."""
    if isinstance(item, FinishedJob):
        return _decoder.decode(item.value)
    trial, loaded = item.job, packs[item.job.pack]
    case = loaded.cases[trial.case]
    return CaseResult(
        case.id,
        trial.trial,
        number_of(trial),
        case.label,
        "error",
        loaded.pack.severity_of(case),
        error=f"the process of the case {item.reason}",
        kind=case.mode,
        pack=loaded.id,
        output=item.output,
        metadata=case.metadata,
    )


def name_packs(packs: Sequence[LoadedPack]) -> None:
    """Give packs of the same id the path of their file as id: their cases are different ones."""
    ids = Counter(loaded.id for loaded in packs)
    for loaded in packs:
        if ids[loaded.id] > 1:
            loaded.id = loaded.path.as_posix()


def plan_trials(packs: Sequence[LoadedPack], options: RunOptions) -> list[Trial]:
    """Return the trials to run: of all cases and ladders, of this shard."""
    shard, count = options.shard
    trials: list[Trial] = []
    known: set[str] = set()
    keys: set[str] = set()
    for number, loaded in enumerate(packs):
        pack = loaded.pack
        position = {case.id: n for n, case in enumerate(loaded.cases)}
        # Ladders run after those that they depend on.
        cases = [*enumerate(pack.cases)]
        cases += [(position[ladder.id], ladder) for ladder in order_ladders(pack.ladders)]
        known.update(position)
        for place, case in cases:
            if options.only and case.id not in options.only:
                continue
            metadata = {key: slice_value(value) for key, value in case.metadata.items()}
            keys.update(metadata)
            if any(metadata.get(key) != value for key, value in options.where):
                continue
            # By the id: a case stays in its shard when another one is added.
            if count > 1 and zlib.crc32(case.id.encode()) % count != shard - 1:
                continue
            repeats = pack.trials_of(case, options.trials)
            trials += [Trial(number, place, n) for n in range(1, repeats + 1)]
    for name in options.only:
        require_known("unknown case", name, known)
    for key in (*(key for key, _ in options.where), *options.by):
        require_known("no case has the metadata", key, keys)
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
        self.state = RunProgress(len(trials), started=time.monotonic())
        self.changed: list[str] = []  # the cases that a resumed run repeats
        self.changed_file = ""  # the first file that they used and that has changed
        self.unverified: dict[str, str] = {}  # kept cases that may have changed, and why
        self.repeated = False  # errors of a resumed run
        self._progress = progress
        self._identities: dict[int, IdentityDigest] = {}
        self._surroundings = Surroundings()
        self._case_options = case_options(options, directory.path)

    def execute(self) -> FinishedRun:
        """Run the trials that have no result yet, and write the summary."""
        done = self._load_finished()
        remaining = [trial for trial in self.trials if self._key(trial) not in done]
        plan = RunPlan(
            self.directory.path.name,
            [str(loaded.path) for loaded in self.packs],
            [loaded.digest for loaded in self.packs],
            datetime.now(UTC).isoformat(timespec="seconds"),
            VERSION,
            {"shard": list(self.options.shard), "trials": self.options.trials},
        )
        for trial in remaining:
            self._identity(trial)  # before a case changes a file or the environment
        self.directory.begin(plan)
        (self.directory.path / AGREEMENTS).unlink(missing_ok=True)  # a judge may have changed
        stopped = ""
        try:
            cached = set(self._from_cache(remaining))
            self.state.known = self.state.done
            stopped = self._run_remaining([t for t in remaining if t not in cached])
        except KeyboardInterrupt:
            self._finish(stopped="interrupted")
            raise
        return self._finish(stopped)

    def _case(self, trial: Trial) -> AnyCase:
        return self.packs[trial.pack].cases[trial.case]

    def _key(self, trial: Trial) -> tuple[int, str, int]:
        return trial.pack, self._case(trial).id, trial.trial

    def _identity(self, trial: Trial) -> IdentityDigest:
        """Return what the result of a trial depends on, as far as it is known before."""
        number = number_of(trial)
        if number not in self._identities:
            loaded, case = self.packs[trial.pack], self._case(trial)
            self._identities[number] = identify_case(
                loaded, case, self._case_options, self._surroundings
            )
        return self._identities[number]

    # --- Results that exist already

    def _load_finished(self) -> set[tuple[int, str, int]]:
        """Return the trials that an interrupted run has finished, and that still hold."""
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
        trials = {self._key(trial): trial for trial in self.trials}
        used = {key: find_change(files) for key, files in self.directory.read_used().items()}
        done: set[tuple[int, str, int]] = set()
        kept: list[CaseResult] = []
        for result in read_results(self.directory.path):
            key = (result.number >> PACK_SHIFT, result.id, result.trial)
            trial = trials.get(key)
            if trial is not None and self.options.retry_errors and result.status == "error":
                self.repeated = True
                continue
            # Of a case that is not in this part of the run, nothing is known: it is kept.
            changed_file = used.get(result.used_key, MISSING) if result.used_key else ""
            if trial is not None and (result.identity != self._identity(trial).hex or changed_file):
                if changed_file != MISSING:  # that of a result without its list of files
                    self.changed_file = self.changed_file or changed_file
                if result.id not in self.changed:
                    self.changed.append(result.id)
                continue
            # To repeat all commands and real models would leave nothing of the interrupted run.
            if trial is not None and result.unidentified:
                self.unverified.setdefault(result.id, result.unidentified)
            done.add(key)
            kept.append(result)
            self._count(result)
        if self.changed or self.repeated:
            self.directory.rewrite(kept)
        return done

    def _from_cache(self, trials: list[Trial]) -> list[Trial]:
        """Write the results that are known from earlier runs; return their trials."""
        if not self.options.cache:
            return []
        found: list[Trial] = []
        for trial in trials:
            path = self._cache_path(trial)
            result = None if path is None else read_cached(path)
            if result is not None and not find_change(result.used):
                self._add(msgspec.structs.replace(result, cached=True, number=number_of(trial)))
                found.append(trial)
        return found

    def _cache_path(self, trial: Trial) -> Path | None:
        """Return the file of a cached result; None if its identity is not fully known."""
        identity = self._identity(trial)
        if identity.unknown:
            return None
        return ROOT / CACHE / identity.hex[:2] / f"{identity.hex}-{trial.trial}.json"

    # --- Running

    def _run_remaining(self, trials: list[Trial]) -> str:
        """Run the trials; return why it stopped early, or ""."""
        if not trials:
            return ""
        with closing(self._submit(trials)) as results:
            for item in results:
                self.state.first = self.state.first or time.monotonic()
                result = read_result(self.packs, item)
                self._add(self._identified(item.job, result))
                limit = self.options.cost_limit
                unfinished = self.state.done < self.state.total
                if limit is None or not unfinished:
                    continue
                if self.state.cost_usd >= limit:
                    return f"{COST_LIMIT} of {limit:g} USD reached"
                if result.unpriced:  # the limit would never be reached
                    return f"{COST_LIMIT}: no price of {result.unpriced}; add it to [prices]"
        return ""

    def _submit(self, trials: list[Trial]) -> Generator[FinishedJob[Trial, bytes] | LostJob[Trial]]:
        options = self.options
        # A run with real models that stops at its cost limit has as few trials under way as it can.
        ahead = 1 if options.live else MAX_AHEAD
        engine = choose_engine(options.engine, options.address, options.jobs, ahead)
        evaluator = Evaluator(self.packs, options, self.directory.path)
        return engine.submit(
            evaluator,
            trials,
            timeout_of=lambda trial: self._case(trial).timeout_seconds or options.timeout,
            setup_of=evaluator.subject_of,
        )

    def _identified(self, trial: Trial, result: CaseResult) -> CaseResult:
        """Return a result with its identity, and keep it for later runs."""
        identity = self._identity(trial)
        unknown = identity.unknown or result.unidentified
        result = msgspec.structs.replace(result, identity=identity.hex, unidentified=unknown)
        # An error may be gone next time, and a report has files in the directory of its run.
        if self.options.cache and not unknown and result.status != "error" and not result.report:
            path = self._cache_path(trial)
            if path is not None:
                write_cached(path, result)
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
        ran = {(case.pack, case.id) for case in cases}
        planned = {self._key(trial)[:2]: trial for trial in self.trials}
        not_run = [
            CaseSummary(
                case.id,
                case.label,
                self.packs[trial.pack].pack.severity_of(case),
                "not_run",
                trials=0,
                failures=(f"not run: {stopped}",),
                pack=trial.pack,
            )
            for key, trial in planned.items()
            if key not in ran
            for case in (self._case(trial),)
        ]
        summary = summarize_run(
            self.directory.path.name,
            [loaded.id for loaded in self.packs],
            cases,
            cost=self.state.cost_usd,
            tokens=self.state.tokens,
            seconds=time.monotonic() - self.state.started,
            not_run=len(not_run),
            stopped=stopped,
        )
        below = tuple(self._slices_below(cases))
        summary = msgspec.structs.replace(
            summary,
            passed_gate=summary.passed_gate and not below,
            below=below,
            changed=tuple(self.changed),
            changed_file=self.changed_file,
            unverified=tuple(self.unverified),
            unverified_reason=next(iter(self.unverified.values()), ""),
            slices=tuple(self._slices(cases)),
        )
        self.directory.finish(summary)
        return FinishedRun(self.directory.path, summary, cases, not_run)

    def _slices(self, cases: list[CaseSummary]) -> list[SliceSummary]:
        """Return the slices by the axes of the packs, and by the keys of the options."""
        known = {key for case in cases for key in case.metadata}
        named = [key for loaded in self.packs for key in loaded.pack.axes]
        named += [limit.by for loaded in self.packs for limit in loaded.pack.slices]
        keys = [key for key in (*named, *self.options.by) if key in known]
        return summarize_slices(cases, keys)

    def _slices_below(self, cases: list[CaseSummary]) -> Iterator[str]:
        """Yield the slices of each pack that have a lower pass rate than it demands."""
        options = self.options
        is_part = bool(options.only or options.where or options.shard != (1, 1))
        for number, loaded in enumerate(self.packs):
            own = [case for case in cases if case.pack == number]
            for limit in loaded.pack.slices:
                yield from check_slice(limit, own, is_part=is_part)


def check_slice(
    limit: SliceLimit, cases: Iterable[CaseSummary], *, is_part: bool = False
) -> Iterator[str]:
    """Yield the slices of a pack's cases that have a lower pass rate than a limit demands."""
    own = [case for case in cases if limit.by in case.metadata]
    found = summarize_slices(own, [limit.by]) if own else []
    chosen = [item for item in found if limit.value in {"", item.value}]
    # A part of a run may have none of them; a whole one must.
    if not chosen and not is_part:
        yield f"slice {limit.by}={limit.value}: no data, no case has this value"
    for item in chosen:
        if item.pass_rate < limit.min_pass_rate:
            yield (
                f"slice {item.by}={item.value}: pass rate {item.pass_rate:.2f} is"
                f" below the minimum {limit.min_pass_rate:g}"
            )
