"""GitHub Actions: annotations at the failing lines, and Markdown for the summary of a step.

The texts come from models and tools. In an annotation they are percent-encoded, so they cannot
begin another workflow command. In Markdown they are character references or in a fence that is
longer than any of theirs, so they are never markup.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, cast

from offbook.reports.report import Case, Suite, encodable, join_suites
from offbook.secrets import excerpt, outgoing

if TYPE_CHECKING:
    from collections.abc import Generator

AnnotationLevel = Literal["error", "warning", "notice"]
# GitHub shows ten annotations of a step, and refuses a summary of more than 1 MiB.
MAX_ROWS = 100
MAX_CELL = 200
MAX_DETAILS = 30
MAX_DETAIL = 4_000
MARKS = {"passed": "✓ passed", "failed": "✗ failed", "error": "✗ error", "skipped": "skipped"}
_MARKUP = re.compile(r"[!#$&*+.:<>@\[\\\]^_`{|}~]")  # a dot and a colon make a link
_BREAKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")


class GitHubReport:
    """One annotation for each failed case, and a notice for each change by the agent."""

    suffix = "txt"

    def render(self, *suites: Suite) -> str:
        """Return the workflow commands, one in each line."""
        lines = [
            annotation(
                "error",
                case.detail or case.status,
                title=case.name,
                file=case.file,
                line=case.line,
            )
            for suite in suites
            for case in suite.cases
            if case.failed
        ]
        lines += [
            annotation("notice", change.text, title=f"{suite.name}: the agent changed something")
            for suite in suites
            for change in suite.changes
            if change.level == "shown"
        ]
        return "".join(f"{line}\n" for line in lines)


class MarkdownReport:
    """A table of the cases, the details of the failed ones, and what the agents changed."""

    suffix = "md"

    def render(self, *suites: Suite) -> str:
        """Return the Markdown; failed cases come first."""
        total = join_suites(suites)
        failed = [case for case in total.cases if case.failed]
        shown = (failed + [case for case in total.cases if not case.failed])[:MAX_ROWS]
        lines = [f"## {escape_markdown(total.name)}: {describe_counts(total)}", ""]
        lines += ["| result | name | reason |", "|---|---|---|"]
        for case in shown:
            name, reason = (
                escape_markdown(excerpt(text, MAX_CELL))
                for text in (case.name, outgoing(case.message).partition("\n")[0])
            )
            lines.append(f"| {MARKS[case.status]} | {name} | {reason} |")
        if len(total.cases) > len(shown):
            lines.append(f"\n… and {len(total.cases) - len(shown)} more")
        for case in failed[:MAX_DETAILS]:
            if case.detail.strip():
                lines += ["", f"### {escape_markdown(_title(case))}", "", fence(case.detail)]
        if total.changes:
            lines += ["", "### Changed by the agent", ""]
            lines += [f"- {escape_markdown(one.text)}" for one in total.changes[:MAX_DETAILS]]
            if len(total.changes) > MAX_DETAILS:
                lines.append(f"- … and {len(total.changes) - MAX_DETAILS} more")
        return "\n".join(lines) + "\n"


def describe_counts(suite: Suite) -> str:
    """Return the counts of a suite: `1 failed, 3 passed`; an empty suite is `no results`."""
    counts = {
        "failed": suite.count("failed") + suite.count("error"),
        "passed": suite.count("passed"),
        "skipped": suite.count("skipped"),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "no results"


def annotation(
    level: AnnotationLevel, message: str, *, title: str = "", file: str = "", line: int = 0
) -> str:
    """Return a workflow command that marks a line of a file, without a line end."""
    fields = {"file": _in_repository(file), "line": str(line) if line else "", "title": title}
    properties = ",".join(
        f"{name}={_percent_encode(value).replace(':', '%3A').replace(',', '%2C')}"
        for name, value in fields.items()
        if value
    )
    return f"::{level}{f' {properties}' if properties else ''}::{_percent_encode(message)}"


def _in_repository(file: str) -> str:
    """Return a path as GitHub needs it: relative to the repository, not to the present folder."""
    root = os.environ.get("GITHUB_WORKSPACE")
    if not file or not root:
        return file
    path = Path(file).absolute()
    inside = path.is_relative_to(Path(root).absolute())
    return path.relative_to(Path(root).absolute()).as_posix() if inside else file


def _percent_encode(text: str) -> str:
    # Other characters that some program takes for a line break are shown as a space.
    return _BREAKS.sub(
        lambda found: "".join({"\n": "%0A", "\r": "%0D"}.get(char, " ") for char in found[0]),
        encodable(text).replace("%", "%25"),
    )


def escape_markdown(text: str) -> str:
    """Return a text as one line of Markdown in which no character is markup."""
    line = _BREAKS.sub(" ", encodable(text)).strip()
    # A character reference is never syntax, also not in a table.
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)


def fence(text: str) -> str:
    """Return a text as a code block that it cannot end."""
    shown = encodable(excerpt(text, MAX_DETAIL)).replace("\r", "")
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    marks = "`" * max(3, longest + 1)
    return f"{marks}text\n{shown}\n{marks}"


def write_step_summary(markdown: str) -> bool:
    """Append Markdown to the summary of the present step; False outside of GitHub Actions."""
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return False
    with Path(target).open("a", encoding="utf-8") as file:
        file.write(markdown)
    return True


def _title(case: Case) -> str:
    where = f" ({case.file}:{case.line})" if case.file else ""
    return f"{excerpt(case.name, MAX_CELL)}{where}"


# --- Workflow commands. The runner reads the output of a step: a line that begins with `::`, after
# spaces, or contains `##[` is a command to it. A model or a tool could print one. In Actions, a
# space goes into such a text.

_COMMAND = re.compile(r"(?:(?:^|(?<=[\r\n]))\s*:(?=:))|##(?=\[)")
_LINE_END = re.compile(r"[\r\n]")


def in_github_actions() -> bool:
    """Return whether this process is a step of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def neutralize(text: str) -> str:
    """Return a text of which no line is a workflow command."""
    return _COMMAND.sub(lambda found: f"{found[0]} ", text)


class NeutralStream:
    """A text stream that writes no workflow commands but those of `write_commands`."""

    def __init__(self, stream: TextIO) -> None:
        self.commands = stream
        self._line = ""  # the present line until now, as far as it can begin a command

    def write(self, text: str) -> int:
        """Write a text; a command may also be in parts of several calls."""
        joined = self._line + text
        self.commands.write(neutralize(joined)[len(self._line) :])
        line = _LINE_END.split(joined)[-1]
        # Of a line with text in it, only its last characters can begin a command.
        self._line = line if line.strip() in {"", ":"} else f"x{line[-2:]}"
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.commands, name)


def write_commands(text: str, stream: TextIO) -> None:
    """Write workflow commands."""
    (stream.commands if isinstance(stream, NeutralStream) else stream).write(text)


@contextmanager
def neutral_output() -> Generator[None]:
    """In GitHub Actions, write no workflow commands to the output that the runner reads."""
    before = sys.stdout, sys.stderr
    if in_github_actions():
        sys.stdout, sys.stderr = (
            stream if _is_file(stream) else cast("TextIO", NeutralStream(stream))
            for stream in before
        )
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _is_file(stream: TextIO) -> bool:
    """Return whether a stream is redirected to a file, which gets its content unchanged."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # without a file descriptor
        return False
