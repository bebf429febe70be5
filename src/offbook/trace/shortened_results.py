"""Whether an agent has shortened an old result, and says so, in its own words.

A careful reader accepts the begin of a result, or its begin and its end, with a note in place of
the rest: `[shortened; read the chapter again]`, `… 1080 characters left out …`. Of an older result
the note alone is enough. The note speaks about the text, and has no number of its own: a word or a
number that is put in anywhere is another result.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from offbook.trace.part_index import common_length

MAX_NOTE = 200  # characters
MAX_PLACES = 12  # where a note may begin, and where it may end
# A note is in brackets, after an ellipsis, between lines, or on lines of its own.
_OPENING = re.compile(r"[\[(<{]+|…|\.{3,}|[-*=#]{3,}|\n")
_CLOSING = re.compile(r"[\])>}]+|…|\.{3,}|[-*=#]{3,}|\n")
_BRACKETS = re.compile(r"\[+[^\[\]]*\]+|\(+[^()]*\)+|<+[^<>]*>+|\{+[^{}]*\}+", re.DOTALL)
_FRAME = "….-*=# \t\n"
# Words that are said of a text only, and words that are also said of what a result is about.
_SHORTENED = re.compile(
    r"\b(?:shorten|truncat|abbreviat|abridg|elided|omitted|trimmed|clipped|snip(?:ped)?\b"
    r"|left out\b|cut (?:off|short|here|to|after|at)\b|not shown\b|compacted|condensed|pruned)",
    re.IGNORECASE,
)
_GONE = re.compile(
    r"\b(?:cut|cleared|removed|dropped|deleted|discarded|hidden|skipped|collapsed|archived|evicted"
    r"|offloaded|expired|forgotten|no longer|replaced|more|rest|elided|omitted|compacted|condensed"
    r"|pruned|not shown|not kept|left out)\b",
    re.IGNORECASE,
)
_OF_TEXT = re.compile(
    r"\b(?:results?|outputs?|contents?|texts?|characters?|chars?|tokens?|bytes?|[KMk]i?B|lines?"
    r"|words?|context|window|messages?|history|responses?|observations?)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# The numbers of a note: how much is missing, and where the rest is.
_COUNT = re.compile(
    r"\d+(?:[.,]\d+)*\s?(?:%|k\b|more\b|of\b|/|characters?|chars?|tokens?|bytes?|[KMk]i?B|lines?"
    r"|words?|items?|messages?|to save)"
    r"|\b(?:first|last|of|page|chapter|part|line|lines|offset|step|turn|message|limit)\s\d+"
    r"|[/\\][\w./\\-]*\d[\w./\\-]*|\w+\([^()]*\)",
    re.IGNORECASE,
)


class _Note(NamedTuple):
    """A note in a text: its place, and what it says."""

    start: int
    end: int
    words: str


def is_shortened(known: str, text: str, *, older: bool) -> bool:
    """Return whether a text is a known result without a part of it, and a note says so.

    Only an `older` one, after which the model has said something, may be the note alone.
    """
    known, text = known.strip(), text.strip()
    prefix = common_length(known, text)
    suffix = common_length(known[::-1], text[::-1])
    for note in _find_notes(text, prefix, len(text) - suffix):
        before, after = text[: note.start].rstrip(), text[note.end :].lstrip()
        if not before and not after:
            if older and _says_gone(note.words, known):
                return True
        elif len(before) + len(after) < len(known) and _says_shortened(note.words, known):
            return bool(before)
    return False


def _find_notes(text: str, first: int, last: int) -> list[_Note]:
    """Return the notes that begin at `first` at the latest, and end at `last` at the earliest."""
    starts = [found.start() for found in _OPENING.finditer(text, max(0, first - MAX_NOTE))]
    # A space before a note is not one of the result.
    starts = [n for n in starts if len(text[:n].rstrip()) <= first][-MAX_PLACES:]
    window = min(len(text), last + MAX_NOTE)
    ends = [found.end() for found in _CLOSING.finditer(text, 0, window)]
    if window == len(text):
        ends.append(len(text))
    ends = [n for n in dict.fromkeys(ends) if len(text) - len(text[n:].lstrip()) >= last]
    return [
        _Note(start, end, words)
        for start in reversed(starts)
        for end in ends[:MAX_PLACES]
        if 0 < end - start <= MAX_NOTE and (words := _read_note(text[start:end])) is not None
    ]


def _read_note(text: str) -> str | None:
    """Return the words of a note, "" of a mere ellipsis, or None if it is no note."""
    words = text.strip(_FRAME)
    if not words:
        return "" if "…" in text or "..." in text else None
    if _BRACKETS.fullmatch(words):
        return words[1:-1].strip(_FRAME)
    is_apart = text[0] in "….-*=#" or (text[0] == "\n" and (text[-1] == "\n" or "\n" not in words))
    return words if is_apart and not _BRACKETS.match(words[:1]) else None


def _says_shortened(words: str, known: str) -> bool:
    """Return whether a note says that a part is missing; an ellipsis does."""
    return not words or (_is_about_text(words) and _has_no_data(words, known))


def _is_about_text(words: str) -> bool:
    if _SHORTENED.search(words):
        return True
    return bool(_OF_TEXT.search(words) and _GONE.search(words))


def _says_gone(words: str, known: str) -> bool:
    """Return whether a note says that a whole result is gone."""
    is_gone = _GONE.search(words) and _OF_TEXT.search(words)
    return bool(is_gone) and _has_no_data(words, known)


def _has_no_data(words: str, known: str) -> bool:
    """Return whether a note is no part of the result, and has no number that is not in it."""
    rest = _COUNT.sub(" ", words)
    numbers = {*_NUMBER.findall(known), str(len(known))}
    return words not in known and all(number in numbers for number in _NUMBER.findall(rest))
