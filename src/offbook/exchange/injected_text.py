"""What the person wrote, without the texts that a client adds to the user's messages.

Coding agents put reminders, a description of the environment and instruction files into messages
with the role `user`. Each of these texts has tags or a first line that no prompt of a person has.
To support another client, add them to `TAGS` or `FIRST_LINES`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from offbook.exchange.messages import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from offbook.exchange.messages import Message

TAGS = (
    "system-reminder",  # Claude Code, and clients that follow it
    "environment_context",  # Codex
    "user_instructions",
    "permissions instructions",
    "skills_instructions",
    "collaboration_mode",
    "session_context",  # Gemini CLI
)
FIRST_LINES = (
    "# AGENTS.md instructions for ",  # Codex: an instruction file
    "This is the Gemini CLI. We are setting up the context",
    "This is the Qwen Code. We are setting up the context",
)
_TAGGED = re.compile(rf"<({'|'.join(TAGS)})>.*?</\1>\s*", re.DOTALL)


def written_text(message: Message) -> str:
    """Return the text of a user message without what the client injected."""
    texts = [strip_injected(block.text) for block in message.blocks if isinstance(block, Text)]
    return "\n".join(filter(None, texts))


def find_prompt(messages: Iterable[Message]) -> str:
    """Return the first text that a person wrote in these messages, or an empty string."""
    texts = (written_text(message) for message in messages if message.role == "user")
    return next(filter(None, texts), "")


def strip_injected(text: str) -> str:
    """Return one text block of a user message without what the client injected."""
    stripped = text.strip()
    if stripped.startswith(FIRST_LINES):
        return ""
    # Almost every text has no tag, and most injected ones are a separate block.
    if "</" not in stripped:
        return text
    for tag in TAGS:
        opening, closing = f"<{tag}>", f"</{tag}>"
        # An instruction file may itself contain the closing tag, so the block counts as a whole.
        if stripped.startswith(opening) and stripped.endswith(closing):
            if stripped.count(opening) == 1:
                return ""
            break
    return _TAGGED.sub("", text)
