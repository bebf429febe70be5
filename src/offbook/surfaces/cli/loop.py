"""The options of the loop that `record` and `replay` have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from offbook.surfaces.cli.inputs import read_env

T = TypeVar("T", bound=Callable[..., Any])
OPTIONS = (
    click.option("--workspace", metavar="ID", default="", help="Let the loop work there."),
    click.option("--backend", default="", help="… by claude, codex, gemini, kiro, pi, playbook."),
    click.option("--playbook", default="", help="… whose model is a playbook, mocks or cassette."),
    click.option("--env", multiple=True, metavar="NAME[=VALUE]", help="… with this; repeatable."),
    click.option("--max-runtime-secs", default=300.0, show_default=True, help="… no longer."),
)


def loop_options(command: T) -> T:
    """The command, with these options."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def read_agent(words: tuple[str, ...], loop: Mapping[str, Any]) -> dict[str, Any]:
    """What the options say of the workspace and of who works there."""
    return {
        "workspace_id": loop["workspace"],
        "backend": loop["backend"] or ("command" if words else ""),
        "command": words,
        "playbook": loop["playbook"],
        "env": read_env(loop["env"]),
        "max_runtime_secs": loop["max_runtime_secs"],
    }
