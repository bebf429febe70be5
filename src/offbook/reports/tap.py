"""TAP 14 and 13, the Test Anything Protocol: one line per case, with YAML diagnostics."""

from __future__ import annotations

import re
import sys

from offbook.reports.report import Case, Suite, render_value
from offbook.trace.agent_output import truncate_texts

LINE_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
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
            lines += _render_case(case, name, number, self.max_text)
        lines += [f"# trace: {_one_line(suite.trace)}" for suite in suites if suite.trace]
        return "\n".join(lines) + "\n"


class Tap13Report(TapReport):
    """Version 13, for readers such as `prove` that reject a newer one."""

    suffix = "tap13"
    version = 13
    max_text = 3_000  # `prove` rejects longer texts in diagnostics


def _render_case(case: Case, name: str, number: int, max_text: int) -> list[str]:
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
    return CONTROL_CHARACTERS.sub("", LINE_BREAKS.sub(" ", text)).strip()


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
