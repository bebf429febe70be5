"""Rubrics: the conditions and limits of a case, and the judges of those that a model scores.

The judge is a `ModelSource`: a file (playbook, mocks, cassette) or, with `--live`, a provider.
Without one the rubric is not run, and a blocking one fails. An answer that is not a score is
an error of the case, never a score. A calibration shows how far a judge agrees with labelled
examples, and where it is biased.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import msgspec

from offbook.checks.assertion import evaluate_all
from offbook.checks.budgets import check_limit
from offbook.checks.context import CheckContext, NoData
from offbook.checks.judge import MAX_SCORE, MIN_SCORE, Evaluation, Judge, ask_judge
from offbook.checks.trial_statistics import CONFIDENCE, RESAMPLES, Interval, cohen_kappa
from offbook.errors import JudgeError, OffbookError, UsageError, counted
from offbook.evals.friction import Suggestion
from offbook.evals.pack import (
    FRICTION_KINDS,
    SEVERITIES,
    CalibrationExample,
    JudgeSettings,
    LoadedPack,
    Rubric,
    Thresholds,
)
from offbook.evals.run_record import RunRecord, StoredRun
from offbook.exchange.dialects.dialect import ModelPrice
from offbook.exchange.model import ModelSource, Reply, Request, Usage
from offbook.exchange.providers import cost_of, find_price
from offbook.runs.agents import JudgeConfig
from offbook.secrets import outgoing
from offbook.sources.live import PROVIDERS
from offbook.trace.events import Verdict
from offbook.trace.reader import Trace

MAX_TARGET = 200_000


class JudgeOptions(msgspec.Struct, frozen=True):
    """The options of a run: a judge for all rubrics, and whether real models are allowed."""

    source: str = ""
    model: str = ""
    live: bool = False


class _CountedSource:
    """The model of a judge, with the sum of its costs."""

    def __init__(self, source: ModelSource, price: ModelPrice | None) -> None:
        self._source = source
        self._price = price
        self.cost = 0.0

    async def reply(self, request: Request, /) -> Reply:
        reply = await self._source.reply(request)
        if self._price is not None:
            self.cost += cost_of(reply.usage, self._price)
        return reply


def settings_for(rubric: Rubric, loaded: LoadedPack, options: JudgeOptions) -> JudgeSettings:
    """Return the settings of a rubric's judge: of the options, the rubric, or the pack."""
    pack = loaded.pack
    settings = rubric.judge or pack.judge or pack.defaults.judge or JudgeSettings()
    if options.source:
        settings = msgspec.structs.replace(
            settings, source=options.source, model=options.model or settings.model
        )
    return settings


def build_judge(settings: JudgeSettings, loaded: LoadedPack, options: JudgeOptions) -> Judge | None:
    """Return the judge, or None if none is configured."""
    if not settings.source:
        return None
    if settings.source in PROVIDERS and not options.live:
        return None
    source = settings.source
    if source not in PROVIDERS:
        # A file of the options is relative to where the command runs, one of the pack to the pack.
        base = Path() if source == options.source else loaded.base
        source = str(base / source)
    environment = dict(os.environ) if options.live else {}
    config = JudgeConfig(source, model=settings.model, env=environment)
    return config.build(loaded.base)


def judge_rubric(
    rubric: Rubric, evidence: Evidence, loaded: LoadedPack, options: JudgeOptions
) -> tuple[list[Verdict], JudgeScore | None]:
    """Return the verdicts of a judged rubric, and its score."""
    settings = settings_for(rubric, loaded, options)
    judge = build_judge(settings, loaded, options)
    if judge is None:
        return [_not_run(rubric, settings, options)], None
    try:
        if settings.min_agreement is not None:
            require_agreement(rubric, settings, judge, loaded.base)
        # Only a real model costs anything.
        live = settings.source in PROVIDERS
        price = find_price(settings.model, loaded.pack.prices) if live else None
        counted = _CountedSource(judge.source, price)
        judge = msgspec.structs.replace(judge, source=counted)
        score = asyncio.run(vote(judge, rubric, settings, read_target(evidence)))
        score = msgspec.structs.replace(score, cost_usd=counted.cost)
    except OffbookError as error:
        return [Verdict(f"{rubric.id}: judge", "error", str(error))], None
    verdicts = [
        Verdict(
            f"{rubric.id}: judge",
            "pass" if score.passed else "fail",
            "" if score.passed else f"score {score.score:.2f}: {score.reasoning}",
            passing_score(rubric),
            score.score,
            {"reasoning": score.reasoning, "prompt_version": settings.prompt_version},
        )
    ]
    least = settings.confidence_min
    if least is not None:
        name = f"{rubric.id}: confidence"
        if score.confidence is None:
            message = "no data: one vote has no confidence; set votes"
            verdicts.append(Verdict(name, "no_data", message, least))
        elif score.confidence < least:
            message = f"confidence {score.confidence:.2f} is below {least:g}"
            verdicts.append(Verdict(name, "fail", message, least, score.confidence))
        else:
            verdicts.append(Verdict(name, "pass", "", least, score.confidence))
    return verdicts, score


