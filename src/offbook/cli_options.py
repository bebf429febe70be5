"""The options, arguments and output that commands share.

The command line of the core and those of the capabilities use them, so that `--json` or `--trace`
mean the same everywhere.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

import click
import msgspec

from offbook.errors import UsageError
from offbook.options import decode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.checks.expected_files import SnapshotDiff
    from offbook.determinism.faults import Faults
    from offbook.reports.styled_lines import StyledLine
    from offbook.trace.events import Event

FILE_PATH = click.Path(path_type=Path)
PROGRESS_SECONDS = 0.1


class FiniteFloat(click.FloatRange):
    """A number in a range. `nan` and `inf` are refused: a limit of them limits nothing."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"expected a finite number, got {value}", param, ctx)
        return number


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line without secrets and control characters; all commands print by it."""
    click.echo(_outgoing(text), err=err, nl=nl)


def show_progress(text: str) -> None:
    """Replace the line of progress on stderr; with an empty text, remove it."""
    click.echo(f"\r\x1b[K{_outgoing(text)}", err=True, nl=False)


class ProgressLine:
    """The line of progress of a command, on a terminal only, a few times a second."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.is_live = wanted and sys.stderr.isatty()
        self._shown = 0.0

    def show(self, describe: Callable[[], str], *, at_once: bool = False) -> None:
        """Write the line again, if it is time or `at_once`."""
        now = time.monotonic()
        if self.is_live and (at_once or now - self._shown >= PROGRESS_SECONDS):
            self._shown = now
            show_progress(describe())

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._shown = 0.0
            show_progress("")


def _outgoing(text: object) -> str:
    from offbook.secrets import outgoing

    # half a character, which no output takes, becomes an escape
    return outgoing(str(text)).encode("utf-8", "backslashreplace").decode()


PORT_NUMBER = click.IntRange(0, 65_535)
P = ParamSpec("P")

deadline_option = click.option(
    "--deadline",
    default=600.0,
    show_default=True,
    type=FiniteFloat(min=0, min_open=True),
    help="Seconds before the command is stopped.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
jobs_option = click.option(
    "--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Worker processes."
)
engine_option = click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Run in processes of this machine, or on a Ray cluster.",
)
address_option = click.option(
    "--address", default="", metavar="URL", help="The Ray cluster; without it, one on this machine."
)
preset_option = click.option(
    "--preset", multiple=True, metavar="CLIENT", help="Use the redactions known for a client."
)
redact_option = click.option(
    "--redact", multiple=True, metavar="JSON|FILE", help="Ignore values that match; repeatable."
)


