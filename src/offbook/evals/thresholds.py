"""Thresholds: limits on the metrics of a run, with three outcomes: pass, fail and no data."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from offbook.checks.budgets import check_limit
from offbook.evals.pack import Thresholds
from offbook.evals.run_record import RunRecord
from offbook.exchange.model import Usage
from offbook.exchange.model_prices import ModelPrice, cost_of, find_price
from offbook.trace.events import Verdict

UNITS = {
    "latency_ms": "ms",
    "cost_usd": "USD",
    "tokens": "tokens",
    "stage_count": "stages",
    "score": "score",
    "confidence": "confidence",
}


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
