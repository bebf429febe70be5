"""The types that tests, extensions, sources and subjects name in their signatures."""

from offbook.capability import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "exchange.messages": "History Image Message Text Thinking ToolCall ToolResult user",
        "exchange.model": "ModelSource Reply Request Tool Usage",
        "subjects.session.extensions": "Api",
        "subjects.session.tools": "Context",
        "subjects.session.session": "AgentSession",
        "subjects.mock_tools": "ToolOutcome",
        "subjects.subject": "RunContext Skill Subject",
    },
    package="offbook",
    internal={
        "exchange.messages": "RawBlock",
        "exchange.model": "StopReason",
        "subjects.session.tools": "HookEvent",
    },
)
