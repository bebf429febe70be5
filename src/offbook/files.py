"""Files that people write and read: decoded strictly, written atomically.

An error names the file and the line; an unknown key suggests the nearest right one.

    pack = read_document(Path("pack.yaml"), Pack)   # a msgspec.Struct
    write_atomic(Path("report.json"), text)
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import CodeType, ModuleType, UnionType
from typing import Any, BinaryIO, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.secrets import excerpt

T = TypeVar("T")
MAX_SHOWN = 200  # characters of a path in a message
MAX_FILE_SIZE = 256 * 1024 * 1024
BOM = b"\xef\xbb\xbf"  # some editors write it at the start of a file

# --- paths


def resolve_within(root: Path, relative: str, where: str = "") -> Path:
    """Return a path inside of a folder; raise if it leaves the folder, also by a link."""
    check_relative_path(relative, where)
    try:
        folder = root.resolve()
        path = (folder / relative).resolve()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # from Python 3.13 on, only this notices a loop of links
        hard_linked = is_hard_linked(path)
    except (OSError, RuntimeError) as error:  # too long, locked, or links that form a loop
        shown = excerpt(relative, MAX_SHOWN)
        number = error.errno if isinstance(error, OSError) else None
        reason = os.strerror(number or errno.ELOOP)
        raise UsageError(f"the path {shown!r} cannot be used: {reason}", where=where) from error
    if not path.is_relative_to(folder):
        raise UsageError(f"the path {relative!r} leads out of the workspace", where=where)
    if hard_linked:
        raise UsageError(f"the path {relative!r} is a hard link to another file", where=where)
    return path


def check_relative_path(relative: str, where: str = "") -> None:
    """Raise if a path leads out of the folder that it is relative to."""
    parts = re.split(r"[/\\]", relative)
    if not relative or "\0" in relative or ".." in parts or Path(relative).is_absolute():
        raise UsageError(
            f"the path {relative!r} leads out of the workspace",
            where=where,
            hint="give a relative path without '..'",
        )
    if re.match(r"[A-Za-z]:", relative):
        raise UsageError(f"the path {relative!r} has a drive", hint="give a relative path")


def is_hard_linked(path: Path) -> bool:
    """Return whether a file has a second name, which may be in any folder."""
    return path.is_file() and path.stat().st_nlink > 1


# --- reading


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise FormatError(f"the file is larger than {MAX_FILE_SIZE >> 20} MiB", path=path)
        return path.read_text(encoding="utf-8-sig")  # without the BOM
    except OSError as error:
        reason = error.strerror or str(error)
        raise FormatError(f"cannot be read: {reason}", path=path) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"not a UTF-8 text: {error.reason}", path=path) from error


def parse_json(raw: str | bytes, path: Path | str = "", line: int | None = None) -> Any:
    """Return the value of a JSON document."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise FormatError(f"invalid JSON: {error}", path=path, line=line) from error


def read_lines(path: Path, decode: Callable[[bytes], T], what: str) -> Iterator[T]:
    """Yield each line of a file that a run appends to; `what` names a line in errors."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # the run was killed while it wrote this line
            try:
                yield decode(line)
            except msgspec.MsgspecError as error:
                raise FormatError(f"invalid {what}: {error}", path=path, line=number) from error


def read_document(path: Path, kind: type[T]) -> T:
    """Return a YAML or JSON file as a struct."""
    text = read_text(path)
    if path.suffix == ".json":
        value = parse_json(text, path)
    else:
        from offbook.yaml_files import parse_yaml  # most runs read no YAML

        value = parse_yaml(text, path)
    return convert(value, kind, path=path, text=text)


def convert(
    value: Any,
    kind: type[T],
    *,
    path: Path | str = "",
    text: str = "",
    line: int | None = None,
    at: str = "$",
    line_finder: Callable[[str, str], int | None] | None = None,
) -> T:
    """Return a value as a struct; an error has the location, and the nearest name of a field.

    `text` is the document that the value was read from: it is searched for the line. `at` is the
    location of the value in it. `line_finder` searches a document that is not YAML.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem, location, hint = explain_invalid(error, kind)
        location = at + location.removeprefix("$")
        line = line or ((line_finder or find_line)(text, location) if text else None)
        message = f"{problem} (at {location})" if location != "$" else problem
        raise FormatError(message, path=path, line=line, hint=hint) from error


