"""Agents of four frameworks, each with the framework's own points to change what it does.

The model is wrapped, so that `edit` sees each request; what wraps tools in the framework calls
`around`; the tool itself calls `inside`.
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, cast

import agents
import openai
import pydantic_ai
from langchain import agents as langchain_agents
from langchain.agents import middleware as langchain_middleware
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic_ai import messages as pydantic_messages
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from smolagents import (  # pyright: ignore[reportMissingTypeStubs] - it has none
    ChatMessage,
    MessageRole,
    OpenAIModel,
    Tool,
    ToolCallingAgent,
)

from tests.lies.agent import (
    MODEL,
    SYSTEM,
    TEMPERATURE,
    TOOLS,
    Agent,
    Call,
    Item,
    Model,
    Request,
    Result,
    User,
    run_steps,
    run_steps_async,
)
from tests.lies.loops import response_items

Function = Callable[[int], str]


def tool_functions(agent: Agent) -> dict[str, Function]:
    """Return the tools as functions of a number."""

    def make(name: str, text: str) -> Function:
        def function(number: int) -> str:
            return agent.inside(agent.shop.run, Call("", name, {"number": number}))

        function.__name__, function.__doc__ = name, text
        return function

    return {name: make(name, text) for name, text in TOOLS.items()}


class Edits:
    """Counts the requests, and lets the agent edit each of them."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._number = 0

    def edit(self, items: list[Item]) -> Request:
        self._number += 1
        request = Request(deepcopy(items))
        self._agent.edit(request, self._number)
        return request


# --- pydantic-ai


