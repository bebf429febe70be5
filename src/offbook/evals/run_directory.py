"""The results of a run: of each trial, of each case, and the directory that keeps them.

    .offbook/evals/20261115-120000-slack/
        run.json         the packs, their hashes and the options
        results.jsonl    one result a line, as they come
        summary.json     the counts, written at the end
        traces/          the traces of subjects that were run

A killed run loses at most the line that it was writing; `--resume` continues it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, TypeVar

import msgspec

from offbook.checks.trial_statistics import Interval, pass_at_k, pass_hat_k, wilson
from offbook.errors import FormatError, UsageError, did_you_mean, require_known
from offbook.evals.rubrics import RunMetrics
from offbook.evals.run_record import BaselineDiff
from offbook.files import close_locked, read_lines, try_lock, write_atomic
from offbook.options import require_some
from offbook.runs.result_identity import REAL_MODEL
from offbook.secrets import hide_bytes, hide_lines, known_secret_bytes
from offbook.trace.events import Verdict
from offbook.trace.recorder import PRIVATE_MODE

T = TypeVar("T")
ResultStatus = Literal["pass", "fail", "no_data", "error", "not_run"]


# `id` is the first field: a case is found in a results file by its beginning. All fields are
# written, so that queries find each column.
class CaseResult(msgspec.Struct, frozen=True):
    """The result of one trial of a case.

    `status` is what was found, whatever the severity: a failure of a `warning` case stays visible.
    """

    id: str
    trial: int = msgspec.field(default=1)
    number: int = 0
    label: str = ""
    status: ResultStatus = "pass"
    severity: str = "blocking"
    verdicts: tuple[Verdict, ...] = ()
    error: str = ""
    run_id: str = ""
    workflow_id: str = ""
    source: str = ""
    stage_count: int = 0
    metrics: RunMetrics = RunMetrics()
    comparison: BaselineDiff | None = None
    report: dict[str, Any] | None = None  # of a ladder, a context eval or a classifier
    kind: str = ""
    pack: str = ""
    scores: dict[str, float] = {}  # of each judged rubric, and each of its criteria
    metadata: dict[str, Any] = {}  # of the case: a run is sliced by it
    identity: str = ""
    unidentified: str = ""  # why the result may depend on more than its identity
    # The files that the subject used. A directory has them once, under their key.
    used: dict[str, str] = {}
    used_key: str = ""
    millis: float = 0
    cached: bool = False
    spent_usd: float = 0  # by this run; the cost of a stored run was spent earlier
    unpriced: str = ""  # a real model that was used and has no price
    trace: str = ""
    output: str = ""

    def measured(self, metric: str) -> float | None:
        """Return a metric; the time of a scripted run is that of the machine, and no data."""
        scripted = self.kind == "subject" and self.unidentified != REAL_MODEL
        return None if metric == "latency_ms" and scripted else getattr(self.metrics, metric)

    @property
    def gated(self) -> bool:
        """True if the case did not pass and its severity keeps that from failing the run."""
        return self.status != "pass" and self.severity != "blocking"

    @property
    def blocks(self) -> bool:
        """True if the case fails the run."""
        return self.status != "pass" and self.severity == "blocking"

    @property
    def problems(self) -> list[str]:
        """The messages of all checks that do not hold, and the error."""
        found = [
            verdict.message or f"{verdict.check} did not hold"
            for verdict in self.verdicts
            if not verdict.holds
        ]
        return [*found, self.error] if self.error else found

    @property
    def warnings(self) -> list[str]:
        """The messages of checks that passed with a warning."""
        return [verdict.message for verdict in self.verdicts if verdict.status == "warn"]


def status_of(verdicts: tuple[Verdict, ...]) -> ResultStatus:
    """Return the status of a case from its verdicts: an error, a failure, no data, or a pass."""
    statuses = {verdict.status for verdict in verdicts}
    for status in ("error", "fail", "no_data"):
        if status in statuses:
            return status
    # A case that has only warnings, such as a judge that was not run, has checked nothing.
    return "pass" if "pass" in statuses else "no_data"


MAX_LISTED = 1000  # cases that a summary names; all of them are in the results


class CaseSummary(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One case over all its trials.

    `pass_at_k` has for each k up to the number of trials the chance that one of k trials passes,
    `pass_hat_k` that all of them do. Metrics are means over the trials.
    """

    id: str
    label: str
    severity: str
    status: str
    trials: int = 1
    passes: int = 0
    errors: int = 0
    pass_rate: float = 0
    interval: Interval = Interval(0, 1)
    pass_at_k: tuple[float, ...] = ()
    pass_hat_k: tuple[float, ...] = ()
    flaky: bool = False
    gated: bool = False
    failures: tuple[str, ...] = ()
    pack: int = 0
    cached: int = 0
    metadata: dict[str, Any] = {}
    metrics: dict[str, float] = {}


