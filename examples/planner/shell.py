"""Which shell commands only read. What is not known to be harmless is not."""

from __future__ import annotations

import re
import shlex

READING = {
    *("basename", "cat", "cd", "cut", "date", "df", "diff", "dirname", "du", "echo", "false"),
    *("find", "grep", "head", "id", "jq", "ls", "nl", "printf", "ps", "pwd", "readlink"),
    *("realpath", "rg", "sort", "stat", "tail", "test", "tr", "tree", "true", "type", "uname"),
    *("wc", "which", "whoami"),
}
# For these, only these words may follow.
SUBCOMMANDS = {
    "cargo": {"metadata", "tree"},
    "git": {"blame", "diff", "log", "ls-files", "rev-parse", "show", "status"},
    "npm": {"ls", "outdated", "view"},
    "pip": {"freeze", "list", "show"},
}
# Words that make a reading command do more than read.
WRITING = {
    "date": re.compile(r"-s.*|--set.*"),
    "find": re.compile(r"-(delete|exec|execdir|ok|okdir|fls|fprint.*)"),
    "git": re.compile(r"--output.*|--ext-diff"),
    "rg": re.compile(r"--pre.*"),
    "sort": re.compile(r"-o.*|--output.*|--compress-program.*"),
    "tree": re.compile(r"-o.*"),
}
PUNCTUATION = ";&|<>"
HARMLESS = re.compile(r"\d?>&\d|\d?>\s*/dev/null")
HIDDEN = re.compile(r"`|\$\(|<\(|>\(")


def why_not_readonly(command: str) -> str:
    """Why a command may change something; nothing when it only reads."""
    if HIDDEN.search(command):
        return "a command inside a command cannot be checked"
    try:
        words = _split(HARMLESS.sub(" ", command))
    except ValueError as error:
        return f"the command cannot be read ({error})"
    if any(">" in word for word in words if _is_punctuation(word)):
        return "a redirection writes to a file"
    return next((why for part in _parts(words) if (why := _why(part))), "")


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _is_punctuation(word: str) -> bool:
    return set(word) <= set(PUNCTUATION)


def _parts(words: list[str]) -> list[list[str]]:
    """The single commands of a line, each as its words."""
    parts: list[list[str]] = [[]]
    for word in words:
        if _is_punctuation(word):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _why(words: list[str]) -> str:
    name, *rest = words
    allowed = SUBCOMMANDS.get(name)
    if allowed is not None and (not rest or rest[0] not in allowed):
        return f"`{' '.join(words[:2])}` may change something"
    if allowed is None and name not in READING:
        return f"`{name}` may change something"
    writing = WRITING.get(name)
    harmful = next((word for word in rest if writing and writing.fullmatch(word)), None)
    return f"`{name} {harmful}` may change something" if harmful else ""
