"""A limit on one figure of a run: the thresholds of evals and the budgets of tests."""

from __future__ import annotations

from offbook.trace.events import Verdict


def check_limit(
    title: str, metric: str, limit: float, actual: float | None, *, minimum: bool = False
) -> Verdict:
    """Return the verdict; a figure at its limit passes, and a missing one is no data."""
    if actual is None:
        message = f"no data: the run has no {metric.replace('_', ' ')}"
        return Verdict(title, "no_data", message, limit)
    ok = actual >= limit if minimum else actual <= limit
    word = "is below the minimum" if minimum else "exceeds the maximum"
    message = "" if ok else f"{metric} {actual:g} {word} {limit:g}"
    return Verdict(title, "pass" if ok else "fail", message, limit, actual)
