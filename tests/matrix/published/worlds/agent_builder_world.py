"""A world for a search: the assistant, with a folder for its project, which is the state."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from google.adk.cli.built_in_agents import adk_agent_builder_assistant as assistant
from google.adk.runners import InMemoryRunner
from google.genai import types

from offbook import drive

if TYPE_CHECKING:
    from offbook.runs.rehearsal import Rehearsal


def world() -> tuple[Rehearsal, object]:
    """Return a new agent."""
    folder = TemporaryDirectory()

    async def ask(prompt: str) -> str:
        runner = InMemoryRunner(assistant.AgentBuilderAssistant.create_agent(), app_name="builder")
        session = await runner.session_service.create_session(
            app_name="builder", user_id="ada", state={"root_directory": folder.name}
        )
        message = types.Content(role="user", parts=[types.Part(text=prompt)])
        answer = ""
        events = runner.run_async(user_id="ada", session_id=session.id, new_message=message)
        async for event in events:
            if event.is_final_response() and event.content:
                answer = "".join(part.text or "" for part in event.content.parts or ())
        return answer

    return drive(ask), (Path(folder.name), folder)
