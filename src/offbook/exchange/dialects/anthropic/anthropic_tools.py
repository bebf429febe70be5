"""The server tools of Anthropic: the provider runs them, and the reply has call and result.

    call("web_search", {"query": "lamps", "results": [{"title": "A", "url": "https://a.example"}]})

A text after a search cites its results. The tools that the agent runs (bash, text_editor, computer,
memory) are called like its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from offbook.determinism.run_context import stable_id
from offbook.errors import UsageError, did_you_mean
from offbook.exchange.dialects.anthropic.anthropic_wire import NAME
from offbook.exchange.messages import JSON, RawBlock, Text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.messages import AnyBlock, ToolCall
    from offbook.exchange.model import Tool

# The tools that the provider runs, by the start of the kind that is offered: the fields of the
# call's input, and those of its result.
SERVER_TOOLS = {
    "code_execution": (("code",), ("stdout", "stderr", "return_code")),
    "mcp_toolset": (("name", "input", "server_name"), ("output", "is_error")),
    "web_fetch": (("url",), ("title", "text")),
    "web_search": (("query",), ("results",)),
}
AGENT_TOOLS = ("bash", "computer", "memory", "text_editor")


def build_server_call(call: ToolCall, tool: Tool) -> tuple[RawBlock, ...]:
    """Return the blocks of a call of a server tool and of its result; none if the agent runs it."""
    if tool.kind.startswith(AGENT_TOOLS):
        return ()
    name = next((name for name in SERVER_TOOLS if tool.kind.startswith(name)), None)
    if name is None:
        raise UsageError(
            f"cannot script a call of {tool.kind}: Offbook does not support this tool of Anthropic",
            hint=f"supported: {', '.join(sorted({*SERVER_TOOLS, *AGENT_TOOLS}))}",
        )
    inputs, outputs = SERVER_TOOLS[name]
    fields = call.arguments
    for field in fields:
        if field not in (*inputs, *outputs):
            known = ", ".join((*inputs, *outputs))
            raise UsageError(
                f"call({call.name!r}, …): unknown field {field!r}",
                hint=did_you_mean(field, (*inputs, *outputs)) or f"it has: {known}",
            )
    core_id = call.id.removeprefix("toolu_")
    if name == "mcp_toolset":
        call_id = f"mcptoolu_{core_id}"
        server = fields.get("server_name") or tool.schema.get("mcp_server_name", "")
        use: JSON = {"type": "mcp_tool_use", "id": call_id, "name": fields.get("name", "")}
        use |= {"input": fields.get("input") or {}, "server_name": server}
        content: Any = [{"type": "text", "text": str(fields.get("output", ""))}]
        result: JSON = {"type": "mcp_tool_result", "tool_use_id": call_id, "content": content}
        result["is_error"] = bool(fields.get("is_error"))
    else:
        call_id = f"srvtoolu_{core_id}"
        use = {"type": "server_tool_use", "id": call_id, "name": name}
        use["input"] = {field: fields[field] for field in inputs if field in fields}
        result = {"type": f"{name}_tool_result", "tool_use_id": call_id}
        result["content"] = _encode_result(name, fields)
    return tuple(RawBlock(block["type"], block, NAME) for block in (use, result))


def _encode_result(name: str, fields: JSON) -> Any:
    if name == "web_search":
        return [
            {
                "type": "web_search_result",
                "title": str(found.get("title", found.get("url", ""))),
                "url": str(found.get("url", "")),
                "encrypted_content": str(found.get("text", "")) or stable_id("", str(found)),
                "page_age": found.get("page_age"),
            }
            for found in fields.get("results") or ()
        ]
    if name == "web_fetch":
        text = str(fields.get("text", ""))
        source = {"type": "text", "media_type": "text/plain", "data": text}
        document = {"type": "document", "source": source, "title": fields.get("title")}
        fetched: JSON = {"type": "web_fetch_result", "url": fields.get("url", "")}
        return {**fetched, "content": {**document, "citations": None}, "retrieved_at": None}
    return {
        "type": "code_execution_result",
        "stdout": str(fields.get("stdout", "")),
        "stderr": str(fields.get("stderr", "")),
        "return_code": fields.get("return_code", 0),
        "content": [],
    }


def cite_results(blocks: Sequence[AnyBlock], text: AnyBlock) -> list[JSON]:
    """Return the citations of a text: the results of the searches before it in the reply."""
    citations: list[JSON] = []
    for block in blocks:
        if block is text:
            break
        if isinstance(block, RawBlock) and block.kind == "web_search_tool_result":
            citations += [
                {
                    "type": "web_search_result_location",
                    "url": found["url"],
                    "title": found["title"],
                    "encrypted_index": stable_id("", found["url"]),
                    "cited_text": found["encrypted_content"][:150],
                }
                for found in block.data["content"]
            ]
    return citations if isinstance(text, Text) else []


def count_server_calls(blocks: Iterable[AnyBlock]) -> JSON:
    """Return the number of searches and fetches, as the usage has them; empty without any."""
    names = [b.data.get("name") for b in blocks if isinstance(b, RawBlock)]
    counts = {f"{name}_requests": names.count(name) for name in ("web_search", "web_fetch")}
    return {"server_tool_use": counts} if any(counts.values()) else {}
