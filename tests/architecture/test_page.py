"""ARCHITECTURE.md names the folders and files that exist."""

import re
from pathlib import Path

import pytest

from offbook.trace import events

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "offbook"
PAGE = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
ROWS = re.findall(r"^\| `(\w+)/?` \| (.+?) \|", PAGE, re.MULTILINE)
PLACES = sorted(set(re.findall(r"`(\w+/[\w/]+(?:\.\w+)?)[`:]", PAGE)))


def test_every_folder_and_module_at_the_top_has_a_row():
    modules = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("__", "py"))}
    assert {folder for folder, _ in ROWS} == modules


@pytest.mark.parametrize("folder, contents", ROWS)
def test_the_contents_of_a_row_exist(folder: str, contents: str):
    names = set(re.findall(r"`(\w+)/?`", contents)) - {folder, "session", "drive", "ModelSource"}
    missing = [name for name in names if not _exists(SOURCE / folder / name)]
    assert missing == []


def _exists(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("place", PLACES)
def test_every_file_and_folder_on_the_page_exists(place: str):
    assert any((root / place).exists() for root in (ROOT, ROOT / "src", SOURCE))


def test_the_page_fits_on_one_page():
    assert len(PAGE.splitlines()) <= 110


def test_the_name_of_an_event_is_defined_once():
    names = {name for name in vars(events).values() if isinstance(name, str) and "." in name}
    quoted = {f'"{name}"' for name in names if " " not in name} - {f'"{events.__name__}"'}
    copies = {
        f"{path.name}: {name}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "trace" / "events.py"
        for name in quoted
        if name in path.read_text("utf-8")
    }
    assert "model.reply" in names
    assert copies == set()
