"""The framework adapter protocol, and the subject that drives any adapter.

An adapter knows how to prompt an agent of its framework and how to replace its tools. It has
nothing to do with the model: the agent's own HTTP client sends the requests, and they are
intercepted. Tool calls and results are derived from those requests, so an adapter emits only
events that do not show there, such as handoffs.

To add a framework, write a file with a `FrameworkAdapter` and list it in `ADAPTERS`.
"""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from importlib import import_module
from inspect import Parameter, iscoroutinefunction, signature
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from offbook.determinism.run_context import apply_patch, thread_variable, use_variable
from offbook.errors import UsageError, did_you_mean, require_known
from offbook.exchange.model import AGENT_KEY
from offbook.exchange.tool_track import running_tool
from offbook.subjects.mock_tools import check_mocks_used
from offbook.subjects.subject import PlainSubject
from offbook.subjects.tool_watch import MockedTool, ToolWatch, current_watch
from offbook.trace.events import (
    AGENT_ERROR,
    ERROR,
    REPLY,
    AgentEndData,
    AgentStartData,
    Verdict,
)
from offbook.trace.hub import current_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from offbook.exchange.model import ToolAliases
    from offbook.exchange.people import Ask
    from offbook.subjects.subject import ModelAccess, RunContext
    from offbook.subjects.tool_watch import Note, WatchedCall
    from offbook.trace.events import Event
    from offbook.trace.hub import Hub

    MockFunction = Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]

# The prompt that the running code answers: two conversations may be side by side.
_current_prompt: ContextVar[object] = thread_variable("offbook_prompt")
# The class of an agent -> the module and name of its adapter. Classes are compared by name, so
# that no framework is imported to recognize the agents of another.
ADAPTERS = {
    "pydantic_ai.agent.abstract.AbstractAgent": "pydantic_ai.PydanticAI",
    "agents.agent.Agent": "openai_agents.OpenAIAgents",
    "langgraph.pregel.main.Pregel": "langgraph.LangGraph",
    "google.genai.chats._BaseChat": "google_genai.GoogleGenAI",
    "anthropic.lib.tools._beta_runner.BaseToolRunner": "anthropic_runner.AnthropicRunner",
    "smolagents.agents.MultiStepAgent": "smolagents.SmolAgents",
    "inspect_ai._eval.task.task.Task": "inspect_ai.InspectAI",
    "claude_agent_sdk.types.ClaudeAgentOptions": "claude_agent.ClaudeAgent",
}
FRAMEWORKS = {name.partition(".")[0] for name in ADAPTERS}
# Other packages whose exceptions wrap the error of a client; their agents are driven as functions.
WRAPPERS = {"agent_framework", "instructor", "semantic_kernel"}
HTTP_CLIENTS = {"aiohttp", "botocore", "httpx", "requests", "urllib", "urllib3"}
# The exceptions with which a framework ends a run by design when the model misbehaves, by the
# package of their class. They reach a function around such an agent, too.
DOCUMENTED_ENDS = {
    "agents": "MaxTurnsExceeded ModelBehaviorError ModelRefusalError ModelTimeoutError"
    " InputGuardrailTripwireTriggered OutputGuardrailTripwireTriggered"
    " ToolInputGuardrailTripwireTriggered ToolOutputGuardrailTripwireTriggered",
    "crewai": "OutputParserError OutputParserException ConverterError",
    "google": "UnknownFunctionCallArgumentError UnknownApiResponseError",
    "haystack": "MaxAgentStepsExceeded",
    "instructor": "InstructorRetryException IncompleteOutputException",
    "langchain_core": "OutputParserException",
    "langchain": "StructuredOutputError StructuredOutputValidationError"
    " MultipleStructuredOutputsError ModelCallLimitExceededError ToolCallLimitExceededError",
    "langgraph": "GraphRecursionError",
    "llama_index": "WorkflowTimeoutError WorkflowRuntimeError",
    "openai": "LengthFinishReasonError ContentFilterFinishReasonError",
    "pydantic_ai": "UnexpectedModelBehavior UsageLimitExceeded",
    "smolagents": "AgentParsingError AgentMaxStepsError AgentGenerationError AgentToolCallError",
}
FUNCTION_ADAPTER = "callable.FunctionAdapter"
# The adapters that keep the conversation themselves: a new one begins a new conversation with the
# same agent. Other agents are a conversation.
KEEPING_ADAPTERS = {
    *("pydantic_ai.PydanticAI", "openai_agents.OpenAIAgents", "langgraph.LangGraph"),
    *("smolagents.SmolAgents", FUNCTION_ADAPTER),
}
# A module that runs tools, also in a plain function -> the function here that patches it, so that
# its executions are reported to `current_watch`. No module is imported for it.
TOOL_RUNNERS = {
    "anthropic.lib.tools._beta_functions": "anthropic_runner.patch_tools",
    "anthropic.lib.tools._beta_runner": "anthropic_runner.patch_runners",
    "google.genai._extra_utils": "google_genai.patch_function_calls",
    "langchain_core.tools.base": "langgraph.patch_tools",
    "mcp.client.session": "mcp_client.patch_sessions",
}


