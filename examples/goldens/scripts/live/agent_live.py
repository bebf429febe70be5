"""The agents that the fixtures of Open Harness name."""

import asyncio
from typing import Any

from offbook.goldens import Harness, Inbox


class OpenHarnessAgents(Harness):
    """A harness that runs the agent of the scenario."""

    async def execute(self) -> Any:
        """Run the agent, once or twice."""
        if self.scenario == "inbox-basic":
            return await self.agent("receiver", self.read_inbox)
        results = await asyncio.gather(*(self.agent("receiver", self.receive) for _ in range(2)))
        return {"runIds": [result["runId"] for result in results], "results": results}

    async def read_inbox(self, run_id: str, inbox: Inbox) -> dict[str, Any]:
        """Read the inbox in its three ways: one message, all that are there, and the next."""
        self.hub.send_to_run(run_id, "first")
        self.hub.send_to_run(run_id, "second")
        first, drained = await inbox.pop(), inbox.drain()
        self.hub.send_to_run(run_id, "third")
        result = {"first": first, "drained": drained, "iter": await anext(inbox)}
        return {"runId": run_id, "result": result}

    async def receive(self, run_id: str, inbox: Inbox) -> dict[str, str]:
        """Return the message to this run."""
        self.hub.send_to_run(run_id, f"message:{run_id}")
        return {"runId": run_id, "message": await inbox.pop()}
