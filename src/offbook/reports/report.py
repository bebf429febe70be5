"""The protocol of a report, the suite of cases that every report renders, and the formats of CI.

A suite is read from the verdicts in a trace: a stored trace can be reported again without its run.
To add a format, write one file with a class that has `suffix` and `render`.

JUnit XML follows the schema of Jenkins, as GitLab, GitHub and Jenkins read it. TAP, the Test
Anything Protocol, has one line per case, with YAML diagnostics. The third is CTRF.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from offbook.capability import load
from offbook.errors import require_known
from offbook.trace.agent_output import truncate_texts
from offbook.trace.events import (
    CHANGE,
    REPLY,
    RUN_END,
    RUN_START,
    VERDICT,
    ConversationChange,
    Event,
    Verdict,
    read_data,
)
from offbook.trace.executions import EXECUTION_EVENTS
from offbook.trace.recorder import to_json_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from xml.etree.ElementTree import Element


CaseStatus = Literal["passed", "failed", "error", "skipped"]
ALL_SUITES = "offbook"
RUN_FINISHED = "run finished"
NO_END = "the trace ends before the run: it was killed, or still runs"
CASE_STATUSES: dict[str, CaseStatus] = {
    "pass": "passed",
    "warn": "passed",  # a warning must not fail a build
    "fail": "failed",
    "no_data": "failed",  # a check without data is never a pass
    "error": "error",
    "skip": "skipped",
}
LINE_BREAKS = re.compile(r"[\t\r\n\v\f\x1c-\x1f\x85\u2028\u2029]+")
# Characters that at least one of the formats cannot represent.
UNREPRESENTABLE = re.compile("[\x00-\x1b\x7f\ud800-\udfff\ufffe\uffff]")


# The formats of the core. Capabilities declare theirs in their `CAPABILITY`.
FORMATS = {
    "junit": "offbook.reports.report:JUnitReport",
    "tap": "offbook.reports.report:TapReport",
    "tap13": "offbook.reports.report:Tap13Report",
    "ctrf": "offbook.reports.report:CtrfReport",
    "json": "offbook.reports.json_report:JsonReport",
    "markdown": "offbook.reports.github:MarkdownReport",
    "github": "offbook.reports.github:GitHubReport",
    "badge": "offbook.reports.json_report:BadgeReport",
}


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A failed attempt before the last one."""

    attempt: int
    error: str
    kind: str = "failure"


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verdict in a report, and the line of the file that it is about, if that is known."""

    name: str
    status: CaseStatus
    millis: int = 0
    message: str = ""
    expected: Any = None
    actual: Any = None
    kind: str = ""
    history: tuple[Attempt, ...] = ()
    file: str = ""
    line: int = 0

    @property
    def flaky(self) -> bool:
        """True if it passed after a failed attempt."""
        return self.status == "passed" and bool(self.history)

    @property
    def failed(self) -> bool:
        """True if it failed or could not be evaluated."""
        return self.status in {"failed", "error"}

    @property
    def detail(self) -> str:
        """The message, followed by the expected and the actual value."""
        lines = [self.message] if self.message else []
        if self.expected is not None:
            lines.append(f"expected: {render_value(self.expected)}")
            lines.append(f"actual: {render_value(self.actual)}")
        return "\n".join(lines)


class Suite(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cases of one run, the path of its trace, and what the agent changed."""

    name: str
    cases: tuple[Case, ...]
    start: int = 0
    stop: int = 0
    trace: str = ""
    changes: tuple[ConversationChange, ...] = ()

    def count(self, status: CaseStatus) -> int:
        """Return the number of cases with this status."""
        return sum(case.status == status for case in self.cases)

    @property
    def green(self) -> bool:
        """True if at least one case passed and none failed: an empty suite is not green."""
        return any(case.status == "passed" for case in self.cases) and not any(
            case.failed for case in self.cases
        )


class Report(Protocol):
    """A format for one or several suites."""

    suffix: str

    def render(self, *suites: Suite) -> str:
        """Return the text of the report."""
        ...


def find_report(name: str) -> Report:
    """Return the renderer of a format of the core."""
    require_known("unknown report format", name, FORMATS)
    return load(FORMATS[name])()


def join_suites(suites: Sequence[Suite]) -> Suite:
    """Return one suite with the cases of all, for the totals."""
    if len(suites) == 1:
        return suites[0]
    return Suite(
        ALL_SUITES,
        tuple(case for suite in suites for case in suite.cases),
        min((suite.start for suite in suites), default=0),
        max((suite.stop for suite in suites), default=0),
        changes=tuple(change for suite in suites for change in suite.changes),
    )