def is_documented_end(error: BaseException) -> bool:
    """Return whether a framework ends a run with this exception when the model misbehaves."""
    return any(
        kind.__name__ in DOCUMENTED_ENDS.get(kind.__module__.partition(".")[0], "").split()
        for kind in type(error).__mro__
    )


class FrameworkAdapter(Protocol):
    """One agent of one framework, with its conversation."""

    @property
    def name(self) -> str:
        """Name of the framework in the trace."""
        ...

    def option_names(self) -> Collection[str] | None:
        """Return the options that the framework accepts for a run, or None if any."""
        ...

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Continue the conversation with this prompt; return the framework's own result."""
        ...

    def output(self, result: Any, /) -> object:
        """Return the agent's answer in the framework's result."""
        ...

    def tools(self) -> Mapping[str, Any] | None:
        """Return the tools that can be replaced, by name; None if none can."""
        ...

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Call the mock instead of the tool's own code; return a function that undoes it."""
        ...

    def watch_tool(self, tool: Any, watch: ToolWatch, /) -> Callable[[], None]:
        """Report the calls of the tool, or of its mock; return a function that undoes it."""
        ...


@runtime_checkable
class EndpointAdapter(Protocol):
    """An adapter whose agent runs in another process and is configured with a base URL."""

    model_access: ModelAccess
    tool_aliases: ToolAliases

    def prepare(self, context: RunContext, /) -> Callable[[], None]:
        """Configure the agent for this run; return a function that cleans up."""
        ...


class AsksPeople:
    """An adapter whose framework pauses an agent until a person has answered."""

    ask: Ask  # set when it is opened


class NoToolAccess:
    """The part of an adapter whose tools are out of reach, in a function or another process."""

    def tools(self) -> None:
        """Return None: no tool can be replaced."""

    def replace_tool(self, _tool: Any, _mock: MockFunction, /) -> Callable[[], None]:
        """Raise an error; it is not called, because `tools` is None."""
        raise NotImplementedError

    def watch_tool(self, _tool: Any, _watch: ToolWatch, /) -> Callable[[], None]:
        """Raise an error; it is not called, because `tools` is None."""
        raise NotImplementedError


