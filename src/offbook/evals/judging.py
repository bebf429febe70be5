"""Rubrics of the kind `llm-judge`: a model scores the result of a run.

The judge is a `ModelSource`: a file (playbook, mocks, cassette) or, with `--live`, a provider.
Without one the rubric is not run, and a blocking one fails. An answer that is not a score is
an error of the case, never a score.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import msgspec

from offbook.checks.judge import Judge
from offbook.errors import OffbookError, UsageError
from offbook.evals.calibration import require_agreement
from offbook.evals.judge_scores import JudgeScore, passing_score, vote
from offbook.evals.pack import SEVERITIES, JudgeSettings, LoadedPack, Rubric
from offbook.evals.rubrics import Evidence
from offbook.exchange.model import ModelSource, Reply, Request
from offbook.exchange.model_prices import ModelPrice, cost_of, find_price
from offbook.runs.judge_factory import JudgeConfig
from offbook.secrets import outgoing
from offbook.sources.live import PROVIDERS
from offbook.trace.events import Verdict

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
