"""JUnit XML according to the schema of Jenkins, as GitLab, GitHub and Jenkins read it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from offbook.reports.report import Case, Suite, join_suites

# XML 1.0 cannot represent control characters, lone surrogates and two non-characters, not even
# as an escape.
INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class JUnitReport:
    """JUnit XML."""

    suffix = "xml"

    def render(self, *suites: Suite) -> str:
        """Return the XML document."""
        root = Element("testsuites", _totals(join_suites(suites)))
        for suite in suites:
            skipped = {"skipped": str(suite.count("skipped"))}
            element = SubElement(root, "testsuite", _totals(suite) | skipped)
            for case in suite.cases:
                _add_case(element, case, suite.name)
            if suite.trace:
                SubElement(element, "system-out").text = remove_invalid(f"trace: {suite.trace}")
        indent(root)
        text = tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _totals(suite: Suite) -> dict[str, str]:
    return {
        "name": remove_invalid(suite.name),
        "tests": str(len(suite.cases)),
        "failures": str(suite.count("failed")),
        "errors": str(suite.count("error")),
        "time": _seconds(suite.stop - suite.start),
    }


def _add_case(parent: Element, case: Case, suite_name: str) -> None:
    element = SubElement(
        parent,
        "testcase",
        {
            "name": remove_invalid(case.name),
            "classname": remove_invalid(suite_name),
            "time": _seconds(case.millis),
        },
    )
    message = remove_invalid(case.message or case.detail)
    if case.status == "skipped":
        SubElement(element, "skipped", {"message": message})
    elif case.failed:
        tag = "failure" if case.status == "failed" else "error"
        attributes = {"message": message, "type": remove_invalid(case.kind or "check")}
        SubElement(element, tag, attributes).text = remove_invalid(case.detail)
    for attempt in case.history:
        # The names of Maven Surefire: flaky if the case passed in the end, rerun if it did not.
        tag = "flakyFailure" if case.flaky else "rerunFailure"
        error = remove_invalid(attempt.error)
        attributes = {"message": error, "type": remove_invalid(attempt.kind)}
        SubElement(element, tag, attributes).text = error


def remove_invalid(text: str) -> str:
    """Return the text without the characters that XML cannot represent."""
    return INVALID_XML.sub("", text)


def _seconds(millis: int) -> str:
    return f"{max(0, millis) / 1000:.3f}"
