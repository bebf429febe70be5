"""The scenarios of the hat loop, run on the real one: `offbook golden live loop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.files import make_temp_folder, remove_temp_folder
from offbook.goldens import Component, scenario, step
from offbook.runs.wiring import SourceWithMetadata
from offbook.subjects.subject import RunContext
from offbook.workflows.hat_loop import HatLoop
from offbook.workflows.loop_tools import MockResponses

if TYPE_CHECKING:
    from pathlib import Path

    from offbook.goldens import SessionHub

LOOP_EVENTS = ["bus.*", "process.*", "_meta.event_dropped"]


class LoopComponent(Component):
    """A real hat loop whose agent is scripted by the steps.

    It is defined here, not in `offbook.goldens`: capabilities do not import each other.
    """

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._folder: Path | None = None
        self._loop: HatLoop | None = None
        self._model: MockResponses | None = None

    async def open(self) -> None:
        """Create the folder that the loop works in."""
        self._folder = make_temp_folder()

    async def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            remove_temp_folder(self._folder)

    def observe(self) -> dict[str, Any]:
        """Return also the end of the loop and the number of unused responses."""
        outcome = self._loop.outcome if self._loop else None
        return {
            **super().observe(),
            "reason": outcome.reason if outcome else None,
            "iterations": outcome.iterations if outcome else None,
            "exitCode": outcome.exit_code if outcome else None,
            "left": self._model.remaining if self._model else None,
        }

    @step
    async def work(
        self, task: str, responses: list[Any], preset: dict[str, Any] | None = None
    ) -> None:
        """Run the loop on a task. The agent gives one response per iteration."""
        assert self._folder is not None  # noqa: S101 - open() runs before every step
        self._model = MockResponses(responses)
        self._loop = HatLoop(preset)
        source = SourceWithMetadata(self._model, self._loop)  # each request names its hat
        await self._loop.open(RunContext(source, self.hub, self._folder))
        await self._loop.prompt(task)
        await self._loop.close()


@scenario(filter=LOOP_EVENTS)
async def hats(loop: LoopComponent) -> None:
    """The planner emits a task, the builder builds it, and the promise ends the loop."""
    await loop.work(
        "Build a kettle",
        [
            {"hat": "planner", "output": '<event topic="build.task">a lid</event>'},
            {"hat": "builder", "output": '<event topic="build.done">a lid</event>'},
            {"hat": "planner", "output": "LOOP_COMPLETE"},
        ],
    )


@scenario(filter=LOOP_EVENTS)
async def limit(loop: LoopComponent) -> None:
    """A loop without a completion promise ends at its iteration limit."""
    responses = [f'<event topic="build.task">part {number}</event>' for number in range(2)]
    await loop.work("Build a kettle", responses, {"event_loop": {"max_iterations": 2}})
