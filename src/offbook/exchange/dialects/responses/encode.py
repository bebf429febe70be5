"""What the model answers, item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from offbook.determinism.ids import stable
from offbook.exchange.arguments import write_arguments, write_input
from offbook.exchange.dialects.responses import forms
from offbook.exchange.foreign import cannot_say, write_foreign
from offbook.exchange.messages import JSON, AnyBlock, Foreign, Text, Thinking, ToolCall

if TYPE_CHECKING:
    from offbook.exchange.reply import Stop
    from offbook.exchange.request import Request


def write_item(blocks: tuple[AnyBlock, ...], core: str, stop: Stop) -> JSON:
    """What the model gave, as the item with this core of an id."""
    first = blocks[0]
    match first:
        case Text():
            parts = [_write_spoken(cast("Text", block).text, stop) for block in blocks]
            return {
                "id": f"msg_{core}",
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": parts,
            }
        case Thinking(text, signature):
            return {
                "id": f"rs_{core}",
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text}] if text else [],
                "encrypted_content": signature or None,
            }
        case ToolCall():
            return _write_call(first, core)
        case Foreign():
            return write_foreign(first, forms.NAME)
        case _:
            raise cannot_say(first, forms.NAME)


def _write_spoken(text: str, stop: Stop) -> JSON:
    if stop == "refusal":
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}


def _write_call(call: ToolCall, core: str) -> JSON:
    custom = call.custom
    item: JSON = {
        "id": f"{'ctc' if custom else 'fc'}_{core}",
        "type": "custom_tool_call" if custom else "function_call",
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if call.namespace:
        item["namespace"] = call.namespace
    if custom:
        item["input"] = write_input(call.arguments)
    else:
        item["arguments"] = write_arguments(call.arguments)
    return item


def fit_block(block: AnyBlock, request: Request, *, sealed: bool) -> AnyBlock:
    """The block as this request wants it: a call as its tool was offered, a thought sealed."""
    if isinstance(block, Thinking) and sealed and not block.signature:
        return Thinking(block.text, stable("gAAAA", block.text, length=40))
    if not isinstance(block, ToolCall) or block.custom or block.namespace:
        return block
    offers = [tool for tool in request.tools if tool.name == block.name]
    if not offers or any(tool.kind == "function" and not tool.namespace for tool in offers):
        return block
    offer = min(offers, key=lambda tool: bool(tool.namespace))
    return msgspec.structs.replace(block, namespace=offer.namespace, custom=offer.kind == "custom")
