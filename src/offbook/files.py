"""Files that people write and read: understood strictly, written whole or not at all.

The door of yaml-rs. An error names the file and the line; an unknown key names the nearest right
one; a document that unfolds into far more than it holds is refused.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, TypeVar, cast, get_type_hints

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean

T = TypeVar("T")
MAX_ALIAS_EXPANSIONS = 100
MAX_FILE_SIZE = 256 * 1024 * 1024
BOM = b"\xef\xbb\xbf"  # that some editors put before a text


def resolve_within(root: Path, relative: str, where: str = "") -> Path:
    """A path inside of a folder, or an error: no way leads out of it, not even a link's."""
    check_relative_path(relative, where)
    home = root.resolve()
    place = (home / relative).resolve()
    if not place.is_relative_to(home):
        raise UsageError(f"the path {relative!r} leads out of the workspace", where=where)
    if is_hard_linked(place):
        raise UsageError(f"the path {relative!r} is a hard link to a file elsewhere", where=where)
    return place


def check_relative_path(relative: str, where: str = "") -> None:
    """Refuse a path that leads out of whatever folder it is in."""
    parts = re.split(r"[/\\]", relative)
    if not relative or "\0" in relative or ".." in parts or Path(relative).is_absolute():
        raise UsageError(
            f"the path {relative!r} leads out of the workspace",
            where=where,
            hint="give a relative path without '..'",
        )
    if re.match(r"[A-Za-z]:", relative):
        raise UsageError(f"the path {relative!r} names a drive", hint="give a relative path")


def is_hard_linked(path: Path) -> bool:
    """Whether a file has another name, which may be elsewhere."""
    return path.is_file() and path.stat().st_nlink > 1


def read_text(path: Path) -> str:
    """A file's text."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise FormatError(f"the file is larger than {MAX_FILE_SIZE >> 20} MiB", path=path)
        return path.read_text(encoding="utf-8-sig")  # some editors put a mark before a text
    except OSError as error:
        why = error.strerror or str(error)
        raise FormatError(f"cannot be read: {why}", path=path) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"not a UTF-8 text: {error.reason}", path=path) from error


def parse_yaml(text: str, path: Path | str = "") -> Any:
    """A YAML document, and no more than one: no tags, no duplicate keys, few aliases."""
    import yaml_rs

    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise FormatError(
            "there is a sign in it that no text may have", path=path, line=line, hint='write "\\0"'
        )
    limits = yaml_rs.AliasLimits(max_alias_expansions_per_anchor=MAX_ALIAS_EXPANSIONS)
    try:
        value = yaml_rs.loads(text, alias_limits=limits, parse_datetime=False)
        several = _line_of_second(text) if "---" in text else None
        if several is not None:
            value = _take_only(cast("list[Any]", value), path, several)
        return _merge(value) if "<<" in text else value
    except yaml_rs.YAMLDecodeError as error:
        told = str(error)
        found = re.search(r"line (\d+)", told)
        line = int(found[1]) if found else _line_of_duplicate(told, text)
        hint = ""
        if line is None and "alias" in told:
            line = _line_of_alias(text)
            hint = "write out what its aliases (*name) stand for: they grow too large"
        what = told.strip().splitlines()[-1].strip()
        told_so = f"this is not good YAML: {what}"
        raise FormatError(told_so, path=path, line=line, hint=hint) from error


def _line_of_second(text: str) -> int | None:
    """The line that begins a second document."""
    begun = False
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"---(\s|$)", line) and begun:
            return number
        begun = begun or re.match(r"---(\s|$)|\s*[^\s#%]", line) is not None
    return None


def _take_only(documents: list[Any], path: Path | str, line: int) -> Any:
    """The one document that says something; several are refused, so that none is lost."""
    said = [document for document in documents if document is not None]
    if len(said) > 1:
        raise FormatError(
            f"{len(said)} YAML documents, where there should be one",
            path=path,
            line=line,
            hint="leave the --- out, or put each into a file of its own",
        )
    return said[0] if said else None


def _merge(value: Any) -> Any:
    """A value whose merge keys (`<<: *base`) are followed; what stands beside one goes before."""
    if isinstance(value, list):
        return [_merge(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    fields = {key: _merge(held) for key, held in cast("dict[Any, Any]", value).items()}
    bases = fields.pop("<<", {})
    merged: dict[Any, Any] = {}
    for base in reversed(cast("list[Any]", bases) if isinstance(bases, list) else [bases]):
        merged |= base if isinstance(base, dict) else {"<<": base}
    return {**merged, **fields}


def _line_of_alias(text: str) -> int | None:
    """The first line that uses an alias."""
    lines = enumerate(text.splitlines(), 1)
    return next((at for at, line in lines if re.search(r"(?:^|[\s,\[{:])\*\w", line)), None)


def _line_of_duplicate(told: str, text: str) -> int | None:
    found = re.search(r"duplicate mapping key: '(.*)'", told)
    if not found:
        return None
    key = re.compile(rf"^[ -]*[\"']?{re.escape(found[1])}[\"']?\s*:")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if key.match(line)]
    return lines[1] if len(lines) > 1 else None


def parse_json(raw: str | bytes, path: Path | str = "", line: int | None = None) -> Any:
    """A JSON document."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise FormatError(f"this is not good JSON: {error}", path=path, line=line) from error


def read_document(path: Path, kind: type[T]) -> T:
    """A YAML or JSON file as a struct; what does not fit is an error with its line."""
    text = read_text(path)
    value = parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)
    return convert(value, kind, path=path, text=text)


