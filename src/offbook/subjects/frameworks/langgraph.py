"""LangGraph and LangChain agents: a graph runs on the messages so far."""

from __future__ import annotations

import asyncio
import sys
from functools import wraps
from importlib import import_module
from inspect import signature
from types import CellType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, cast

from offbook.errors import UsageError, require_known
from offbook.exchange.messages import to_json
from offbook.exchange.people import Allow, Deny, PersonQuestion
from offbook.subjects.frameworks.framework import AsksPeople, blocking, override, report_calls
from offbook.subjects.tool_watch import current_watch
from offbook.trace.events import AGENT_PARTS, STEP_POST, STEP_PRE
from offbook.trace.steps import emit_step, make_record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.subjects.tool_watch import ToolWatch, WatchedCall
    from offbook.trace.hub import Hub

MISSING_ASYNC = {"AgentMiddleware.awrap_model_call", "AgentMiddleware.awrap_tool_call"}
RESERVED = {"self", "input", "stream_mode", "subgraphs", "version", "kwargs"}


class LangGraph(AsksPeople):
    """A compiled graph with `messages` in its state, such as `create_agent` makes.

    `options` are arguments of `astream` (`config`, `context`, …) and `state`, the other values of
    the input. A graph with a checkpointer keeps its own state, in a new thread per run unless
    `config` names one; it gets `state` with the first prompt only, any other graph with each.
    """

    name = "langgraph"

    def __init__(self, graph: Any, options: Mapping[str, Any]) -> None:
        self._graph = graph
        self._options = dict(options)
        config: dict[str, Any] = self._options.pop("config", None) or {}
        thread = {"thread_id": f"offbook-{id(self)}"}
        self._config = {**config, "configurable": {**thread, **config.get("configurable", {})}}
        self._state: dict[str, Any] = dict(self._options.pop("state", None) or {})
        for key in self._state:
            require_known("state: the input of the graph has no", key, self._input_keys())
        self._history: list[Any] = list(self._state.pop("messages", ()))
        self._prompted = False

    @property
    def concurrent(self) -> bool:
        """Whether two conversations can be in one event loop; those of threads cannot."""
        return not _is_sync_only(self._graph)

    def _input_keys(self) -> Collection[str]:
        # The builder of a state graph has the keys; its JSON schema takes 20 ms of CPU.
        builder = getattr(self._graph, "builder", None)
        schemas: Mapping[Any, Collection[str]] = getattr(builder, "schemas", {})
        keys = schemas.get(getattr(builder, "input_schema", None))
        return self._graph.get_input_jsonschema().get("properties", {}) if keys is None else keys

    def current_agent(self) -> str:
        """Return the subgraph that runs, or the node of a graph without subgraphs."""
        from langgraph.config import get_config

        try:
            path = str(get_config().get("metadata", {}).get("langgraph_checkpoint_ns") or "")
        except RuntimeError:  # outside of a graph
            return ""
        names = [name.partition(":")[0] for name in path.split("|")]
        return "/".join(names[:-1]) or names[0]

    def option_names(self) -> Collection[str]:
        """Return the arguments of `astream`, and `state`.

        Not by `parameter_names`: `astream` accepts any keyword, but only for deprecated ones.
        """
        return {*signature(self._graph.astream).parameters, "state"} - RESERVED

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Run the graph on the history and this prompt; emit its nodes as steps."""
        keys = self._input_keys()
        if "messages" not in keys:
            raise UsageError(
                f"the input of the graph has no 'messages', only {', '.join(keys) or 'nothing'}",
                hint="drive a function that takes the prompt and invokes the graph",
            )
        if not self._prompted:
            self._prompted = True
            hub.emit(AGENT_PARTS, _describe_graph(self._graph))
        state: Any = None
        interrupts: dict[str, Any] = {}  # each of parallel tools has a chunk of its own
        inputs = {**self._state, "messages": [*self._history, {"role": "user", "content": text}]}
        options = {"stream_mode": ["tasks", "values"], "subgraphs": True, **self._options}

        def read_chunk(namespace: tuple[str, ...], mode: str, chunk: Any) -> None:
            nonlocal state
            if mode == "tasks":
                _emit_step(hub, self._graph.get_name(), namespace, chunk)
            elif not namespace:  # the state of the graph itself, not of a subgraph
                state = chunk
                values = cast("dict[str, Any]", chunk) if isinstance(chunk, dict) else {}
                interrupts.update({each.id: each for each in values.get("__interrupt__") or ()})

        def run(given: Any) -> None:
            for chunk in self._graph.stream(given, self._config, **options):
                read_chunk(*chunk)

        given: Any = inputs
        while given is not None:
            interrupts.clear()
            if _is_sync_only(self._graph):
                await asyncio.to_thread(run, given)
            else:
                async for chunk in self._graph.astream(given, self._config, **options):
                    read_chunk(*chunk)
            given = None
            if interrupts:
                answers = {key: await self._ask_person(i.value) for key, i in interrupts.items()}
                given = import_module("langgraph.types").Command(resume=answers)
        if self._graph.checkpointer:
            self._state, self._history = {}, []
        else:
            self._history = state["messages"]
        return state

    async def _ask_person(self, value: Any) -> Any:
        """Return the answer to an interrupt, in the form that its code expects."""
        fields = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        actions: Any = fields.get("action_requests")
        if not isinstance(actions, list):
            text = value if isinstance(value, str) else to_json(value).decode()
            answer = await self.ask(PersonQuestion(text))
            if isinstance(answer, (Allow, Deny)):  # code that asks yes or no
                changed = answer.params if isinstance(answer, Allow) else None
                return isinstance(answer, Allow) if changed is None else changed
            return answer
        # The middleware of LangChain asks for an approval of several calls at once.
        decisions: list[Any] = []
        for action in cast("list[dict[str, Any]]", actions):
            name, params = action["name"], action["args"]
            answer = await self.ask(PersonQuestion(action.get("description", ""), name, params))
            if isinstance(answer, Deny):
                reason = {"message": answer.reason} if answer.reason else {}
                decisions.append({"type": "reject", **reason})
            elif not isinstance(answer, Allow):
                decisions.append({"type": "respond", "message": str(answer)})
            elif answer.params is None:
                decisions.append({"type": "approve"})
            else:
                edited = {"name": name, "args": dict(answer.params)}
                decisions.append({"type": "edit", "edited_action": edited})
        return {"decisions": decisions}

    def output(self, result: Any, /) -> object:
        """Return the structured response of the final state, or the text of its last message."""
        structured = result.get("structured_response")
        return result["messages"][-1].text if structured is None else structured

    def tools(self) -> Mapping[str, Any]:
        """Return the tools of all tool nodes, including those of subgraphs."""
        subgraphs = [graph for _, graph in self._graph.get_subgraphs(recurse=True)]
        return {
            name: tool
            for graph in [self._graph, *subgraphs]
            for node in graph.nodes.values()
            for name, tool in getattr(node.bound, "tools_by_name", {}).items()
        }

    def replace_tool(self, tool: Any, mock: MockFunction, /) -> Callable[[], None]:
        """Replace the synchronous and the async function of the tool."""
        call_blocking = blocking(mock)

        def params(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
            # Only the parameters that the model gave: LangChain injects others.
            values = dict(zip(tool.args, args, strict=False)) | dict(kwargs)
            return {name: values[name] for name in tool.args if name in values}

        def result(answer: Any) -> Any:
            pair = tool.response_format == "content_and_artifact"
            return (answer, None) if pair else answer

        # LangChain reads the schema of a class of tools from the signature of its function.
        @wraps(tool._run)  # noqa: SLF001 - what a class of tools implements
        def run(*args: Any, **kwargs: Any) -> Any:
            return result(call_blocking(params(args, kwargs)))

        @wraps(tool._arun)  # noqa: SLF001 - as above
        async def arun(*args: Any, **kwargs: Any) -> Any:
            return result(await mock(params(args, kwargs)))

        undo_run, undo_arun = override(tool, "_run", run), override(tool, "_arun", arun)

        def undo() -> None:
            undo_run()
            undo_arun()

        return undo

    def watch_tool(self, _tool: Any, _watch: ToolWatch, /) -> Callable[[], None]:
        """Do nothing: `patch_tools` reports the tools of LangChain, wherever they run."""
        return lambda: None


def patch_tools(module: Any) -> Iterator[Callable[[], None]]:
    """Report `run` and `arun` of a tool, which return its result as a message with a status."""

    def find(
        tool: Any, tool_input: Any, *_: Any, tool_call_id: str | None = None, **_named: Any
    ) -> WatchedCall | None:
        watch, given = current_watch.get(), tool_input
        if watch is None or not watch.expects(tool.name):
            return None
        if isinstance(given, dict):  # without what LangChain injects
            given = tool._filter_injected_args(given)  # noqa: SLF001 - no public one
        # They are called with valid arguments only, and call the tool's own code.
        functions = tuple(
            getattr(cast("object", tool).__class__, name) for name in ("_run", "_arun")
        )
        errors: Any = sys.modules.get("langgraph.errors")  # a tool that interrupts has it loaded
        pauses = () if errors is None else (errors.GraphBubbleUp,)
        call_id = tool_call_id or ""
        return watch.call(tool.name, given, call_id, functions=functions, pauses=pauses)

    def note(execution: WatchedCall, message: Any) -> Any:
        # The tool has a handler for the exceptions that it expects.
        execution.failed = getattr(message, "status", "") == "error"
        execution.returns(getattr(message, "content", message))
        if execution.replayed and hasattr(message, "tool_call_id"):
            message.tool_call_id = execution.call_id  # another model has other ids
        return message

    for name in ("run", "arun"):
        yield report_calls(module.BaseTool, name, find, note)


def _is_sync_only(graph: Any) -> bool:
    """Return whether middleware of LangChain has no async form: it runs as `invoke` runs it."""
    # `create_agent` keeps its middleware in the closures of the nodes only. The async form of one
    # that has none is the method of the base class, which raises.
    waiting: list[Any] = []
    for node in graph.nodes.values():
        bound = node.bound
        waiting += [getattr(bound, "afunc", None), getattr(bound, "_awrap_tool_call", None)]
    seen: set[int] = set()
    while waiting:
        found = waiting.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, MethodType):
            function: Any = found.__func__
            if function.__qualname__ in MISSING_ASYNC and "langchain" in function.__module__:
                return True
        elif isinstance(found, (list, tuple)):
            waiting += cast("list[Any]", found)
        elif isinstance(found, FunctionType):
            waiting.append(getattr(found, "__wrapped__", None))
            waiting += [cell.cell_contents for cell in found.__closure__ or () if _is_set(cell)]
    return False


def _is_set(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _describe_graph(graph: Any) -> dict[str, Any]:
    """Return the nodes and edges of a graph, named as its steps are."""
    drawn = graph.get_graph(xray=True)
    return {
        "persona": graph.get_name(),
        "nodes": [node.replace(":", "/") for node in drawn.nodes if not node.startswith("__")],
        "edges": sorted(
            {(edge.source.replace(":", "/"), edge.target.replace(":", "/")) for edge in drawn.edges}
        ),
    }


def _emit_step(hub: Hub, graph: str, namespace: tuple[str, ...], task: Mapping[str, Any]) -> None:
    """Emit the start or the end of a node as a step, named after its subgraphs and itself."""
    path = [name.partition(":")[0] for name in namespace]
    record = make_record(graph, "/".join([*path, task["name"]]))
    if "triggers" in task:  # only the start of a task has them
        emit_step(STEP_PRE, {**record, "args": [_describe(task.get("input"))]}, hub)
    elif task.get("error"):
        emit_step(STEP_POST, {**record, "error": str(task["error"])}, hub)
    else:
        result: Any = task.get("result")
        # A list of channels and their values in older versions.
        output = _describe(dict(cast("Any", result)) if isinstance(result, list) else result)
        emit_step(STEP_POST, {**record, "output": output}, hub)


def _describe(value: Any) -> Any:
    """Return a value of a state as JSON: the type and content of a message, no ids.

    Of the messages only the last one: a trace must not grow with the square of its length.
    """
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        state = {str(key): _describe(item) for key, item in fields.items()}
        if isinstance(state.get("messages"), list):
            state["messages"] = state["messages"][-1:]
        return state
    if isinstance(value, (list, tuple)):
        return [_describe(item) for item in cast("list[Any]", value)]
    if hasattr(value, "content") and hasattr(value, "type"):
        return {"type": value.type, "content": value.content}
    known = value is None or isinstance(value, (str, int, float, bool))
    return value if known else {"type": type(value).__name__}
