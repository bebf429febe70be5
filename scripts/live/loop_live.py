"""The scenarios of the loop, played on the real one: `offbook live loop`."""

from typing import Any

from offbook.goldens import scenario

SAID = ["bus.*", "process.*", "_meta.event_dropped"]
Loop = Any  # while a scenario is recorded, its loop knows the steps and nothing else


@scenario(filter=SAID)
async def hats(loop: Loop) -> None:
    """The planner hands out a task, the builder builds it, and the promise ends the loop."""
    await loop.work(
        "Build a kettle",
        [
            {"hat": "planner", "output": '<event topic="build.task">a lid</event>'},
            {"hat": "builder", "output": '<event topic="build.done">a lid</event>'},
            {"hat": "planner", "output": "LOOP_COMPLETE"},
        ],
    )


@scenario(filter=SAID)
async def limit(loop: Loop) -> None:
    """A loop that keeps no promise ends at its limit."""
    said = [f'<event topic="build.task">part {number}</event>' for number in range(2)]
    await loop.work("Build a kettle", said, {"event_loop": {"max_iterations": 2}})
