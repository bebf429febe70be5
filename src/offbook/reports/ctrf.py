"""CTRF, the Common Test Report Format: JSON for dashboards."""

from __future__ import annotations

from typing import Any

import msgspec

from offbook.reports.report import Case, Suite, join_suites

# CTRF has no status for an error; `rawStatus` keeps the difference.
CTRF_STATUSES = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}


class CtrfReport:
    """The Common Test Report Format."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """Return the JSON document."""
        total = join_suites(suites)
        report = {
            "reportFormat": "CTRF",
            "specVersion": "0.0.0",
            "results": {
                "tool": {"name": "offbook"},
                "summary": {
                    "tests": len(total.cases),
                    "passed": total.count("passed"),
                    "failed": total.count("failed") + total.count("error"),
                    "skipped": total.count("skipped"),
                    # Required by the schema; Offbook has no such statuses.
                    "pending": 0,
                    "other": 0,
                    "start": total.start,
                    "stop": total.stop,
                },
                "tests": [_render_case(case, suite) for suite in suites for case in suite.cases],
            },
        }
        return msgspec.json.format(msgspec.json.encode(report, enc_hook=repr)).decode() + "\n"


def _render_case(case: Case, suite: Suite) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": _encodable(case.name),
        "status": CTRF_STATUSES[case.status],
        "duration": case.millis,
        "suite": [_encodable(suite.name)],
    }
    if case.failed:
        test["message"] = _encodable(case.message or case.detail)
        # In CTRF, `trace` is the stack trace of a failure.
        test["trace"] = _encodable(case.detail)
        test["rawStatus"] = case.kind or case.status
    if case.status == "skipped" and case.message:
        test["message"] = _encodable(case.message)
    if case.history:
        test["flaky"] = case.flaky
        test["retries"] = len(case.history)
        test["retryAttempts"] = [
            {"attempt": one.attempt, "status": "failed", "message": _encodable(one.error)}
            for one in case.history
        ]
    if suite.trace:
        test["attachments"] = [
            {"name": "trace", "contentType": "application/jsonl", "path": suite.trace}
        ]
    return test


def _encodable(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()
