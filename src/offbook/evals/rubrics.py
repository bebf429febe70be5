"""Rubrics: the conditions and limits of a case, and the judges of those that a model scores.

The judge is a `ModelSource`: a file (playbook, mocks, cassette) or, with `--live`, a provider.
Without one the rubric is not run, and a blocking one fails. An answer that is not a score is
an error of the case, never a score. A calibration shows how far a judge agrees with labelled
examples, and where it is biased.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from io import BytesIO
from pathlib import Path
from statistics import fmean, median
from typing import Any, cast

import msgspec

from offbook.checks.assertion import Assertion, evaluate_all
from offbook.checks.budgets import check_limit
from offbook.checks.context import CheckContext, NoData
from offbook.checks.judge import (
    MAX_SCORE,
    MIN_SCORE,
    Evaluation,
    Judge,
    ask_judge,
    compare_pair,
)
from offbook.checks.trial_statistics import Interval, bootstrap, cohen_kappa
from offbook.errors import ModelError, OffbookError, RunError, UsageError, counted
from offbook.evals.friction import Suggestion
from offbook.evals.pack import (
    FRICTION_KINDS,
    SEVERITIES,
    EvalCase,
    JudgeSettings,
    LoadedPack,
    Rubric,
    Thresholds,
)
from offbook.evals.run_record import RunRecord, StoredRun, judge_problem
from offbook.exchange.dialects.dialect import ModelPrice
from offbook.exchange.messages import join_text
from offbook.exchange.model import ModelSource, Reply, Request, Usage
from offbook.exchange.providers import cost_of, find_price
from offbook.runs.agents import JudgeConfig
from offbook.secrets import outgoing
from offbook.sources.live import PROVIDERS, LimitedSource, LiveLimits
from offbook.trace.events import AGENT_START, Event, Verdict
from offbook.trace.executions import read_executions
from offbook.trace.reader import Trace

MAX_TARGET = 200_000


class JudgeOptions(msgspec.Struct, frozen=True):
    """The options of a run: a judge for all rubrics, and whether real models are allowed.

    The file `agreements` has the agreement of each judge with its labelled examples, which is
    measured once for all processes of a run.
    """

    source: str = ""
    model: str = ""
    live: bool = False
    limits: LiveLimits = LiveLimits()
    agreements: str = ""


class _CountedSource:
    """The model of a judge, with the sum of its costs. One that is not live has none."""

    def __init__(self, source: ModelSource, price: ModelPrice | None, *, live: bool) -> None:
        self._source = source
        self._live = live
        self._price = price
        self.cost = 0.0
        self.has_unknown_cost = False

    async def reply(self, request: Request, /) -> Reply:
        reply = await self._source.reply(request)
        if self._price is not None:
            self.cost += cost_of(reply.usage, self._price)
        elif self._live:
            self.has_unknown_cost = True
        return reply


def settings_for(rubric: Rubric, loaded: LoadedPack, options: JudgeOptions) -> JudgeSettings:
    """Return the settings of a rubric's judge: of the options, the rubric, or the pack."""
    pack = loaded.pack
    settings = rubric.judge or pack.judge or pack.defaults.judge or JudgeSettings()
    if options.source:
        settings = msgspec.structs.replace(
            settings, source=options.source, model=options.model or settings.model, panel=()
        )
    return settings


def build_judges(settings: JudgeSettings, loaded: LoadedPack, options: JudgeOptions) -> list[Judge]:
    """Return the judge, or those of a panel; none if one is not configured or not allowed."""
    models = settings.panel or (settings,)
    if any(not m.source or (m.source in PROVIDERS and not options.live) for m in models):
        return []
    judges: list[Judge] = []
    for model in models:
        name = model.source
        if name not in PROVIDERS:
            # A file of the options is relative to where the command runs, one of the pack to it.
            base = Path() if name == options.source else loaded.base
            name = str(base / name)
        environment = dict(os.environ) if options.live else {}
        config = JudgeConfig(
            name,
            model=model.model,
            env=environment,
            temperature=model.temperature,
            seed=model.seed,
        )
        judge = config.build(loaded.base)
        # Only a real model costs anything.
        live = model.source in PROVIDERS
        price = find_price(model.model, loaded.pack.prices) if live else None
        source = LimitedSource(judge.source, options.limits) if live else judge.source
        counted_source = _CountedSource(source, price, live=live)
        judges.append(msgspec.structs.replace(judge, source=counted_source))
    return judges


