"""A harness: runs work on a hub, and tells its phases, tasks and agents."""

from __future__ import annotations

from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.runs.goldens.components.component import Component, step
from offbook.trace.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from offbook.trace.bus.inbox import Inbox


class Harness(Component):
    """A component that is created from an input, attached to, and run.

    The steps name no code: a subclass says what is made of the input (`begin`) and what a run
    does (`work`).
    """

    def __init__(self, hub: Hub, scenario: str) -> None:
        super().__init__(hub, scenario)
        self._name: str | None = None
        self._runs = 0
        self._attached: list[Callable[[], None]] = []
        self.state: Any = None
        self.result: Any = None

    def begin(self, given: dict[str, Any]) -> Any:
        """The state that a harness begins with."""
        return given

    async def work(self) -> Any:
        """What a run does; what comes back is its result."""
        return None

    def observe(self) -> dict[str, Any]:
        """Also the state, and what the run came to."""
        return {**super().observe(), "state": self.state, "result": self.result}

    @step
    def create(self, name: str, input: dict[str, Any]) -> None:  # noqa: A002 - as the files write it
        """Make a harness."""
        self._name = name
        self.state = self.begin(input)

    @step
    def attach(self) -> None:
        """Give the hub to somebody who listens until the run is over."""
        self._attached.append(self.hub.subscribe(_ignore))

    @step
    async def run(self) -> Any:
        """Run it, and tell its beginning and its end, whatever happens."""
        if self._name is None:
            raise UsageError("there is no harness yet", hint="the step create comes first")
        self.hub.set_status("running")
        began = self.hub.emit("harness:start", {"name": self._name}).ts
        success = False
        try:
            self.result = await self.work()
            success = True
        finally:
            self.hub.set_status("complete" if success else "idle")
            took = self.hub.now() - began
            self.hub.emit("harness:complete", {"success": success, "durationMs": took})
            for stop in self._attached:
                stop()
        return self.result

    async def phase(self, name: str, work: Callable[[], object]) -> Any:
        """Do work that belongs together; what is told inside carries its name."""
        return await self._tell("phase", {"name": name}, {"phase": {"name": name}}, work)

    async def task(self, task_id: str, work: Callable[[], object]) -> Any:
        """Do one piece of work; what is told inside carries its id."""
        return await self._tell("task", {"taskId": task_id}, {"task": {"id": task_id}}, work)

    async def agent(self, name: str, work: Callable[[str, Inbox], object]) -> Any:
        """Let an agent work under an id of its own, with an inbox for messages to it."""
        run_id = f"run-{self._runs}"
        self._runs += 1
        about = {"agentName": name, "runId": run_id}
        inbox = self.hub.open_inbox(run_id)
        self.hub.emit("agent:start", about)
        try:
            result = await _settle(work(run_id, inbox))
        except Exception as error:
            self.hub.emit("agent:complete", {**about, "success": False})
            self.hub.emit("agent:failed", {**about, "error": str(error)})
            raise
        self.hub.emit("agent:complete", {**about, "success": True})
        return result

    async def _tell(
        self, kind: str, about: dict[str, Any], scope: dict[str, Any], work: Callable[[], object]
    ) -> Any:
        """Do something, and tell its beginning and its end, both outside its own context."""
        self.hub.emit(f"{kind}:start", about)
        try:
            with self.hub.scoped(**scope):
                result = await _settle(work())
        except Exception as error:
            self.hub.emit(f"{kind}:failed", {**about, "error": str(error)})
            raise
        came = {} if kind == "phase" or result is None else {"result": result}
        self.hub.emit(f"{kind}:complete", {**about, **came})
        return result


async def _settle(answer: object) -> Any:
    return await answer if isawaitable(answer) else answer


def _ignore(_: object) -> None:
    """A listener that was attached and has nothing to say."""
