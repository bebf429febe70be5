"""An agent on the official A2A SDK: `a2a_agent.py PORT`. Its model decides, as in the plain one."""

import os
import sys
from typing import Any

import httpx
import uvicorn
from a2a.helpers import new_task_from_user_message, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

PORT = int(sys.argv[1])
URL = os.environ["OPENAI_BASE_URL"] + "/chat/completions"


class Executor(AgentExecutor):
    """Answers with the words of the model; a question requires input."""

    def __init__(self) -> None:
        self.histories: dict[str, list[Any]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work()
        history = self.histories.setdefault(task.context_id, [])
        history.append({"role": "user", "content": context.get_user_input()})
        async with httpx.AsyncClient(timeout=120) as client:
            response = await client.post(URL, json={"model": "m", "messages": history})
        message = response.json()["choices"][0]["message"]
        history.append(message)
        part = new_text_part(message["content"])
        if message["content"].endswith("?"):
            await updater.requires_input(updater.new_agent_message([part]))
            return
        await updater.add_artifact([part])
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        raise NotImplementedError


skill = AgentSkill(id="pay", name="Pay", description="Pays bills.", tags=["money"])
url = f"http://127.0.0.1:{PORT}/a2a"
card = AgentCard(
    name="payer",
    description="Pays bills.",
    version="1",
    supported_interfaces=[
        AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming="plain" not in sys.argv),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[skill],
)
handler = DefaultRequestHandler(Executor(), InMemoryTaskStore(), card)
routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/a2a")]
uvicorn.run(Starlette(routes=routes), port=PORT, log_level="error")
