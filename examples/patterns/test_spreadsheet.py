"""Formulas that depend on each other."""

import pytest
from spreadsheet import spreadsheet

from offbook.errors import PatternError
from offbook.patterns import create_harness

SHEET = {"A1": "2", "A2": "3", "B1": "=A1+A2", "B2": "=B1*2", "C1": "a text"}


def test_formulas_follow_their_cells():
    with create_harness() as h:
        sheet = h.load(spreadsheet, {"sheet": SHEET})
        assert sheet.result["values"] == {"A1": 2, "A2": 3, "B1": 5, "B2": 10, "C1": "a text"}
        sheet.result.enter.send({"at": "A1", "text": "10"})
        h.idle()
        assert sheet.result["values"]["B2"] == 26


def test_only_what_depends_on_a_cell_is_computed_again():
    with create_harness() as h:
        sheet = h.load(spreadsheet, {"sheet": SHEET})
        assert sheet.result["values"]["B1"] == 5
        h.trace.clear()
        sheet.cells.sheet.key("C1").set("another text")
        assert sheet.result["values"]["C1"] == "another text"
        assert sum(event == "cell.compute" for event, _ in h.trace) == 2  # C1 and all values


def test_a_circle_is_an_error():
    with create_harness() as h:
        sheet = h.load(spreadsheet, {"sheet": {"A1": "=B1", "B1": "=A1"}})
        with pytest.raises(PatternError, match="depends on itself"):
            sheet.result["values"]


def test_a_cell_that_does_not_exist_is_refused():
    with create_harness(expect_errors=1) as h:
        sheet = h.load(spreadsheet, {"sheet": SHEET})
        sheet.result.enter.send({"at": "1A", "text": "10"})
        h.idle()
        assert sheet.result.sheet == SHEET
