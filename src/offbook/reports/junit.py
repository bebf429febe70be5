"""JUnit XML, as the schema of Jenkins has it: what GitLab, GitHub and Jenkins read."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from offbook.reports.report import Case, Suite, join

# What XML 1.0 has no way to say: control characters, lone surrogates, the two non-characters.
_UNSAYABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitReport:
    """JUnit XML."""

    suffix = "xml"

    def render(self, *suites: Suite) -> str:
        """The XML of suites."""
        root = Element("testsuites", _numbers(join(suites)))
        for suite in suites:
            _add_suite(root, suite)
        indent(root)
        text = tostring(root, encoding="unicode")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _numbers(suite: Suite) -> dict[str, str]:
    return {
        "name": clean(suite.name),
        "tests": str(len(suite.cases)),
        "failures": str(suite.count("failed")),
        "errors": str(suite.count("error")),
        "time": seconds(suite.stop - suite.start),
    }


def _add_suite(root: Element, suite: Suite) -> None:
    about = _numbers(suite) | {"skipped": str(suite.count("skipped"))}
    body = SubElement(root, "testsuite", about)
    for case in suite.cases:
        _add_case(body, case, clean(suite.name))
    if suite.trace:
        SubElement(body, "system-out").text = clean(f"trace: {suite.trace}")


def _add_case(body: Element, case: Case, suite: str) -> None:
    about = {"name": clean(case.name), "classname": suite, "time": seconds(case.millis)}
    element = SubElement(body, "testcase", about)
    told = {"message": clean(case.message or case.detail), "type": clean(case.kind or "check")}
    if case.status == "skipped":
        SubElement(element, "skipped", {"message": told["message"]})
    elif case.status in {"failed", "error"}:
        tag = "failure" if case.status == "failed" else "error"
        SubElement(element, tag, told).text = clean(case.detail)
    for attempt in case.history:
        tag = "flakyFailure" if case.flaky else "rerunFailure"
        about = {"message": clean(attempt.error), "type": clean(attempt.kind)}
        SubElement(element, tag, about).text = clean(attempt.error)


def clean(text: str) -> str:
    """The text without what XML cannot say."""
    return _UNSAYABLE.sub("", text)


def seconds(millis: int) -> str:
    """Seconds, with three decimals."""
    return f"{max(0, millis) / 1000:.3f}"
