"""CAMEL: a chat agent with a function."""

from byte_tokens import use_bytes
from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.toolkits import FunctionTool
from camel.types import ModelPlatformType
from harness import MODEL, OPENAI, PROMPT, STREAM, get_weather, print_result

use_bytes()
model = ModelFactory.create(
    model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
    model_type=MODEL,
    url=OPENAI,
    api_key="none",
    model_config_dict={"stream": STREAM},
)
agent = ChatAgent("Answer questions.", model=model, tools=[FunctionTool(get_weather)])
answer = agent.step(PROMPT)
parts = [part.msgs[0].content for part in (answer if STREAM else [answer]) if part.msgs]
print_result("".join(parts), "camel-ai", "openai")