class JudgedRubric(msgspec.Struct, frozen=True):
    """The verdicts of a judge, its score by rubric or `rubric/criterion`, and its cost.

    `unpriced` are the models that were used and have no price.
    """

    verdicts: list[Verdict]
    scores: dict[str, JudgeScore] = {}
    cost_usd: float = 0
    unpriced: tuple[str, ...] = ()


def judge_rubric(
    rubric: Rubric, evidence: Evidence, loaded: LoadedPack, options: JudgeOptions, case: EvalCase
) -> JudgedRubric:
    """Return the verdicts and scores of a judged rubric."""
    settings = settings_for(rubric, loaded, options)
    scores: dict[str, JudgeScore] = {}
    judges: list[Judge] = []
    try:
        judges = build_judges(settings, loaded, options)
        if not judges:
            return JudgedRubric([_not_run(rubric, settings, options)])
        if settings.min_agreement is not None:
            require_agreement(rubric, settings, judges, loaded.base, options.agreements)
        work = read_judged_work(evidence, case, settings)
        for name, question in questions_of(rubric, settings).items():
            scores[name] = asyncio.run(vote(judges, rubric, settings, question, work))
    except OffbookError as error:
        of_provider = isinstance(error, ModelError)
        message = f"{rubric.id}: no answer of the judge: {error}" if of_provider else str(error)
        failed = Verdict(f"{rubric.id}: judge", "error", message)
        return JudgedRubric([failed], {}, *_cost_of(judges))
    verdicts = [
        verdict
        for name, score in scores.items()
        for verdict in _score_verdicts(name, score, rubric, settings)
    ]
    return JudgedRubric(verdicts, scores, *_cost_of(judges))


def _cost_of(judges: Sequence[Judge]) -> tuple[float, tuple[str, ...]]:
    """Return the sum of the known costs, and the models without a price."""
    sources = [(judge.model, cast("_CountedSource", judge.source)) for judge in judges]
    unpriced = (model for model, source in sources if source.has_unknown_cost)
    return sum(source.cost for _, source in sources), tuple(unpriced)


def _score_verdicts(
    name: str, score: JudgeScore, rubric: Rubric, settings: JudgeSettings
) -> Iterator[Verdict]:
    details: dict[str, Any] = {
        "reasoning": score.reasoning,
        "prompt_version": settings.prompt_version,
    }
    least = passing_score(rubric)
    message = f"{name}: score {score.score:.2f} is below {least:g}: {score.reasoning}"
    if len(score.votes) > 1:
        details |= {"agreement": score.confidence, "votes": msgspec.to_builtins(score.votes)}
        votes = ", ".join(f"{vote.judge} {vote.score:.2f}" for vote in score.votes)
        message += f" (votes: {votes})"
    yield Verdict(
        f"{name}: judge",
        "pass" if score.passed else "fail",
        "" if score.passed else message,
        least,
        score.score,
        details,
    )
    least = settings.confidence_min
    if least is None:
        return
    name = f"{name}: confidence"
    if score.confidence is None:
        message = "no data: one vote has no confidence; set votes"
        yield Verdict(name, "no_data", message, least)
    else:
        message = f"confidence {score.confidence:.2f} is below {least:g}"
        low = score.confidence < least
        yield judge_problem(name, message if low else "", least, score.confidence)


def _not_run(rubric: Rubric, settings: JudgeSettings, options: JudgeOptions) -> Verdict:
    severity = SEVERITIES.get(rubric.thresholds.severity or "", rubric.thresholds.severity)
    reason = f"rubric {rubric.id!r} requires an LLM judge and was not run"
    models = settings.panel or (settings,)
    live = [model.source for model in models if model.source in PROVIDERS]
    if live and not options.live:
        reason += f": {live[0]} is a real model; allow it with --live"
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
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TARGET else outgoing(text)[:MAX_TARGET]


class JudgedWork(msgspec.Struct, frozen=True):
    """What a judge sees: the output, the input, a reference, and how the agent worked."""

    output: str
    input: str = ""
    reference: str = ""
    trajectory: str = ""


