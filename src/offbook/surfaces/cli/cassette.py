"""`offbook cassette …`: what is in cassettes, and how to look after them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from offbook import cli_options
from offbook.cli_options import print_json
from offbook.errors import FormatError, UsageError

if TYPE_CHECKING:
    from offbook.sources.cassette.maintenance import CassetteStats

EXAMPLE = """\b
Example:
  offbook cassette list tests
  offbook cassette show tests/refund.yaml 2
  offbook cassette trim tests/refund.yaml 4-6
  offbook cassette verify tests/refund.yaml --against tests/new.yaml
"""


@click.group("cassette", epilog=EXAMPLE)
def command() -> None:
    """List, show, edit, trim, upgrade and verify cassettes."""


@command.command("list")
@click.argument("folder", type=cli_options.FILE_PATH, default=Path())
def list_(folder: Path) -> None:
    """List the cassettes below a folder."""
    from offbook.sources.cassette.maintenance import cassette_stats, find_cassettes

    found = [folder] if folder.is_file() else list(find_cassettes(folder))
    if not found:
        raise UsageError("there is no cassette", where=str(folder), hint="offbook record makes one")
    for path in found:
        stats = cassette_stats(path)
        hats = ", ".join(f"{hat} {count}" for hat, count in stats.hats.items())
        click.echo(f"{path}  {stats.interactions} interactions ({hats})")


@command.command("show")
@click.argument("path", type=cli_options.FILE_PATH)
@click.argument("number", type=int, required=False)
def show(path: Path, number: int | None) -> None:
    """Show the interactions, or all of one: its whole conversation and its answer."""
    from offbook.sources.cassette.format import interaction_to_dict
    from offbook.sources.cassette.journal import load_cassette
    from offbook.yaml_files import dump_yaml

    tape = load_cassette(path)
    if number is None:
        for entry in tape.entries:
            item = tape.read(entry)
            said = item.response.output or ", ".join(
                getattr(block, "name", type(block).__name__.lower())
                for block in item.response.reply_blocks
            )
            answer = said if item.response.error is None else f"error {item.response.error.status}"
            asked = item.request.title.splitlines()[:1]
            first = " ".join(answer.split())[:60]
            click.echo(f"{entry.number}. ({entry.hat}) {''.join(asked)} -> {first}")
        return
    if not 1 <= number <= len(tape):
        raise UsageError(
            f"there is no interaction {number}",
            where=str(path),
            hint=f"they are numbered from 1 to {len(tape)}",
        )
    entry = tape.entries[number - 1]
    item = tape.read(entry)
    if item.request.prompt is None:
        whole = {**msgspec.structs.asdict(tape.settings(entry)), "messages": tape.messages(entry)}
        asked = msgspec.structs.replace(item.request, head=None, after=None, again=None, **whole)
        item = msgspec.structs.replace(item, request=asked)
    click.echo(dump_yaml(interaction_to_dict(item)), nl=False)


@command.command("stats")
@click.argument("path", type=cli_options.FILE_PATH)
@cli_options.json_option
def stats(path: Path, *, as_json: bool) -> None:
    """Count interactions, hats, models, tokens and cost."""
    from offbook.sources.cassette.maintenance import cassette_stats

    found = cassette_stats(path)
    if as_json:
        print_json(found)
    else:
        _tell(found)


def _tell(found: CassetteStats) -> None:
    cost = "not known" if found.cost_dollars is None else f"${found.cost_dollars:.4f}"
    lines = {
        "version": found.version,
        "interactions": found.interactions,
        "hats": ", ".join(f"{name} {count}" for name, count in found.hats.items()),
        "models": ", ".join(f"{name} {count}" for name, count in found.models.items()) or "none",
        "errors": found.errors,
        "tokens": found.tokens,
        "cost": cost,
        "bytes": found.bytes,
    }
    for name, value in lines.items():
        click.echo(f"{name:13} {value}")
    if found.stale:
        numbers = ", ".join(map(str, found.stale))
        click.echo(f"edited since they were hashed: {numbers}; offbook cassette upgrade mends it")


@command.command("trim")
@click.argument("path", type=cli_options.FILE_PATH)
@click.argument("numbers", nargs=-1)
@click.option(
    "--unused-by",
    type=cli_options.FILE_PATH,
    help="Take out what the replay with this cursor did not use.",
)
def trim(path: Path, numbers: tuple[str, ...], *, unused_by: Path | None) -> None:
    """Take interactions out, by number (3, 5-7) or because a replay did not use them."""
    from offbook.sources.cassette.maintenance import trim_cassette as take_out
    from offbook.sources.cassette.replay import Cassette

    chosen = {number for text in numbers for number in _numbers(text)}
    if unused_by is not None:
        if not unused_by.is_file():
            raise FormatError("there is no such cursor", path=unused_by)
        chosen |= {entry.number for entry in Cassette(path, cursor=unused_by).unused}
    if not chosen:
        if unused_by is None:
            raise UsageError("there is nothing to trim", hint="name numbers, or --unused-by CURSOR")
        click.echo(f"{path}: all interactions were used")
        return
    click.echo(f"{path}: took out {take_out(path, chosen)} interactions")


def _numbers(text: str) -> range:
    first, dash, last = text.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise UsageError(f"{text!r} is no number", hint="write 3, or 5-7")
    return range(int(first), int(last if dash else first) + 1)


@command.command("upgrade")
@click.argument("paths", type=cli_options.FILE_PATH, nargs=-1, required=True)
def upgrade(paths: tuple[Path, ...]) -> None:
    """Bring cassettes to the present version, and make the hashes of edited requests anew."""
    from offbook.sources.cassette.maintenance import upgrade_cassette as renew

    for path in paths:
        changed = renew(path)
        click.echo(f"{path}: {len(changed)} interactions changed")


@command.command("edit")
@click.argument("path", type=cli_options.FILE_PATH)
def edit(path: Path) -> None:
    """Edit a cassette; it is put back only when it can be read."""
    from offbook.files import read_text
    from offbook.sources.cassette.journal import load_cassette
    from offbook.sources.cassette.maintenance import rewrite_cassette

    load_cassette(path)
    before = read_text(path)
    text = click.edit(before, extension=path.suffix)
    if text is None or text == before:
        click.echo(f"{path}: nothing changed")
        return
    changed = rewrite_cassette(path, text)
    click.echo(f"{path}: saved, {len(changed)} hashes made anew")


@command.command("verify")
@click.argument("path", type=cli_options.FILE_PATH)
@click.option("--against", type=cli_options.FILE_PATH, help="Compare with another cassette.")
@cli_options.upstream_option
@click.option("--live", is_flag=True, help="Ask the real model, with the keys you have.")
def verify(path: Path, *, against: Path | None, upstream: str | None, live: bool) -> int:
    """Tell whether the answers would have another structure today."""
    from offbook.sources.cassette.maintenance import compare_cassettes, count_unverifiable
    from offbook.sources.cassette.maintenance import verify_cassette as ask_again
    from offbook.sources.live import Live

    if against is not None:
        drifts = compare_cassettes(path, against)
    elif live or upstream:
        drifts = asyncio.run(ask_again(path, Live(upstream)))
        if unasked := count_unverifiable(path):
            click.echo(f"{path}: {unasked} interactions keep no whole request, and were not asked")
    else:
        raise UsageError(
            "verify against what?", hint="give --live, --upstream URL or --against CASSETTE"
        )
    for drift in drifts:
        click.echo(str(drift))
    click.echo(
        f"{path}: {len(drifts)} interactions have drifted" if drifts else f"{path}: no drift"
    )
    return int(bool(drifts))
