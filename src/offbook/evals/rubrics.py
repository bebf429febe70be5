"""Rubrics: the conditions and limits of a case, evaluated on the evidence of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from offbook.checks.assertion import evaluate_all
from offbook.checks.budgets import check_limit
from offbook.checks.context import CheckContext, NoData
from offbook.evals.friction import Suggestion
from offbook.evals.pack import FRICTION_KINDS, Rubric, Thresholds
from offbook.evals.run_record import RunRecord, StoredRun
from offbook.exchange.dialects.dialect import ModelPrice
from offbook.exchange.model import Usage
from offbook.exchange.providers import cost_of, find_price
from offbook.trace.events import Verdict
from offbook.trace.reader import Trace

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
