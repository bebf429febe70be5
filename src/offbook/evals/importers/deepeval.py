"""The data sets and test runs of deepeval.

A data set (`save_as`, in JSON, JSONL or CSV) has no metrics: the output must be the expected one,
as `ExactMatchMetric` demands, and the expected tools must have been called. A test run has the
outputs and the names of its metrics; most of these ask a model and are not carried over.
"""

from __future__ import annotations

import re
from typing import Any, cast

import msgspec

from offbook.evals.importers.suite import (
    COMPLETED,
    ImportedCase,
    PeerFile,
    Skipped,
    matches,
    quote,
    scalars,
)

EXACT, TOOLS = "Exact Match", "Tool Correctness"
GOLDEN = {"input", "expected_output"}
UNUSED = ("context", "retrieval_context")


class DeepEvalImporter:
    """Reads goldens, or a test run."""

    name = "deepeval"

    def recognizes(self, file: PeerFile) -> bool:
        return file.columns >= GOLDEN or isinstance(file.value.get("testCases"), list)

    def read(self, file: PeerFile, skipped: Skipped) -> list[ImportedCase]:
        if conversations := file.value.get("conversationalTestCases"):
            skipped["conversation"] += len(conversations)
        runs = cast("list[dict[str, Any]]", file.value.get("testCases") or [])
        cases = [_read_case(_snake(run), _metrics_of(run)) for run in runs]
        return cases + [_read_case(golden, [EXACT, TOOLS]) for golden in file.rows]


def _snake(run: dict[str, Any]) -> dict[str, Any]:
    return {re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): run[key] for key in run}


def _metrics_of(run: dict[str, Any]) -> list[str]:
    """Return the names of the metrics that decide the result of a case."""
    metrics = cast("list[dict[str, Any]]", run.get("metricsData") or [])
    return [str(metric["name"]) for metric in metrics if not metric.get("flaky")]


def _read_case(fields: dict[str, Any], metrics: list[str]) -> ImportedCase:
    expected, output = fields.get("expected_output") or None, fields.get("actual_output") or None
    case = ImportedCase(
        id=str(fields.get("name") or ""),
        input=fields.get("input"),
        reference=expected,
        metadata=scalars(fields.get("additional_metadata") or fields.get("metadata")),
        not_carried=[key.replace("_", " ") for key in UNUSED if fields.get(key)],
    )
    if output is not None:
        called = [{"tool_name": name} for name in _tools(fields.get("tools_called"))]
        case.run = {"output": output, "tool_recordings": called}
    checks: list[dict[str, Any]] = []
    for metric in metrics:
        if metric == EXACT:  # both are stripped
            pattern = rf"\A\s*{quote(expected.strip())}\s*\Z" if expected else ""
            checks += [matches(pattern)] if pattern else []
        elif metric == TOOLS:
            names = _tools(fields.get("expected_tools"))
            checks += [{"kind": "tool-called", "expected": names}] if names else []
        else:
            case.not_carried = [*case.not_carried, f"metric {metric}"]
    if fields.get("success") is not None:
        case.passed = bool(fields["success"])
    if not metrics:  # no metric: a case that ran has passed
        checks = [COMPLETED]
    case.assertions = checks
    return case


def _tools(value: Any) -> list[str]:
    """Return the names of tool calls; a CSV file has them as JSON in a text."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return []
    calls = cast("list[dict[str, Any]]", value) if isinstance(value, list) else []
    return [str(call["name"]) for call in calls]