def read_judged_work(evidence: Evidence, case: EvalCase, settings: JudgeSettings) -> JudgedWork:
    """Return what a judge sees of a run."""
    output = read_target(evidence)
    given = case.prompt or case.input or evidence.record.task
    if not given and evidence.trace is not None:
        prompts = [str(event.data["prompt"]) for event in Trace(evidence.trace) if is_prompt(event)]
        given = "\n\n".join(prompts)
    reference = "" if case.reference is None else to_text(case.reference)
    if settings.pairwise and not reference:
        raise UsageError("nothing to compare with: the case has no reference", where=case.id)
    trajectory = read_trajectory(evidence) if settings.trajectory else ""
    return JudgedWork(output, _cut(to_text(given)), reference, _cut(trajectory))


def is_prompt(event: Event) -> bool:
    """Return whether an event is a prompt to the agent."""
    return event.event == AGENT_START and bool(event.data.get("prompt"))


def read_trajectory(evidence: Evidence) -> str:
    """Return the tools that a run used, each with its input and its result."""
    lines: list[str] = []
    if evidence.trace is not None:
        for use in read_executions(Trace(evidence.trace)).uses:
            content = () if use.execution is None else use.execution.content
            result = join_text(content) or ("done" if use.ran else "not executed")
            failed = "failed: " if use.failed else ""
            lines.append(f"{use.tool} {to_text(use.input)}\n-> {failed}{result}")
    else:
        lines += [f"{t.tool_name}\n-> {to_text(t.result)}" for t in evidence.record.tool_recordings]
    return "\n".join(lines) or "The agent used no tools."