def pydantic_agent(agent: Agent) -> Any:
    edits = Edits(agent)

    def make_model(name: str) -> OpenAIChatModel:
        return OpenAIChatModel(name, provider=OpenAIProvider(api_key="none"))

    class EditedModel(WrapperModel):
        async def request(
            self, messages: Any, model_settings: Any, model_request_parameters: Any
        ) -> Any:
            request = edits.edit(read_pydantic(messages))
            parameters = model_request_parameters
            tools = [
                replace(tool, description=request.tools[tool.name])
                for tool in parameters.function_tools
                if tool.name in request.tools
            ]
            parameters = replace(parameters, function_tools=tools)
            if request.system != SYSTEM:
                parameters = replace(parameters, instruction_parts=None)
            settings: Any = dict(model_settings, temperature=request.temperature)
            model = self.wrapped if request.model == MODEL else make_model(request.model)
            return await model.request(write_pydantic(request), settings, parameters)

    @dataclass
    class EditedTools(WrapperToolset[Any]):
        async def call_tool(self, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
            async def run(made: Call) -> str:
                return await self.wrapped.call_tool(made.name, made.arguments, ctx, tool)

            return await run_steps_async(agent.around(Call("", name, dict(tool_args))), run)

    functions = tool_functions(agent).values()
    one: Any = pydantic_ai.Agent(
        EditedModel(make_model(MODEL)),
        instructions=SYSTEM,
        toolsets=[EditedTools(FunctionToolset([*functions]))],
        model_settings={"temperature": TEMPERATURE},
    )

    @one.output_validator
    def answer(text: str) -> object:  # pyright: ignore[reportUnusedFunction] - registered
        return agent.answer(text)

    return one


def read_pydantic(messages: Any) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        if message.kind == "response":
            model = Model("")
            for part in message.parts:
                if part.part_kind == "text":
                    model.text += part.content
                else:
                    arguments = part.args_as_dict()
                    model.calls.append(Call(part.tool_call_id, part.tool_name, arguments))
            items.append(model)
            continue
        for part in message.parts:
            if part.part_kind == "user-prompt":
                items.append(User(part.content))
            else:
                items.append(Result(part.tool_call_id, part.tool_name, part.content))
    return items


def write_pydantic(request: Request) -> list[Any]:
    messages: list[Any] = []
    for item in request.items:
        if isinstance(item, Model):
            parts: list[Any] = [pydantic_messages.TextPart(item.text)] if item.text else []
            parts += [
                pydantic_messages.ToolCallPart(made.name, made.arguments, made.id)
                for made in item.calls
            ]
            messages.append(pydantic_messages.ModelResponse(parts))
            continue
        part: Any = (
            pydantic_messages.UserPromptPart(item.text)
            if isinstance(item, User)
            else pydantic_messages.ToolReturnPart(item.name, item.text, item.call_id)
        )
        instructions = request.system or None
        messages.append(pydantic_messages.ModelRequest([part], instructions=instructions))
    return messages


# --- OpenAI Agents


def openai_agent(agent: Agent) -> Any:
    edits = Edits(agent)
    client = openai.AsyncOpenAI(api_key="none", max_retries=0)

    class EditedModel(agents.OpenAIChatCompletionsModel):
        async def get_response(self, *args: Any, **options: Any) -> Any:
            request = edits.edit(read_responses(options["input"]))
            model = agents.OpenAIChatCompletionsModel(request.model, client)
            options |= {
                "system_instructions": request.system or None,
                "input": response_items(request.items),
                "model_settings": replace(
                    options["model_settings"], temperature=request.temperature
                ),
                "tools": [
                    replace(tool, description=request.tools[tool.name])
                    for tool in options["tools"]
                    if tool.name in request.tools
                ],
            }
            return await model.get_response(*args, **options)

    class EditedTool:
        """Wraps the invocation of a tool."""

        def __init__(self, tool: Any) -> None:
            self._name, self._invoke = tool.name, tool.on_invoke_tool
            tool.on_invoke_tool = self

        async def __call__(self, context: Any, arguments: str) -> Any:
            async def run(made: Call) -> str:
                return await self._invoke(context, json.dumps(made.arguments))

            made = Call("", self._name, json.loads(arguments))
            return await run_steps_async(agent.around(made), run)

    tools = [agents.function_tool(function) for function in tool_functions(agent).values()]
    for tool in tools:
        EditedTool(tool)
    return agents.Agent(
        name="shop",
        instructions=SYSTEM,
        tools=[*tools],
        model=EditedModel(MODEL, client),
        model_settings=agents.ModelSettings(temperature=TEMPERATURE),
    )


def read_responses(items: Any) -> list[Item]:
    read: list[Item] = []
    for item in items:
        kind = item.get("type")
        last = read[-1] if read and isinstance(read[-1], Model) else None
        if kind == "function_call_output":
            names = {
                made.id: made.name for one in read if isinstance(one, Model) for made in one.calls
            }
            read.append(Result(item["call_id"], names[item["call_id"]], item["output"]))
        elif kind == "function_call":
            made = Call(item["call_id"], item["name"], json.loads(item["arguments"]))
            if last is None:
                read.append(last := Model(""))
            last.calls.append(made)
        elif item["role"] == "user":
            read.append(User(item["content"]))
        else:
            read.append(Model("".join(part["text"] for part in item["content"])))
    return read


# --- LangGraph, by LangChain's agents


def langchain_agent(agent: Agent) -> Any:
    edits = Edits(agent)

    def make_model(name: str, temperature: float = TEMPERATURE) -> Any:
        key: Any = "none"
        return ChatOpenAI(model=name, temperature=temperature, api_key=key, max_retries=0)

    model = make_model(MODEL)
    middleware: Any = langchain_middleware.AgentMiddleware

    class Edited(middleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            edited = edits.edit(read_langchain(request.messages))
            changes: dict[str, Any] = {"messages": write_langchain(edited.items)}
            if edited.system != SYSTEM:
                changes["system_prompt"] = edited.system or None
            if (edited.model, edited.temperature) != (MODEL, TEMPERATURE):
                changes["model"] = make_model(edited.model, edited.temperature)
            if edited.tools != TOOLS:
                changes["tools"] = [
                    tool.model_copy(update={"description": edited.tools[tool.name]})
                    for tool in request.tools
                    if tool.name in edited.tools
                ]
            return await handler(request.override(**changes))

        async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
            messages: list[Any] = []

            async def run(made: Call) -> str:
                changed = {**request.tool_call, "name": made.name, "args": made.arguments}
                messages.append(await handler(request.override(tool_call=changed)))
                return messages[-1].text

            made = Call(
                request.tool_call["id"], request.tool_call["name"], request.tool_call["args"]
            )
            text = await run_steps_async(agent.around(deepcopy(made)), run)
            if messages and messages[-1].text == text:
                return messages[-1]
            return ToolMessage(text, tool_call_id=made.id, name=made.name)

        async def aafter_agent(self, state: Any, runtime: Any) -> Any:
            last = state["messages"][-1]
            text = agent.answer(last.text)
            if text == last.text:
                return None
            return {"messages": [AIMessage(str(text), id=last.id)]}

    tools = [StructuredTool.from_function(one) for one in tool_functions(agent).values()]
    create: Any = langchain_agents.create_agent  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - its types
    return create(model, tools=tools, system_prompt=SYSTEM, middleware=[Edited()])


def read_langchain(messages: Any) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        if message.type == "human":
            items.append(User(message.text))
        elif message.type == "tool":
            items.append(Result(message.tool_call_id, message.name, message.text))
        else:
            calls = [Call(made["id"], made["name"], made["args"]) for made in message.tool_calls]
            items.append(Model(message.text, calls))
    return items


def write_langchain(items: list[Item]) -> list[Any]:
    messages: list[Any] = []
    for item in items:
        if isinstance(item, User):
            messages.append(HumanMessage(item.text))
        elif isinstance(item, Result):
            messages.append(ToolMessage(item.text, tool_call_id=item.call_id, name=item.name))
        else:
            calls: Any = [
                {"id": made.id, "name": made.name, "args": made.arguments} for made in item.calls
            ]
            messages.append(AIMessage(item.text, tool_calls=calls))
    return messages


# --- smolagents: calls and results are texts, the last call is the answer

CALLING, OBSERVED = "Calling tools:\n", "Observation:\n"


def smol_agent(agent: Agent) -> Any:
    edits = Edits(agent)

    class EditedModel(OpenAIModel):
        def generate(self, messages: Any, *args: Any, **options: Any) -> Any:
            system, *others = messages
            request = edits.edit(read_smol(others))
            if request.system != SYSTEM:
                text = request.system or "."
                system = ChatMessage(MessageRole.SYSTEM, [{"type": "text", "text": text}])
            sent = [system, *write_smol(request.items)]
            before, self.model_id = self.model_id, request.model
            options["temperature"] = request.temperature
            if request.tools != TOOLS:
                options["tools_to_call_from"] = [
                    tool
                    for tool in options["tools_to_call_from"]
                    if tool.name in {*request.tools, "final_answer"}
                ]
            try:
                return super().generate(sent, *args, **options)  # pyright: ignore[reportUnknownMemberType] - it has no types
            finally:
                self.model_id = before

    class EditedAgent(ToolCallingAgent):
        def execute_tool_call(self, tool_name: str, arguments: Any) -> Any:
            if tool_name == "final_answer":
                answer = agent.answer(arguments["answer"])
                return super().execute_tool_call(tool_name, {"answer": cast("Any", answer)})

            def run(made: Call) -> str:
                return ToolCallingAgent.execute_tool_call(self, made.name, made.arguments)

            return run_steps(agent.around(Call("", tool_name, dict(arguments))), run)

    def make_tool(name: str) -> Any:
        class ShopTool(Tool):
            description = TOOLS[name]
            inputs = {"number": {"type": "integer", "description": "its number"}}  # noqa: RUF012 - so it wants it
            output_type = "string"

            def forward(self, number: int) -> str:
                return agent.inside(agent.shop.run, Call("", name, {"number": number}))

        ShopTool.name = name
        return ShopTool()

    model: Any = EditedModel(MODEL, api_key="none")
    return EditedAgent([make_tool(name) for name in TOOLS], model, verbosity_level=0)


def read_smol(messages: Any) -> list[Item]:
    items: list[Item] = []
    for message in messages:
        text = "\n".join(part["text"] for part in message.content)
        if message.role == MessageRole.TOOL_CALL:
            made = [
                Call(one["id"], one["function"]["name"], one["function"]["arguments"])
                for one in literal_eval(text.removeprefix(CALLING))
            ]
            if items and isinstance(items[-1], Model):
                items[-1].calls = made
            else:
                items.append(Model("", made))
        elif message.role == MessageRole.TOOL_RESPONSE:
            items.append(Result("", "", text.removeprefix(OBSERVED)))
        elif message.role == MessageRole.ASSISTANT:
            items.append(Model(text))
        else:
            items.append(User(text))
    return items


def write_smol(items: list[Item]) -> list[Any]:
    messages: list[Any] = []

    def add(role: MessageRole, text: str) -> None:
        messages.append(ChatMessage(role, [{"type": "text", "text": text}]))

    for item in items:
        if isinstance(item, User):
            add(MessageRole.USER, item.text)
        elif isinstance(item, Result):
            add(MessageRole.TOOL_RESPONSE, OBSERVED + item.text)
        else:
            if item.text:
                add(MessageRole.ASSISTANT, item.text)
            if item.calls:
                made = [
                    {
                        "id": one.id,
                        "type": "function",
                        "function": {"name": one.name, "arguments": one.arguments},
                    }
                    for one in item.calls
                ]
                add(MessageRole.TOOL_CALL, CALLING + str(made))
    return messages


FRAMEWORKS: dict[str, Callable[[Agent], Any]] = {
    "pydantic-ai": pydantic_agent,
    "openai-agents": openai_agent,
    "langgraph": langchain_agent,
    "smolagents": smol_agent,
}