class FrameworkSubject(PlainSubject):
    """An agent of a framework as a subject.

    `mock_tools` replace tools during the run: a value, or a function of the parameters. The model
    still sees the tool's own schema. `result` is the framework's result of the last prompt.

    An error of the provider may end the agent. It is kept in `error`: the rehearsal raises it,
    unless it only searches. Any other exception fails the run at once.
    """

    def __init__(
        self,
        adapter: FrameworkAdapter,
        mock_tools: Mapping[str, Any] | None = None,
        make_adapter: Callable[[], FrameworkAdapter] | None = None,
    ) -> None:
        self.adapter = adapter
        self._make_adapter = make_adapter
        self._endpoint = adapter if isinstance(adapter, EndpointAdapter) else None
        self.model_access: ModelAccess = "transport"
        self.tool_aliases: ToolAliases = {}
        if self._endpoint is not None:
            self.model_access = self._endpoint.model_access
            self.tool_aliases = self._endpoint.tool_aliases
        self.result: object = None
        self.error: Exception | None = None
        self._mocks = {name: MockedTool(name, value) for name, value in (mock_tools or {}).items()}
        self.tool_watch = ToolWatch(self._mocks)
        self._undo: list[Callable[[], None]] = []
        self._earlier: list[FrameworkAdapter] = []

    @property
    def name(self) -> str:
        """Name in the trace."""
        return self.adapter.name

    @property
    def takes_prompt(self) -> bool:
        """False for a function without parameters, which sends its own prompts."""
        # An optional attribute: every agent of a framework takes a prompt.
        return getattr(self.adapter, "takes_prompt", True)

    @property
    def mocked(self) -> Collection[str]:
        """The names of the mocked tools."""
        return self._mocks

    @property
    def request_metadata(self) -> Mapping[str, Any]:
        """The agent that sends a request: inside of a tool, that of the tool."""
        # An optional method: most frameworks have one agent in a run.
        find = getattr(self.adapter, "current_agent", None)
        agent = running_tool.get() or ("" if find is None else find())
        return {AGENT_KEY: agent} if agent else {}

    async def open(self, context: RunContext, /) -> None:
        """Replace the mocked tools, and watch all of them."""
        self._hub = context.hub
        if isinstance(self.adapter, AsksPeople):
            self.adapter.ask = context.ask
        self._undo.append(self.tool_watch.open(context))
        self._undo.append(watch_tool_runners(context.hub))
        tools = self.adapter.tools()
        for name in self._mocks:
            if tools is None:
                raise UsageError(
                    f"mock_tools: Offbook cannot replace the tool {name!r} inside {self.name}",
                    hint=f"replace it in your code: monkeypatch.setattr(your_module, {name!r}, …)",
                )
            require_known("mock_tools: the agent has no tool", name, tools)
        try:
            if self._endpoint is not None:
                self._undo.append(self._endpoint.prepare(context))
            for name, mock in self._mocks.items():
                self._undo.append(self.adapter.replace_tool((tools or {})[name], mock.run))
            # Listed again: replacing may put other objects in the place of the tools.
            for name, tool in (self.adapter.tools() or {}).items():
                self._undo.append(self.adapter.watch_tool(tool, self.tool_watch))
                self.tool_watch.watched.add(name)
        except BaseException:
            await self.close()
            raise

    def start_conversation(self) -> bool:
        """Begin a new conversation with the same agent; return False if it cannot have one."""
        if self._make_adapter is None:
            return False
        adapter = self._make_adapter()
        if isinstance(adapter, AsksPeople) and isinstance(self.adapter, AsksPeople):
            adapter.ask = self.adapter.ask
        self._earlier.append(self.adapter)  # kept: its id may be that of its thread
        self.adapter = adapter
        return True

    async def prompt(self, text: str, /) -> object:
        """Send a prompt to the agent and return its answer; None after a scripted error."""
        model_events: list[str] = []
        prompt = object()

        def note(event: Event) -> None:
            if _current_prompt.get() in {prompt, None}:  # not one beside it
                model_events.append(event.event)

        unsubscribe = self._hub.subscribe(note, "model.*")
        faults = current_faults()
        failures = 0 if faults is None else faults.failures
        self.result, self.error = None, None
        self._hub.emit_data(AgentStartData(text))
        try:
            with (
                use_variable(current_watch, self.tool_watch),
                use_variable(_current_prompt, prompt),
            ):
                self.result = await self.adapter.prompt(text, self._hub)
            self._raise_mock_error()
        except Exception as error:
            self._raise_mock_error()
            # After a fault, an agent may raise what it likes: the run says what became of it.
            faulty = faults is not None and faults.failures > failures
            # Only an agent whose last request failed may raise: the script made it fail.
            if ERROR not in model_events[-1:] and not faulty:
                raise
            if not faulty and not self._is_provider_error(error):
                error.add_note(
                    "raised by the agent after the provider's error; if that is intended, write"
                    f" `with pytest.raises({type(error).__name__}): ….run(…)`"
                )
                raise
            self.error = error
            self._hub.emit(AGENT_ERROR, {"error": f"{type(error).__name__}: {error}"})
        finally:
            unsubscribe()
        self._hub.emit_data(AgentEndData("stop" if self.error is None else "error"))
        return None if self.error is not None else self.adapter.output(self.result)

    def _is_provider_error(self, error: BaseException | None) -> bool:
        """Return whether an exception is the provider's own error, and not one of the agent.

        Clients give it the HTTP status. A framework may wrap the exception of the client, and of
        an agent in another process only the framework's exception is left.
        """
        while error is not None:
            if _error_status(error) is not None:
                return True
            package = type(error).__module__.partition(".")[0]
            if package in HTTP_CLIENTS:  # given up after retries
                return True
            # The adapter of a framework that reports only texts raises Offbook's own exceptions.
            if package not in {*FRAMEWORKS, *WRAPPERS, "offbook"}:
                return False
            if self._endpoint is not None:
                return True
            error = error.__cause__ or error.__context__
        return False

    def _raise_mock_error(self) -> None:
        """Raise the exception of a mock function: some frameworks turn it into a tool result."""
        for mock in self._mocks.values():
            if (error := mock.error) is not None:
                mock.error = None
                raise error

    async def close(self) -> None:
        """Restore the tools."""
        # In reverse order, and each only once: `close` may be called twice.
        while self._undo:
            self._undo.pop()()

    def verdicts(self) -> Iterable[Verdict]:
        """Return a failed verdict if some mocks were never used."""
        unused = {name: "" for name, mock in self._mocks.items() if not mock.calls}
        return check_mocks_used(unused, {})


