"""The loop as a component: a task and what its agent says in, what the loop makes of it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.goldens.components import Component, step
from offbook.goldens.session_hub import SessionHub
from offbook.workflows.mock_backend import MockBackend
from offbook.runs.run_files import make_temp_folder, remove_temp_folder
from offbook.sources.playbook import Playbook
from offbook.subjects.subject import RunContext
from offbook.workflows.hat_loop import HatLoop

if TYPE_CHECKING:
    from pathlib import Path


class LoopComponent(Component):
    """A real loop whose agent is scripted by the steps."""

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._folder: Path | None = None
        self._loop: HatLoop | None = None
        self._agent: MockBackend | None = None

    async def open(self) -> None:
        """Make a folder to work in."""
        self._folder = make_temp_folder()

    async def close(self) -> None:
        """Remove the folder."""
        if self._folder is not None:
            remove_temp_folder(self._folder)

    def observe(self) -> dict[str, Any]:
        """Also why the loop ended, after how many iterations, and what nobody used."""
        outcome = self._loop.outcome if self._loop else None
        return {
            **super().observe(),
            "reason": outcome.reason if outcome else None,
            "iterations": outcome.iterations if outcome else None,
            "exitCode": outcome.exit_code if outcome else None,
            "left": self._agent.remaining if self._agent else None,
        }

    @step
    async def work(
        self, task: str, responses: list[Any], preset: dict[str, Any] | None = None
    ) -> None:
        """Work on a task; the agent says these things, one an iteration."""
        assert self._folder is not None  # noqa: S101 - open comes before every step
        self._agent = MockBackend(responses)
        self._loop = HatLoop(preset, backend=self._agent)
        await self._loop.open(RunContext(Playbook(), self.hub, self._folder))
        await self._loop.prompt(task)
        await self._loop.close()
