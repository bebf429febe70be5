"""TAP 14, for whatever reads lines."""

from __future__ import annotations

import re

import msgspec

from offbook.reports.report import Case, Suite, render_value

_BREAKS = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


class TapReport:
    """The Test Anything Protocol, version 14."""

    suffix = "tap"

    def render(self, *suites: Suite) -> str:
        """The lines of suites; of several, each case is told with the name of its suite."""
        named = [(suite, case) for suite in suites for case in suite.cases]
        if not named:
            return "TAP version 14\n1..0 # no assertions\n"
        lines = ["TAP version 14", f"1..{len(named)}"]
        for number, (suite, case) in enumerate(named, 1):
            told = f"{suite.name}: {case.name}" if len(suites) > 1 else case.name
            lines += _point(msgspec.structs.replace(case, name=told), number)
        lines += [f"# trace: {one_line(suite.trace)}" for suite in suites if suite.trace]
        return "\n".join(lines) + "\n"


def _point(case: Case, number: int) -> list[str]:
    word = "not ok" if case.status in {"failed", "error"} else "ok"
    line = f"{word} {number} - {escape(case.name)}"
    if case.status == "skipped":
        return [f"{line} # SKIP {escape(case.message)}".rstrip()]
    block = _block(case)
    return (
        [line, "  ---", *(f"  {key}: {value}" for key, value in block.items()), "  ..."]
        if (block)
        else [line]
    )


def _block(case: Case) -> dict[str, str]:
    """What a diagnosis says; every value is JSON on one line, which YAML reads as it is."""
    told: dict[str, str] = {}
    if case.status in {"failed", "error"}:
        told["message"] = quote(case.message or case.detail)
        told["severity"] = quote("fail" if case.status == "failed" else "error")
    if case.status == "failed" and case.expected is not None:
        told["expected"] = quote(render_value(case.expected))
        told["actual"] = quote(render_value(case.actual))
    if case.history:
        told["flaky"] = "true" if case.flaky else "false"
        told["attempts"] = quote(render_value(case.history))
    return told


def escape(text: str) -> str:
    """A description: its only two signs with a meaning escaped, and no line end in it."""
    return one_line(text).replace("\\", "\\\\").replace("#", "\\#")


def one_line(text: str) -> str:
    """The text on one line."""
    return _CONTROLS.sub("", _BREAKS.sub(" ", text)).strip()


def quote(text: str) -> str:
    """A text as a YAML string in double quotes, in ASCII: whatever it holds."""
    signs = [f"\\x{ord(s):02x}" if ord(s) < 0x20 or ord(s) == 0x7F else _sign(s) for s in text]  # noqa: PLR2004 - ASCII
    return '"' + "".join(signs) + '"'


def _sign(sign: str) -> str:
    if sign in {'"', "\\"}:
        return f"\\{sign}"
    code = ord(sign)
    if code < 0x7F:  # noqa: PLR2004 - ASCII
        return sign
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - the BMP
