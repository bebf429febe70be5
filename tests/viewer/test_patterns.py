"""The example patterns on the page: their cells, handlers and model calls."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from offbook.viewer import render_traces
from tests.viewer.conftest import Opened, OpenPage

pytestmark = pytest.mark.slow

# Rows in their order; others may be between them.
ROWS = {
    "shopping_list": [
        'cell.effect {"effect":"rows of shopping_list.items"}',
        "send row.toggle",
        "handle row.toggle",
        "set shopping_list.items[1].bought true",
        "handle shopping_list.remove",
        "set shopping_list.items",
        "send remind",
        "set shopping_list.reminders[0]",
        "compute shopping_list.left 3",
    ],
    "spreadsheet": [
        "send spreadsheet.enter",
        "handle spreadsheet.enter",
        "set spreadsheet.sheet.A1",
        "compute compute('A1') 10",
        "compute spreadsheet.values",
    ],
    "summariser": [
        "run patterns",
        "send summariser.summarise",
        "handle summariser.summarise",
        "set summariser.status",
        "model “Short.”",
        "set summariser.summary",
        "set summariser.status",
        "compute summariser.saved 6",
        "pass playbook consumed",
        "run passed",
    ],
}
# Of the last write: the cells at that moment, with the difference to the one before.
CELLS = {
    "shopping_list": ("set shopping_list.reminders[0]", "milk"),
    "spreadsheet": ("set spreadsheet.sheet.A1", "10"),
    "summariser": ("set summariser.summary", "Short."),
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The traces of all three, made by another process: Playwright keeps an event loop in this."""
    folder = tmp_path_factory.mktemp("patterns")
    words = [sys.executable, "-m", "tests.viewer.pattern_traces", str(folder)]
    subprocess.run(words, cwd=Path(__file__).parents[2], check=True, timeout=300)
    return folder


def find_rows(opened: Opened) -> list[str]:
    opened.page.locator(".list .row").first.wait_for()
    return opened.rows()


@pytest.mark.parametrize("name", ROWS)
def test_the_page_shows_the_cells_handlers_and_model_calls_of_a_pattern(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    opened = open_html(render_traces([traces / f"{name}.jsonl"]), size=(1280, 2400))
    rows = find_rows(opened)
    left = iter(rows)
    for wanted in ROWS[name]:
        assert any(row.startswith(wanted) for row in left), (wanted, rows)
    assert opened.messages == []


@pytest.mark.parametrize("name", CELLS)
def test_the_value_of_a_cell_is_one_click_away(
    open_html: OpenPage, traces: Path, name: str
) -> None:
    row, value = CELLS[name]
    opened = open_html(render_traces([traces / f"{name}.jsonl"]), size=(1280, 2400))
    find_rows(opened)
    opened.page.locator(".list .row").filter(has_text=row).last.click()
    opened.page.locator(".panel").filter(has_text=value).first.wait_for()
    assert row.removeprefix("set ") in opened.text(".panel")
