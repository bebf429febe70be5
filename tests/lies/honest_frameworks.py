"""Honest agents that use more of their framework: middleware, runners, handoffs, processors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import agents
import anthropic
import openai
import pydantic_ai
from google import genai
from langchain import agents as langchain_agents
from langchain.agents import middleware as langchain_middleware
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from offbook import call, drive
from tests.lies.agent import MODEL, PROMPT, SYSTEM, Agent
from tests.lies.forms import Form
from tests.lies.frameworks import tool_functions
from tests.lies.honest import HONEST, Honest
from tests.lies.loops import anthropic_client, google_client

__all__ = ["HONEST"]


def honest(make: Callable[[Agent], Any], **changed: Any) -> None:
    """Register an agent that is made by this function."""

    def open_agent(agent: Agent) -> Any:
        return drive(make(agent))

    name = make.__name__.replace("_", " ")
    HONEST.append(Honest(type("Agent", (Agent,), changed), Form(name, open_agent)))


def chat_model() -> Any:
    key: Any = "none"
    return ChatOpenAI(model=MODEL, api_key=key, max_retries=0)


def langchain_tools(agent: Agent) -> list[Any]:
    return [StructuredTool.from_function(one) for one in tool_functions(agent).values()]


create_agent: Any = cast("Any", langchain_agents).create_agent
middleware: Any = langchain_middleware


def langchain_with_sync_middleware(agent: Agent) -> Any:
    class Sync(middleware.AgentMiddleware):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            return handler(request)

    return create_agent(chat_model(), tools=langchain_tools(agent), middleware=[Sync()])


def langchain_with_trimming(agent: Agent) -> Any:
    class Trim(middleware.AgentMiddleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            last = [i for i, one in enumerate(request.messages) if one.type == "human"][-1]
            return await handler(request.override(messages=request.messages[last:]))

    return create_agent(chat_model(), tools=langchain_tools(agent), middleware=[Trim()])


def pydantic_ai_with_a_processor(agent: Agent) -> Any:
    def keep_the_end(messages: list[Any]) -> list[Any]:
        last = [i for i, m in enumerate(messages) if m.parts[0].part_kind == "user-prompt"][-1]
        return messages[last:]

    model = OpenAIChatModel(MODEL, provider=OpenAIProvider(api_key="none"))
    one = pydantic_ai.Agent(model, instructions=SYSTEM, capabilities=[ProcessHistory(keep_the_end)])
    for function in tool_functions(agent).values():
        one.tool_plain(function)
    return one


def openai_agents_with_responses(agent: Agent) -> Any:
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)
    tools = [agents.function_tool(one) for one in tool_functions(agent).values()]
    model = agents.OpenAIResponsesModel(MODEL, client)
    return agents.Agent(name="shop", instructions=SYSTEM, tools=[*tools], model=model)


def openai_agents_with_a_handoff(agent: Agent) -> Any:
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)
    tools = [agents.function_tool(one) for one in tool_functions(agent).values()]
    model = agents.OpenAIChatCompletionsModel(MODEL, client)
    shop = agents.Agent(name="shop", instructions=SYSTEM, tools=[*tools], model=model)
    return agents.Agent(name="door", instructions="You greet.", handoffs=[shop], model=model)


def anthropic_tool_runner(agent: Agent) -> Any:
    tools = [anthropic.beta_tool(one) for one in tool_functions(agent).values()]
    runner: Any = anthropic_client().beta.messages
    return runner.tool_runner(model=MODEL, max_tokens=100, tools=tools, messages=[])


def google_automatic_functions(agent: Agent) -> Any:
    tools: Any = [*tool_functions(agent).values()]
    return google_client().chats.create(model=MODEL, config={"tools": tools})


def google_functions_as_a_loop(agent: Agent) -> Any:
    tools: Any = [*tool_functions(agent).values()]
    config = genai.types.GenerateContentConfig(tools=tools, system_instruction=SYSTEM)

    def ask(prompt: str) -> object:
        assert prompt == PROMPT
        models = google_client().models
        return models.generate_content(model=MODEL, contents=prompt, config=config).text

    return ask


MORE = (("And order 8?", "Not yet."), ("Thanks", "Bye."))
HANDOFF = call("transfer_to_shop", {})
honest(langchain_with_sync_middleware)
honest(langchain_with_trimming, more=MORE)
honest(pydantic_ai_with_a_processor, more=MORE)
honest(openai_agents_with_responses, more=MORE)
honest(openai_agents_with_a_handoff, steps=(HANDOFF, *Agent.steps), shows="what='system'")
honest(anthropic_tool_runner, more=MORE)
honest(google_automatic_functions, more=MORE)
honest(google_functions_as_a_loop)
