"""The command line. Each command is a module of this folder, imported when it is asked for.

Exit codes: 0 all is well, 1 something was tested and failed, 2 wrong usage or broken input,
130 interrupted; after SIGTERM 143, after SIGHUP 129.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import click

from offbook.capability import PENDING, load
from offbook.errors import (
    Interrupted,
    ModelError,
    OffbookError,
    RunError,
    did_you_mean,
    signal_name,
)
from offbook.surfaces.commands import COMMANDS, all_commands, render_help
from offbook.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from offbook.capability import CommandEntry

# Commands of earlier versions, with those that do their work now.
MOVED = {
    "cassette list": "show FOLDER",
    "cassette redact": "cassette edit CASSETTE --redact JSON",
    "cassette show": "show CASSETTE [NUMBER]",
    "cassette stats": "show CASSETTE --stats",
    "cassette trim": "cassette edit CASSETTE --trim NUMBERS",
    "cassette upgrade": "cassette edit CASSETTE --upgrade",
    "contract check": "contract TRACE",
    "contract infer": "contract TRACE --infer",
    "coverage": "report TRACE --format coverage",
    "eval context": "eval run MANIFEST",
    "eval init": "eval new --from SOURCE",
    "eval schema": "eval new --schema",
    "eval scope-triage": "eval run DATASET",
    "export": "report TRACE --format otlp",
    "golden diff": "review NAME",
    "golden list": "golden show",
    "golden live": "golden check --live",
    "golden review": "review",
    "golden spec check": "golden spec",
    "golden spec new": "golden spec --new COMPONENT",
    "golden spec table": "golden spec --table",
    "judge calibrate": "eval run PACK --calibrate",
    "query": "eval list --sql QUERY",
    "snapshot review": "review",
    "workspace clean": "workspace cleanup --stale",
    "workspace list": "workspace inspect",
    "workspace record": "workspace run ID --record CASSETTE",
    "workspace replay": "workspace run ID --replay CASSETTE",
}
FAILED, MISUSED, SIGNALLED = 1, 2, 128
NARROW = 60  # columns of a terminal


class Commands(click.Group):
    """The commands by name, each imported when it is used."""

    on_load: Callable[[], None] = staticmethod(lambda: None)

    @cached_property
    def entries(self) -> dict[str, CommandEntry]:
        """Every command by its name."""
        return {name: e for entries in all_commands().values() for name, e in entries.items()}

    def find(self, name: str) -> CommandEntry | None:
        """Return a command; one of the core without the declarations of the capabilities."""
        core = (entries[name] for entries in COMMANDS.values() if name in entries)
        return next(core, None) or self.entries.get(name)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return sorted(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        entry = self.find(cmd_name)
        if entry is None:
            return None
        command = load(entry.target)
        self.on_load()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        for old in (" ".join(args[:3]), " ".join(args[:2]), args[0]):
            if old in MOVED:
                raise click.UsageError(f"unknown command {old!r}: use offbook {MOVED[old]}", ctx)
        if not args[0].startswith("-") and self.find(args[0]) is None:
            hint = did_you_mean(args[0], self.entries)
            raise click.UsageError(f"unknown command {args[0]!r}: {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        received: list[int] = []

        def interrupt(number: int, _frame: object) -> None:
            received.append(number)
            raise Interrupted(number)

        # The review shows the pending changes of all capabilities, without knowing them.
        ctx.meta[PENDING] = _find_pending

        # As after Ctrl-C, the command can write its evidence and end its agents.
        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
        found = {number: signal.getsignal(number) for number in signals}
        handlers = {number: handler for number, handler in found.items() if handler is not None}
        for number, handler in handlers.items():
            if handler is signal.SIG_DFL:
                signal.signal(number, interrupt)
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BaseException as error:
            # A native module that is interrupted in its import raises its own exception.
            if received or isinstance(error, KeyboardInterrupt):
                for each in handlers:  # a second Ctrl-C changes nothing any more
                    signal.signal(each, signal.SIG_IGN)
                number = received[0] if received else getattr(error, "number", signal.SIGINT)
                named = "" if number == signal.SIGINT else f" by {signal_name(number)}"
                with contextlib.suppress(OSError):  # the terminal may be closed
                    _print_error(f"offbook: interrupted{named}")
                return SIGNALLED + number
            raise
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return answer

    def get_help(self, ctx: click.Context) -> str:  # noqa: ARG002 - click's signature
        return render_help()


def _find_pending() -> list[str]:
    from offbook.surfaces.capabilities import load_capabilities

    return [each.pending for each in load_capabilities() if each.pending]


def _print_version(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001 - click calls it so
    if wanted:
        from offbook.cli_options import echo

        echo(f"offbook {VERSION}")
        ctx.exit()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version)
def offbook() -> None:
    """Test AI agents without the model."""


def main(
    args: Sequence[str] | None = None, *, on_load: Callable[[], None] = lambda: None
) -> NoReturn:
    """Run a command, and exit with its code; `on_load` is called when it is imported."""
    offbook.on_load = on_load
    if not os.environ.get("GITHUB_ACTIONS"):
        sys.exit(_run(args))
    from offbook.reports.github import neutral_output

    with neutral_output():
        sys.exit(_run(args))


def _run(args: Sequence[str] | None) -> int:
    try:
        # click makes help at least 50 columns wide: a narrow terminal would break its words
        if columns := _narrow_columns():
            offbook.context_settings["terminal_width"] = columns - 2
        code = offbook.main(args, prog_name="offbook", standalone_mode=False) or 0
    except click.Abort:  # Ctrl-C before a command was found
        _print_error("offbook: interrupted")
        code = SIGNALLED + signal.SIGINT
    except click.ClickException as error:
        error.show()
        if isinstance(error, click.NoSuchOption) and _runs_command(error.ctx):
            _print_error("Write -- before the command to run.")
        code = error.exit_code
    except Exception as error:
        code = _explain(error)
        if code is None:
            raise
    return code


def _print_error(text: str) -> None:
    from offbook.cli_options import echo  # late: most commands end without an error

    echo(text, err=True)


def _narrow_columns() -> int:
    """Return the width of a narrow terminal; 0 for any other, and without a terminal."""
    if not sys.stdout.isatty():
        return 0
    from shutil import get_terminal_size  # late: most output is not for a terminal

    columns = get_terminal_size().columns
    return max(columns, 20) if columns < NARROW else 0


def _runs_command(ctx: click.Context | None) -> bool:
    """Return whether a command takes another one, to which an unknown option may belong."""
    parameters = () if ctx is None else ctx.command.params
    return any(isinstance(p, click.Argument) and "--" in (p.metavar or "") for p in parameters)


def _explain(error: Exception) -> int | None:
    """Show an error of Offbook or of the system, and return the exit code; None for any other."""
    # First ours: some are errors of the system, too, such as a refused connection.
    if isinstance(error, OffbookError):
        text = f"offbook: {error}"
        if columns := _narrow_columns():
            from textwrap import fill

            text = "\n".join(
                fill(line, columns, break_long_words=False, break_on_hyphens=False)
                for line in text.splitlines()
            )
        _print_error(text)
        return FAILED if isinstance(error, (RunError, ModelError)) else MISUSED
    if not isinstance(error, OSError):
        return None
    # A disk that is full, a folder that may not be written.
    where = f"{error.filename}: " if error.filename else ""
    _print_error(f"offbook: {where}{error.strerror or error}")
    if error.errno == errno.ENOSPC:
        _print_error("free some disk space, then run the command again")
    return MISUSED if isinstance(error, (IsADirectoryError, NotADirectoryError)) else FAILED
