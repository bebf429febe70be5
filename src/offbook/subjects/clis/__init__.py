"""Command-line agents, each run as a process in an isolated home."""

from offbook.capability import lazy_getattr

# The door of this folder: its tests import these names from here.
__getattr__ = lazy_getattr(
    __name__,
    {
        "claude_code": "ClaudeCode",
        "cli": "AgentOutput CliAgent ClientPackage",
        "codex": "Codex",
        "command": "Command",
        "continue_cli": "Continue",
        "gemini": "GeminiCli QwenCode SETTINGS",
        "opencode": "OpenCode",
        "ralph": "Ralph",
    },
)
