"""Isolation from the network, before each test of pytest, and its results for GitHub.

The reports are imported at the end of a session in GitHub Actions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.determinism.network_guard import NetworkGuard, block_network
from offbook.errors import ConnectionBlocked
from offbook.exchange.providers import explain_refusal
from offbook.sources.inprocess.telemetry import disable_telemetry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.reports.report import Case, CaseStatus

__all__ = [
    "ConnectionBlocked",
    "NetworkGuard",
    "block_network",
    "disable_telemetry",
    "explain_refusal",
    "in_github_actions",
    "make_case",
    "publish_cases",
]


def in_github_actions() -> bool:
    """Return whether this is a step of a workflow."""
    from offbook.reports.github import in_github_actions

    return in_github_actions()


def make_case(name: str, status: CaseStatus, message: str, file: str, line: int) -> Case:
    """Return the case of a test, without secrets."""
    from offbook.reports.report import Case, portable_name
    from offbook.secrets import hide_secrets

    message = hide_secrets(message)
    return Case(portable_name(name), status, message=message, file=file, line=line)


def publish_cases(cases: Iterable[Case]) -> str:
    """Write the summary of the step, and return the annotations to print."""
    from offbook.reports.github import GitHubReport, MarkdownReport, write_step_summary
    from offbook.reports.report import Suite

    suite = Suite("Tests", tuple(cases))
    try:
        write_step_summary(MarkdownReport().render(suite))
    except OSError as error:  # a full disk: the annotations and the summary of pytest are printed
        return f"{GitHubReport().render(suite)}offbook: no step summary: {error.strerror}\n"
    return GitHubReport().render(suite)
