"""Components: objects with steps that a fixture can run, and a hub for their events.

A capability that has something to record as a golden fixture subclasses `BaseComponent`; the
capability `goldens` records and replays the steps of any such class. Neither imports the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from offbook.trace.hub import Hub

F = TypeVar("F", bound=Callable[..., object])
STEP_ATTRIBUTE = "offbook_step"


def step(method: F) -> F:
    """Make a method a step: `set_status(self, status)` is `{"type": "setStatus", "status": …}`."""
    setattr(method, STEP_ATTRIBUTE, True)
    return method


class BaseComponent:
    """An object that scenarios run on. One instance is created for each scenario.

    class Till(BaseComponent):
        coins = 0

        @step
        def put(self, coins: int):
            self.coins += coins
            self.hub.emit("till:put", {"coins": coins})

        def observe(self):
            return {"coins": self.coins}
    """

    def __init__(self, hub: Hub, scenario: str) -> None:
        self.hub = hub
        self.scenario = scenario

    async def open(self) -> None:
        """Prepare for the first step."""

    async def close(self) -> None:
        """Release all resources. Called also after a step that raised."""

    def observe(self) -> dict[str, Any]:
        """Return the state that a fixture may expect in addition to the events, by name."""
        return {}