def explain_invalid(error: msgspec.ValidationError, kind: Any) -> tuple[str, str, str]:
    """Return the problem, its location, and a hint: the nearest field, or the valid values."""
    # msgspec writes "Expected `int`, got `str` - at `$.cases[2].limit`"
    problem, _, location = str(error).partition(" - at ")
    location = location.strip("`") or "$"
    found = _types_at(kind, location)
    hint = ""
    if unknown := re.search(r"unknown field `(.*)`", problem):
        names = [name for each in found for name in getattr(each, "__struct_encode_fields__", ())]
        hint = did_you_mean(unknown[1], names)
        location = f"{location}.{unknown[1]}"
    elif wrong := re.search(r"Invalid enum value '(.*)'", problem):
        values = [str(v) for each in found if get_origin(each) is Literal for v in get_args(each)]
        problem = f"invalid value {wrong[1]!r}"
        close = did_you_mean(wrong[1], values)
        hint = f"expected one of: {', '.join(values)}"
        hint = f"{close} {hint}" if close.startswith("did you mean") else hint
    elif re.match(r"Expected `str.*got `(?:int|float|bool)`", problem):
        hint = "put the value in quotes to make it a text"
    return problem, location, hint


def _types_at(kind: Any, location: str) -> list[Any]:
    """Return the types that a value at a location such as `$.cases[2].name` may have."""
    types = _union_members(kind)
    for key, _ in re.findall(r"\.([^.\[\]]+)|\[([^\]]*)\]", location):
        inner: list[Any] = []
        for each in types:
            if not key:  # an item of a list, or a value of a dict
                inner += [arg for arg in get_args(each)[-1:] if arg is not ...]
                inner += [arg for arg in get_args(each)[:1] if get_args(each)[-1] is ...]
            elif isinstance(each, type) and issubclass(each, msgspec.Struct):
                hints = get_type_hints(each)
                fields = zip(each.__struct_encode_fields__, each.__struct_fields__, strict=True)
                inner += [hints[field] for name, field in fields if name == key]
        types = [member for each in inner for member in _union_members(each)]
    return types


def _union_members(kind: Any) -> list[Any]:
    if get_origin(kind) in {Union, UnionType}:
        return [member for each in get_args(kind) for member in _union_members(each)]
    return [kind]


def find_line(text: str, location: str) -> int | None:
    """Return the line of a location such as `$.cases[2].name` in YAML in block style.

    It follows the indentation, so that it needs no positions from the YAML reader. Where it
    loses track, it returns the line of the last part that it found.
    """
    lines = text.splitlines()
    start, indent, found = 0, -1, None
    for key, index in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]", location):
        if key:
            # the key at a deeper indentation; the dash of a list item counts as indentation
            pattern = re.compile(rf"^((?:\s|- )*)[\"']?{re.escape(key)}[\"']?\s*:")
            for number in range(start, len(lines)):
                match = pattern.match(lines[number])
                if match and len(match[1]) > indent:
                    start, indent = number, len(match[1])
                    break
            else:
                return found
        else:
            # the dash number `index` among those at the indentation of the first one
            dash, count = None, -1
            for number in range(start, len(lines)):
                match = re.match(r"^(\s*)- ", lines[number])
                depth = len(lines[number]) - len(lines[number].lstrip())
                ends = depth < indent or (depth == indent and match is None)
                if number > start and lines[number].strip() and ends:
                    return found  # the list is written on one line
                if match and (dash is None or len(match[1]) == dash):
                    dash = len(match[1])
                    count += 1
                    if count == int(index):
                        start, indent = number, dash
                        break
            else:
                return found
        found = start + 1
    return found