def collect_suite(
    events: Iterable[Event], name: str, *, trace: str = "", history: tuple[Attempt, ...] = ()
) -> Suite:
    """Return the suite of the verdicts in a trace, and of the runs that did not finish.

    Failed attempts belong to the run as a whole: `history` is reported with the first case.
    """
    verdicts: list[Verdict] = []
    stamps: list[int] = []
    kept: list[Event] = []
    running = 0
    failed = ""
    for event in events:
        if event.event in EXECUTION_EVENTS or event.event in {CHANGE, REPLY}:
            kept.append(event)
        stamps.append(event.ts)
        if event.event == VERDICT:
            verdicts.append(read_data(event, Verdict))
        elif event.event == RUN_START:
            running += 1
        elif event.event == RUN_END:
            running = max(0, running - 1)
            if event.data.get("ok") is False:
                failed = str(event.data.get("error") or "the run failed")
    if failed and not {CASE_STATUSES[verdict.status] for verdict in verdicts} & {"failed", "error"}:
        verdicts.append(Verdict(RUN_FINISHED, "error", failed))
    verdicts += [Verdict(RUN_FINISHED, "error", NO_END)] * running
    cases: list[Case] = []
    names: Counter[str] = Counter()
    for verdict in verdicts:
        case_name = portable_name(f"{len(cases) + 1} {verdict.check}")
        names[case_name] += 1
        # Some readers of JUnit keep only the first of two cases with the same name.
        if names[case_name] > 1:
            case_name = f"{case_name} ({names[case_name]})"
        cases.append(
            Case(
                case_name,
                CASE_STATUSES[verdict.status],
                message=verdict.message,
                expected=verdict.expected,
                actual=verdict.actual,
                kind=verdict.status,
                history=() if cases else history,
                file=str(verdict.context.get("file", "")),
                line=_line_number(verdict.context.get("line")),
            )
        )
    return Suite(
        portable_name(name),
        tuple(cases),
        min(stamps, default=0),
        max(stamps, default=0),
        encodable(trace),  # a path can contain invalid UTF-8
        _read_changes(kept),
    )


def _read_changes(events: Sequence[Event]) -> tuple[ConversationChange, ...]:
    if all(event.event == REPLY for event in events):
        return ()
    from offbook.trace.query import read_changes  # few runs of a loop have tools of their own

    return tuple(read_changes(events))


def _line_number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def portable_name(text: str) -> str:
    """Return a name that every format represents the same: one line, common characters."""
    name = UNREPRESENTABLE.sub("", LINE_BREAKS.sub(" ", text)).strip()
    # A brace at the end of a line opens a subtest in TAP.
    return f"{name}…" if name.endswith("{") else name


def encodable(text: str) -> str:
    """Return the text without lone surrogates, which UTF-8 cannot encode."""
    return text.encode("utf-8", "replace").decode()


