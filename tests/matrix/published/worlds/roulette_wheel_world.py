"""A world for a search: the program, which prompts itself twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic_ai_examples import roulette_wheel as roulette

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    return drive(roulette.main)
