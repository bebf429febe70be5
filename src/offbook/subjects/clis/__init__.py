"""Command-line agents, each run as a process in an isolated home."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "acp": "Acp",
        "cli": "AgentOutput CliAgent ClientPackage",
        "clients": "ClaudeCode Codex Command Continue GeminiCli OpenCode QwenCode Ralph SETTINGS",
    },
)
