"""The scenarios of the agent session, played on the real one: `offbook live session`."""

from typing import Any

from offbook.goldens import scenario

DOING = ["agent.*", "tool.*", "ui.*"]
Session = Any  # while a scenario is recorded, its session knows the steps and nothing else


@scenario(filter=DOING)
async def tool_calls(session: Session) -> None:
    """The tools that the model calls are run, and their results come back."""
    await session.create(mock_tools={"bash": "two files", "read": "a kettle"})
    script = [
        {"call": "bash", "input": {"command": "ls"}},
        {"call": "read", "input": {"path": "order.txt"}},
        {"say": "Done."},
    ]
    await session.prompt("Look around", script)


@scenario(filter=DOING)
async def tool_error(session: Session) -> None:
    """A tool that fails is an error result, and the session goes on."""
    await session.create(mock_tools={"read": {"content": "no such order", "is_error": True}})
    await session.prompt("Read", [{"call": "read", "input": {"path": "x"}}, {"say": "Sorry."}])


@scenario(filter=DOING)
async def two_prompts(session: Session) -> None:
    """A session goes on where it stopped."""
    await session.create(mock_tools={"bash": "ok"})
    await session.prompt("One", [{"say": "First."}])
    await session.prompt("Two", [{"call": "bash", "input": {"command": "ls"}}, {"say": "Second."}])
