"""The command line. Each command is a module of this folder, imported when it is asked for.

Exit codes: 0 all is well, 1 something was tested and failed, 2 wrong usage or broken input,
130 interrupted.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from offbook.errors import ModelError, OffbookError, RunError, nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

# What `offbook --help` says of a command, so that help imports none of them.
COMMANDS = {
    "assert": "Hold assertions against a run.",
    "cassette": "List, show, edit, trim, upgrade and verify cassettes.",
    "clean": "Remove workspaces that were forgotten.",
    "cleanup": "Remove a workspace.",
    "demo": "See a rehearsal: one that passes, and one that fails.",
    "determinism": "Run a target several times with the same model, and name what differs.",
    "diff": "Show what changed in a workspace.",
    "doctor": "Say which clients and SDKs are installed, and which versions were tested.",
    "evaluate": "Let a model judge a run.",
    "fixture": "Record, look at, promote and check golden fixtures.",
    "import": "Turn a trace of another tool into a cassette or into mocks.",
    "inspect": "Look into a run: records, summary, timeline.",
    "live": "Play the scenarios of live scripts on the real thing.",
    "mcp": "Serve the test tools to agents.",
    "record": "Run a command, or the loop, with the real model, and record a cassette.",
    "replay": "Run a command whose model is a cassette, or the loop with its answers.",
    "report": "Write verdicts for CI: junit, tap, ctrf, json.",
    "run": "Run scenarios, the loop, or any command.",
    "serve": "Serve a scripted model to any client.",
    "setup": "Make a workspace to test in.",
    "show": "Show a trace as a tree.",
    "snapshot": "Keep a workspace as it is now, or review what waits.",
    "spec": "Write and check test specs.",
}
# A module cannot be called what is a word of the language.
MODULES = {"assert": "check", "import": "importing"}
FAILED, MISUSED, INTERRUPTED = 1, 2, 130


class Commands(click.Group):
    """The commands by name; the attribute `command` of the module of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"{__name__}.{MODULES.get(cmd_name, cmd_name)}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = nearest(args[0], COMMANDS)
            raise click.UsageError(f"there is no command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            click.echo("offbook: interrupted", err=True)
            return INTERRUPTED
        except BrokenPipeError:  # whoever read has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return answer

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if wanted:
        from importlib.metadata import version

        click.echo(f"offbook {version('offbook')}")
        ctx.exit()


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with `offbook demo`.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def offbook() -> None:
    """Rehearse AI agents without the model."""


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Do what the arguments say, and exit with what came of it."""
    try:
        code = offbook.main(args, prog_name="offbook", standalone_mode=False) or 0
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except OffbookError as error:
        click.echo(f"offbook: {error}", err=True)
        code = FAILED if isinstance(error, (RunError, ModelError)) else MISUSED
    except OSError as error:  # a disk that is full, a folder that may not be written
        where = f"{error.filename}: " if error.filename else ""
        click.echo(f"offbook: {where}{error.strerror or error}", err=True)
        code = FAILED
    sys.exit(code)
