"""The tools of OpenAI itself: items of their own in place of function calls.

The agent runs some of them (a computer, a shell, a patch) and sends an output. The provider runs
the others (a search, an interpreter, a remote server): their items have the results.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from offbook.errors import UsageError, did_you_mean
from offbook.exchange.dialects.openai import image_url
from offbook.exchange.dialects.responses.responses_wire import NAME
from offbook.exchange.messages import (
    JSON,
    Image,
    RawBlock,
    Text,
    ToolCall,
    ToolResult,
    render_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.messages import AnyBlock
    from offbook.exchange.model import Request, Tool

# The tools that the agent runs: the prefix of the item's id, and the field of the arguments.
AGENT_TOOLS = {
    "apply_patch": ("apc", "operation"),
    "computer": ("cu", "action"),
    "local_shell": ("lsh", "action"),
    "shell": ("sh", "action"),
}
# The tools that the provider runs: the prefix of the item's id, and the fields of a script.
PROVIDER_TOOLS = {
    "code_interpreter": ("ci", ("code", "logs", "outputs", "container_id")),
    "file_search": ("fs", ("query", "queries", "results")),
    "image_generation": ("ig", ("result",)),
    "mcp": ("mcp", ("name", "arguments", "output", "error", "server_label")),
    "web_search": ("ws", ("query", "sources", "action")),
}
# The states that a stream reports between the start and the end of an item.
STATES = {
    "code_interpreter_call": ("in_progress", "interpreting", "completed"),
    "file_search_call": ("in_progress", "searching", "completed"),
    "image_generation_call": ("in_progress", "generating", "completed"),
    "mcp_call": ("in_progress", "completed"),
    "mcp_list_tools": ("in_progress", "completed"),
    "web_search_call": ("in_progress", "searching", "completed"),
}


def encode_agent_call(call: ToolCall, tools: Sequence[Tool]) -> AnyBlock:
    """Return the item of a call of a tool that the agent runs; any other call unchanged."""
    if call.name not in AGENT_TOOLS or not _offers(tools, call.name):
        return call
    prefix, field = AGENT_TOOLS[call.name]
    item: JSON = {
        "id": f"{prefix}_{call.id.removeprefix('call_')}",
        "type": f"{call.name}_call",
        "call_id": call.id,
        "status": "completed",
    }
    if call.name == "computer":
        item["pending_safety_checks"] = []
    if call.arguments.keys() == {"actions"}:
        item["actions"] = call.arguments["actions"]
    else:
        item[field] = call.arguments
    return RawBlock(item["type"], item, NAME)


def encode_agent_result(result: ToolResult, name: str, tools: Sequence[Tool]) -> JSON | None:
    """Return the item of the output of such a tool; None for the result of a function."""
    if name not in AGENT_TOOLS or not _offers(tools, name):
        return None
    item: JSON = {"type": f"{name}_call_output", "call_id": result.call_id, "output": result.text}
    images = [block for block in result.content if isinstance(block, Image)]
    if name == "computer":
        item["output"] = {"type": "computer_screenshot", "image_url": image_url(images[0])}
    elif name == "shell":
        outcome = {"type": "exit", "exit_code": 0}
        item["output"] = [{"stdout": result.text, "stderr": "", "outcome": outcome}]
    elif name == "apply_patch":
        item["status"] = "failed" if result.failed else "completed"
    return item


def _offers(tools: Sequence[Tool], name: str) -> bool:
    return any(tool.name == name and tool.kind not in {"function", "custom"} for tool in tools)


def build_provider_call(call: ToolCall, tool: Tool, request: Request) -> tuple[AnyBlock, ...]:
    """Return the items of a call of a tool that the provider runs; none if the agent runs it."""
    name, fields = tool.name, call.arguments
    if name in AGENT_TOOLS:
        return ()
    if name not in PROVIDER_TOOLS:
        raise UsageError(
            f"cannot script a call of {name}: Offbook does not support this tool of OpenAI",
            hint=f"supported: {', '.join(sorted({*AGENT_TOOLS, *PROVIDER_TOOLS}))}",
        )
    prefix, known = PROVIDER_TOOLS[name]
    for field in fields:
        if field not in known:
            raise UsageError(
                f"call({name!r}, …): unknown field {field!r}",
                hint=did_you_mean(field, known) or f"it has: {', '.join(known)}",
            )
    core_id = call.id.removeprefix("call_")
    item: JSON = {"id": f"{prefix}_{core_id}", "type": f"{name}_call", "status": "completed"}
    before: list[JSON] = []
    match name:
        case "web_search":
            sources = [{"type": "url", "url": url} for url in fields.get("sources") or ()]
            search: JSON = {"type": "search", "query": fields.get("query", "")}
            item["action"] = fields.get("action") or {**search, "sources": sources}
        case "file_search":
            item["queries"] = fields.get("queries") or [fields.get("query", "")]
            item["results"] = fields.get("results")
        case "code_interpreter":
            logs = [{"type": "logs", "logs": fields["logs"]}] if "logs" in fields else None
            item["code"] = fields.get("code", "")
            item["container_id"] = fields.get("container_id", f"cntr_{core_id}")
            item["outputs"] = fields.get("outputs", logs)
        case "image_generation":
            item["result"] = fields.get("result")
        case _:
            label = fields.get("server_label") or tool.schema.get("server_label", "")
            called = fields.get("name", "")
            if not _has_listed(request, label):
                listed: JSON = {"name": called, "input_schema": {"type": "object"}}
                listed |= {"description": None, "annotations": None}
                list_id = f"mcpl_{core_id}"
                before = [{"id": list_id, "type": "mcp_list_tools", "server_label": label}]
                before[0]["tools"] = [listed]
            item |= {"server_label": label, "name": called, "approval_request_id": None}
            item["arguments"] = render_arguments(fields.get("arguments") or {})
            item |= {"output": fields.get("output"), "error": fields.get("error")}
            item["status"] = "failed" if fields.get("error") else "completed"
    return tuple(RawBlock(entry["type"], entry, NAME) for entry in (*before, item))


def _has_listed(request: Request, label: str) -> bool:
    """Return whether the conversation has the list of the tools of this server."""
    return any(
        isinstance(block, RawBlock)
        and block.kind == "mcp_list_tools"
        and block.data.get("server_label") == label
        for message in request.messages
        for block in message.blocks
    )


def cite_sources(blocks: Sequence[AnyBlock], text: Text) -> list[JSON]:
    """Return the annotations of a text: the sources of the searches before it in the reply."""
    urls: list[str] = []
    for block in blocks:
        if block is text:
            break
        if isinstance(block, RawBlock) and block.kind == "web_search_call":
            urls += [source["url"] for source in block.data["action"].get("sources") or ()]
    return [
        {
            "type": "url_citation",
            "url": url,
            "title": url,
            "start_index": 0,
            "end_index": len(text.text),
        }
        for url in urls
    ]