class SliceSummary(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cases with one value of a key in their metadata; a metric is a mean over them."""

    by: str
    value: str
    cases: int = 0
    passed: int = 0
    pass_rate: float = 0
    interval: Interval = Interval(0, 1)
    metrics: dict[str, float] = {}


def summarize_slices(cases: Iterable[CaseSummary], keys: Iterable[str]) -> list[SliceSummary]:
    """Return the slices of a run by each key, in the order of their first cases."""
    found: dict[tuple[str, str], list[CaseSummary]] = {}
    listed, keys = list(cases), list(dict.fromkeys(keys))
    for key in keys:
        for case in listed:
            if key in case.metadata:
                found.setdefault((key, slice_value(case.metadata[key])), []).append(case)
    for key in keys:
        known = {key for case in listed for key in case.metadata}
        require_known("no case has the metadata", key, known)
    slices: list[SliceSummary] = []
    for (by, value), members in found.items():
        passed = sum(case.status == "pass" for case in members)
        metrics = {
            name: fmean(values)
            for name in SLICED_METRICS
            if (values := [c.metrics[name] for c in members if name in c.metrics])
        }
        rate = passed / len(members), wilson(passed, len(members))
        slices.append(SliceSummary(by, value, len(members), passed, *rate, metrics))
    return slices


def slice_value(value: Any) -> str:
    """Return a value of metadata as a filter or a table writes it."""
    return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()


SLICED_METRICS = ("score", "latency_ms", "cost_usd", "tokens")


class RunSummary(msgspec.Struct, frozen=True):
    """The counts of a run. It passes if cases were run and no blocking one failed."""

    id: str
    packs: list[str]
    passed_gate: bool = msgspec.field(name="pass", default=False)
    total: int = 0
    passed: int = 0
    failed: int = 0
    blocking_failed: int = 0
    warning_failed: int = 0
    informational_failed: int = 0
    no_data: int = 0
    errors: int = 0
    not_run: int = 0
    flaky: int = 0
    trials: int = 0
    cost_usd: float = 0
    tokens: int = 0
    seconds: float = 0
    pass_rate: float = 0
    interval: Interval = Interval(0, 1)
    stopped: str = ""
    failing: tuple[CaseSummary, ...] = ()
    cached: int = 0  # trials whose results are of an earlier run
    changed: tuple[str, ...] = ()  # cases that a resumed run repeated
    changed_file: str = ""  # the first file that has changed since
    unverified: tuple[str, ...] = ()  # cases that it kept and that may have changed
    unverified_reason: str = ""  # why that is not known of the first of them
    pass_at_k: tuple[float, ...] = ()  # means over the cases, for each k that all of them have
    pass_hat_k: tuple[float, ...] = ()
    slices: tuple[SliceSummary, ...] = ()
    below: tuple[str, ...] = ()  # the slices below the lowest pass rate of their pack


class _Tally:
    """The trials of one case so far: small, because a run may have 100,000 cases."""

    __slots__ = (
        "cached", "errors", "failures", "id", "label", "metadata", "metrics", "number", "pack",
        "passes", "severity", "statuses", "trials",
    )  # fmt: skip

    def __init__(self, result: CaseResult, pack: int) -> None:
        self.id, self.label = result.id, result.label
        self.severity, self.number, self.pack = result.severity, result.number, pack
        self.trials = self.passes = self.errors = self.cached = 0
        self.statuses: set[str] = set()
        self.failures: tuple[str, ...] = ()
        self.metadata = result.metadata
        self.metrics: dict[str, list[float]] = {}

    def add(self, result: CaseResult) -> None:
        self.trials += 1
        self.passes += result.status == "pass"
        self.errors += result.status == "error"
        self.cached += result.cached
        self.statuses.add(result.status)
        for name in SLICED_METRICS if self.metadata else ():  # most runs have no slices
            if (value := result.measured(name)) is not None:
                self.metrics.setdefault(name, []).append(value)
        if not self.failures:
            self.failures = tuple(result.problems)

    @property
    def status(self) -> str:
        # A blocking case passes only if all its trials do.
        for status in ("error", "fail", "no_data", "not_run"):
            if status in self.statuses:
                return status
        return "pass"


def summarize_cases(results: Iterable[CaseResult]) -> list[CaseSummary]:
    """Return the cases in the order of the plan, each over all its trials."""
    tallies: dict[tuple[int, str], _Tally] = {}
    for result in results:
        pack = result.number >> PACK_SHIFT
        tally = tallies.get((pack, result.id))
        if tally is None:
            tally = tallies[pack, result.id] = _Tally(result, pack)
        tally.add(result)
    ordered = sorted(tallies.values(), key=lambda tally: tally.number)
    return [_summary(tally) for tally in ordered]


PACK_SHIFT = 32  # the number of a result is that of its pack and that of its case


def pack_folder(output: str | Path, number: int) -> Path:
    """Return the folder for the files of a case: those of a second pack may have the same names."""
    pack = number >> PACK_SHIFT
    return Path(output, f"pack-{pack + 1}") if pack else Path(output)


def _summary(tally: _Tally) -> CaseSummary:
    trials, passes, status = tally.trials, tally.passes, tally.status
    return CaseSummary(
        tally.id,
        tally.label,
        tally.severity,
        status,
        trials,
        passes,
        tally.errors,
        passes / trials,
        wilson(passes, trials),
        tuple(pass_at_k(trials, passes, k) for k in range(1, trials + 1)),
        tuple(pass_hat_k(trials, passes, k) for k in range(1, trials + 1)),
        0 < passes < trials,
        status != "pass" and tally.severity != "blocking",
        tally.failures,
        tally.pack,
        tally.cached,
        tally.metadata,
        {name: fmean(values) for name, values in tally.metrics.items()},
    )


def summarize_run(
    run_id: str,
    packs: list[str],
    cases: list[CaseSummary],
    *,
    cost: float = 0,
    tokens: int = 0,
    seconds: float = 0,
    not_run: int = 0,
    stopped: str = "",
) -> RunSummary:
    """Return the summary of a run. Cases that were not run fail the gate: nothing is known."""
    failing = [case for case in cases if case.status != "pass"]
    blocking = sum(case.severity == "blocking" for case in failing)
    passed = len(cases) - len(failing)
    return RunSummary(
        run_id,
        packs,
        bool(cases) and not blocking and not not_run and not stopped,
        len(cases) + not_run,
        passed,
        len(failing),
        blocking,
        sum(case.severity == "warning" for case in failing),
        sum(case.severity == "informational" for case in failing),
        sum(case.status == "no_data" for case in cases),
        sum(case.status == "error" for case in cases),
        not_run,
        sum(case.flaky for case in cases),
        sum(case.trials for case in cases),
        round(cost, 6),
        tokens,
        round(seconds, 3),
        passed / len(cases) if cases else 0,
        wilson(passed, len(cases)),
        stopped,
        tuple(failing[:MAX_LISTED]),
        sum(case.cached for case in cases),
        pass_at_k=_mean_of_each_k([case.pass_at_k for case in cases]),
        pass_hat_k=_mean_of_each_k([case.pass_hat_k for case in cases]),
    )


def _mean_of_each_k(chances: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the mean over the cases for each k up to the fewest trials of one."""
    return tuple(map(fmean, zip(*chances, strict=False)))


ROOT = Path(".offbook/evals")
RESULTS = "results.jsonl"
SUMMARY = "summary.json"
PLAN = "run.json"
TRACES = "traces"
CACHE = "cache"
LOCK = "lock"
USED = "used.jsonl"  # the files that subjects used, once for all results with the same ones

_decode = msgspec.json.Decoder(CaseResult).decode
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class RunPlan(msgspec.Struct, frozen=True):
    """The settings with which a run was started."""

    id: str
    packs: list[str]
    digests: list[str]
    started: str
    version: str
    options: dict[str, Any] = {}


class _UsedFiles(msgspec.Struct, frozen=True):
    key: str
    files: dict[str, str]


def write_private(path: Path, data: bytes) -> None:
    """Write a file of a run: without secrets, and only its owner may read it."""
    hide = hide_lines if path.suffix == ".jsonl" else hide_bytes
    write_atomic(path, hide(data, known_secret_bytes()), mode=PRIVATE_MODE, durable=False)


class _CachedResult(msgspec.Struct, frozen=True):
    result: CaseResult
    used: dict[str, str]


def write_cached(path: Path, result: CaseResult) -> None:
    """Keep a result for later runs, as `results.jsonl` has it.

    The digests of the files that its subject used stay: by them it is known to be unchanged.
    """
    hidden = hide_bytes(_encode(msgspec.structs.replace(result, used={})), known_secret_bytes())
    content = _encode({"result": msgspec.Raw(hidden), "used": result.used})
    write_atomic(path, content, mode=PRIVATE_MODE, durable=False)


def read_cached(path: Path) -> CaseResult | None:
    """Return a result that was kept; None if there is none, or its file is damaged."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_CachedResult)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return msgspec.structs.replace(found.result, used=found.used)


class RunDirectory:
    """The directory of a run, open for writing: a second writer is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, PRIVATE_MODE)
        if not try_lock(self._lock):
            os.close(self._lock)
            raise UsageError(
                "another run is writing to this directory",
                where=str(path),
                hint="wait for its end, or choose another --output",
            )
        self._file: int | None = None
        self._used: set[str] = set()
        self._secrets = known_secret_bytes()

    @property
    def has_results(self) -> bool:
        """True if a run has written results here."""
        return (self.path / RESULTS).exists()

    def begin(self, plan: RunPlan) -> None:
        """Write the plan, and open the results for appending."""
        content = msgspec.json.format(_encode(plan))
        write_atomic(self.path / PLAN, content, mode=PRIVATE_MODE, durable=False)
        self._file = self._open_to_append(RESULTS)

    def _open_to_append(self, name: str) -> int:
        return os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_MODE)

    def repair(self) -> int:
        """Remove a torn last line, as a killed run leaves it; return the number of bytes."""
        path = self.path / RESULTS
        size = path.stat().st_size
        with path.open("rb+") as file:
            data = file.read()
            end = data.rfind(b"\n") + 1
            if end < size:
                file.truncate(end)
        return size - end

    def append(self, result: CaseResult) -> None:
        """Write one result with a single call: a killed process loses no earlier one."""
        assert self._file is not None  # noqa: S101 - begin() comes first
        line = _encode(self._with_used_key(result))
        os.write(self._file, hide_bytes(line, self._secrets) + b"\n")

    def rewrite(self, results: Iterable[CaseResult]) -> None:
        """Keep only these results."""
        lines = [hide_bytes(_encode(result), self._secrets) + b"\n" for result in results]
        write_atomic(self.path / RESULTS, b"".join(lines), mode=PRIVATE_MODE)

    def _with_used_key(self, result: CaseResult) -> CaseResult:
        """Return a result with the key of its files, which are written once."""
        if not result.used:
            return result
        data = msgspec.json.encode(result.used, order="sorted")
        key = hashlib.sha256(data).hexdigest()[:16]
        if key not in self._used:
            self._used.add(key)
            with open(self._open_to_append(USED), "ab") as file:  # noqa: PTH123 - by its number
                file.write(msgspec.json.encode({"key": key, "files": result.used}) + b"\n")
        return msgspec.structs.replace(result, used={}, used_key=key)

    def read_used(self) -> dict[str, dict[str, str]]:
        """Return the files that subjects used, by the key that results have."""
        path = self.path / USED
        lines = path.read_bytes().splitlines() if path.is_file() else []
        found: dict[str, dict[str, str]] = {}
        for line in lines:
            with suppress(msgspec.MsgspecError):  # the last one may be torn
                item = msgspec.json.decode(line, type=_UsedFiles)
                found[item.key] = item.files
        self._used = set(found)
        return found

    def finish(self, summary: RunSummary) -> None:
        """Write the summary. It is made of results that were read: their secrets are masked."""
        content = msgspec.json.format(_encode(summary)) + b"\n"
        write_atomic(self.path / SUMMARY, content, mode=PRIVATE_MODE)

    def close(self) -> None:
        """Release the directory."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        close_locked(self._lock)


def new_run_id(name: str) -> str:
    """Return an id that sorts by time: 20261115-120000-123-slack."""
    now = datetime.now(UTC)
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}-{slug}"


# --- Reading


def read_results(folder: Path) -> Iterator[CaseResult]:
    """Return the results of a run in the order of their lines; a torn last line is skipped."""
    path = folder / RESULTS
    if not path.is_file():
        raise FormatError("no results in this directory", path=folder)
    return read_lines(path, _decode, "result")


def find_results(folder: Path, case: str) -> list[CaseResult]:
    """Return the results of one case, found by the beginning of their lines."""
    path = folder / RESULTS
    if not path.is_file() or not path.stat().st_size:
        return []
    start = b'{"id":' + msgspec.json.encode(case)
    found: list[CaseResult] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = data.find(start)
        while position >= 0:
            end = data.find(b"\n", position)
            if end < 0:
                break
            if position == 0 or data[position - 1] == 10:  # noqa: PLR2004 - a line break
                found.append(_decode(data[position:end]))
            position = data.find(start, end)
    return found


def read_summary(folder: Path) -> RunSummary:
    """Return the summary of a run; one that was killed has none."""
    if (folder / RESULTS).exists() and not (folder / SUMMARY).exists():
        hint = f"finish it with: offbook eval run PACK --resume {folder}"
        raise FormatError("the run did not end", path=folder, hint=hint)
    return _read_struct(folder / SUMMARY, RunSummary, "summary")


def read_plan(folder: Path) -> RunPlan:
    """Return the plan of a run."""
    return _read_struct(folder / PLAN, RunPlan, "plan")


def _read_struct(path: Path, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError as error:
        raise FormatError("not the directory of a run", path=path.parent) from error
    except msgspec.MsgspecError as error:
        raise FormatError(f"invalid {what}: {error}", path=path) from error


def list_runs(root: Path = ROOT) -> list[Path]:
    """Return the directories of all runs, the latest first."""
    if not root.is_dir():
        return []
    return sorted((path.parent for path in root.glob(f"*/{PLAN}")), reverse=True)


def find_run(name: str, root: Path = ROOT) -> Path:
    """Return the directory of a run: a path, an id, the beginning of one, or `latest`."""
    if Path(name, PLAN).is_file():
        return Path(name)
    runs = list_runs(root)
    if name == "latest" and runs:
        return runs[0]
    matching = [run for run in runs if run.name == name] or [
        run for run in runs if run.name.startswith(name)
    ]
    if len(matching) == 1:
        return matching[0]
    ids: Iterable[str] = [run.name for run in (matching or runs)]
    problem = "several runs begin with" if matching else "no run"
    raise UsageError(f"{problem} {name!r} in {root}", hint=did_you_mean(name, ids))


def load_duckdb(use: str) -> Any:
    """Return the package duckdb, an extra; without it, `use` is refused."""
    try:
        import duckdb  # pyright: ignore[reportMissingImports] - an extra
    except ImportError as error:
        raise UsageError(
            f"{use} need the package duckdb", hint="pip install 'offbook[duckdb]'"
        ) from error
    return duckdb


def query_results(sql: str, runs: Sequence[Path] = ()) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the names of the columns, and the rows: of these runs, or of all."""
    database = load_duckdb("queries")
    files = [str(run / RESULTS) for run in runs] or [*map(str, ROOT.glob(f"*/{RESULTS}"))]
    require_some(files, "no results to query", where=ROOT, hint="offbook eval run PACK")
    connection = database.connect(":memory:")
    names = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    # A view: only the columns that a query names are read from the files.
    columns = "*, regexp_extract(filename, '([^/]+)/[^/]+$', 1) as run"
    options = "format='newline_delimited', union_by_name=true, filename=true, ignore_errors=true"
    source = f"read_json([{names}], {options})"
    connection.execute(f"create view results as select {columns} from {source}")  # noqa: S608 - ours
    try:
        cursor = connection.execute(sql)
    except database.Error as error:
        raise UsageError(f"invalid query: {error}") from error
    return [column[0] for column in cursor.description], cursor.fetchall()


def render_rows(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Return the lines of a table."""
    cells = [list(names), *([str(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(names))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
