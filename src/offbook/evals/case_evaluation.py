"""Evaluates one trial of a case of any kind: runs it, then applies all its checks.

The checks accumulate: a failed one does not keep the others from running. Whatever goes wrong is
the result of this case and does not end the pack.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import OffbookError
from offbook.evals.case_kind import CaseContext, CaseOutcome, EvalOptions, kind_of
from offbook.evals.pack import AnyCase, EvalCase, LoadedPack, Pack, Rubric, Thresholds
from offbook.evals.rubrics import (
    Evidence,
    JudgeScore,
    RunMetrics,
    check_thresholds,
    evaluate_rubric,
    judge_rubric,
    measure,
    settings_for,
)
from offbook.evals.run_directory import CaseResult, pack_folder, status_of, write_private
from offbook.evals.run_record import (
    BaselineDiff,
    check_baseline,
    check_replay,
    compare_records,
    load_replay_fixture,
    load_run,
)
from offbook.files import resolve_within
from offbook.runs.result_identity import IdentityDigest, Surroundings
from offbook.sources.live import PROVIDERS
from offbook.trace.events import Verdict

NOTHING_CHECKED = Verdict(
    "case",
    "no_data",
    "no data: nothing was checked; the case has no fixture, rubric, threshold or baseline",
)
NO_LIMITS = Thresholds()
REPORTS = "reports"  # the folder of the files that kinds of cases write


def evaluate_case(
    loaded: LoadedPack, case: AnyCase, options: EvalOptions, trial: int = 1, number: int = 0
) -> CaseResult:
    """Return the result of one trial; an exception is an error of this case."""
    started = time.perf_counter()
    result = CaseResult(
        case.id,
        trial,
        number,
        case.label,
        severity=loaded.pack.severity_of(case),
        kind=case.mode,
        pack=loaded.id,
        metadata=case.metadata,
    )
    try:
        with ExitStack() as cleanup:
            context = CaseContext(loaded, options, trial, cleanup, number)
            outcome = kind_of(case).run_case(case, context)
            fields = _check(loaded, case, options, outcome)
        if outcome.files and options.output:
            folder = resolve_within(pack_folder(options.output, number), f"{REPORTS}/{case.id}")
            for name, content in outcome.files.items():
                write_private(folder / name, content)
        verdicts = tuple(fields.pop("verdicts")) or (NOTHING_CHECKED,)
        result = msgspec.structs.replace(
            result, verdicts=verdicts, status=status_of(verdicts), **fields
        )
    except Exception as error:  # noqa: BLE001 - one bad case does not end the others
        text = str(error) if isinstance(error, OffbookError) else f"{type(error).__name__}: {error}"
        result = msgspec.structs.replace(result, status="error", error=text)
    millis = round((time.perf_counter() - started) * 1000, 3)
    return msgspec.structs.replace(result, millis=millis)


def _check(
    loaded: LoadedPack, case: AnyCase, options: EvalOptions, outcome: CaseOutcome
) -> dict[str, Any]:
    """Return the fields of a result: the verdicts of all checks of a case, and its metrics."""
    pack, run = loaded.pack, outcome.run
    verdicts = [*outcome.verdicts]
    metrics = outcome.metrics or RunMetrics()
    fields: dict[str, Any] = {"stage_count": outcome.stage_count, "report": outcome.report}
    if outcome.used is not None:
        fields |= {"used": outcome.used.digests, "unidentified": outcome.used.unknown}
    if case.mode == "friction":
        fields["run_id"] = "friction_events"
    if not isinstance(case, EvalCase):
        return {**fields, "verdicts": verdicts, "metrics": metrics}
    fixture = load_replay_fixture(loaded, case.fixture) if case.fixture else None
    if run is not None:
        record = run.record
        metrics = measure(record, pack.prices)
        fixture = fixture or record.replay_fixture
        if fixture is not None:
            verdicts += check_replay(fixture, record)
        comparison: BaselineDiff | None = None
        if baseline := case.compare_to or pack.baseline:
            comparison = compare_records(load_run(loaded, baseline).record, record)
            verdicts.append(check_baseline(comparison))
        fields |= {
            "run_id": record.id,
            "workflow_id": record.workflow_id,
            "source": run.source,
            "stage_count": len(record.stages),
            "comparison": comparison,
            "trace": "" if outcome.trace is None else str(outcome.trace),
        }
    spent = (metrics.cost_usd or 0) if outcome.spent else 0.0
    unpriced = _models_without_price(outcome, metrics)
    evidence = Evidence(run, outcome.trace, outcome.folder, metrics, outcome.suggestions)
    rubrics = [loaded.rubrics[name] for name in case.rubrics]
    if case.assertions:
        rubrics.append(Rubric("expected", assertions=case.assertions))
    for rubric in rubrics:
        if rubric.judged:
            continue
        if rubric.kind == "replay" and fixture is None:
            message = "no data: the case has no replay fixture"
            verdicts.append(Verdict(rubric.id, "no_data", message))
        else:
            verdicts += evaluate_rubric(rubric, evidence)
    # A judge costs time and money: the other rubrics come first.
    scores: dict[str, JudgeScore | None] = {}
    for rubric in filter(lambda rubric: rubric.judged, rubrics):
        found = judge_rubric(rubric, evidence, loaded, options.judge, case)
        verdicts += found.verdicts
        spent += found.cost_usd
        unpriced += found.unpriced
        if not found.scores:
            scores[rubric.id] = None
            continue
        scores |= found.scores
        # The judge's own verdicts are on the lowest score.
        other = msgspec.structs.replace(rubric.thresholds, min_score=None)
        lowest = min(found.scores.values(), key=lambda score: score.score)
        judged = msgspec.structs.replace(evidence, metrics=_with_score(metrics, lowest))
        verdicts += evaluate_rubric(msgspec.structs.replace(rubric, thresholds=other), judged)
    if case.mode != "friction":
        for limits, label in ((pack.defaults.thresholds, "default "), (case.thresholds, "")):
            verdicts += _check_limits(limits, metrics, scores, label)
    known = {name: score for name, score in scores.items() if score is not None}
    if known:  # of several scores, the lowest is that of the case
        metrics = _with_score(metrics, min(known.values(), key=lambda score: score.score))
    return {
        **fields,
        "verdicts": verdicts,
        "metrics": metrics,
        "scores": {name: score.score for name, score in known.items()},
        "spent_usd": spent,
        "unpriced": unpriced[0] if unpriced else "",
    }


def _models_without_price(outcome: CaseOutcome, metrics: RunMetrics) -> tuple[str, ...]:
    """Return the real models of an agent whose cost is not known."""
    if not outcome.spent or metrics.cost_usd is not None:
        return ()
    usage = None if outcome.run is None else outcome.run.record.usage
    return tuple(usage.models if usage else ()) or ("the model of the agent",)


def _with_score(metrics: RunMetrics, score: JudgeScore | None) -> RunMetrics:
    if score is None:
        return metrics
    return msgspec.structs.replace(metrics, score=score.score, confidence=score.confidence)


def _check_limits(
    limits: Thresholds, metrics: RunMetrics, scores: Mapping[str, JudgeScore | None], label: str
) -> list[Verdict]:
    """Compare the metrics with the limits; a limit on the score is one on each judged rubric."""
    if limits == NO_LIMITS:
        return []
    of_judge = Thresholds(min_score=limits.min_score, min_confidence=limits.min_confidence)
    others = msgspec.structs.replace(limits, min_score=None, min_confidence=None)
    verdicts = check_thresholds(others, metrics, label)
    if not scores:
        return verdicts + check_thresholds(of_judge, metrics, label)
    for name, score in scores.items():
        title = label if len(scores) == 1 else f"{label}{name}: "
        verdicts += check_thresholds(of_judge, _with_score(metrics, score), title)
    return verdicts


# --- The identity of a result


def identify_case(
    loaded: LoadedPack, case: AnyCase, options: EvalOptions, surroundings: Surroundings
) -> IdentityDigest:
    """Return what the result of a case depends on, as far as it is known before the run."""
    pack = loaded.pack
    identity = IdentityDigest(surroundings)
    identity.add(case, pack.severity_of(case), options.classifier)
    kind_of(case).identify_case(case, loaded, identity)
    if not isinstance(case, EvalCase):
        return identity
    rubrics = [loaded.rubrics[name] for name in case.rubrics]
    identity.add(rubrics, pack.defaults, pack.judge, pack.prices, pack.baseline)
    for reference in filter(
        lambda reference: reference and isinstance(reference, str),
        (
            *(case.run, case.trace, case.friction_events, case.fixture, case.compare_to),
            *(pack.baseline, case.playbook, case.cassette, case.manifest, case.dataset),
            case.settings,
        ),
    ):
        fixture = loaded.fixtures.get(str(reference))
        identity.add(fixture)
        if fixture is None or fixture.inline is None:
            identity.add_file(loaded.resolve(str(reference)))
    if case.workspace:
        identity.add_folder(loaded.base / case.workspace)
    # The judges of the whole run belong to each of its cases.
    identity.add(options.judge.source, options.judge.model)
    for source, base in ((options.judge.source, Path()), (_judge_of(pack), loaded.base)):
        if source and source not in PROVIDERS:
            identity.add_file(base / source)
    for rubric in filter(lambda rubric: rubric.judged, rubrics):
        settings = settings_for(rubric, loaded, options.judge)
        identity.add(settings)
        for source in (model.source for model in settings.panel or (settings,)):
            if source in PROVIDERS:
                if options.live:
                    identity.add_unknown("the judge is a real model")
            elif source:
                base = Path() if source == options.judge.source else loaded.base
                identity.add_file(base / source)
    return identity


def _judge_of(pack: Pack) -> str:
    settings = pack.judge or pack.defaults.judge
    return settings.source if settings else ""
