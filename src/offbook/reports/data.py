"""The suite as it is, in JSON: for machines that want everything."""

from __future__ import annotations

from typing import Any

import msgspec

from offbook.reports.report import Suite, join, show


class Data:
    """Everything, as JSON."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """The JSON of suites; of several, all numbers first, then each."""
        told = _tell(join(suites))
        if len(suites) != 1:
            told = {**told, "cases": [], "suites": [_tell(suite) for suite in suites]}
            told["green"] = bool(suites) and all(suite.green for suite in suites)
        return msgspec.json.format(show(told).encode()).decode() + "\n"


def _tell(suite: Suite) -> dict[str, Any]:
    return {
        "name": suite.name,
        "tests": len(suite.cases),
        "passed": suite.count("passed"),
        "failed": suite.count("failed"),
        "errors": suite.count("error"),
        "skipped": suite.count("skipped"),
        "green": suite.green,
        "flaky": any(case.flaky for case in suite.cases),
        "duration_secs": (suite.stop - suite.start) / 1000,
        "trace": suite.trace,
        "cases": suite.cases,
    }
