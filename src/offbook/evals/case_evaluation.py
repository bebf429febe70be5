"""Evaluates one trial of a case: reads or makes the run, then applies all its checks.

The checks accumulate: a failed one does not keep the others from running. Whatever goes wrong is
the result of this case and does not end the pack.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import OffbookError
from offbook.evals.friction import MIN_OCCURRENCES, suggest
from offbook.evals.judging import JudgeOptions, judge_rubric
from offbook.evals.pack import EvalCase, LoadedPack, Rubric
from offbook.evals.replay_checks import (
    BaselineDiff,
    check_baseline,
    check_replay,
    compare_records,
)
from offbook.evals.rubrics import Evidence, check_thresholds, evaluate_rubric, measure
from offbook.evals.run_directory import CaseResult, status_of
from offbook.evals.run_record import (
    load_friction_events,
    load_replay_fixture,
    load_run,
    read_stored_trace,
    trace_path,
)
from offbook.trace.events import Verdict

NOTHING_CHECKED = Verdict(
    "case",
    "no_data",
    "no data: nothing was checked; the case has no fixture, rubric, threshold or baseline",
)


class EvalOptions(msgspec.Struct, frozen=True):
    """The options of a run that its cases need; `traces` is the folder for traces."""

    judge: JudgeOptions = JudgeOptions()
    traces: str = ""

    @property
    def live(self) -> bool:
        """True if real models are allowed."""
        return self.judge.live


def evaluate_case(
    loaded: LoadedPack, case: EvalCase, options: EvalOptions, trial: int = 1, number: int = 0
) -> CaseResult:
    """Return the result of one trial; an exception is an error of this case."""
    started = time.perf_counter()
    result = CaseResult(case.id, trial, number, case.label, severity=loaded.pack.severity_of(case))
    try:
        if case.mode == "friction":
            fields = _evaluate_friction(loaded, case)
        else:
            with ExitStack() as cleanup:
                fields = _evaluate_run(loaded, case, options, trial, cleanup)
        verdicts = fields.pop("verdicts") or (NOTHING_CHECKED,)
        result = msgspec.structs.replace(
            result, verdicts=tuple(verdicts), status=status_of(tuple(verdicts)), **fields
        )
    except Exception as error:  # noqa: BLE001 - one bad case does not end the others
        text = str(error) if isinstance(error, OffbookError) else f"{type(error).__name__}: {error}"
        result = msgspec.structs.replace(result, status="error", error=text)
    millis = round((time.perf_counter() - started) * 1000, 3)
    return msgspec.structs.replace(result, millis=millis)


def _evaluate_friction(loaded: LoadedPack, case: EvalCase) -> dict[str, Any]:
    events = load_friction_events(loaded, case.friction_events)
    metadata = {**loaded.pack.metadata, **case.metadata}
    suggestions = suggest(
        events,
        min_occurrences=int(metadata.get("min_occurrences", MIN_OCCURRENCES)),
        owner=str(metadata.get("owner", "")),
    )
    evidence = Evidence(suggestions=suggestions)
    verdicts = [v for name in case.rubrics for v in evaluate_rubric(loaded.rubrics[name], evidence)]
    if not case.rubrics:
        ok = bool(suggestions)
        message = "" if ok else "no context-pack suggestion was generated"
        verdicts.append(Verdict("suggestions", "pass" if ok else "fail", message))
    return {"verdicts": verdicts, "run_id": "friction_events", "stage_count": len(events)}


def _evaluate_run(
    loaded: LoadedPack, case: EvalCase, options: EvalOptions, trial: int, cleanup: ExitStack
) -> dict[str, Any]:
    verdicts: list[Verdict] = []
    folder: Path | None = None
    match case.mode:
        case "subject":
            from offbook.evals.subject_cases import run_subject  # stored runs need no subject

            made = run_subject(
                loaded, case, options.traces, trial, live=options.live, cleanup=cleanup
            )
            run, trace, folder = made.run, made.trace, made.folder
            verdicts += made.verdicts
        case "live-verify":
            from offbook.evals.live_verify import run_live_verify  # as above

            run, verdicts = run_live_verify(loaded, case)
            trace = None
        case "trace":
            trace = trace_path(loaded, case.trace)
            fixture = loaded.fixtures.get(case.trace)
            run = read_stored_trace(trace, (fixture.trace_id if fixture else "") or None)
        case _:
            trace = None
            run = load_run(loaded, case.run)
    pack, record = loaded.pack, run.record
    metrics = measure(record, pack.prices)
    fixture = load_replay_fixture(loaded, case.fixture) if case.fixture else record.replay_fixture
    if fixture is not None:
        verdicts += check_replay(fixture, record)
    comparison: BaselineDiff | None = None
    if baseline := case.compare_to or pack.baseline:
        comparison = compare_records(load_run(loaded, baseline).record, record)
        verdicts.append(check_baseline(comparison))
    evidence = Evidence(run, trace, folder, metrics)
    spent = (metrics.cost_usd or 0) if case.live or case.mode == "live-verify" else 0.0
    judged: list[Rubric] = []
    for name in case.rubrics:
        rubric = loaded.rubrics[name]
        if rubric.judged:
            judged.append(rubric)
        elif rubric.kind == "replay" and fixture is None:
            message = "no data: the case has no replay fixture"
            verdicts.append(Verdict(rubric.id, "no_data", message))
        else:
            verdicts += evaluate_rubric(rubric, evidence)
    for rubric in judged:
        found, score = judge_rubric(rubric, evidence, loaded, options.judge)
        verdicts += found
        if score is not None:
            spent += score.cost_usd
            metrics = msgspec.structs.replace(
                metrics, score=score.score, confidence=score.confidence
            )
    for limits, label in ((pack.defaults.thresholds, "default "), (case.thresholds, "")):
        verdicts += check_thresholds(limits, metrics, label)
    return {
        "verdicts": verdicts,
        "run_id": record.id,
        "workflow_id": record.workflow_id,
        "source": run.source,
        "stage_count": len(record.stages),
        "metrics": metrics,
        "comparison": comparison,
        "spent_usd": spent,
        "trace": "" if trace is None else str(trace),
    }


def _read_workspace(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a workspace, without the results of runs and the history."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not {".offbook", ".git"} & set(name.parts):
            yield name.as_posix(), path.read_bytes()


def case_fingerprint(loaded: LoadedPack, case: EvalCase, version: str) -> str:
    """Return a hash of all that the result of a case depends on: the case and its files."""
    pack = loaded.pack
    digest = hashlib.sha256()

    def add(value: bytes) -> None:
        digest.update(len(value).to_bytes(8, "little") + value)

    add(version.encode())
    rubrics = [loaded.rubrics[name] for name in case.rubrics]
    settings = (pack.defaults, pack.judge, pack.prices, pack.executor, pack.baseline)
    add(msgspec.json.encode((case, rubrics, settings), order="deterministic"))
    references = [case.run, case.trace, case.friction_events, case.fixture]
    references += [case.compare_to, pack.baseline, case.playbook, case.cassette]
    if isinstance(case.subject, str):
        references.append(case.subject.rpartition(":")[0])
    judges = [pack.judge, pack.defaults.judge, *(rubric.judge for rubric in rubrics)]
    references += [judge.source for judge in judges if judge]
    for reference in filter(None, references):
        fixture = loaded.fixtures.get(reference)
        if fixture is not None and fixture.inline is not None:
            add(msgspec.json.encode(fixture.inline, order="deterministic"))
        elif (path := loaded.resolve(reference)).is_file():
            add(path.read_bytes())
    if case.workspace:
        for name, content in _read_workspace(loaded.base / case.workspace):
            add(name.encode())
            add(content)
    return digest.hexdigest()[:32]
