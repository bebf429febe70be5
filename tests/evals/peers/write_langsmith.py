"""Writes examples with trajectories as the classes of LangSmith and LangChain write them.

pip install langsmith langchain-core; python write_langsmith.py written
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from langchain_core.load import dumpd
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    ToolMessage,
    convert_to_openai_messages,
)
from langsmith.schemas import Example


def call(name: str) -> AIMessage:
    """Return a message that calls a tool."""
    return AIMessage("", tool_calls=[{"name": name, "args": {"order": 7}, "id": name}])


MESSAGES = [
    HumanMessage("Refund 7"),
    call("find"),
    ToolMessage("order 7", tool_call_id="find"),
    call("refund"),
    ToolMessage("refunded", tool_call_id="refund"),
    AIMessage("Done."),
]
FORMS = {
    "fields": [message.model_dump() for message in MESSAGES],
    "constructors": [dumpd(message) for message in MESSAGES],
    "openai": convert_to_openai_messages(MESSAGES),
}
lines: list[str] = []
for number, (form, messages) in enumerate(FORMS.items()):
    example = Example(
        id=UUID(int=number),
        dataset_id=UUID(int=0),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
        inputs={"messages": messages[:1]},
        outputs={"messages": messages},
        metadata={"form": form},
    )
    lines.append(example.model_dump_json() + "\n")
(Path(sys.argv[1]) / "langsmith.jsonl").write_text("".join(lines))
