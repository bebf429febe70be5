"""The command-line agents that can be driven: `drive(OpenCode())`."""

from offbook.capability import lazy_names

__all__, __getattr__, __dir__ = lazy_names(
    __name__,
    {
        "subjects.clis.acp": "Acp",
        "subjects.clis.clients": "ClaudeCode Codex Command Continue GeminiCli OpenCode QwenCode"
        " Ralph",
        "subjects.clis.pi": "Pi",
    },
    package="offbook",
)
