"""YAML: read by one of two libraries, written for people, and edited without losing comments.

Two readers give the same values and pass the same tests:

- yaml-rs (default): written in Rust, about 40 times as fast, and young.
- ruamel.yaml: pure Python and established. It is used when `OFFBOOK_YAML=ruamel` is set, or when
  yaml-rs cannot be imported; and always where a person's file is edited (`load_round_trip`).

Only this module imports them. Both are strict: one document a file, no duplicate keys, few
aliases; an error has the line. Scalars follow the YAML 1.2 core schema (`yes` is a text), with
`_` between digits and `0b11` also read as numbers. On the public yaml-test-suite both agree but
for rare layouts that ruamel.yaml rejects (a tab after a colon) or that flow style makes ambiguous
(`[?x]`).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from copy import deepcopy
from functools import cache
from io import StringIO
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTING = "OFFBOOK_YAML"
MAX_ALIAS_EXPANSIONS = 100  # of one anchor: a few lines must not unfold into gigabytes
ALIAS_HINT = "write out the values of the aliases (*name): they grow too large"


def parse_yaml(text: str, path: Path | str = "") -> Any:
    """Return the value of a YAML document; merge keys (`<<`) are applied."""
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError("the file contains a NUL byte", path=path, line=line, hint='write "\\0"')
    documents = choose_reader(os.environ.get(SETTING, ""))(text, path)
    value: Any = documents[0].value if len(documents) == 1 else None
    if len(documents) > 1:
        filled = [document.value for document in documents if document.value is not None]
        if len(filled) > 1:  # to take the first would lose the others silently
            raise FormatError(
                f"{len(filled)} YAML documents, expected one",
                path=path,
                line=documents[1].line,
                hint="remove the ---, or put each document into a separate file",
            )
        value = filled[0] if filled else None
    # The search for one character is twenty times as fast as that for two.
    return _merge(value) if "<" in text and "<<" in text else value


class _Document(msgspec.Struct):
    value: Any
    line: int | None


@cache  # a cassette is parsed one interaction after the other: this halves the overhead of each
def choose_reader(choice: str) -> Callable[[str, Path | str], list[_Document]]:
    """Return the reader of this name; without a name, the fastest one that is installed."""
    readers = {"yaml-rs": _read_with_yaml_rs, "ruamel": _read_with_ruamel}
    if choice and choice not in readers:
        raise UsageError(
            f"unknown YAML reader {choice!r}", where=SETTING, hint=did_you_mean(choice, readers)
        )
    if not choice:
        try:
            import yaml_rs  # noqa: F401  # pyright: ignore[reportUnusedImport] - may not be installed
        except ImportError:
            choice = "ruamel"
    return readers[choice or "yaml-rs"]


# --- yaml-rs


def _read_with_yaml_rs(text: str, path: Path | str) -> list[_Document]:
    import yaml_rs

    try:
        value = yaml_rs.loads(text, alias_limits=_alias_limits(), parse_datetime=False)
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
    # Several documents come as a list, which looks like one document that is a list. The search
    # for markers costs a tenth of the parsing: most documents are mappings or short lists.
    several = isinstance(value, list) and len(cast("list[Any]", value)) > 1
    marked = several and ("---" in text or "..." in text)
    second = _line_of_second_document(text) if marked else None
    if second is None:
        return [_Document(value, 1)]
    return [_Document(document, second) for document in cast("list[Any]", value)]


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


# --- ruamel.yaml


def _read_with_ruamel(text: str, path: Path | str) -> list[_Document]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError
    from ruamel.yaml.events import DocumentStartEvent

    # Only the parser is ruamel's. Its constructors have other types (dates, YAML 1.1 booleans)
    # and no limit for aliases.
    parser: Any = YAML(typ="safe", pure=True)
    # at the end of a file a block scalar ends with a line end, written or not
    events: Iterator[Any] = parser.parse(text if text.endswith("\n") else f"{text}\n")
    documents: list[_Document] = []
    try:
        for event in events:
            line: int = event.start_mark.line + 1
            if isinstance(event, DocumentStartEvent):
                documents.append(_Document(_EventReader(events, path).read_value(), line))
    except (YAMLError, AssertionError) as error:  # an unknown %YAML version is an AssertionError
        raise _ruamel_error(error, path) from error
    except RecursionError as error:
        raise FormatError("invalid YAML: nested too deeply", path=path) from error
    return documents


def _ruamel_error(error: Any, path: Path | str) -> FormatError:
    """Return an error of ruamel.yaml as a FormatError; most have a mark with the line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or error
    line = None if mark is None else mark.line + 1
    return FormatError(f"invalid YAML: {problem}", path=path, line=line)


