"""`offbook live`: the scenarios of live scripts, on the real thing."""

from __future__ import annotations

import asyncio
from collections import Counter

import click

from offbook.errors import UsageError, nearest
from offbook.runs.goldens.live import prove
from offbook.runs.goldens.project import Project
from offbook.surfaces.cli import options

EXAMPLE = """\b
Example:
  offbook live
  offbook live hub

\b
Exit codes:
  0  everything that ran is as its golden expects, and something ran
  1  something is not, or nothing could run
  2  wrong usage
"""


@click.command("live", epilog=EXAMPLE)
@click.argument("components", nargs=-1)
@options.project
def command(components: tuple[str, ...], project: Project) -> int:
    """Play the scenarios of live scripts on the real thing, and compare with the goldens."""
    known = project.registry.scripts()
    for name in components:
        if name not in known:
            raise UsageError(f"{name!r} has no live script", hint=nearest(name, known))
    if not known:
        raise UsageError(
            "there is no live script", where=str(project.root), hint="scripts/live/NAME_live.py"
        )
    shown = [one for name in components or known for one in asyncio.run(prove(project, name))]
    for one in shown:
        click.echo(one.tell())
    counts = Counter(one.state for one in shown)
    click.echo(", ".join(f"{counts[state]} {state}" for state in ("passed", "failed", "skipped")))
    if not counts["passed"] and not counts["failed"]:
        click.echo("nothing ran, so nothing was shown", err=True)
    return int(bool(counts["failed"]) or not counts["passed"])
