"""The agent session as a component: scripted turns in, everything it does out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError, did_you_mean
from offbook.goldens.components import Component, step
from offbook.goldens.session_hub import SessionHub
from offbook.runs.run_files import make_temp_folder, remove_temp_folder
from offbook.sources.playbook import Playbook, Turn, call, say, when
from offbook.subjects.session.session import AgentSession
from offbook.subjects.subject import RunContext
from offbook.trace.instrument import TracedSource

if TYPE_CHECKING:
    from pathlib import Path


class ScriptedAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action of the model: something that it says, or a tool that it calls."""

    say: str | None = None
    call: str | None = None
    input: dict[str, Any] = {}


class SessionComponent(Component):
    """A real agent session whose model is scripted by the steps."""

    def __init__(self, hub: SessionHub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._session: AgentSession | None = None
        self._playbook = Playbook()
        self._folder: Path | None = None

    async def close(self) -> None:
        """Close the session, and remove its folder."""
        if self._session is not None:
            await self._session.close()
        if self._folder is not None:
            remove_temp_folder(self._folder)

    def observe(self) -> dict[str, Any]:
        """Also how many messages there are, and what is left of the script."""
        messages = len(self._session.messages) if self._session else 0
        return {**super().observe(), "messages": messages, "left": self._playbook.remaining}

    @step
    async def create(
        self,
        mock_tools: dict[str, Any] | None = None,
        mock_ui: dict[str, Any] | None = None,
        system_prompt: str = "You are an agent.",
        settings: dict[str, Any] | None = None,
    ) -> None:
        """Open a session."""
        self._folder = make_temp_folder()
        self._session = AgentSession(
            mock_tools=mock_tools, mock_ui=mock_ui, system_prompt=system_prompt, settings=settings
        )
        source = TracedSource(self._playbook, self.hub, tools=False)
        await self._session.open(RunContext(source, self.hub, self._folder))

    @step
    async def prompt(self, text: str, script: list[ScriptedAction]) -> None:
        """Prompt it, with what the model will do about it."""
        if self._session is None:
            raise UsageError("there is no session yet", hint="the step create comes first")
        turn = _read_turn(text, script)
        self._playbook.load(turn)
        self._playbook.open(turn)
        await self._session.prompt(text)
        unfinished = self._playbook.failure or self._playbook.unfinished()
        if unfinished is not None:
            raise unfinished


def _read_turn(text: str, script: list[ScriptedAction]) -> Turn:
    actions: list[Any] = []
    for one in script:
        if (one.say is None) == (one.call is None):
            given = did_you_mean("say", ("say", "call"))
            raise UsageError("an action either says something or calls a tool", hint=given)
        actions.append(say(one.say) if one.say is not None else call(one.call or "", one.input))
    return when(text, actions)
