"""`offbook cassette` and `offbook import`: edit, verify and create cassette files."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook.capability import load
from offbook.cli_options import (
    FILE_PATH,
    echo,
    json_option,
    print_json,
    read_redactions,
    refuse_together,
    refuse_without,
    upstream_option,
)
from offbook.errors import FormatError, UsageError, counted
from offbook.files import require_new
from offbook.options import require_some
from offbook.secrets import excerpt
from offbook.surfaces.capabilities import load_capabilities

if TYPE_CHECKING:
    from offbook.sources.cassette.maintenance import CassetteStats

CASSETTE_EXAMPLE = """\b
Example:
  offbook cassette edit tests/refund.yaml
  offbook cassette edit tests/refund.yaml --trim 4-6
  offbook cassette edit tests/*.yaml --upgrade
  offbook cassette verify tests/refund.yaml --against tests/new.yaml

\b
`offbook show tests/` lists cassettes, and `offbook show tests/refund.yaml 2` shows one.
"""

VERIFY_EXAMPLE = """\b
Example:
  offbook cassette verify tests/
  offbook cassette verify tests/refund.yaml --against tests/new.yaml
  offbook cassette verify tests/refund.yaml --live

\b
Exit codes:
  0  every cassette can be committed, or no answer has changed
  1  a secret, an edited request, no interactions; or a changed answer
  2  a file that is not a cassette, or no cassette
"""

IMPORT_EXAMPLE = """\b
Example:
  offbook import production.jsonl --trace-id t-123 -o tests/t-123.yaml
  offbook import spans.json -o mocks.jsonl
  offbook import tape.yaml -o tests/test_refund.py --agent shop:agent
  offbook import promptfooconfig.yaml -o evals/shop.eval.toml --agent shop.py:answer

\b
Formats: generic {prompt, response, tool_calls} lines, claude-code, codex, pi,
otlp (OpenTelemetry GenAI spans), langsmith, langfuse, phoenix, ralph. Eval suites:
promptfoo, inspect, deepeval, pydantic-evals, openai-evals, langsmith. The format is
detected.

\b
Exit codes:
  0  imported
  2  the file cannot be read or has nothing to import, or FILE exists
"""

SHOWN_TRACES = 5
PREVIEW_LENGTH = 60


@click.group("cassette", epilog=CASSETTE_EXAMPLE)
def cassette() -> None:
    """Edit and verify cassettes."""


@cassette.command("edit", epilog=CASSETTE_EXAMPLE)
@click.argument("paths", type=FILE_PATH, nargs=-1, required=True, metavar="CASSETTE…")
@click.option("--trim", metavar="NUMBERS", help="Remove interactions: 3, or 3,5-7.")
@click.option(
    "--unused-by",
    type=FILE_PATH,
    metavar="CURSOR",
    help="Remove the interactions that the replay with this cursor file did not use.",
)
@click.option("--redact", metavar="JSON", help="Add redactions: values that differ in each run.")
@click.option(
    "--upgrade",
    "upgrades",
    is_flag=True,
    help="Convert to the current version and update the hashes of edited requests.",
)
def edit(
    paths: tuple[Path, ...],
    *,
    trim: str | None,
    unused_by: Path | None,
    redact: str | None,
    upgrades: bool,
) -> None:
    """Edit cassettes: in your editor, or by an option.

    A cassette is saved only if it can be read.
    """
    from offbook.sources.cassette.maintenance import add_redactions, upgrade_cassette

    trims = trim is not None or unused_by is not None
    refuse_together(trim=trims, redact=redact, upgrade=upgrades)
    for path in paths:
        if trims:
            _trim(path, trim or "", unused_by)
        elif redact is not None:
            changed = counted(
                len(add_redactions(path, read_redactions((redact,), ()))), "interaction"
            )
            echo(f"{path}: redactions added, {changed} changed")
        elif upgrades:
            echo(f"{path}: {counted(len(upgrade_cassette(path)), 'interaction')} changed")
        else:
            _edit_text(path)


def _trim(path: Path, numbers: str, unused_by: Path | None) -> None:
    """Remove interactions by number, and those that a replay did not use."""
    from offbook.sources.cassette.maintenance import trim_cassette
    from offbook.sources.cassette.replay import Cassette

    chosen: set[int] = set()
    for text in filter(None, numbers.replace(",", " ").split()):
        first, dash, last = text.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f"invalid interaction number {text!r}", hint="write 3, or 5-7")
        chosen |= {*range(int(first), int(last if dash else first) + 1)}
    if unused_by is not None:
        if not unused_by.is_file():
            raise FormatError("no such cursor file", path=unused_by)
        chosen |= {entry.number for entry in Cassette(path, cursor=unused_by).unused}
    if chosen:
        echo(f"{path}: removed {counted(trim_cassette(path, chosen), 'interaction')}")
    elif unused_by is None:
        raise UsageError("nothing to trim", hint="name interactions: --trim 3,5-7")
    else:
        echo(f"{path}: all interactions were used")


def _edit_text(path: Path) -> None:
    from offbook.files import read_text
    from offbook.sources.cassette.journal import load_cassette
    from offbook.sources.cassette.maintenance import rewrite_cassette

    load_cassette(path)
    before = read_text(path)
    text = click.edit(before, extension=path.suffix)
    if text is None or text == before:
        echo(f"{path}: no changes")
    else:
        echo(f"{path}: saved, {len(rewrite_cassette(path, text))} hashes updated")


def show_folder(folder: Path, *, as_json: bool) -> None:
    """Print the cassettes below a folder, for `offbook show`."""
    from offbook.sources.cassette.maintenance import count_hats, find_cassettes

    rows = [(path, count_hats(path)) for path in find_cassettes(folder)]
    hint = "record one: offbook record FILE -- COMMAND"
    require_some(rows, "no cassettes found", where=folder, hint=hint)
    if as_json:
        print_json([{"path": str(path), "hats": dict(counts)} for path, counts in rows])
        return
    for path, counts in rows:
        hats = ", ".join(f"{hat} {count}" for hat, count in counts.items())
        echo(f"{path}  {counted(counts.total(), 'interaction')} ({hats})")


def show_cassette(path: Path, number: int | None, *, stats: bool, as_json: bool) -> None:
    """Print the interactions of a cassette, one of them, or the figures of all."""
    from offbook.sources.cassette.journal import load_cassette
    from offbook.sources.cassette.maintenance import cassette_stats

    if number is not None:
        _show_interaction(path, number, as_json=as_json)
        return
    if as_json:
        print_json(cassette_stats(path))
        return
    if stats:
        _print_stats(cassette_stats(path))
        return
    file = load_cassette(path, keep=True)
    for entry in file.entries:
        item = file.read(entry)
        answer = item.response.output or ", ".join(
            getattr(block, "name", type(block).__name__.lower())
            for block in item.response.reply_blocks
        )
        if item.response.error is not None:
            answer = f"error {item.response.error.status}"
        title = "".join(item.request.title.splitlines()[:1])
        preview = excerpt(" ".join(answer.split()), PREVIEW_LENGTH)
        echo(f"{entry.number}. ({entry.hat}) {title} -> {preview}")


def _show_interaction(path: Path, number: int, *, as_json: bool) -> None:
    from offbook.files import dump_yaml
    from offbook.sources.cassette.format import interaction_to_dict
    from offbook.sources.cassette.journal import load_cassette

    file = load_cassette(path)
    entry = file.find(number)
    item = file.read(entry)
    if item.request.prompt is None:
        # a request is stored as the difference to an earlier one: show it whole
        whole = {**msgspec.structs.asdict(file.settings(entry)), "messages": file.messages(entry)}
        request = msgspec.structs.replace(item.request, head=None, after=None, again=None, **whole)
        item = msgspec.structs.replace(item, request=request)
    if as_json:
        print_json(interaction_to_dict(item))
    else:
        echo(dump_yaml(interaction_to_dict(item)), nl=False)


def _print_stats(stats: CassetteStats) -> None:
    rows = {
        "version": stats.version,
        "interactions": stats.interactions,
        "hats": ", ".join(f"{name} {count}" for name, count in stats.hats.items()),
        "models": ", ".join(f"{name} {count}" for name, count in stats.models.items()) or "none",
        "errors": stats.errors,
        "tokens": stats.tokens,
        "cost": "unknown" if stats.cost_dollars is None else f"${stats.cost_dollars:.4f}",
        "bytes": stats.bytes,
    }
    if len(stats.tracks) > 1:
        rows |= {"tracks": ", ".join(stats.tracks), "tools": stats.tools}
    for name, value in rows.items():
        echo(f"{name:13} {value}")
    for limit in stats.limits:
        echo(f"limit: {limit}")
    if stats.stale:
        numbers = ", ".join(map(str, stats.stale))
        fix = f"offbook cassette edit {shlex.quote(stats.path)} --upgrade"
        echo(f"edited since they were hashed: {numbers}; fix: {fix}")


@cassette.command("verify", epilog=VERIFY_EXAMPLE)
@click.argument("paths", type=FILE_PATH, nargs=-1, required=True, metavar="CASSETTE…")
@click.option("--against", type=FILE_PATH, help="Compare with another cassette.")
@upstream_option
@click.option("--live", is_flag=True, help="Send the requests to the real model, with your keys.")
@json_option
def verify(
    paths: tuple[Path, ...],
    *,
    against: Path | None,
    upstream: str | None,
    live: bool,
    as_json: bool,
) -> int:
    """Check that cassettes can be committed, or report answers whose structure has changed.

    Without an option, each file must be readable, without a secret, and without a request that
    was edited by hand. A folder stands for the cassettes in it.
    """
    from offbook.sources.cassette.maintenance import (
        compare_cassettes,
        count_unverifiable,
        verify_cassette,
    )
    from offbook.sources.live import Live

    if against is None and not live and not upstream:
        return _check_files(paths, as_json=as_json)
    if len(paths) != 1:
        raise UsageError("more than one cassette", hint="--against and --live take one")
    path = paths[0]
    if against is not None:
        drifts = compare_cassettes(path, against)
    else:
        drifts = asyncio.run(verify_cassette(path, Live(upstream)))
        if skipped := count_unverifiable(path):
            echo(f"{path}: not verified: {counted(skipped, 'interaction')} without a whole request")
    if as_json:
        print_json({"drifted": len(drifts), "drifts": [str(drift) for drift in drifts]})
        return int(bool(drifts))
    for drift in drifts:
        echo(str(drift))
    echo(
        f"{path}: {counted(len(drifts), 'interaction')} drifted" if drifts else f"{path}: no drift"
    )
    return int(bool(drifts))


def _check_files(paths: tuple[Path, ...], *, as_json: bool) -> int:
    from offbook.sources.cassette.maintenance import find_cassettes, find_faults

    files: list[Path] = []
    for path in paths:
        found = list(find_cassettes(path)) if path.is_dir() else [path]
        files += require_some(found, "no cassettes found", where=path)
    faults = {str(path): find_faults(path) for path in files}
    wrong = sum(map(bool, faults.values()))
    if as_json:
        print_json({"checked": len(files), "faults": faults})
    else:
        for fault in (each for found in faults.values() for each in found):
            echo(fault)
        state = f"{wrong} must not be committed" if wrong else "no secrets, no edited requests"
        echo(f"{counted(len(files), 'cassette')} checked: {state}")
    return int(wrong > 0)


@click.command("import", epilog=IMPORT_EXAMPLE)
@click.argument("trace", type=FILE_PATH)
@click.option(
    "-o",
    "--output",
    type=FILE_PATH,
    required=True,
    help="A cassette (.yaml), mocks (.jsonl), a test (.py) or an eval pack (.toml, .json).",
)
@click.option("--kind", default="", metavar="FORMAT", help="The format, if it is not detected.")
@click.option("--trace-id", help="Import this trace only.")
@click.option("--replace", is_flag=True, help="Overwrite an existing file.")
@click.option(
    "--agent",
    default="",
    metavar="MODULE:NAME",
    help="The agent of the test, or of the cases of the pack.",
)
def import_trace(
    trace: Path, *, output: Path, kind: str, trace_id: str | None, replace: bool, agent: str
) -> None:
    """Convert a trace of another tool, or a tape, into a cassette, mocks or a test.

    An eval suite of another tool becomes an eval pack.
    """
    others = {name: each for one in load_capabilities() for name, each in one.importers.items()}
    if output.suffix in others:
        refuse_without("a trace", trace_id=trace_id)
        line, missing = load(others[output.suffix])(
            trace, output, kind=kind, agent=agent, replace=replace
        )
        echo(f"{output}: {line}")
        for part in missing:
            echo(f"not carried over: {part}", err=True)
        return
    from offbook.sources.importers.importer import (
        Skipped,
        is_trace,
        read_trace,
        render_skipped,
        write_cassette,
        write_mocks,
    )

    if (output.suffix == ".py") != bool(agent):
        raise UsageError(
            "--agent names the agent of a test, and a test needs it",
            where=str(output),
            hint=f"offbook import {trace} -o tests/test_agent.py --agent shop:agent",
        )
    if output.suffix == ".py" and output.exists() and not replace:
        raise UsageError("file exists already", where=str(output), hint="use --replace")
    is_yaml = trace.suffix in {".yaml", ".yml"}
    if output.suffix == ".py" and is_yaml and not kind and not is_trace(trace):  # a tape
        _write_test(trace, output, agent)
        return
    skipped = Skipped()
    exchanges = read_trace(trace, kind, trace_id, skipped)
    if output.suffix in {".yaml", ".yml"}:
        count = write_cassette(exchanges, output, replace=replace)
    elif output.suffix == ".py":
        from offbook.files import make_temp_folder, remove_temp_folder

        folder = make_temp_folder()
        try:
            count = write_cassette(exchanges, folder / "imported.yaml")
            _write_test(folder / "imported.yaml", output, agent, trace)
        finally:
            remove_temp_folder(folder)
    elif output.suffix == ".jsonl":
        if not replace:
            require_new(output, hint="use --replace")
        count = write_mocks(exchanges, output)
    else:
        raise UsageError(
            f"unsupported file type {output.suffix!r}",
            where=str(output),
            hint="write a cassette (.yaml), mocks (.jsonl), a test (.py) or an eval pack (.toml)",
        )
    echo(f"{output}: {counted(count, 'interaction')}")
    traces = list(dict.fromkeys(exchange.trace for exchange in exchanges))
    if len(traces) > 1:
        names = ", ".join(traces[:SHOWN_TRACES]) + (", …" if len(traces) > SHOWN_TRACES else "")
        echo(
            f"{len(traces)} traces are mixed in one file ({names}): select one with --trace-id",
            err=True,
        )
    if skipped:
        echo(f"skipped: {render_skipped(skipped)}", err=True)


def _write_test(tape: Path, output: Path, agent: str, origin: Path | None = None) -> None:
    """Write a test that plays a tape."""
    from offbook.files import write_atomic
    from offbook.sources.cassette.journal import load_cassette
    from offbook.sources.cassette.written_test import write_test

    written = write_test(
        load_cassette(tape), agent, output.stem.removeprefix("test_"), origin or tape
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(output, written.text.encode())
    echo(f"{output}: written; run it: pytest {shlex.quote(str(output))}")
    for part in written.skipped:
        echo(f"not in the test: {part}", err=True)