class _EventReader:
    """Builds the value of one document from the parser's events."""

    def __init__(self, events: Iterator[Any], path: Path | str) -> None:
        self._events = events
        self._path = path
        # the value of each anchor, and how often other anchors are expanded in it
        self._anchors: dict[str, tuple[Any, Counter[str]] | None] = {}
        self._expansions: Counter[str] = Counter()

    def read_value(self, event: Any = None) -> Any:
        """Return the value that begins with this event, or with the next one."""
        from ruamel.yaml import events as kinds

        event = event or next(self._events)
        if isinstance(event, kinds.AliasEvent):
            return self._expand(event)
        anchor: str | None = event.anchor
        before = self._expansions.copy()
        if anchor is not None:
            self._anchors[anchor] = None  # not complete: an alias to it would never end
        value: Any
        if isinstance(event, kinds.ScalarEvent):
            value = self._read_scalar(event)
        elif isinstance(event, kinds.SequenceStartEvent):
            value = []
            while not isinstance(item := next(self._events), kinds.SequenceEndEvent):
                value.append(self.read_value(item))
        else:
            value = {}
            while not isinstance(key_event := next(self._events), kinds.MappingEndEvent):
                key = _hashable(self.read_value(key_event))
                if key in value:
                    raise self._error(f"duplicate mapping key: {key!r}", key_event)
                value[key] = self.read_value()
            if event.tag == f"{_CORE}set":
                value = set(value)
        if anchor is not None:
            self._anchors[anchor] = (value, self._expansions - before)
        return value

    def _expand(self, event: Any) -> Any:
        """Return a copy of an anchor's value, with a limit for how often that happens."""
        if event.anchor not in self._anchors:
            raise self._error(f"unknown anchor {event.anchor!r}", event)
        anchored = self._anchors[event.anchor]
        if anchored is None:
            raise self._error(f"the anchor {event.anchor!r} contains itself", event)
        value, nested = anchored
        self._expansions += Counter({event.anchor: 1}) + nested
        if max(self._expansions.values()) > MAX_ALIAS_EXPANSIONS:
            raise self._error("too many expansions of an alias", event, ALIAS_HINT)
        return deepcopy(value)

    def _read_scalar(self, event: Any) -> Any:
        text: str = event.value
        tag: str | None = event.tag
        if tag is None:  # only a plain scalar is more than a text
            return resolve_scalar(text) if event.style is None else text
        kind = tag.removeprefix(_CORE)
        if kind == tag or kind in {"str", "binary"}:  # an unknown tag is ignored
            return text
        if kind not in _SCALAR_TYPES:
            raise self._error(f"invalid tag '!!{kind}'", event)
        value = resolve_scalar(text)
        if kind == "float" and type(value) is int:
            value = float(value)
        if type(value) is not _SCALAR_TYPES[kind]:
            raise self._error(f"invalid value {text!r} for the tag '!!{kind}'", event)
        return value

    def _error(self, problem: str, event: Any, hint: str = "") -> FormatError:
        line = event.start_mark.line + 1
        return FormatError(f"invalid YAML: {problem}", path=self._path, line=line, hint=hint)


_CORE = "tag:yaml.org,2002:"
_SCALAR_TYPES = {"int": int, "float": float, "bool": bool, "null": type(None)}
_INF = ("inf", "Inf", "INF")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((f"{sign}.{inf}" for sign in ("", "+") for inf in _INF), float("inf")),
    **dict.fromkeys((f"-.{inf}" for inf in _INF), float("-inf")),
}
_INTEGER = re.compile(r"[-+]?(?:(0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+)|[0-9]+)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def resolve_scalar(text: str) -> Any:
    """Return the value of a plain scalar: null, a boolean, a number or the text itself."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    digits = text.replace("_", "")
    if match := _INTEGER.fullmatch(digits):
        return int(digits, 0) if match[1] else int(digits)  # a leading zero is decimal
    return float(digits) if _FLOAT.fullmatch(digits) else text


def _hashable(value: Any) -> Any:
    """Return a value that can be a key: a list becomes a tuple, a mapping a frozen set."""
    if isinstance(value, list):
        return tuple(_hashable(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value).items()
        return frozenset((key, _hashable(field)) for key, field in fields)
    return value


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
        raise _ruamel_error(error, path) from error


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
