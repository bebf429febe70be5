"""YAML: read strictly, written for people, and edited without losing comments.

yaml-rs reads: it is written in Rust, about 40 times as fast as ruamel.yaml, and passes the public
yaml-test-suite. ruamel.yaml edits a person's file (`load_round_trip`). Only this module imports
them.

One document a file, no duplicate keys, few aliases; an error has the line. Scalars follow the YAML
1.2 core schema (`yes` is a text), with `_` between digits and `0b11` also read as numbers.
"""

from __future__ import annotations

import re
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError

if TYPE_CHECKING:
    from pathlib import Path

MAX_ALIAS_EXPANSIONS = 100  # of one anchor: a few lines must not unfold into gigabytes
ALIAS_HINT = "write out the values of the aliases (*name): they grow too large"


def parse_yaml(text: str, path: Path | str = "") -> Any:
    """Return the value of a YAML document; merge keys (`<<`) are applied."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError("the file contains a NUL byte", path=path, line=line, hint='write "\\0"')
    value: Any = _one_document(_read(text, path), text, path)
    # The search for one character is twenty times as fast as that for two.
    return _merge(value) if "<" in text and "<<" in text else value


def _one_document(value: Any, text: str, path: Path | str) -> Any:
    """Return the only document of a file.

    Several documents come as a list, which looks like one document that is a list. The search for
    markers costs a tenth of the parsing: most documents are mappings or short lists.
    """
    documents = cast("list[Any]", value) if isinstance(value, list) else []
    marked = len(documents) > 1 and ("---" in text or "..." in text)
    second = _line_of_second_document(text) if marked else None
    if second is None:
        return cast("Any", value)
    filled = [document for document in documents if document is not None]
    if len(filled) > 1:  # to take the first would lose the others silently
        raise FormatError(
            f"{len(filled)} YAML documents, expected one",
            path=path,
            line=second,
            hint="remove the ---, or put each document into a separate file",
        )
    return filled[0] if filled else None


def _read(text: str, path: Path | str) -> Any:
    import yaml_rs

    try:
        return yaml_rs.loads(text, alias_limits=_alias_limits(), parse_datetime=False)
    except yaml_rs.YAMLDecodeError as error:
        message = str(error)
        match = re.search(r"line (\d+)", message)
        line = int(match[1]) if match else _line_of_duplicate(message, text)
        hint = ""
        if line is None and "alias" in message:
            line = _line_of_alias(text)
            hint = ALIAS_HINT
        problem = message.strip().splitlines()[-1].strip()
        raise FormatError(f"invalid YAML: {problem}", path=path, line=line, hint=hint) from error


@cache
def _alias_limits() -> Any:
    import yaml_rs

    return yaml_rs.AliasLimits(max_alias_expansions_per_anchor=MAX_ALIAS_EXPANSIONS)


def _line_of_second_document(text: str) -> int | None:
    started = ended = False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\.\.\.(\s|$)", line):
            ended = started
        elif re.match(r"---(\s|$)", line):
            if started:
                return number
            started = True
        elif re.match(r"\s*[^\s#]", line) and not line.startswith("%"):
            if ended:
                return number
            started = True
    return None


def _line_of_alias(text: str) -> int | None:
    """Return the first line with an alias; yaml-rs does not say which one grows too large."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"(?:^|[\s,\[{:])\*\w", line):
            return number
    return None


def _line_of_duplicate(message: str, text: str) -> int | None:
    """Return the line of the second key; yaml-rs names the key and not its line."""
    match = re.search(r"duplicate mapping key: '(.*)'", message)
    if not match:
        return None
    key = re.compile(rf"^[ -]*[\"']?{re.escape(match[1])}[\"']?\s*:")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if key.match(line)]
    return lines[1] if len(lines) > 1 else None


# --- merge keys


def _merge(value: Any) -> Any:
    """Apply the merge keys (`<<: *base`) in a value; the keys next to one take precedence."""
    if isinstance(value, list):
        return [_merge(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = {key: _merge(field) for key, field in cast("dict[Any, Any]", value).items()}
    bases = fields.pop("<<", {})
    merged: dict[Any, Any] = {}
    for base in reversed(cast("list[Any]", bases) if isinstance(bases, list) else [bases]):
        merged |= base if isinstance(base, dict) else {"<<": base}
    return {**merged, **fields}


# --- editing a person's file


def load_round_trip(text: str, path: Path | str = "") -> Any:
    """Return a document that can be changed and written back with its comments and layout.

    Mappings and lists in it behave like dicts and lists; change them in place, then call
    `dump_round_trip`. It is slow: read with `parse_yaml` where nothing is written back.
    """
    from ruamel.yaml.error import YAMLError

    parse_yaml(text, path)  # the same errors as everywhere; the editor itself is more lenient
    try:
        return _round_trip_editor(text).load(text)
    except YAMLError as error:  # a layout that yaml-rs reads and ruamel.yaml does not
        mark: Any = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or error
        line = None if mark is None else mark.line + 1
        raise FormatError(f"invalid YAML: {problem}", path=path, line=line) from error


def dump_round_trip(document: Any, text: str) -> str:
    """Return a changed document as YAML, indented as `text`, which it was loaded from."""
    stream = StringIO()
    editor = _round_trip_editor(text)
    # ruamel drops the --- of a document that it writes
    editor.explicit_start = re.match(r"(?:[#%][^\n]*\n|\s*\n)*---\s", text) is not None
    editor.dump(document, stream)
    return stream.getvalue()


# a key, and the list or the mapping below it
_LIST_BELOW = re.compile(
    r"^( *)[^\s#-][^\n]*:[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)-( +)\S", re.MULTILINE
)
_MAPPING_BELOW = re.compile(r"^( *)[^\s#-][^\n]*:[ \t]*\n( +)[^\s#-]", re.MULTILINE)


def _round_trip_editor(text: str) -> Any:
    """Return an editor that writes with the indentation of this text."""
    from ruamel.yaml import YAML

    editor = YAML(typ="rt", pure=True)
    editor.preserve_quotes = True
    editor.width = 1_000_000  # never fold a line that was not folded
    if match := _LIST_BELOW.search(text):
        offset = len(match[2]) - len(match[1])
        editor.indent(sequence=offset + 1 + len(match[3]), offset=offset)
    else:
        editor.indent(sequence=4, offset=2)  # as dump_yaml writes
    match = _MAPPING_BELOW.search(text)
    if match and len(match[2]) > len(match[1]):
        editor.indent(mapping=len(match[2]) - len(match[1]))
    return editor


# --- writing


def dump_yaml(value: Any, indent: int = 0) -> str:
    """Return a value as YAML that people can read and edit: long texts as blocks, others quoted.

    Written by hand: a cassette must look the same with every library version, and this takes a
    thirtieth of the time of ruamel.yaml.
    """
    pad = " " * indent
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "".join(f"{pad}{_scalar(k)}:{_entry(v, indent)}" for k, v in fields.items())
    if isinstance(value, (list, tuple)):
        return "".join(f"{pad}-{_entry(v, indent, item=True)}" for v in cast("list[Any]", value))
    return f"{pad}{_scalar(value)}\n"


def _entry(value: Any, indent: int, *, item: bool = False) -> str:
    """Return the text after `key:` or after `-`: a nested value, a block of lines or a scalar."""
    if isinstance(value, (dict, list, tuple)) and value:
        nested = dump_yaml(value, indent + 2)
        # the first line of a list item continues the line of its dash
        return f" {nested.lstrip(' ')}" if item else f"\n{nested}"
    if not (isinstance(value, str) and _is_block(value)):
        return f" {_scalar(value)}\n"
    # the indicator says how many line ends at the end belong to the text
    keep = "+" if value.endswith("\n\n") or value == "\n" else "" if value.endswith("\n") else "-"
    pad = " " * (indent + 2)
    lines = value.removesuffix("\n").split("\n")
    body = "\n".join(f"{pad}{line}" if line else "" for line in lines)
    return f" |{keep}\n{body}\n"


def _is_block(text: str) -> bool:
    """Return whether a text can be written as a block without changing it."""
    return (
        "\n" in text
        and not text.startswith((" ", "\n", "\t"))
        and all(character == "\n" or character.isprintable() for character in text)
        and not any(line.endswith((" ", "\t")) for line in text.split("\n"))
    )


# control characters, and those that YAML 1.1 takes for line ends
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z_./-]*(?: [A-Za-z_./-]+)*\Z")
# words that some YAML reader takes for something else than a text
_RESERVED = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"}


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _RESERVED:
        return value
    if isinstance(value, (dict, list, tuple)) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    encoded = msgspec.json.encode(value).decode()  # JSON is YAML but for these characters
    if _UNPRINTABLE.search(encoded) is None:
        return encoded
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", encoded)
