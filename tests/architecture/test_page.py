"""ARCHITECTURE.md tells of the rooms that there are."""

import re
from pathlib import Path

import pytest

from offbook.trace import events

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "offbook"
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)/?` \| (.+?) \|", PAGE, re.MULTILINE)
PLACES = sorted(set(re.findall(r"`(\w+/[\w/]+(?:\.\w+)?)[`:]", PAGE)))


def is_here(place: Path) -> bool:
    return place.is_dir() or place.with_suffix(".py").is_file()


def test_every_folder_and_module_at_the_top_has_its_row():
    rooms = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("__", "py"))}
    assert {room for room, _ in ROWS} == rooms


@pytest.mark.parametrize("room, holds", ROWS)
def test_what_a_room_is_said_to_hold_is_there(room: str, holds: str):
    named = set(re.findall(r"`(\w+)/?`", holds)) - {room, "runs"}
    assert not [name for name in named if not is_here(SOURCE / room / name)]


@pytest.mark.parametrize("place", PLACES)
def test_every_file_and_folder_that_the_page_names_is_there(place: str):
    assert any((root / place).exists() for root in (ROOT, ROOT / "src", SOURCE))


def test_the_name_of_an_event_is_written_once():
    names = {name for name in vars(events).values() if isinstance(name, str) and "." in name}
    told = {f'"{name}"' for name in names if " " not in name} - {f'"{events.__name__}"'}
    found = {
        f"{path.name}: {one}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "trace" / "events.py"
        for one in told
        if one in path.read_text("utf-8")
    }
    assert "model.reply" in names
    assert not found
