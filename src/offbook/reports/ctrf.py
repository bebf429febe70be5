"""CTRF, the common test report format: JSON for dashboards."""

from __future__ import annotations

from typing import Any

import msgspec

from offbook.reports.report import Case, Suite, join

STATUSES = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}


class CtrfReport:
    """The Common Test Report Format."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """The JSON of suites."""
        whole = join(suites)
        failed = whole.count("failed") + whole.count("error")
        report = {
            "reportFormat": "CTRF",
            "specVersion": "0.0.0",
            "results": {
                "tool": {"name": "offbook"},
                "summary": {
                    "tests": len(whole.cases),
                    "passed": whole.count("passed"),
                    "failed": failed,
                    "skipped": whole.count("skipped"),
                    "pending": 0,
                    "other": 0,
                    "start": whole.start,
                    "stop": whole.stop,
                },
                "tests": [_test(case, suite) for suite in suites for case in suite.cases],
            },
        }
        return msgspec.json.format(msgspec.json.encode(report, enc_hook=repr)).decode() + "\n"


def _test(case: Case, suite: Suite) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": sayable(case.name),
        "status": STATUSES[case.status],
        "duration": case.millis,
        "suite": [sayable(suite.name)],
    }
    if case.status in {"failed", "error"}:
        test["message"] = sayable(case.message or case.detail)
        test["trace"] = sayable(case.detail)
        test["rawStatus"] = case.kind or case.status
    if case.status == "skipped" and case.message:
        test["message"] = sayable(case.message)
    if case.history:
        test["flaky"] = case.flaky
        test["retries"] = len(case.history)
        test["retryAttempts"] = [
            {"attempt": one.attempt, "status": "failed", "message": sayable(one.error)}
            for one in case.history
        ]
    if suite.trace:
        kind = "application/jsonl"
        test["attachments"] = [{"name": "trace", "contentType": kind, "path": suite.trace}]
    return test


def sayable(text: str) -> str:
    """The text without lone surrogates, which JSON in UTF-8 cannot hold."""
    return text.encode("utf-8", "replace").decode()
