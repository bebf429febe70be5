"""A world for a search: the program, with a person who buys and wants a seat at the window."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

from pydantic_ai_examples import flight_booking as flights

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    answers = cycle(["buy", "row 14, at the window"])
    flights.Prompt.ask = lambda *_, **__: next(answers)
    return drive(flights.main)
