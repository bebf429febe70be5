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
    print_safely(msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2).decode())


def print_safely(text: str) -> None:
    """Print what may have a secret in it, without."""
    from offbook.secrets import hide_secrets, known_secrets

    click.echo(hide_secrets(text, known_secrets()))