def watch_tool_runners(hub: Hub) -> Callable[[], None]:
    """Report the tools that SDKs run in this process; return a function that ends it.

    An SDK that a function imports is loaded at the latest when the model has replied: before that,
    it has no call of a tool.
    """
    waiting = dict(TOOL_RUNNERS)
    undo: list[Callable[[], None]] = []

    def patch_loaded(_event: object = None) -> None:
        for name in [*waiting]:
            module = sys.modules.get(name)
            if module is not None and not getattr(module.__spec__, "_initializing", False):
                file, _, function = waiting.pop(name).partition(".")
                patch = getattr(import_module(f"offbook.subjects.frameworks.{file}"), function)
                undo.extend(patch(module))

    patch_loaded()
    undo.append(hub.subscribe(patch_loaded, REPLY))

    def end() -> None:
        while undo:
            undo.pop()()

    return end


def report_calls(
    owner: Any, name: str, find: Callable[..., WatchedCall | None], note: Note[Any] | None = None
) -> Callable[[], None]:
    """Report the calls of an SDK's function, for any caller; return a function that ends it.

    `find` gets the arguments of a call, and returns its execution, or None if it is not reported.
    """
    is_async = iscoroutinefunction(getattr(owner, name))

    def call(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        if (watched := find(*args, **named)) is None:
            return original(*args, **named)
        run = watched.run_async if is_async else watched.run
        return run(lambda: original(*args, **named), note)

    return apply_patch(owner, name, call)


def _error_status(error: BaseException) -> int | None:
    """Return the HTTP status of an exception of any client, or None."""
    response: Any = getattr(error, "response", None)
    candidates: list[Any] = [
        getattr(owner, name, None)
        for owner in (error, response)
        for name in ("status_code", "status", "code")
    ]
    return next((c for c in candidates if isinstance(c, int) and c in range(400, 600)), None)


def wrap_agent(
    agent: object,
    mock_tools: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    drive_options: Collection[str] = (),
) -> FrameworkSubject | None:
    """Return the agent as a subject, or None if it is neither of a known framework nor callable.

    `options` go to the framework's own run function; an unknown one is refused here, before
    anything runs. It may be a misspelled one of `drive_options`.
    """
    classes = (f"{kind.__module__}.{kind.__qualname__}" for kind in type(agent).__mro__)
    name = next((ADAPTERS[kind] for kind in classes if kind in ADAPTERS), None)
    if name is None and callable(agent):
        name = FUNCTION_ADAPTER
    if name is None:
        return None
    # The adapter's module imports its framework, which is loaded already: the agent is of it.
    module, _, class_name = name.rpartition(".")
    adapter_class = getattr(import_module(f"offbook.subjects.frameworks.{module}"), class_name)
    adapter: FrameworkAdapter = adapter_class(agent, options)
    known = adapter.option_names() if options else None  # it takes 0.1 ms to read a signature
    for option in options:
        if known is not None and option not in known:
            raise UsageError(
                f"unknown option {option!r} for {adapter.name}",
                hint=did_you_mean(option, [*known, *drive_options]),
            )
        # A framework that accepts any option would fail on a misspelled one during the run.
        if known is None:
            from difflib import get_close_matches  # late: most runs have no options

            if close := get_close_matches(option, drive_options, n=1, cutoff=0.8):
                hint = f"did you mean {close[0]!r}?"
                raise UsageError(f"drive() has no option {option!r}", hint=hint)
    # An option may be a conversation, such as the session of OpenAI Agents; so may be an object
    # whose method is the agent.
    keeps = name in KEEPING_ADAPTERS and not options
    keeps = keeps and (name != FUNCTION_ADAPTER or isinstance(agent, FunctionType))
    make_adapter = (lambda: adapter_class(agent, options)) if keeps else None
    return FrameworkSubject(adapter, mock_tools, make_adapter)


def override(owner: Any, name: str, value: Any) -> Callable[[], None]:
    """Set an attribute of one object; return a function that restores it."""
    # A pydantic model refuses unknown attributes, but `__dict__` is looked up before the class.
    attributes: dict[str, Any] = owner.__dict__
    original = {name: attributes[name]} if name in attributes else {}
    attributes[name] = value

    def undo() -> None:
        del attributes[name]
        attributes.update(original)

    return undo


def parameter_names(
    function: Callable[..., Any], *, skip: int = 1, reserved: Collection[str] = ()
) -> set[str] | None:
    """Return the keyword parameters of a function, or None if it takes any.

    The first `skip` parameters receive the prompt; `reserved` ones are set by the adapter.
    """
    try:
        parameters = list(signature(function).parameters.values())
    except (TypeError, ValueError):  # functions written in C may have no signature
        return None
    if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
        return None
    keywords = {Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY}
    return {p.name for p in parameters[skip:] if p.kind in keywords} - set(reserved)


def blocking(mock: MockFunction) -> Callable[[dict[str, Any]], Any]:
    """Return a mock for tools that are called without `await`."""

    def wait(params: dict[str, Any]) -> Any:
        # The caller's thread may already run an event loop, so another thread waits in its own.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(copy_context().run, asyncio.run, mock(params)).result()

    return wait
