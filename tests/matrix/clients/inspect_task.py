"""An Inspect task of one sample, with the loop of Inspect."""

import os
import sys
from pathlib import Path
from typing import Any

import inspect_ai
from harness import OPENAI, PROMPT, VARIANT, get_weather, print_result
from inspect_ai.dataset import Sample
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolDef, mcp_server_stdio, tool

os.environ |= {"FAKE_API_KEY": "none", "FAKE_BASE_URL": OPENAI}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "openai": ("openai/offbook-1", {"responses_api": False}),
    "responses": ("openai/offbook-1", {"responses_api": True}),
    "openai-api": ("openai-api/fake/offbook-1", {}),
    "anthropic": ("anthropic/offbook-1", {}),
    "google": ("google/offbook-1", {}),
    "mcp": ("openai/offbook-1", {"responses_api": False}),
}


@tool
def weather() -> Tool:
    async def execute(city: str) -> str:
        """Get the weather in a city.

        Args:
            city: The name of the city.
        """
        return get_weather(city)

    return ToolDef(execute, name="get_weather").as_tool()


if VARIANT == "mcp":
    server = str(Path(__file__).with_name("weather_server.py"))
    tools: Any = mcp_server_stdio(name="wx", command=sys.executable, args=[server])
else:
    tools = weather()
task = inspect_ai.Task(dataset=[Sample(input=PROMPT)], solver=[use_tools(tools), generate()])
model, args = MODELS[VARIANT]
(log,) = inspect_ai.eval(
    task,
    model=model,
    model_args=args,
    display="none",
    log_dir=os.environ["HOME"],
    debug_errors=True,  # raise them, as a caller of an agent sees them
)
assert log.status == "success", log.error
print_result((log.samples or [])[0].output.completion, "inspect-ai")
