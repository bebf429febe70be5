"""The command-line agents that can be driven: `drive(OpenCode())`."""

from offbook.capability import lazy_names

_MODULES = {
    "subjects.clis.claude_code": "ClaudeCode",
    "subjects.clis.codex": "Codex",
    "subjects.clis.command": "Command",
    "subjects.clis.continue_cli": "Continue",
    "subjects.clis.gemini": "GeminiCli",
    "subjects.clis.opencode": "OpenCode",
    "subjects.clis.pi": "Pi",
    "subjects.clis.qwen": "QwenCode",
    "subjects.clis.ralph": "Ralph",
}

__all__ = [  # noqa: PLE0604  # pyright: ignore[reportUnsupportedDunderAll] - from the table
    *sorted(name for names in _MODULES.values() for name in names.split()),
]
__getattr__ = lazy_names(_MODULES, "offbook")


def __dir__() -> list[str]:
    return sorted(__all__)
