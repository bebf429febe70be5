"""A world for a search: the command, with a function, and a folder for its settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from click.testing import CliRunner
from llm import cli

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    functions = "def find_order(number: int) -> str:\n    return f'order {number}: one lamp'\n"

    def ask(prompt: str) -> str:
        options = ["-m", "gpt-4o", "-s", "You find orders.", "-T", "llm_version"]
        ended = CliRunner(env={"LLM_USER_PATH": str(Path.cwd())}).invoke(
            cli.cli, [*options, "--functions", functions, prompt], catch_exceptions=False
        )
        return ended.output.strip()

    return drive(ask)