def to_text(value: Any) -> str:
    """Return a text as it is, and any other value as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value)


DEFAULT_MIN_SCORE = 0.5


class Vote(msgspec.Struct, frozen=True):
    """One answer of a judge."""

    judge: str
    score: float
    reasoning: str


class JudgeScore(msgspec.Struct, frozen=True):
    """The score of a judge from 0 to 1; `confidence` is the share of votes that agree with it."""

    score: float
    confidence: float | None
    reasoning: str
    passed: bool
    votes: tuple[Vote, ...] = ()


def passing_score(rubric: Rubric) -> float:
    """Return the lowest score that passes."""
    limit = rubric.thresholds.min_score
    return DEFAULT_MIN_SCORE if limit is None else limit


def questions_of(rubric: Rubric, settings: JudgeSettings) -> dict[str, str]:
    """Return the questions to the judge, by the name of their score."""
    prompt = rubric.prompt or settings.rubric or rubric.description
    if not rubric.criteria:
        return {rubric.id: prompt or f"Is {rubric.id} fulfilled?"}
    return {
        f"{rubric.id}/{name}": f"{prompt}\n\n{question}".strip()
        for name, question in rubric.criteria.items()
    }


async def ask_once(
    judge: Judge, rubric: Rubric, settings: JudgeSettings, question: str, work: JudgedWork
) -> Vote:
    """Return one score from 0 to 1, and its reasoning."""
    name = judge.model or judge.dialect
    evaluation = Evaluation("custom", rubric.id, custom_prompt=question)
    if settings.pairwise:
        pair = work.output, work.reference
        score, reasoning = await compare_pair(judge, evaluation, *pair, task=work.input)
        return Vote(name, score, reasoning)
    evaluation = msgspec.structs.replace(evaluation, reference=work.reference)
    judgement = await ask_judge(
        judge, evaluation, work.output, task=work.input, trajectory=work.trajectory
    )
    score = (judgement.score - MIN_SCORE) / (MAX_SCORE - MIN_SCORE)
    return Vote(name, score, judgement.reasoning)


async def vote(
    judges: Sequence[Judge],
    rubric: Rubric,
    settings: JudgeSettings,
    question: str,
    work: JudgedWork,
) -> JudgeScore:
    """Return the score of the majority of votes; without one, the tie-break decides."""
    votes = [
        await ask_once(judge, rubric, settings, question, work)
        for judge in judges
        for _ in range(settings.votes)
    ]
    least = passing_score(rubric)
    passes = [vote.score >= least for vote in votes]
    scores = [vote.score for vote in votes]
    ((majority, count),) = Counter(passes).most_common(1)
    score = median(scores)
    if count * 2 == len(votes):
        match settings.tie_break:
            case "pass" | "highest":
                majority, score = True, max(scores)
            case "median":
                majority = score >= least
            case _:  # no benefit of doubt
                majority, score = False, min(scores)
    reasoning = next(v.reasoning for v, ok in zip(votes, passes, strict=True) if ok is majority)
    confidence = passes.count(majority) / len(votes) if len(votes) > 1 else None
    return JudgeScore(score, confidence, reasoning, majority, tuple(votes))


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


async def calibrate(
    judges: Sequence[Judge], rubric: Rubric, settings: JudgeSettings
) -> dict[str, CalibrationReport]:
    """Score the labelled examples of a rubric, and compare the scores with the labels.

    Each criterion has a report, and so has each judge of a panel.
    """
    labelled = [e for e in rubric.calibration if e.score is not None or e.scores]
    if len(labelled) < MIN_EXAMPLES:
        raise UsageError(
            f"the rubric {rubric.id!r} has {counted(len(labelled), 'labelled example')}",
            hint=f"add at least {MIN_EXAMPLES} with a score to calibration",
        )
    reports: dict[str, CalibrationReport] = {}
    for name, question in questions_of(rubric, settings).items():
        criterion = name.removeprefix(f"{rubric.id}/")
        rows: dict[str, list[CalibrationRow]] = {}
        for number, example in enumerate(labelled, 1):
            label = example.scores.get(criterion, example.score)
            if label is None:
                raise UsageError(
                    f"the example {number} has no score for {criterion!r}", where=rubric.id
                )
            if settings.pairwise and example.reference is None:
                raise UsageError(
                    f"nothing to compare with: the example {number} has no reference",
                    where=rubric.id,
                )
            output = to_text(example.output)
            work = JudgedWork(
                output, to_text(example.input), to_text(example.reference), example.trajectory
            )
            score = await vote(judges, rubric, settings, question, work)
            row = CalibrationRow(number, label, score.score, len(output), score.reasoning)
            rows.setdefault(name, []).append(row)
            for place, own in enumerate(score.votes[:: settings.votes] if settings.panel else ()):
                title = f"{name} by {own.judge or settings.panel[place].source}"
                row = CalibrationRow(number, label, own.score, len(output), own.reasoning)
                rows.setdefault(title, []).append(row)
        least = passing_score(rubric)
        if len({row.expected >= least for row in rows[name]}) == 1:
            raise UsageError(
                f"the labels of {name!r} are all on one side of {least:g}: any judge may agree",
                hint="add an example with a label on the other side to calibration",
            )
        for title, found in rows.items():
            reports[title] = report_agreement(found, least)
    return reports


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
        bootstrap(rows, lambda chosen: cohen_kappa(_table(chosen, least))),
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


def require_agreement(
    rubric: Rubric, settings: JudgeSettings, judges: Sequence[Judge], base: Path, file: str
) -> None:
    """Raise an error if a judge agrees less with the labelled examples than a rubric demands.

    `base` is the folder of the pack: the judge of another pack may have the same name. The `file`
    has what was measured before, by any process; they measure one after the other.
    """
    least = settings.min_agreement or 0.0
    key = msgspec.json.encode((str(base.absolute()), rubric, settings)).decode()
    if file:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
    with open(file, "a+b") if file else nullcontext(BytesIO()) as opened:  # noqa: PTH123 - to lock it
        if file:
            fcntl.flock(opened, fcntl.LOCK_EX)
        opened.seek(0)
        known = msgspec.json.decode(opened.read() or b"{}", type=dict[str, float])
        if key not in known:
            reports = asyncio.run(calibrate(judges, rubric, settings))
            known[key] = min(reports[name].kappa for name in questions_of(rubric, settings))
            opened.truncate(0)
            opened.write(msgspec.json.encode(known))
    if known[key] < least:
        raise RunError(
            f"the judge agrees too little with the labelled examples: kappa"
            f" {known[key]:.2f}, expected at least {least:g}",
            where=rubric.id,
            hint="offbook eval run PACK --calibrate shows where they differ",
        )


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
    found = evaluate_all(_parse_assertions(rubric), context)
    for item, verdict in zip(rubric.assertions, found, strict=True):
        name = f"{rubric.id}: {item.kind or 'path'}"
        verdicts.append(msgspec.structs.replace(verdict, check=name))
    return verdicts


# The assertions of the last rubrics, by their id: the cases of a pack share a few. The rubrics are
# kept alive, so that no other one gets the id of one.
_parsed: dict[int, tuple[Rubric, list[Assertion]]] = {}
MAX_PARSED = 64


def _parse_assertions(rubric: Rubric) -> list[Assertion]:
    found = _parsed.get(id(rubric))
    if found is None:
        if len(_parsed) >= MAX_PARSED:
            _parsed.clear()
        found = _parsed[id(rubric)] = rubric, [item.parse() for item in rubric.assertions]
    return found[1]
