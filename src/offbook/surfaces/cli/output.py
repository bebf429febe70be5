"""What the commands print, alike in all of them."""

from __future__ import annotations

import os
import sys
from typing import Any

import click
import msgspec


def wants_colour() -> bool:
    """Colours are for a terminal, and for nobody who set NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def print_json(value: Any) -> None:
    """Print a value for machines, a field a line."""
    click.echo(msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2))
