"""The scenarios of the agent session, run on the real one: `offbook golden live session`."""

from typing import Any

from offbook.goldens import scenario

SESSION_EVENTS = ["agent.*", "tool.*", "ui.*"]
Session = Any  # a StepRecorder, which has the steps of the component and nothing else


@scenario(filter=SESSION_EVENTS)
async def tool_calls(session: Session) -> None:
    """The tools that the model calls run, and the model receives their results."""
    await session.create(mock_tools={"bash": "two files", "read": "a kettle"})
    script = [
        {"call": "bash", "input": {"command": "ls"}},
        {"call": "read", "input": {"path": "order.txt"}},
        {"say": "Done."},
    ]
    await session.prompt("Look around", script)


@scenario(filter=SESSION_EVENTS)
async def tool_error(session: Session) -> None:
    """A failing tool is an error result, and the session continues."""
    await session.create(mock_tools={"read": {"content": "no such order", "is_error": True}})
    await session.prompt("Read", [{"call": "read", "input": {"path": "x"}}, {"say": "Sorry."}])


@scenario(filter=SESSION_EVENTS)
async def two_prompts(session: Session) -> None:
    """A session continues with a second prompt."""
    await session.create(mock_tools={"bash": "ok"})
    await session.prompt("One", [{"say": "First."}])
    await session.prompt("Two", [{"call": "bash", "input": {"command": "ls"}}, {"say": "Second."}])