class ScriptOption(click.Option):
    """`--script FILE`, with its earlier names, which the help does not list."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        record = super().get_help_record(ctx)
        return record and (f"{self.opts[0]} FILE", record[1])


def _read_script(
    _context: click.Context, _option: click.Parameter, paths: tuple[Path, ...]
) -> Path | None:
    if len(paths) > 1:
        raise UsageError("--script is given twice", hint="a run has one script")
    return paths[0] if paths else None


script_option = click.option(
    *("--script", "--playbook", "--mocks", "script"),
    cls=ScriptOption,
    callback=_read_script,
    multiple=True,
    type=FILE_PATH,
    help="The model: a playbook, mocks or a cassette.",
)
upstream_option = click.option("--upstream", metavar="URL", help="Base URL of the real model.")
events_option = click.option(
    "--events",
    metavar="FILE",
    help="Write events as NDJSON while the run goes on; - is stdout.",
)
otlp_option = click.option(
    "--otlp",
    metavar="URL",
    help="Send spans to this OpenTelemetry collector at the end.",
)


lenient_option = click.option(
    "--lenient",
    multiple=True,
    metavar="RULE",
    help="Accept requests that break this provider rule; repeatable.",
)


def lenient_help() -> str:
    """Return the list of the rules for the help of a command with `--lenient`."""
    from offbook.exchange.dialects.wire import RULES  # few commands have the option

    rules = "\n".join(f"  {name:<20} {description}" for name, description in RULES.items())
    return f"\n\n\b\nRules for --lenient; all are enforced by default:\n{rules}"


def trace_option(command: Callable[P, int]) -> Callable[P, int]:
    """Add `--trace` and `--wire` to a command; it need not know of the second."""

    @wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> int:
        if not given.pop("wire"):
            return command(*args, **given)
        if given.get("trace") is None:
            refuse_without("--trace FILE", wire=True)
        from offbook.determinism.run_context import keep_wire

        token = keep_wire.set(True)
        try:
            return command(*args, **given)
        finally:
            keep_wire.reset(token)

    path = click.option("--trace", type=FILE_PATH, help="Write the trace to this file.")
    return path(click.option("--wire", is_flag=True, help="Record raw bytes in the trace.")(run))


def live_options(command: Callable[P, int]) -> Callable[P, int]:
    """Add `--events` and `--otlp` to a command that runs agents; it need not know of them."""

    @wraps(command)
    def run(*args: P.args, **given: P.kwargs) -> int:
        events, otlp = given.pop("events"), given.pop("otlp")
        if events is None and otlp is None:
            return command(*args, **given)
        if events == "-" and given.get("as_json"):
            raise UsageError("--json and --events - both write to stdout", hint="--events FILE")
        from offbook.runs.watching import watch_runs

        target = None if events is None else str(events)
        with watch_runs(target, None if otlp is None else str(otlp)):
            return command(*args, **given)

    return events_option(otlp_option(run))


FAULTS_HELP = """

\b
Kinds for --fault, at random or at the Nth request (reset@2):
  status rate_limit timeout stall reset truncate duplicate slow content_type
  tool_error tool_lost tool_slow tool_empty tool_huge tool_odd tool_injected
  host_error host_slow
"""


def network_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--allow` and `--sealed`; the command gets them as `network`, for `run_command`."""

    @wraps(command)
    def run(*args: Any, allow: tuple[str, ...], sealed: bool, **given: Any) -> int:
        return command(*args, network={"allow": allow, "sealed": sealed}, **given)

    allow = click.option(
        "--allow",
        multiple=True,
        metavar="HOST[:PORT]",
        help="Let the command reach this host; all others are refused; repeatable.",
    )
    sealed = click.option(
        "--sealed",
        is_flag=True,
        help="Run the command in a network namespace, without other machines and local ports.",
    )
    return allow(sealed(run))


def fault_options(command: Callable[..., int]) -> Callable[..., int]:
    """Add `--fault`, `--fault-seed` and `--fault-rate` to a command; it gets them as `faults`."""

    @wraps(command)
    def run(
        *args: Any,
        fault: tuple[str, ...],
        fault_seed: int | None,
        fault_rate: float | None,
        **given: Any,
    ) -> int:
        faults = None
        if fault or fault_seed is not None or fault_rate is not None:
            from offbook.determinism.faults import Faults

            named = () if "any" in fault else fault
            rate = {} if fault_rate is None else {"rate": fault_rate}
            faults = Faults(named, seed=fault_seed or 0, **rate)
        return command(*args, faults=faults, **given)

    kinds = click.option(
        "--fault",
        multiple=True,
        metavar="KIND[@N]",
        help="Inject this fault, at the Nth request or at random; repeatable; any: every kind.",
    )
    seed = click.option(
        "--fault-seed",
        type=int,
        metavar="SEED",
        help="Inject faults at random, repeated by the seed.",
    )
    rate = click.option(
        "--fault-rate",
        type=FiniteFloat(0, 1, min_open=True),
        metavar="SHARE",
        help="The share of requests with a random fault; 0.3 by default.",
    )
    return kinds(seed(rate(run)))


