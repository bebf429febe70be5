"""google-adk: the assistant that builds agents, with its tools for files and configurations."""

from breaks import Break
from google.adk.cli.built_in_agents import adk_agent_builder_assistant as assistant
from google.adk.runners import InMemoryRunner
from google.genai import types

from offbook import call, say, when

FILES = {"files": {"notes.txt": "one lamp"}}


async def ask(prompt, *, folder):
    runner = InMemoryRunner(assistant.AgentBuilderAssistant.create_agent(), app_name="builder")
    session = await runner.session_service.create_session(
        app_name="builder", user_id="ada", state={"root_directory": str(folder)}
    )
    message = types.Content(role="user", parts=[types.Part(text=prompt)])
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
        if event.is_final_response():
            answer = "".join(part.text or "" for part in event.content.parts)
    return answer


def test_the_assistant_writes_and_reads_a_file(offbook, tmp_path):
    run = offbook.drive(ask, folder=tmp_path).run(
        when(
            "Keep a note",
            [
                call("write_files", FILES),
                call("read_files", {"file_paths": ["notes.txt"]}),
                say("I wrote notes.txt."),
            ],
        )
    )
    assert (tmp_path / "notes.txt").read_text() == "one lamp"
    assert '"content":"one lamp"' in run.results("read_files")[0].text
    assert run.output == "I wrote notes.txt."
    assert "NEVER assume users want to create agents" in run.requests[0].system


async def write_files(files: dict[str, str]) -> dict[str, bool]:
    """Claim to write files."""
    return {"success": True}


async def read_files(file_paths: list[str]) -> dict[str, bool]:
    """Read nothing."""
    return {"success": True}


async def read_one_file(path: str) -> str:
    """Read a file under another name."""
    return path


BUILDER = assistant.AgentBuilderAssistant
BREAKS = {
    "nothing is written": Break(
        lambda patch: patch.setattr(assistant, "write_files", write_files), "notes.txt"
    ),
    "nothing is read": Break(
        lambda patch: patch.setattr(assistant, "read_files", read_files), "'{\"success\":true}'"
    ),
    "the tool has another name": Break(
        lambda patch: patch.setattr(assistant, "read_files", read_one_file),
        "the agent does not offer 'read_files'",
    ),
    "the prompt is replaced": Break(
        lambda patch: patch.setattr(BUILDER, "_load_instruction_with_schema", lambda _: "Help."),
        "Help.",
    ),
}
