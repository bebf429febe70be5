"""The built-in agent: a loop with tools, hooks, extensions and a user interface."""

from offbook.capability import lazy_getattr

DEFAULT_SYSTEM_PROMPT = "You are an agent. Use the tools that you are given."

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "extensions": "Api",
        "session": "AgentSession",
        "tools": "Context HOOK_EVENTS HookEvent run_bash",
    },
)
