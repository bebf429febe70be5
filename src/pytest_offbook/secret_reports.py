"""Hides secrets in the reports of failed tests: CI keeps them, for instance as JUnit.

Offbook's errors show no secret, but the errors in their chain are of any library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.surfaces.fixtures import redact_text

if TYPE_CHECKING:
    import pytest


def redact_report(report: pytest.TestReport) -> None:
    """Hide the secrets in the traceback, its chain and the captured output."""
    report.sections = [(name, redact_text(text)) for name, text in report.sections]
    shown: Any = report.longrepr
    if isinstance(shown, str):
        report.longrepr = redact_text(shown)
        return
    # A chain, one traceback, or what another plugin made.
    crash: Any = getattr(shown, "reprcrash", None)
    only = (getattr(shown, "reprtraceback", None), None, None)
    chain: list[Any] = getattr(shown, "chain", [only])
    for place in filter(None, [crash, *(location for _, location, _ in chain)]):
        place.message = redact_text(place.message)
    for traceback, _, _ in chain:
        for entry in getattr(traceback, "reprentries", ()):
            for part in filter(None, (entry, getattr(entry, "reprlocals", None))):
                part.lines[:] = redact_text("\n".join(part.lines)).split("\n")
            arguments = getattr(entry, "reprfuncargs", None)
            if arguments is not None:
                arguments.args = [(name, redact_text(text)) for name, text in arguments.args]