def convert(
    value: Any, kind: type[T], *, path: Path | str = "", text: str = "", line: int | None = None
) -> T:
    """A value as a struct; what does not fit is an error with its place and the nearest name."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        place = place.strip("`")
        unknown = re.search(r"unknown field `(.*)`", what)
        hint = did_you_mean(unknown[1], _fields(kind)) if unknown else ""
        if re.match(r"Expected `str.*got `(?:int|float|bool)`", what):
            hint = "put it in quotes, so that it is a text"
        if unknown and text:
            place = f"{place or '$'}.{unknown[1]}"
        at = line or (find_line(text, place) if text else None)
        shown = f"{what} (at {place})" if place else what
        raise FormatError(shown, path=path, line=at, hint=hint) from error


def _fields(kind: Any) -> set[str]:
    """All field names that a struct and the structs in it know."""
    found: set[str] = set()
    waiting: list[Any] = [kind]
    seen: set[Any] = set()
    while waiting:
        one = waiting.pop()
        arguments = cast("tuple[Any, ...]", getattr(one, "__args__", ()))
        waiting.extend(arguments)
        if isinstance(one, type) and issubclass(one, msgspec.Struct) and one not in seen:
            seen.add(one)
            found.update(one.__struct_encode_fields__)
            waiting.extend(get_type_hints(one).values())
    return found


def find_line(text: str, place: str) -> int | None:
    """The line of a place such as `$.cases[2].name` in a document written in block style."""
    lines = text.splitlines()
    at, indent, found = 0, -1, None
    for part in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", place):
        key, index = part
        step = _find_key(lines, at, indent, key) if key else _find_item(lines, at, int(index))
        if step is None:
            return found
        at, indent = step
        found = at + 1
    return found


def _find_key(lines: list[str], at: int, indent: int, key: str) -> tuple[int, int] | None:
    pattern = re.compile(rf"^((?:\s|- )*)[\"']?{re.escape(key)}[\"']?\s*:")
    for number in range(at, len(lines)):
        match = pattern.match(lines[number])
        if match and len(match[1]) > indent:
            return number, len(match[1])
    return None


def _find_item(lines: list[str], at: int, index: int) -> tuple[int, int] | None:
    dash: int | None = None
    seen = -1
    for number in range(at, len(lines)):
        match = re.match(r"^(\s*)- ", lines[number])
        if match and (dash is None or len(match[1]) == dash):
            dash = len(match[1])
            seen += 1
            if seen == index:
                return number, dash
    return None


def run_source(module: ModuleType, path: Path) -> None:
    """Run a Python file as this module: as it is now, never as old bytecode has it."""
    exec(compile(path.read_bytes(), path, "exec"), module.__dict__)  # noqa: S102 - that is what a loader does


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644, lasting: bool = True) -> None:
    """Write a file so that it is there whole or not at all, whatever happens meanwhile.

    What is `lasting` is on the disk, too, before this is over: even if the machine stops then.
    """
    with _making(path, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)
        if lasting:
            file.flush()
            os.fsync(file.fileno())


def copy_atomic(source: Path, target: Path) -> Path:
    """Copy a file, with its rights, so that nobody ever sees half of it."""
    mode = stat.S_IMODE(source.stat().st_mode)
    with source.open("rb") as file, _making(target, mode) as copy:
        shutil.copyfileobj(file, copy)
    return target


@contextmanager
def _making(path: Path, mode: int) -> Generator[BinaryIO]:
    """A file that takes its place when it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def dump_yaml(value: Any, indent: int = 0) -> str:
    """A value as YAML that people can read and edit: long texts as blocks, short ones quoted."""
    pad = " " * indent
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        return "".join(f"{pad}{_scalar(k)}:{_held(v, indent)}" for k, v in fields.items())
    if isinstance(value, (list, tuple)):
        items = cast("list[Any]", value)
        return "".join(f"{pad}-{_item(item, indent)}" for item in items)
    return f"{pad}{_scalar(value)}\n"


def _held(value: Any, indent: int) -> str:
    if isinstance(value, (dict, list, tuple)) and value:
        return f"\n{dump_yaml(value, indent + 2)}"
    return _inline(value, indent + 2)


def _item(value: Any, indent: int) -> str:
    if isinstance(value, (dict, list, tuple)) and value:
        return f" {dump_yaml(value, indent + 2).lstrip(' ')}"
    return _inline(value, indent + 2)


def _inline(value: Any, indent: int) -> str:
    if isinstance(value, str) and _is_block(value):
        keep = (
            "+" if value.endswith("\n\n") or value == "\n" else "" if value.endswith("\n") else "-"
        )
        pad = " " * indent
        body = value.removesuffix("\n")
        lines = "\n".join(f"{pad}{line}" if line else "" for line in body.split("\n"))
        return f" |{keep}\n{lines}\n"
    return f" {_scalar(value)}\n"


def _is_block(text: str) -> bool:
    """Whether a text can stand as it is, line by line."""
    return (
        "\n" in text
        and not text.startswith((" ", "\n", "\t"))
        and all(sign == "\n" or sign.isprintable() for sign in text)
        and not any(line.endswith((" ", "\t")) for line in text.split("\n"))
    )


_PLAIN = re.compile(r"[A-Za-z][A-Za-z_./-]*(?: [A-Za-z_./-]+)*\Z")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"}


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    if isinstance(value, (dict, list, tuple)) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    return msgspec.json.encode(value).decode()
