"""`offbook review`: all pending changes of expected files, with one key for each decision.

Without a terminal it lists the pending changes and the commands that decide.
"""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import click

from offbook.capability import PENDING, load
from offbook.checks.expected_files import PendingChange, Review, in_ci, list_pending
from offbook.cli_options import describe_difference, json_option, print_json, use_colour
from offbook.errors import OffbookError
from offbook.reports.styled_lines import StyledLine, StyledText, print_lines
from offbook.secrets import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {
    "a": "accept",
    "r": "reject",
    "s": "skip",
    "A": "accept all",
    "u": "undo",
    "q": "quit",
}
KEYS_LINE = "  ".join(f"{key} {action}" for key, action in KEYS.items())
EXAMPLE = """\b
Example:
  offbook review
  offbook review tests/snapshots --accept one --accept two --json
  offbook review till/open-drawer
  offbook review flow --reject all

Pending are snapshots, golden transcripts and goldens of requests that do not match, as
FILE.proposed beside the expected file, and recordings that differ from their golden fixture.

\b
Keys:
  a accept, r reject, s skip, A accept all, u undo, q quit

\b
Exit codes:
  0  nothing is pending
  1  something is still pending
  2  wrong usage; in CI, any decision
"""


@click.command("review", epilog=EXAMPLE)
@click.argument("words", metavar="[FOLDER | WORKSPACE | NAME]…", nargs=-1)
@click.option("--accept", multiple=True, metavar="NAME|all", help="Approve it; repeatable.")
@click.option("--reject", multiple=True, metavar="NAME|all", help="Delete it; repeatable.")
@json_option
@click.pass_context
def review(
    context: click.Context,
    words: tuple[str, ...],
    *,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    as_json: bool,
) -> int:
    """Accept or reject changes of expected files, by keys or by name.

    Without a word, all pending changes in this folder are reviewed. A recording is accepted only if
    it is unedited and replays.
    """
    finders = [load(target) for target in context.meta.get(PENDING, ())]
    pending = Review(list_pending(words, finders))
    # A script that has a terminal by chance must not wait for a key in CI.
    asks = sys.stdin.isatty() and not (accept or reject or as_json or in_ci())
    if pending.changes and asks:
        _ask_for_each(pending)
        return int(bool(pending.left))
    result = pending.decide(accept=accept, reject=reject)
    if as_json:
        print_json(result)
        return int(bool(result.left))
    for label, paths in (("accepted", result.accepted), ("rejected", result.rejected)):
        for path in paths:
            click.echo(f"{label} {path}")
    for change in pending.left:
        click.echo(f"pending {change.path} ({_state(change)})")
    if not pending.changes:
        click.echo("nothing is pending")
    elif pending.left:
        line = shlex.join(["offbook", "review", *words])
        name = shlex.quote(pending.left[0].name)
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
