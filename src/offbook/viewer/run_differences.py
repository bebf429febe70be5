"""The differences of two eval runs, case by case, with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any, cast

from offbook.checks.trial_statistics import compare_paired
from offbook.runs.result_identity import REAL_MODEL

METRICS = ("latency_ms", "cost_usd", "tokens", "score")


def compare_results(
    before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the difference of each metric over the cases that both runs have."""
    first, second = _means(before), _means(after)
    found: dict[str, dict[str, Any]] = {}
    for metric in ("pass_rate", *METRICS):
        pairs = [
            (first[case][metric], second[case][metric])
            for case in sorted(first.keys() & second.keys())
            if metric in first[case] and metric in second[case]
        ]
        if pairs:
            difference = compare_paired([one for one, _ in pairs], [two for _, two in pairs])
            found[metric] = {
                "mean": difference.mean,
                "low": difference.interval.low,
                "high": difference.interval.high,
                "p_value": difference.p_value,
                "significant": difference.significant,
            }
    return found


def _means(results: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, float]]:
    """Return the means of the trials of each case, by its pack and id."""
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for result in results:
        case = values.setdefault((str(result.get("pack", "")), str(result["id"])), {})
        case.setdefault("pass_rate", []).append(float(result.get("status", "pass") == "pass"))
        metrics = cast("Mapping[str, Any]", result.get("metrics") or {})
        for metric in METRICS:
            # The time of a scripted run is that of the machine.
            scripted = result.get("kind") == "subject" and result.get("unidentified") != REAL_MODEL
            if metrics.get(metric) is not None and not (metric == "latency_ms" and scripted):
                case.setdefault(metric, []).append(float(metrics[metric]))
    return {
        case: {metric: fmean(numbers) for metric, numbers in found.items()}
        for case, found in values.items()
    }
