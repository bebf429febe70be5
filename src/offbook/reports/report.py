"""The protocol of a report, and the suite of cases that every report renders.

A suite is read from the verdicts in a trace: a stored trace can be reported again without its run.
To add a format, write one file with a class that has `suffix` and `render`.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec

from offbook.trace.events import VERDICT, Event, Verdict
from offbook.trace.recorder import to_json_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CaseStatus = Literal["passed", "failed", "error", "skipped"]
ALL_SUITES = "offbook"
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
    """The cases of one run, and the path of its trace."""

    name: str
    cases: tuple[Case, ...]
    start: int = 0
    stop: int = 0
    trace: str = ""

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


def join_suites(suites: Sequence[Suite]) -> Suite:
    """Return one suite with the cases of all, for the totals."""
    if len(suites) == 1:
        return suites[0]
    return Suite(
        ALL_SUITES,
        tuple(case for suite in suites for case in suite.cases),
        min((suite.start for suite in suites), default=0),
        max((suite.stop for suite in suites), default=0),
    )


def collect_suite(
    events: Iterable[Event], name: str, *, trace: str = "", history: tuple[Attempt, ...] = ()
) -> Suite:
    """Return the suite of the verdicts in a trace.

    Failed attempts belong to the run as a whole: `history` is reported with the first case.
    """
    cases: list[Case] = []
    stamps: list[int] = []
    names: Counter[str] = Counter()
    for event in events:
        stamps.append(event.ts)
        if event.event != VERDICT:
            continue
        verdict = msgspec.convert(event.data, Verdict)
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
        trace.encode("utf-8", "replace").decode(),  # a path can contain invalid UTF-8
    )


def _line_number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0


def portable_name(text: str) -> str:
    """Return a name that every format represents the same: one line, common characters."""
    name = UNREPRESENTABLE.sub("", LINE_BREAKS.sub(" ", text)).strip()
    # A brace at the end of a line opens a subtest in TAP.
    return f"{name}…" if name.endswith("{") else name


def render_value(value: object) -> str:
    """Return a value as JSON; a lone surrogate, which UTF-8 cannot encode, is escaped."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(to_json_value(value)).decode()
