"""The types that tests, extensions, sources and subjects name in their signatures."""

from offbook.capability import lazy_names

_MODULES = {
    "exchange.messages": "History Image Message RawBlock Text Thinking ToolCall ToolResult user",
    "exchange.model": "ModelSource Reply Request StopReason Tool Usage",
    "sources.mocks.mock_recording": "MockRecording",
    "subjects.session.extensions": "Api",
    "subjects.session.hooks": "Context HookEvent",
    "subjects.session.session": "AgentSession",
    "subjects.mock_tools": "ToolOutcome",
    "subjects.subject": "RunContext Skill Subject",
}

__all__ = [  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll] - from the table
    *sorted(name for names in _MODULES.values() for name in names.split()),
]
__getattr__ = lazy_names(_MODULES, "offbook")


def __dir__() -> list[str]:
    return sorted(__all__)
