"""Agents of Python frameworks, driven without changes."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "claude_agent": "ClaudeAgent",
        "framework": "FrameworkSubject ToolWatch parameter_names wrap_agent",
        "inspect_ai": "InspectAI",
        "openai_agents": "OpenAIAgents",
    },
)