def refuse_together(**given: object) -> None:
    """Raise a UsageError if more than one of these options is given.

    refuse_together(record=record, replay=replay)
    """
    if sum(_is_given(value) for value in given.values()) > 1:
        raise UsageError(f"{_join(given)} exclude each other", hint="give one of them")


def refuse_without(needed: str, **given: object) -> None:
    """Raise a UsageError if an option is given that has no effect without another one."""
    if options := {name: value for name, value in given.items() if _is_given(value)}:
        verb = "have" if len(options) > 1 else "has"
        raise UsageError(f"{_join(options)} {verb} no effect without {needed}")


def _is_given(value: object) -> bool:
    return value is not None and value is not False and value != ()


def _join(names: Iterable[str]) -> str:
    *others, last = [f"--{name.replace('_', '-')}" for name in names]
    return f"{', '.join(others)} and {last}" if others else last


def report_faults(faults: Faults | None, events: Iterable[Event]) -> None:
    """Print what the agent did about each fault."""
    if faults is None:
        return
    from offbook.runs.commands import describe_faults

    for line in describe_faults(events, faults):
        echo(f"offbook: {line}", err=True)


def read_value(text: str, name: str) -> Any:
    """Return the value of an option: JSON itself, the path of a file, or - for stdin."""
    from offbook.files import parse_document, parse_json, parse_yaml, read_text

    if text == "-":
        return parse_yaml(sys.stdin.read(), "stdin")
    if text.lstrip().startswith(("{", "[")):
        return parse_json(text, name)
    return parse_document(read_text(Path(text)), Path(text))


def read_object(text: str | None, name: str) -> dict[str, Any] | None:
    """Return the value of an option that has to be an object."""
    value = None if text is None else read_value(text, name)
    return decode(value, dict[str, Any] | None, name, hint='{"name": …}')


def read_redactions(texts: tuple[str, ...], presets: tuple[str, ...]) -> dict[str, Any]:
    """Return the redactions of `--redact` and `--preset`, merged."""
    patterns: dict[str, Any] = {}
    paths: list[str] = []
    names = [*presets]
    for text in texts:
        from offbook.trace.redaction import RedactionRules

        rules = decode(read_object(text, "--redact") or {}, RedactionRules, "--redact")
        patterns.update(rules.patterns)
        paths += rules.paths
        names += rules.presets
    return {"patterns": patterns, "paths": paths, "presets": names}


def use_colour() -> bool:
    """Return whether to print colours: on a terminal or with FORCE_COLOR, never with NO_COLOR."""
    wanted = sys.stdout.isatty() or os.environ.get("FORCE_COLOR", "0") not in {"", "0"}
    return wanted and not os.environ.get("NO_COLOR")


def describe_difference(difference: SnapshotDiff) -> Iterator[StyledLine]:
    """Yield the changes of each file as a unified diff."""
    from offbook.reports.styled_lines import StyledText
    from offbook.secrets import escape_controls, outgoing

    styles = {"+": "ok", "-": "error"}
    for sign, names in (
        ("~", difference.changed_files),
        ("+", difference.added_files),
        ("-", difference.deleted_files),
    ):
        for name in names:
            changes = difference.diffs[name]
            head = f"{sign} {escape_controls(name)} (+{changes.additions} -{changes.deletions})"
            yield (StyledText(head, "name"),)
            for hunk in changes.hunks:
                yield (StyledText(f"@@ {hunk.start}-{hunk.end} @@", "faint"),)
                for line in outgoing(hunk.content).split("\n"):
                    yield (StyledText(line, styles.get(line[:1], "")),)
    if difference.empty:
        yield (StyledText("nothing changed", "faint"),)


def print_json(value: Any) -> None:
    """Print a value as indented JSON, without secrets."""
    encoded = msgspec.json.encode(value, enc_hook=repr)
    # The runner of GitHub Actions takes `##[` anywhere in a line for a command.
    text = msgspec.json.format(encoded, indent=2).decode().replace("##[", "\\u0023#[")
    echo(text)
