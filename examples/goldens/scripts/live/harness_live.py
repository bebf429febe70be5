"""The harnesses that the fixtures of Open Harness name."""

import asyncio
from typing import Any

from offbook.goldens import Harness, Inbox


class OpenHarness(Harness):
    """A harness whose state and work depend on the scenario."""

    def create_state(self, input: dict[str, Any]) -> Any:  # noqa: A002 - as in Harness
        """Return the initial state."""
        states = {"factory": {"count": input.get("value")}, "run-lifecycle": {"initialized": True}}
        return states.get(self.scenario, {})

    async def execute(self) -> Any:
        """Do the work of the scenario."""
        if self.scenario == "phase-task":
            await self.phase("Planning", self.plan)
        if self.scenario == "inbox-routing":
            return await self.route_messages()
        if self.scenario == "session":
            return {"hasSession": self.hub.session_active}
        return {"result": "success"} if self.scenario == "run-lifecycle" else {"ok": True}

    async def plan(self) -> None:
        """Do one task of the phase; its result is in the event of its end."""

        def work() -> str:
            self.hub.emit("custom:event", {"data": "test"})
            return "planned"

        await self.task("plan", work)

    async def route_messages(self) -> dict[str, Any]:
        """Run one agent twice; each run receives the message that was sent to it."""
        messages = ["first", "second"]
        run_ids: list[str] = []

        async def echo(label: str) -> str:
            async def answer(run_id: str, inbox: Inbox) -> str:
                self.hub.send_to_run(run_id, messages[len(run_ids)])
                run_ids.append(run_id)
                return f"{label}:{await inbox.pop()}"

            return await self.agent("echo", answer)

        results = await asyncio.gather(echo("one"), echo("two"))
        return {"runIds": run_ids, "results": results}