def _not_run(rubric: Rubric, settings: JudgeSettings, options: JudgeOptions) -> Verdict:
    severity = SEVERITIES.get(rubric.thresholds.severity or "", rubric.thresholds.severity)
    reason = f"rubric {rubric.id!r} requires an LLM judge and was not run"
    if settings.source in PROVIDERS and not options.live:
        reason += f": {settings.source} is a real model; allow it with --live"
    else:
        reason += ": configure one in [rubrics.judge] source, or with --judge"
    blocking = (severity or "blocking") == "blocking"
    return Verdict(f"{rubric.id}: judge", "fail" if blocking else "warn", reason)


def read_target(evidence: Evidence) -> str:
    """Return the text to judge: the output of the run, else the visible text of its stages."""
    record = evidence.record
    if record.output is not None:
        value = record.output
        text = value if isinstance(value, str) else json.dumps(value)
    else:
        text = "\n\n".join(stage.visible_text for stage in record.stages if stage.visible_text)
    if not text.strip():
        raise UsageError("nothing to judge: the run has no output and no visible text")
    return text if len(text) <= MAX_TARGET else outgoing(text)[:MAX_TARGET]


DEFAULT_MIN_SCORE = 0.5


class JudgeScore(msgspec.Struct, frozen=True):
    """The score of a judge from 0 to 1; `confidence` is the share of votes that agree with it."""

    score: float
    confidence: float | None
    reasoning: str
    passed: bool
    cost_usd: float = 0


def passing_score(rubric: Rubric) -> float:
    """Return the lowest score that passes."""
    limit = rubric.thresholds.min_score
    return DEFAULT_MIN_SCORE if limit is None else limit


def question_of(rubric: Rubric, settings: JudgeSettings) -> Evaluation:
    """Return the question to the judge."""
    prompt = rubric.prompt or settings.rubric or rubric.description
    return Evaluation("custom", rubric.id, custom_prompt=prompt or f"Is {rubric.id} fulfilled?")


async def ask_once(
    judge: Judge, rubric: Rubric, settings: JudgeSettings, text: str
) -> tuple[float, str]:
    """Return one score from 0 to 1, and its reasoning."""
    judgement = await ask_judge(judge, question_of(rubric, settings), text)
    return (judgement.score - MIN_SCORE) / (MAX_SCORE - MIN_SCORE), judgement.reasoning


async def vote(judge: Judge, rubric: Rubric, settings: JudgeSettings, text: str) -> JudgeScore:
    """Return the score of the majority of votes; without one, the tie-break decides."""
    answers = [await ask_once(judge, rubric, settings, text) for _ in range(max(1, settings.votes))]
    least = passing_score(rubric)
    passes = [score >= least for score, _ in answers]
    scores = [score for score, _ in answers]
    ((majority, count),) = Counter(passes).most_common(1)
    score = median(scores)
    if count * 2 == len(answers):
        match settings.tie_break:
            case "pass" | "highest":
                majority, score = True, max(scores)
            case "median":
                majority = score >= least
            case _:  # no benefit of doubt
                majority, score = False, min(scores)
    reasoning = next(text for (_, text), ok in zip(answers, passes, strict=True) if ok is majority)
    confidence = passes.count(majority) / len(answers) if len(answers) > 1 else None
    return JudgeScore(score, confidence, reasoning, majority)