def render_value(value: object) -> str:
    """Return a value as JSON; a lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(to_json_value(value)).decode()


# XML 1.0 cannot represent control characters, lone surrogates and two non-characters, not even
# as an escape.
INVALID_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class JUnitReport:
    """JUnit XML."""

    suffix = "xml"

    def render(self, *suites: Suite) -> str:
        """Return the XML document."""
        from xml.etree.ElementTree import Element, SubElement, indent, tostring  # late: few need it

        root = Element("testsuites", _totals(join_suites(suites)))
        for suite in suites:
            skipped = {"skipped": str(suite.count("skipped"))}
            element = SubElement(root, "testsuite", _totals(suite) | skipped)
            if suite.changes:
                properties = SubElement(element, "properties")
                for change in suite.changes:  # under the name that the pytest plugin uses
                    named = {"name": "offbook.change", "value": remove_invalid(change.text)}
                    SubElement(properties, "property", named)
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
    from xml.etree.ElementTree import SubElement

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


# --------------------------------------------------------------------------------------- TAP

TAP_LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


class TapReport:
    """The Test Anything Protocol, version 14."""

    suffix = "tap"
    version = 14
    max_text = sys.maxsize

    def render(self, *suites: Suite) -> str:
        """Return the lines; with several suites, a case is prefixed with the name of its suite."""
        cases = [(suite, case) for suite in suites for case in suite.cases]
        if not cases:
            # A plan of zero tests is the form of TAP for a skipped file.
            return f"TAP version {self.version}\n1..0 # no assertions\n"
        lines = [f"TAP version {self.version}", f"1..{len(cases)}"]
        for number, (suite, case) in enumerate(cases, 1):
            name = f"{suite.name}: {case.name}" if len(suites) > 1 else case.name
            lines += _render_tap_case(case, name, number, self.max_text)
        for suite in suites:
            lines += [f"# changed: {_one_line(change.text)}" for change in suite.changes]
        lines += [f"# trace: {_one_line(suite.trace)}" for suite in suites if suite.trace]
        return "\n".join(lines) + "\n"


class Tap13Report(TapReport):
    """Version 13, for readers such as `prove` that reject a newer one."""

    suffix = "tap13"
    version = 13
    max_text = 3_000  # `prove` rejects longer texts in diagnostics


def _render_tap_case(case: Case, name: str, number: int, max_text: int) -> list[str]:
    line = f"{'not ok' if case.failed else 'ok'} {number} - {_escape(name)}"
    # A directive ends the line: a skipped case has its reason there, and no diagnostics.
    if case.status == "skipped":
        return [f"{line} # SKIP {_escape(case.message)}".rstrip()]

    def quote(text: str) -> str:
        return _quote(truncate_texts(text, max_text))

    # Each value is a YAML string that contains JSON.
    diagnostics: dict[str, str] = {}
    if case.failed:
        diagnostics["message"] = quote(case.message or case.detail)
        diagnostics["severity"] = quote("fail" if case.status == "failed" else "error")
    if case.status == "failed" and case.expected is not None:
        diagnostics["expected"] = quote(render_value(case.expected))
        diagnostics["actual"] = quote(render_value(case.actual))
    if case.history:
        diagnostics["flaky"] = "true" if case.flaky else "false"
        diagnostics["attempts"] = quote(render_value(case.history))
    if not diagnostics:
        return [line]
    return [line, "  ---", *(f"  {key}: {value}" for key, value in diagnostics.items()), "  ..."]


def _escape(text: str) -> str:
    """Return a description on one line, with the two special characters of TAP escaped."""
    return _one_line(text).replace("\\", "\\\\").replace("#", "\\#")


def _one_line(text: str) -> str:
    return CONTROL_CHARACTERS.sub("", TAP_LINE_BREAKS.sub(" ", text)).strip()


def _quote(text: str) -> str:
    """Return a text as a double-quoted YAML string in ASCII.

    JSON is not enough: it writes a character outside of the BMP as two escapes, which YAML reads
    as two characters.
    """

    def escape(match: re.Match[str]) -> str:
        character = match[0]
        if character in '"\\':
            return f"\\{character}"
        code = ord(character)
        if code <= 0xFF:  # noqa: PLR2004 - the widths of YAML's escapes
            return f"\\x{code:02x}"
        return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - as above

    return '"' + re.sub(r'[^ -~]|["\\]', escape, text) + '"'


# -------------------------------------------------------------------------------------- CTRF

# CTRF has no status for an error; `rawStatus` keeps the difference.
CTRF_STATUSES = {"passed": "passed", "failed": "failed", "error": "failed", "skipped": "skipped"}


class CtrfReport:
    """The Common Test Report Format."""

    suffix = "json"

    def render(self, *suites: Suite) -> str:
        """Return the JSON document."""
        total = join_suites(suites)
        changes = [encodable(change.text) for change in total.changes]
        report = {
            "reportFormat": "CTRF",
            "specVersion": "0.0.0",
            "results": {
                **({"extra": {"changes": changes}} if changes else {}),
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
                "tests": [
                    _render_ctrf_case(case, suite) for suite in suites for case in suite.cases
                ],
            },
        }
        return msgspec.json.format(msgspec.json.encode(report, enc_hook=repr)).decode() + "\n"


def _render_ctrf_case(case: Case, suite: Suite) -> dict[str, Any]:
    test: dict[str, Any] = {
        "name": encodable(case.name),
        "status": CTRF_STATUSES[case.status],
        "duration": case.millis,
        "suite": [encodable(suite.name)],
    }
    if case.failed:
        test["message"] = encodable(case.message or case.detail)
        # In CTRF, `trace` is the stack trace of a failure.
        test["trace"] = encodable(case.detail)
        test["rawStatus"] = case.kind or case.status
    if case.status == "skipped" and case.message:
        test["message"] = encodable(case.message)
    if case.history:
        test["flaky"] = case.flaky
        test["retries"] = len(case.history)
        test["retryAttempts"] = [
            {"attempt": one.attempt, "status": "failed", "message": encodable(one.error)}
            for one in case.history
        ]
    if suite.trace:
        test["attachments"] = [
            {"name": "trace", "contentType": "application/jsonl", "path": suite.trace}
        ]
    return test
