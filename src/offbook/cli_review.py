"""The review of pending changes on the command line: one key for each decision.

`offbook snapshot review` and `offbook golden review` use it. Without a terminal it lists the
pending changes and the commands that decide.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from offbook.checks.pending_changes import PendingChange, Review
from offbook.checks.snapshot import in_ci
from offbook.cli_options import print_json, use_colour
from offbook.errors import OffbookError
from offbook.reports.styled_lines import StyledLine, StyledText, print_lines
from offbook.secrets import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from offbook.checks.snapshot import SnapshotDiff

KEYS = {
    "a": "accept",
    "r": "reject",
    "s": "skip",
    "A": "accept all",
    "u": "undo",
    "q": "quit",
}
KEYS_LINE = "  ".join(f"{key} {action}" for key, action in KEYS.items())
REVIEW_CODES = """\b
Keys:
  a accept, r reject, s skip, A accept all, u undo, q quit

\b
Exit codes:
  0  nothing is pending
  1  something is still pending
  2  wrong usage; in CI, any decision
"""
DIFF_STYLES = {"+": "ok", "-": "error", "@": "faint"}


def run_review(
    review: Review,
    *,
    accept: Sequence[str],
    reject: Sequence[str],
    as_json: bool,
    command: Sequence[str],
) -> int:
    """Decide by name, or by keys on a terminal, or list what is pending. Return the exit code.

    `command` is the command that was called, for the hints.
    """
    decides_by_name = bool(accept or reject)
    # A script that has a terminal by chance must not wait for a key in CI.
    if (
        review.changes
        and not decides_by_name
        and not as_json
        and sys.stdin.isatty()
        and not in_ci()
    ):
        _ask_for_each(review)
        return int(bool(review.left))
    result = review.decide(accept=accept, reject=reject)
    if as_json:
        print_json(result)
        return int(bool(result.left))
    for label, paths in (("accepted", result.accepted), ("rejected", result.rejected)):
        for path in paths:
            click.echo(f"{label} {path}")
    for change in review.left:
        click.echo(f"pending {change.path} ({_state(change)})")
    if not review.changes:
        click.echo("nothing is pending")
    elif review.left:
        line = shlex.join(command)
        name = shlex.quote(review.left[0].name)
        click.echo(f"next: {line} in a terminal, or {line} --accept {name}, or --reject {name}")
    return int(bool(result.left))


def _ask_for_each(review: Review) -> None:
    changes = review.changes
    at = 0
    # What `u` goes back to: the position before an action, and the decisions made until then.
    history: list[tuple[int, int]] = []
    while True:
        finished = at >= len(changes)
        if finished:
            click.echo(_summarize(review))
            if not review.decisions:
                return
            click.echo("u undo  any other key: end")
        else:
            print_lines(
                _describe(changes[at], at + 1, len(changes)), sys.stdout, colour=use_colour()
            )
            click.echo(KEYS_LINE)
        key = _read_key()
        if key == "u":
            if not history:
                click.echo("nothing to undo")
                continue
            at, count = history.pop()
            while len(review.decisions) > count:
                review.undo()
            click.echo("undone")
            continue
        if finished:
            return
        if key == "q":
            click.echo(_summarize(review))
            return
        if key not in KEYS:
            click.echo(f"unknown key {escape_controls(key)!r}")
            continue
        history.append((at, len(review.decisions)))
        # Decisions apply at once: those before Ctrl-C stay, and each is whole.
        for change in changes[at:] if key == "A" else changes[at : at + 1]:
            try:
                if key in "aA":
                    review.accept(change)
                    click.echo(f"accepted {change.name}")
                elif key == "r":
                    review.reject(change)
                    click.echo(f"rejected {change.name}")
                at += 1
            except OffbookError as error:
                click.echo(f"not accepted: {error}" if key != "r" else f"not rejected: {error}")
                break
        if history[-1] == (at, len(review.decisions)):
            history.pop()  # nothing was done


def _read_key() -> str:
    try:
        key = click.getchar()
    except EOFError:  # Ctrl-D
        return "q"
    return key[:1]  # a key such as an arrow has several characters


def _summarize(review: Review) -> str:
    result = review.result
    counts = {
        "accepted": result.accepted,
        "rejected": result.rejected,
        "still pending": result.left,
    }
    return ", ".join(f"{len(paths)} {label}" for label, paths in counts.items() if paths)


def _state(change: PendingChange) -> str:
    return "new" if change.new else "changed"


def _describe(change: PendingChange, number: int, count: int) -> Iterator[StyledLine]:
    title = f"{change.kind} {escape_controls(change.name)}"
    place = f" {number} of {count} · {_state(change)} · {escape_controls(change.path)}"
    yield ()
    yield StyledText(title, "name"), StyledText(place, "faint")
    yield from describe_difference(change.difference)


def describe_difference(difference: SnapshotDiff) -> Iterator[StyledLine]:
    """Yield the changes of each file as a unified diff."""
    for sign, names in (
        ("~", difference.changed_files),
        ("+", difference.added_files),
        ("-", difference.deleted_files),
    ):
        for name in names:
            changes = difference.diffs[name]
            head = f"{sign} {escape_controls(name)} (+{changes.additions} -{changes.deletions})"
            yield (StyledText(head, "name"),)
            for hunk in changes.hunks:
                yield (StyledText(f"@@ {hunk.start}-{hunk.end} @@", "faint"),)
                for line in escape_controls(hunk.content).split("\n"):
                    yield (StyledText(line, DIFF_STYLES.get(line[:1], "")),)
    if difference.empty:
        yield (StyledText("nothing changed", "faint"),)