def target_of_example(value: Any) -> str:
    """Return the text of a labelled example."""
    return value if isinstance(value, str) else json.dumps(value)


LABELS = ("fail", "pass")
MIN_EXAMPLES = 2


class CalibrationRow(msgspec.Struct, frozen=True):
    """One example: the score of the label and of the judge."""

    number: int
    expected: float
    actual: float
    length: int
    reasoning: str = ""


class CalibrationReport(msgspec.Struct, frozen=True):
    """The agreement of a judge with labelled examples.

    `table` counts examples by label (rows) and judge (columns): fail, pass. A bias is the mean of
    judge minus label: by position, of the second half minus the first half of the examples; by
    length, of the longer minus the shorter texts.
    """

    examples: int
    agreement: float
    kappa: float
    interval: Interval
    table: tuple[tuple[int, int], tuple[int, int]]
    mean_error: float
    position_bias: float
    length_bias: float
    rows: list[CalibrationRow]


async def calibrate(judge: Judge, rubric: Rubric, settings: JudgeSettings) -> CalibrationReport:
    """Score the labelled examples of a rubric, and compare the scores with the labels."""
    labelled = [example for example in rubric.calibration if example.score is not None]
    if len(labelled) < MIN_EXAMPLES:
        raise UsageError(
            f"the rubric {rubric.id!r} has {counted(len(labelled), 'labelled example')}",
            hint=f"add at least {MIN_EXAMPLES} with a score to calibration",
        )
    rows: list[CalibrationRow] = []
    for number, example in enumerate(labelled, 1):
        text = target_of_example(example.output)
        score, reasoning = await ask_once(judge, rubric, settings, _with_input(example, text))
        rows.append(CalibrationRow(number, example.score or 0.0, score, len(text), reasoning))
    return report_agreement(rows, passing_score(rubric))


def _with_input(example: CalibrationExample, text: str) -> str:
    if example.input is None:
        return text
    return f"{target_of_example(example.input)}\n\n{text}"


def report_agreement(rows: Sequence[CalibrationRow], least: float) -> CalibrationReport:
    """Return the report of scores; `least` is the lowest score that passes."""
    table = _table(rows, least)
    errors = [row.actual - row.expected for row in rows]
    half = len(rows) // 2
    middle = median(row.length for row in rows)
    longer = [error for row, error in zip(rows, errors, strict=True) if row.length > middle]
    shorter = [error for row, error in zip(rows, errors, strict=True) if row.length <= middle]
    return CalibrationReport(
        len(rows),
        (table[0][0] + table[1][1]) / len(rows),
        cohen_kappa(table),
        _kappa_interval(rows, least),
        table,
        fmean(errors),
        fmean(errors[half:]) - fmean(errors[:half]),
        (fmean(longer) - fmean(shorter)) if longer and shorter else 0.0,
        list(rows),
    )


def _table(rows: Sequence[CalibrationRow], least: float) -> tuple[tuple[int, int], tuple[int, int]]:
    counts = [[0, 0], [0, 0]]
    for row in rows:
        counts[row.expected >= least][row.actual >= least] += 1
    return (counts[0][0], counts[0][1]), (counts[1][0], counts[1][1])


def _kappa_interval(rows: Sequence[CalibrationRow], least: float) -> Interval:
    """Return the bootstrap interval of kappa; the same rows give the same interval."""
    generator = random.Random(len(rows))  # noqa: S311 - statistics, not secrets
    values = sorted(
        cohen_kappa(_table(generator.choices(rows, k=len(rows)), least)) for _ in range(RESAMPLES)
    )
    tail = (1 - CONFIDENCE) / 2
    return Interval(values[int(tail * RESAMPLES)], values[int((1 - tail) * RESAMPLES) - 1])


def render_calibration(name: str, report: CalibrationReport) -> Iterator[str]:
    """Yield the lines for a terminal."""
    low, high = report.interval
    yield f"{name}: {report.examples} examples"
    yield f"agreement {report.agreement:.2f}, kappa {report.kappa:.2f} ({low:.2f} to {high:.2f})"
    yield "label      judge: fail   pass"
    for label, row in zip(LABELS, report.table, strict=True):
        yield f"{label:<10} {row[0]:>11} {row[1]:>6}"
    yield (
        f"mean error {report.mean_error:+.2f}, bias by position {report.position_bias:+.2f}, "
        f"by length {report.length_bias:+.2f}"
    )


