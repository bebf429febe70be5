"""How a text is cut into the pieces in which it is streamed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from offbook.exchange.reply import Reply

_WORD = re.compile(r"\s*\S{1,24}|\s+")
_RUN = 24


def cut_words(text: str) -> list[str]:
    """The text word by word, each with the space before it; longer words in several pieces."""
    return _WORD.findall(text)


def cut_runs(text: str) -> list[str]:
    """The text in runs of one length, for what has no words: the arguments of a call."""
    return [text[at : at + _RUN] for at in range(0, len(text), _RUN)]


def cut_reply(reply: Reply, text: str) -> Sequence[str]:
    """The pieces of this text of the reply: as they once came, if that is known."""
    if reply.chunks and "".join(reply.chunks) == text:
        return reply.chunks
    return cut_words(text)
