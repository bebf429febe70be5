"""The suite as it is, in JSON: for machines that want everything."""

from __future__ import annotations

import msgspec

from offbook.reports.report import Suite


class Data:
    """Everything, as JSON."""

    suffix = "json"

    def render(self, suite: Suite) -> str:
        """The JSON of a suite."""
        told = {
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
        return msgspec.json.format(msgspec.json.encode(told, enc_hook=repr)).decode() + "\n"
