"""The loop, as `record` and `replay` have it in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

import click

from offbook.cli_options import print_json, read_env

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


def run_loop(
    tool: Callable[..., Coroutine[Any, Any, Any]],
    words: tuple[str, ...],
    given: Mapping[str, Any],
    taken: str,
    **more: Any,
) -> Any:
    """Let a test tool use the loop: with what it takes of the options, and who works where."""
    return asyncio.run(
        tool(
            workspace_id=given["workspace"],
            backend=given["backend"] or ("command" if words else ""),
            command=words,
            playbook=given["playbook"],
            env=read_env(given["env"]),
            max_runtime_secs=given["max_runtime_secs"],
            **{name: given[name] for name in taken.split()},
            **more,
        )
    )


def tell_loop(done: Any, summary: str, *, as_json: bool) -> None:
    """Print what came of it, in JSON or in words."""
    if as_json:
        print_json(done)
    else:
        click.echo(summary)
    for said in filter(None, (*done.warnings, done.error)):
        click.echo(f"offbook: {said}", err=True)
