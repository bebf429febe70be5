"""The agent session as a component.

A module on its own, imported by name: it needs the playbook and the session, which the other
components do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.files import make_temp_folder, remove_temp_folder
from offbook.goldens.components import Component, step
from offbook.goldens.session_hub import SessionHub
from offbook.sources.playbook.actions import call, say, when
from offbook.sources.playbook.playbook import Playbook
from offbook.subjects.session.session import AgentSession
from offbook.subjects.subject import RunContext
from offbook.trace.instrument import TracedSource

if TYPE_CHECKING:
    from pathlib import Path


class ScriptedAction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One action of the scripted model: a text, or a tool call with its input."""

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
        """Close the session and remove its folder."""
        if self._session is not None:
            await self._session.close()
        if self._folder is not None:
            remove_temp_folder(self._folder)

    def observe(self) -> dict[str, Any]:
        """Return also the number of messages and of unused actions."""
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
        # the session emits its own tool events, so the source must not emit them again
        source = TracedSource(self._playbook, self.hub, tools=False)
        await self._session.open(RunContext(source, self.hub, self._folder))

    @step
    async def prompt(self, text: str, script: list[ScriptedAction]) -> None:
        """Prompt the session. The model does the actions of the script."""
        if self._session is None:
            raise UsageError("no session to prompt", hint="add the step create before it")
        actions: list[Any] = []
        for action in script:
            if (action.say is None) == (action.call is None):
                raise UsageError(
                    "an action needs either 'say' or 'call'",
                    hint='write {"say": "Done."} or {"call": "bash", "input": {"command": "ls"}}',
                )
            actions.append(
                call(action.call, action.input)
                if action.call is not None
                else say(action.say or "")
            )
        turn = when(text, actions)
        self._playbook.load(turn)
        self._playbook.open(turn)
        await self._session.prompt(text)
        # a script that the agent did not use up is an error, as in every rehearsal
        error = self._playbook.failure or self._playbook.unfinished()
        if error is not None:
            raise error
