"""The command-line agents that can be driven: `drive(OpenCode())`."""

from offbook.capability import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "subjects.clis.claude_code": "ClaudeCode",
        "subjects.clis.codex": "Codex",
        "subjects.clis.command": "Command",
        "subjects.clis.continue_cli": "Continue",
        "subjects.clis.gemini": "GeminiCli QwenCode",
        "subjects.clis.opencode": "OpenCode",
        "subjects.clis.pi": "Pi",
        "subjects.clis.ralph": "Ralph",
    },
    package="offbook",
)
