"""The option `--lenient`, and what it can name."""

from __future__ import annotations

import click

from offbook.exchange.rules import RULES

RULES_TOLD = "\n\n\b\nRules for --lenient, all of them held otherwise:\n" + "\n".join(
    f"  {name:<20} {refused}" for name, refused in RULES.items()
)

lenient_option = click.option(
    "--lenient",
    multiple=True,
    metavar="RULE",
    help="Let pass what a provider would refuse; repeatable.",
)
