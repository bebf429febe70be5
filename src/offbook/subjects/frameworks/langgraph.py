"""LangGraph, and the agents that LangChain makes with it: a graph runs on the messages so far."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.errors import UsageError
from offbook.subjects.frameworks.framework import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from offbook.subjects.frameworks.framework import MockFunction
    from offbook.trace.hub import Hub

NODE_START = "step.start"
NODE_END = "step.end"


class LangGraph:
    """A compiled graph with `messages` in its state, such as `create_agent` makes.

    `options` are what its `astream` takes besides the input (`config`, `context`, …). A graph with
    a checkpointer remembers by itself, in a thread that no other run shares unless it is given.
    """

    name = "langgraph"

    def __init__(self, graph: Any, options: Mapping[str, Any]) -> None:
        self._graph = graph
        self._options = dict(options)
        self._config = _in_thread(self._options.pop("config", None) or {}, id(self))
        self._history: list[Any] = []

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Run the graph on what was said before, and this; its nodes are told as steps."""
        self._check_input()
        state: Any = None
        said = [*self._history, {"role": "user", "content": text}]
        parts = self._graph.astream(
            {"messages": said},
            self._config,
            stream_mode=["tasks", "values"],
            subgraphs=True,
            **self._options,
        )
        async for where, mode, part in parts:
            if mode == "tasks":
                _tell(hub, where, part)
            elif not where:
                state = part
        if not self._graph.checkpointer:
            self._history = state["messages"]
        return state

    def _check_input(self) -> None:
        keys = self._graph.get_input_jsonschema().get("properties", {})
        if "messages" not in keys:
            raise UsageError(
                f"the graph takes {', '.join(keys) or 'nothing'}, and no messages",
                hint="drive a function of the prompt that invokes it",
            )

    def tools(self) -> Mapping[str, Any]:
        """The tools of all tool nodes, also of the graphs within."""
        return {
            name: tool
            for graph in self._graphs()
            for node in graph.nodes.values()
            for name, tool in getattr(node.bound, "tools_by_name", {}).items()
        }

    def _graphs(self) -> Iterator[Any]:
        yield self._graph
        for _, graph in self._graph.get_subgraphs(recurse=True):
            yield graph

    def swap(self, tool: Any, stand_in: MockFunction, /) -> Callable[[], None]:
        """Answer in the place of the tool's own code, which may be called in two ways."""
        wait = blocking(stand_in)

        def run(*args: Any, **kwargs: Any) -> Any:
            return _answer(tool, wait(_params(tool, args, kwargs)))

        async def arun(*args: Any, **kwargs: Any) -> Any:
            return _answer(tool, await stand_in(_params(tool, args, kwargs)))

        # Past the fields of its model, which know no such names: a method is looked up there first.
        own: dict[str, Any] = tool.__dict__
        own.update(_run=run, _arun=arun)

        def undo() -> None:
            del own["_run"], own["_arun"]

        return undo


def _in_thread(config: Mapping[str, Any], thread: int) -> dict[str, Any]:
    named = {"thread_id": f"offbook-{thread}", **config.get("configurable", {})}
    return {**config, "configurable": named}


def _tell(hub: Hub, where: tuple[str, ...], task: Mapping[str, Any]) -> None:
    within = [name.partition(":")[0] for name in where]
    data: dict[str, Any] = {"node": "/".join([*within, task["name"]])}
    if "triggers" in task:
        hub.emit(NODE_START, data)
        return
    if task.get("error"):
        data["error"] = str(task["error"])
    hub.emit(NODE_END, data)


def _params(tool: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What the model gave, without what the framework injects."""
    names = list(tool.args)
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    return {name: given[name] for name in names if name in given}


def _answer(tool: Any, answer: Any) -> Any:
    return (answer, None) if tool.response_format == "content_and_artifact" else answer
