"""A report tells verdicts to someone: here is what all of them tell, and the protocol.

Everything comes from the trace: a stored one can be reported again without its run.
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

Status = Literal["passed", "failed", "error", "skipped"]
TOGETHER = "offbook"
STATUSES: dict[str, Status] = {
    "pass": "passed",
    "warn": "passed",
    "fail": "failed",
    "no_data": "failed",
    "error": "error",
    "skip": "skipped",
}


class Attempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A try that failed before a later one passed."""

    attempt: int
    error: str
    kind: str = "failure"


class Case(msgspec.Struct, frozen=True, omit_defaults=True):
    """One verdict, as a report tells it."""

    name: str
    status: Status
    millis: int = 0
    message: str = ""
    expected: Any = None
    actual: Any = None
    kind: str = ""
    history: tuple[Attempt, ...] = ()

    @property
    def flaky(self) -> bool:
        """Whether it passed only after it had failed."""
        return self.status == "passed" and bool(self.history)

    @property
    def detail(self) -> str:
        """The message, with what was expected and what came where there is such a thing."""
        lines = [self.message] if self.message else []
        if self.expected is not None:
            lines.append(f"expected: {render_value(self.expected)}")
            lines.append(f"actual: {render_value(self.actual)}")
        return "\n".join(lines)


class Suite(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that a report tells: the cases of one run, and where its trace is."""

    name: str
    cases: tuple[Case, ...]
    start: int = 0
    stop: int = 0
    trace: str = ""

    def count(self, status: Status) -> int:
        """How many came out so."""
        return sum(case.status == status for case in self.cases)

    @property
    def green(self) -> bool:
        """Whether there was something to tell, and all of it was good."""
        return any(case.status == "passed" for case in self.cases) and not (
            self.count("failed") or self.count("error")
        )


class Report(Protocol):
    """One way to tell suites, one or several."""

    suffix: str

    def render(self, *suites: Suite) -> str:
        """The report's text."""
        ...


def join(suites: Sequence[Suite]) -> Suite:
    """All suites as one, for what is counted over all of them."""
    if len(suites) == 1:
        return suites[0]
    return Suite(
        TOGETHER,
        tuple(case for suite in suites for case in suite.cases),
        min((suite.start for suite in suites), default=0),
        max((suite.stop for suite in suites), default=0),
    )


# What breaks a line, and what one format or another has no way to say.
_BREAKS = re.compile(r"[\t\r\n\v\f\x1c-\x1f\x85\u2028\u2029]+")
_UNSAYABLE = re.compile("[\x00-\x1b\x7f\ud800-\udfff\ufffe\uffff]")


def plain_name(text: str) -> str:
    """A name that is the same in every format: on one line, in signs that all of them have."""
    name = _UNSAYABLE.sub("", _BREAKS.sub(" ", text)).strip()
    return f"{name}…" if name.endswith("{") else name  # which opens a subtest for readers of TAP


def render_value(value: object) -> str:
    """A value, as JSON; half a character, which UTF-8 does not have, is spelled out."""
    try:
        return msgspec.json.encode(value, enc_hook=repr).decode()
    except UnicodeEncodeError:
        return msgspec.json.encode(to_json_value(value)).decode()


def collect_suite(
    events: Iterable[Event], name: str, *, trace: str = "", history: tuple[Attempt, ...] = ()
) -> Suite:
    """The suite that a trace tells; every case has a name of its own.

    A failed attempt before the last one is the whole run's: it is told with the first case.
    """
    cases: list[Case] = []
    stamps: list[int] = []
    for event in events:
        stamps.append(event.ts)
        if event.event == VERDICT:
            verdict = msgspec.convert(event.data, Verdict)
            number = len(cases) + 1
            cases.append(_case(verdict, number, () if cases else history))
    return Suite(
        plain_name(name),
        tuple(_distinct(cases)),
        min(stamps, default=0),
        max(stamps, default=0),
        trace.encode("utf-8", "replace").decode(),  # a path may hold half a sign
    )


def _case(verdict: Verdict, number: int, history: tuple[Attempt, ...]) -> Case:
    return Case(
        plain_name(f"{number} {verdict.check}"),
        STATUSES[verdict.status],
        0,
        verdict.message,
        verdict.expected,
        verdict.actual,
        verdict.status,
        history,
    )


def _distinct(cases: list[Case]) -> Iterable[Case]:
    """The cases, with names that differ: some readers keep only the first of two that agree."""
    seen: Counter[str] = Counter()
    for case in cases:
        seen[case.name] += 1
        if seen[case.name] == 1:
            yield case
        else:
            yield msgspec.structs.replace(case, name=f"{case.name} ({seen[case.name]})")
