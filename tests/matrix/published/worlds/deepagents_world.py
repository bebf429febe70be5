"""A world for a search: the agent with its default backend, which keeps files in its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deepagents import create_deep_agent

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> Rehearsal:
    """Return a new agent."""
    return drive(create_deep_agent("openai:gpt-5", system_prompt="You write about drinks."))
