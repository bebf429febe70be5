"""The results of a pytest session for GitHub Actions: annotations and the summary of the step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.reports.github import GitHubReport, MarkdownReport, write_step_summary
from offbook.reports.report import Case, Suite, portable_name
from offbook.reports.workflow_commands import in_github_actions
from offbook.secrets import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.reports.report import CaseStatus


__all__ = ["Case", "in_github_actions", "make_case", "publish_cases"]


def make_case(name: str, status: CaseStatus, message: str, file: str = "", line: int = 0) -> Case:
    """Return the case of a test, without secrets."""
    message = hide_secrets(message)
    return Case(portable_name(name), status, message=message, file=file, line=line)


def publish_cases(cases: Iterable[Case]) -> str:
    """Write the summary of the step, and return the annotations to print."""
    suite = Suite("Tests", tuple(cases))
    write_step_summary(MarkdownReport().render(suite))
    return GitHubReport().render(suite)
