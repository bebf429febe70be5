"""Recognize read-only shell commands; an unknown command counts as writing."""

from __future__ import annotations

import re
import shlex

READ_ONLY = {
    *("basename", "cat", "cd", "cut", "date", "df", "diff", "dirname", "du", "echo", "false"),
    *("find", "grep", "head", "id", "jq", "ls", "nl", "printf", "ps", "pwd", "readlink"),
    *("realpath", "rg", "sort", "stat", "tail", "test", "tr", "tree", "true", "type", "uname"),
    *("wc", "which", "whoami"),
}
# The read-only subcommands of commands that can also write.
SUBCOMMANDS = {
    "cargo": {"metadata", "tree"},
    "git": {"blame", "diff", "log", "ls-files", "rev-parse", "show", "status"},
    "npm": {"ls", "outdated", "view"},
    "pip": {"freeze", "list", "show"},
}
# Options that make a read-only command write or run other programs.
WRITE_OPTIONS = {
    "date": re.compile(r"-[a-zA-Z]*s.*|--s.*"),
    "find": re.compile(r"-(delete|exec|execdir|ok|okdir|fls|fprint.*)"),
    "git": re.compile(r"--ou.*|--ext-diff"),
    "rg": re.compile(r"--pre.*"),
    "sort": re.compile(r"-[a-zA-Z]*o.*|--o.*|--c.*"),
    "tree": re.compile(r"-[a-zA-Z]*o.*"),
}
PUNCTUATION = ";&|<>()"
# A redirection ends with its word: `>&2out` writes to the file 2out.
HARMLESS_REDIRECTION = re.compile(r"\d?>(?:&\d|\s*/dev/null)(?![^\s;&|<>])")
# Commands in commands, variables, and braces that expand to several words.
EXPANSION = re.compile(r"[`$]|<\(|>\(|\{[^}]*(?:,|\.\.)")


def write_risk(command: str) -> str:
    """Return the reason why a command may write, or an empty string if it is read-only."""
    if EXPANSION.search(command):
        return "a command or variable inside a command cannot be checked"
    try:
        words = _split(HARMLESS_REDIRECTION.sub(" ", command))
    except ValueError as error:
        return f"the command cannot be parsed ({error})"
    punctuation = "".join(word for word in words if _is_punctuation(word))
    if ">" in punctuation:
        return "a redirection writes to a file"
    if "(" in punctuation or ")" in punctuation:
        return "a function or subshell cannot be checked"
    return next((risk for part in _split_commands(words) if (risk := _command_risk(part))), "")


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=PUNCTUATION)
    lexer.whitespace_split = True
    lexer.commenters = ""
    return list(lexer)


def _is_punctuation(word: str) -> bool:
    return set(word) <= set(PUNCTUATION)


def _split_commands(words: list[str]) -> list[list[str]]:
    """Return the commands of a line, each as its words."""
    parts: list[list[str]] = [[]]
    for word in words:
        if _is_punctuation(word):
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _command_risk(words: list[str]) -> str:
    name, *rest = words
    allowed = SUBCOMMANDS.get(name)
    if allowed is not None and (not rest or rest[0] not in allowed):
        return f"`{' '.join(words[:2])}` may change something"
    if allowed is None and name not in READ_ONLY:
        return f"`{name}` may change something"
    pattern = WRITE_OPTIONS.get(name)
    option = next((word for word in rest if pattern and pattern.fullmatch(word)), None)
    return f"`{name} {option}` may change something" if option else ""
