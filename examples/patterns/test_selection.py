"""Level 5: identity."""

import pytest
from selection import selection

from offbook.patterns import Cell, create_harness


@pytest.fixture
def items():
    return [{"title": "Keep"}, {"title": "Remove"}, {"title": "Keep"}]


def test_the_selection_is_found_after_the_list_changed(items):
    with create_harness() as h:
        chooser = h.load(selection, {"items": items})
        chooser.result.select.send({"index": 1})
        h.idle()
        chooser.cells.items.set([{"title": "New"}, *chooser.cells.items.get()])
        chosen = chooser.cells.selected.get()
        found = [Cell.equals(chosen, item) for item in chooser.cells.items.get()]
        assert found == [False, False, True, False]


def test_the_selected_item_is_removed_and_no_other(items):
    with create_harness() as h:
        chooser = h.load(selection, {"items": items})
        chooser.result.select.send({"index": 1})
        chooser.result.remove_selected.send()
        h.idle()
        assert [item["title"] for item in chooser.result.items] == ["Keep", "Keep"]
        assert chooser.result.selected is None
