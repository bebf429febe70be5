"""The commands as a whole: their number, and the commands that messages and pages name."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from offbook.cli_options import FiniteFloat
from offbook.surfaces.cli import MOVED, offbook
from tests.surfaces.conftest import Offbook

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def list_leaves(
    command: click.Command, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Yield all commands that do something, with their full names."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from list_leaves(found, (*path, name))


LEAVES = dict(list_leaves(offbook))
GROUPS = {name.rsplit(" ", 1)[0] for name in LEAVES if " " in name}


def test_there_are_45_commands_at_most():
    assert len(LEAVES) <= 45


def test_every_option_that_is_a_number_is_finite():
    numbers = {
        f"{name} {option.opts[0]}": option.type
        for name, command in LEAVES.items()
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    }
    assert "eval run --min-kappa" in numbers
    assert [name for name, kind in numbers.items() if not isinstance(kind, FiniteFloat)] == []


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999"])
def test_a_number_that_is_not_finite_is_refused(value: str):
    with pytest.raises(click.BadParameter, match=f"expected a finite number, got {value}"):
        FiniteFloat(-math.inf).convert(value, None, None)


def is_command(words: str) -> bool:
    """Return whether a line begins with a command, or is a group alone."""
    first, *others = words.split()
    if first.startswith("-") or first in LEAVES:
        return True
    second = f"{first} {others[0]}" if others else ""
    is_group = first in GROUPS and not re.match(r"[a-z-]+$", others[0] if others else "")
    return is_group or second in {*LEAVES, *GROUPS}


def test_pages_name_existing_commands():
    wrong: list[str] = []
    for path in PAGES:
        text = path.read_text("utf-8").replace("offbook dmeo", "")  # an example of an error
        text = re.sub(r"^\$ .*# exit 2$", "", text, flags=re.MULTILINE)  # so are these
        found = re.findall(r"`offbook ([^`\n]+)`|^(?:\$ )?offbook (.*)$", text, re.MULTILINE)
        wrong += [f"{path.name}: {words}" for pair in found if not is_command(words := max(pair))]
    assert wrong == ["commands.md: COMMAND --help"]


def test_messages_name_existing_commands():
    wrong: list[str] = []
    # The examples of the help, hints that are a command, and commands in backquotes.
    named = re.compile(
        r"^  offbook (.+)$|hint=f?\"offbook ([^\"]+)\"|`offbook ([^`…]+)`", re.MULTILINE
    )
    for path in SOURCES:
        text = path.read_text("utf-8")
        found = [max(groups) for groups in named.findall(text)]
        wrong += [f"{path.name}: {words}" for words in found if not is_command(words)]
        wrong += [f"{path.name}: {old}" for old in MOVED if re.search(rf"offbook {old}[ `]", text)]
    assert wrong == []


@pytest.mark.parametrize("old", MOVED)
def test_a_command_of_an_earlier_version_names_its_successor(old: str, offbook_command: Offbook):
    outcome = offbook_command(*old.split(), "x")
    assert outcome.code == 2
    assert f"unknown command '{old}': use offbook {MOVED[old]}" in outcome.err
    assert is_command(MOVED[old])
