"""An agent on the A2A SDK 0.3; it is refused for its card."""

import sys

import uvicorn
from a2a.server.apps import A2AStarletteApplication
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard

port = int(sys.argv[1])
card = AgentCard(
    name="till",
    description="Pays.",
    url=f"http://127.0.0.1:{port}/",
    version="1",
    capabilities=AgentCapabilities(),
    default_input_modes=["text/plain"],
    default_output_modes=["text/plain"],
    skills=[],
)
handler = DefaultRequestHandler(agent_executor=None, task_store=InMemoryTaskStore())
app = A2AStarletteApplication(agent_card=card, http_handler=handler).build()
uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