def import_object(reference: str) -> Any:
    """Import the object that MODULE:NAME names."""
    module_name, _, name = reference.partition(":")
    if not module_name or not name:
        raise UsageError(f"expected MODULE:NAME, got {reference!r}", hint="for example shop:agent")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module_name}: {error}",
            where=reference,
            hint="run the command in the folder of the module",
        ) from error
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise UsageError(f"{module_name} has no {name!r}", hint=did_you_mean(name, names))
    return getattr(module, name)


def run_source(module: ModuleType, path: Path) -> None:
    """Execute a Python file in a module, from its source: bytecode on disk may be stale."""
    exec(_compile_source(path.read_bytes(), str(path)), module.__dict__)  # noqa: S102 - as a loader does


# By content: each session of a test run loads its extensions again, and compiling takes most of it.
@functools.lru_cache(maxsize=64)
def _compile_source(source: bytes, path: str) -> CodeType:
    return compile(source, path, "exec")


# --- writing


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Write a file so that readers see the old or the new content, never a part of it.

    With `durable`, the data is on the disk when this returns, even if the machine stops then.
    """
    with _replacement(path, mode) as file:
        file.write(data.encode() if isinstance(data, str) else data)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def copy_atomic(source: Path, target: Path) -> Path:
    """Copy a file with its permissions, atomically as `write_atomic`."""
    from shutil import copyfileobj  # late, as below: `offbook serve` writes no file

    mode = stat.S_IMODE(source.stat().st_mode)
    with source.open("rb") as file, _replacement(target, mode) as copy:
        copyfileobj(file, copy)
    return target


@contextmanager
def _replacement(path: Path, mode: int) -> Generator[BinaryIO]:
    """Yield a temporary file that replaces `path` if the block succeeds."""
    from tempfile import mkstemp

    path.parent.mkdir(parents=True, exist_ok=True)
    # in the same folder: a file can be renamed only within a file system
    handle, name = mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):  # name the file: the error of a full disk does not
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


# --- temporary folders

# The folder is gone, or another process uses it: a mount point, a shell that is still in it.
IGNORED_ERRORS = {errno.EPERM, errno.EBUSY, errno.ENOENT}


def make_temp_folder() -> Path:
    """Create an empty folder for one run."""
    from tempfile import mkdtemp

    return Path(mkdtemp(prefix="offbook-")).resolve()


def remove_temp_folder(path: Path) -> None:
    """Remove a folder, unless it is gone already or in use."""
    from shutil import rmtree

    try:
        rmtree(path)
    except OSError as error:
        if error.errno not in IGNORED_ERRORS:
            raise


class ReusedFolder:
    """A temporary folder for many runs, one after the other. Each gets it empty.

    To create and remove a folder takes longer than a run of a session. An empty folder `cwd` in it
    is kept.
    """

    def __init__(self) -> None:
        self._free: Path | None = None

    def take(self) -> Path:
        """Return the folder; while it is in use, another one."""
        folder, self._free = self._free, None
        return folder or make_temp_folder()

    def give_back(self, folder: Path) -> None:
        """Empty a folder for the next run; remove it if that fails, or if it is not needed."""
        if self._free is None:
            try:
                # Most runs write nothing: listdir() is the fastest way to know it.
                if os.listdir(folder) != ["cwd"] or os.listdir(folder / "cwd"):  # noqa: PTH208
                    _empty(folder)
                self._free = folder
            except OSError:
                self._free = None
        if self._free is None:
            remove_temp_folder(folder)

    def remove(self) -> None:
        """Remove the folder."""
        if self._free is not None:
            remove_temp_folder(self._free)
            self._free = None


def _empty(folder: Path) -> None:
    from shutil import rmtree

    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            rmtree(entry.path)
        else:
            Path(entry.path).unlink()