_agreements: dict[bytes, float] = {}  # a pack calibrates its judge once for each process


def require_agreement(rubric: Rubric, settings: JudgeSettings, judge: Judge, base: Path) -> None:
    """Raise an error if a judge agrees less with the labelled examples than a rubric demands.

    `base` is the folder of the pack: the judge of another pack may have the same name.
    """
    least = settings.min_agreement or 0.0
    key = msgspec.json.encode((str(base.absolute()), rubric, settings))
    if key not in _agreements:
        report = asyncio.run(calibrate(judge, rubric, settings))
        _agreements[key] = report.kappa
    if _agreements[key] < least:
        raise JudgeError(
            f"the judge agrees too little with the labelled examples: kappa"
            f" {_agreements[key]:.2f}, expected at least {least:g}",
            where=rubric.id,
            hint="offbook eval run PACK --calibrate shows where they differ",
        )


# --- Rubrics


# --- Limits on the metrics of a run


class RunMetrics(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The metrics of a run; None where the run has no data."""

    latency_ms: float | None = None
    cost_usd: float | None = None
    tokens: int | None = None
    stage_count: int | None = None
    score: float | None = None
    confidence: float | None = None


def measure(record: RunRecord, prices: Mapping[str, ModelPrice]) -> RunMetrics:
    """Return the metrics of a run record. A missing cost is computed from tokens and prices."""
    usage = record.usage
    if usage is None:
        return RunMetrics(stage_count=len(record.stages))
    counted = [n for n in (usage.input_tokens, usage.output_tokens) if n is not None]
    cost = usage.total_cost
    if cost is None and counted and len(usage.models) == 1:
        price = find_price(usage.models[0], prices)
        if price is not None:
            tokens = Usage(
                usage.input_tokens or 0,
                usage.output_tokens or 0,
                usage.cache_read_tokens or 0,
                usage.cache_write_tokens or 0,
            )
            cost = cost_of(tokens, price)
    return RunMetrics(
        usage.total_duration_ms, cost, sum(counted) if counted else None, len(record.stages)
    )


def check_thresholds(limits: Thresholds, metrics: RunMetrics, label: str) -> list[Verdict]:
    """Compare the metrics with the limits; a metric at its limit passes."""
    verdicts: list[Verdict] = []
    for name, (metric, limit) in limits.limits().items():
        title = f"{label}{name.replace('_', '-')}"
        actual = getattr(metrics, metric)
        minimum = name.startswith("min_")
        verdicts.append(check_limit(title, metric, limit, actual, minimum=minimum))
    return verdicts


# --- Rubrics


class Evidence(msgspec.Struct, frozen=True):
    """The data of a run: its record, its trace and folder, or suggestions."""

    run: StoredRun | None = None
    trace: Path | None = None
    folder: Path | None = None
    metrics: RunMetrics = RunMetrics()
    suggestions: Sequence[Suggestion] | None = None

    @property
    def record(self) -> RunRecord:
        """The record of the run; without one there is no data."""
        if self.run is None:
            raise NoData("the case has no run record")
        return self.run.record


def evaluate_rubric(rubric: Rubric, evidence: Evidence) -> list[Verdict]:
    """Return the verdicts of a rubric that needs no judge."""
    if (rubric.kind in FRICTION_KINDS) and evidence.suggestions is None:
        message = f"no data: the rubric {rubric.id!r} needs friction events"
        return [Verdict(rubric.id, "no_data", message)]
    verdicts = check_thresholds(rubric.thresholds, evidence.metrics, f"{rubric.id}: ")
    context = CheckContext(
        None if evidence.trace is None else Trace(evidence.trace),
        evidence.folder,
        record=None if evidence.run is None else evidence.run.raw,
        suggestions=evidence.suggestions,
    )
    found = evaluate_all([item.parse() for item in rubric.assertions], context)
    for item, verdict in zip(rubric.assertions, found, strict=True):
        name = f"{rubric.id}: {item.kind or 'path'}"
        verdicts.append(msgspec.structs.replace(verdict, check=name))
    return verdicts
