"""Files that people write and read: decoded strictly, written atomically.

An error names the file and the line; an unknown key suggests the nearest right one.

    pack = read_document(Path("pack.yaml"), Pack)   # a msgspec.Struct
    write_atomic(Path("report.json"), text)

yaml-rs reads YAML: it is written in Rust, about 40 times as fast as ruamel.yaml, and passes the
public yaml-test-suite. ruamel.yaml edits a person's file (`load_round_trip`). Only this module
imports them. One document a file, no duplicate keys, few aliases. Scalars follow the YAML 1.2 core
schema (`yes` is a text), with `_` between digits and `0b11` also read as numbers.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path
from threading import Lock
from types import CodeType, ModuleType
from typing import (
    Any,
    BinaryIO,
    TypeVar,
    cast,
)

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.options import explain_invalid
from offbook.secrets import excerpt

T = TypeVar("T")
MAX_SHOWN = 200  # characters of a path in a message
MAX_FILE_SIZE = 256 * 1024 * 1024
BOM = b"\xef\xbb\xbf"  # some editors write it at the start of a file

SCHEMAS = Path(".vscode/offbook")  # where `offbook doctor --schemas` puts them for VS Code

# --- paths


def schema_comment(path: Path, kind: str) -> str:
    """Return the line that selects the schema of a YAML file in editors.

    It is empty unless a folder above the file has the schemas: see `offbook doctor --schemas`.
    """
    folder = path.absolute().parent
    for root in (folder, *folder.parents):
        schema = root / SCHEMAS / f"{kind}.json"
        if schema.is_file():
            relative = Path(os.path.relpath(schema, folder)).as_posix()
            return f"# yaml-language-server: $schema={relative}\n"
    return ""


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


def require_file(path: Path, what: str = "file", hint: str = "") -> Path:
    """Return the path of a file, or raise a UsageError with the nearest name."""
    if path.is_file():
        return path
    raise UsageError(f"no such {what}", where=str(path), hint=hint or _nearest_name(path))


def require_folder(path: Path, what: str = "folder", hint: str = "") -> Path:
    """Return the path of a folder, or raise a UsageError with the nearest name."""
    if path.is_dir():
        return path
    raise UsageError(f"no such {what}", where=str(path), hint=hint or _nearest_name(path))


def require_new(path: Path, what: str = "file", hint: str = "remove it first") -> Path:
    """Return a path that does not exist yet, or raise a UsageError."""
    if path.exists():
        raise UsageError(f"the {what} exists already", where=str(path), hint=hint)
    return path


def _nearest_name(path: Path) -> str:
    names = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    hint = did_you_mean(path.name, names)
    return hint if hint.startswith("did you mean") else ""


def read_text(path: Path) -> str:
    """Return the text of a file."""
    try:
        with path.open(encoding="utf-8-sig") as file:  # without the BOM
            # the size of a device or a pipe is not known before
            large = path.stat().st_size > MAX_FILE_SIZE
            text = "" if large else file.read(MAX_FILE_SIZE + 1)
    except OSError as error:
        reason = error.strerror or str(error)
        hint = _suggest_file(path)
        raise FormatError(f"cannot be read: {reason}", path=path, hint=hint) from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise FormatError(
            f"not a UTF-8 text: {error.reason}",
            path=path,
            line=line,
            hint="save the file in the encoding UTF-8",
        ) from error
    if large or len(text) > MAX_FILE_SIZE:
        raise FormatError(f"the file is larger than {MAX_FILE_SIZE >> 20} MiB", path=path)
    return text


def _suggest_file(path: Path) -> str:
    """Return a hint for a path that cannot be read as a file: the files that can."""
    with suppress(OSError):  # a folder that may not be listed
        if path.is_dir():
            files = sorted(child.name for child in path.iterdir() if child.is_file())
            return f"it is a folder; name a file in it: {', '.join(files[:5]) or 'it has none'}"
        if not path.exists():
            return _nearest_name(path) or f"the current folder is {Path.cwd()}"
    return ""


# A line of a mock file begins with one of these keys.
_MOCK_KEYS = {"schemaVersion", "text", "tool_calls", "blocks", "match", "error", "id", "scope"}
_PROGRAMS = {
    ".py": "python",
    ".js": "node",
    ".mjs": "node",
    ".cjs": "node",
    ".ts": "npx tsx",
    ".sh": "bash",
}
# Patterns of this file are compiled when they are used: few commands need one.
# In YAML or JSON: a list whose first item is a turn or a role.
_PLAYBOOK = r"""(\s*(#.*|---.*)?\n)*\s*(\[\s*\{|-\s*\{?)\s*["']?(when|role)["']?\s*:"""
# The keys of a mapping in YAML, the first key of an object in JSON, the names in TOML.
_OUTER_KEY = r"""(?m)^(?:\{\s*|\[\[?)?["']?(\w+)["']?(?:\s*:|\]|\s*=)"""
_HEAD = 64 * 1024  # bytes of a file from which its kind is known


class RecognizedKind(msgspec.Struct, frozen=True):
    """A kind of file, with its article, and the command that uses it."""

    name: str
    command: str


KINDS = {
    "trace": RecognizedKind("a trace", "offbook show {path}"),
    "mocks": RecognizedKind("a mock file", "offbook run --script {path} -- COMMAND"),
    "playbook": RecognizedKind("a playbook", "offbook run --script {path} -- COMMAND"),
    "cassette": RecognizedKind("a cassette", "offbook replay {path} -- COMMAND"),
    "scenario": RecognizedKind("a scenario", "offbook scenario run {path}"),
    "pack": RecognizedKind("an eval pack", "offbook eval run {path}"),
    "test": RecognizedKind("a test file", "pytest {path}"),
    "program": RecognizedKind("a program", "offbook run --script PLAYBOOK -- {program} {path}"),
}


def require_kind(path: Path, *expected: str) -> None:
    """Raise if a file is known to be of another kind of `KINDS`, with the command that uses it."""
    kind = find_kind(path)
    if kind and kind not in expected:
        got = KINDS[kind]
        program = _PROGRAMS.get(path.suffix, "")
        raise FormatError(
            f"expected {KINDS[expected[0]].name}, got {got.name}",
            path=path,
            hint=f"to use {got.name}: {got.command.format(path=path, program=program)}",
        )


def find_kind(path: Path) -> str:
    """Return the key of the kind of a file in `KINDS`, by its name and its beginning, or ""."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8-sig", "replace")
    except OSError:
        return ""
    match path.suffix:
        case ".jsonl":
            return _kind_of_lines(head)
        case ".yaml" | ".yml" | ".json" | ".toml":
            return _kind_of_document(head)
        case ".py" if re.search(r"\bplaybook\b", head):
            return "playbook"
        case ".py" if re.search(r"^\s*(async )?def test_", head, re.MULTILINE):
            return "test"
        case suffix:
            return "program" if suffix in _PROGRAMS else ""


def _kind_of_lines(head: str) -> str:
    line = next((line for line in head.split("\n") if line.strip()), "")
    try:
        keys = msgspec.json.decode(line, type=dict[str, Any]).keys()
    except (msgspec.MsgspecError, RecursionError):
        return ""
    if keys & {"event", "topic"}:
        return "trace"
    return "mocks" if keys & _MOCK_KEYS else ""


def _kind_of_document(head: str) -> str:
    """Return the kind of a document in YAML, JSON or TOML, by its outer keys."""
    if re.match(_PLAYBOOK, head) and re.search(r"""\bdo["']?\s*:""", head):
        return "playbook"
    keys: set[str] = {*re.findall(_OUTER_KEY, head)}
    if head.startswith("{"):
        with suppress(msgspec.MsgspecError, RecursionError):  # a part of a longer file
            keys |= msgspec.json.decode(head, type=dict[str, Any]).keys()
    if "interactions" in keys:
        return "cassette"
    if "cases" in keys:
        return "pack"
    return "scenario" if {"run", "assert"} <= keys else ""


@contextmanager
def parser_limits(path: Path | str, line: int | None = None) -> Generator[None]:
    """Turn the limits of a parser that a file exceeds into an error of this file."""
    try:
        yield
    except FormatError as error:
        if error.path:
            raise
        raise FormatError(error.what, path=path, line=line, hint=error.hint) from error
    except RecursionError as error:
        raise FormatError("nested too deeply", path=path, line=line) from error
    except MemoryError as error:
        raise FormatError("too large for the memory", path=path, line=line) from error
    except ValueError as error:
        if "integer string conversion" not in str(error):
            raise
        raise FormatError("a number has too many digits", path=path, line=line) from error
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        raise FormatError("the key of a mapping is a mapping", path=path, line=line) from error


def parse_json(raw: str | bytes, path: Path | str = "", line: int | None = None) -> Any:
    """Return the value of a JSON document."""
    try:
        with parser_limits(path, line):
            return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise FormatError(f"invalid JSON: {error}", path=path, line=line) from error


def parse_toml(text: str, path: Path) -> dict[str, Any]:
    """Return the value of a TOML document; an error names its line."""
    import tomllib  # most runs read no TOML

    try:
        with parser_limits(path):
            return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        number = str(error).partition("(at line ")[2].partition(",")[0]
        line = int(number) if number.isdigit() else None  # an error at the end has none
        raise FormatError(f"invalid TOML: {error}", path=path, line=line) from error


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[tool.offbook.budget]`: the limits of each test with an agent, and of the whole suite."""

    test: dict[str, Any] = {}
    suite: dict[str, Any] = {}


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[tool.offbook]` in a pyproject.toml. A name that is not one of these is refused."""

    contracts: str | None = None
    evals: tuple[str, ...] = ()
    budget: BudgetSettings = BudgetSettings()


def read_settings(folder: Path) -> tuple[ProjectSettings, Path]:
    """Return the settings in the nearest pyproject.toml, and that file."""
    resolved = folder.resolve()
    for parent in (resolved, *resolved.parents):
        path = parent / "pyproject.toml"
        if path.is_file():
            text = read_text(path)
            if "offbook" not in text:
                return ProjectSettings(), path
            table = parse_toml(text, path).get("tool", {}).get("offbook", {})
            return convert(table, ProjectSettings, path=path, at="$.tool.offbook"), path
    return ProjectSettings(), resolved / "pyproject.toml"


def read_lines(path: Path, decode: Callable[[bytes], T], what: str) -> Iterator[T]:
    """Yield each line of a file that a run appends to; `what` names a line in errors."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return  # the run was killed while it wrote this line
            try:
                with parser_limits(path, number):
                    value = decode(line)
            except msgspec.MsgspecError as error:
                raise FormatError(f"invalid {what}: {error}", path=path, line=number) from error
            yield value


def read_document(path: Path, kind: type[T]) -> T:
    """Return a YAML or JSON file as a struct."""
    text = read_text(path)
    return convert(parse_document(text, path), kind, path=path, text=text)


def parse_document(text: str, path: Path) -> Any:
    """Return the value of a TOML, JSON or YAML file, by its suffix."""
    if path.suffix == ".toml":
        return parse_toml(text, path)
    return parse_json(text, path) if path.suffix == ".json" else parse_yaml(text, path)


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
                match = re.match(r"^(\s*)-(?: |$)", lines[number])
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
    if not module_name or not name or module_name.startswith("."):
        raise UsageError(f"expected MODULE:NAME, got {reference!r}", hint="for example shop:agent")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise UsageError(
            f"cannot import {module_name}: {error}",
            where=reference,
            hint="run the command in the folder of the module",
        ) from error
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"cannot import {module_name}: it raised {type(error).__name__}: {error}",
            where=_find_line(error),
            hint=f"run python -m {module_name}",
        ) from error
    return find_attribute(module, name)


def _find_line(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    from traceback import extract_tb

    # After this file come the frames of the import system, then the module.
    lines = [f for f in extract_tb(error.__traceback__)[1:] if "importlib" not in f.filename]
    return f"{lines[0].filename}:{lines[0].lineno}" if lines else ""


def locate_error(error: BaseException, file: Path) -> str:
    """Return the file, with the line of it in which an error was raised last, if there is one."""
    from traceback import extract_tb

    if isinstance(error, SyntaxError) and error.filename == str(file):
        return f"{file}:{error.lineno}"
    lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(file)]
    return f"{file}:{lines[-1]}" if lines else str(file)


def find_attribute(module: ModuleType, name: str) -> Any:
    """Return an object of a module, or raise a UsageError with the nearest name."""
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise UsageError(f"{module.__name__} has no {name!r}", hint=did_you_mean(name, names))
    return getattr(module, name)


def run_source(module: ModuleType, path: Path) -> None:
    """Execute a Python file in a module, from its source: bytecode on disk may be stale."""
    exec(_compile_source(path.read_bytes(), str(path)), module.__dict__)  # noqa: S102 - as a loader does


# By content: each session of a test run loads its extensions again, and compiling takes most of it.
@functools.lru_cache(maxsize=64)
def _compile_source(source: bytes, path: str) -> CodeType:
    return compile(source, path, "exec")


TOOL_FOLDERS = {"__pycache__", "node_modules", "site-packages"}


def find_own_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files of a user by a glob, sorted: none of a tool, or in a hidden folder."""
    return sorted(
        path
        for path in folder.rglob(pattern)
        if not path.is_dir()
        and not any(
            name.startswith(".") or name in TOOL_FOLDERS
            for name in path.relative_to(folder).parts[:-1]
        )
    )


# --- writing

UMASK_LOCK = Lock()


def write_atomic(path: Path, data: str | bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Write a file so that readers see the old or the new content, never a part of it.

    With `durable`, the data is on the disk when this returns, even if the machine stops then.
    A file that exists gets no further permissions, and a new one only those of the umask.
    """
    try:
        allowed = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        with UMASK_LOCK:  # another thread would read 0o077
            os.umask(umask := os.umask(0o077))  # the only way to read it
        allowed = ~umask
    with _replacement(path, mode & allowed) as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        if durable and stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            os.fsync(file.fileno())


def write_report(path: Path, text: str, session: Any) -> list[str]:
    """Write a file at the end of a pytest session; return why it is not there, and fail the run.

    The summary of the tests is printed even if the disk is full.
    """
    try:
        write_atomic(path, text)
    except OSError as error:
        session.exitstatus = session.exitstatus or 1
        return [f"{path} was not written: {error.strerror}"]
    return []


def copy_atomic(source: Path, target: Path) -> Path:
    """Copy a file with its permissions, atomically as `write_atomic`."""
    from shutil import copyfileobj  # late, as below: `offbook serve` writes no file

    mode = stat.S_IMODE(source.stat().st_mode)
    with source.open("rb") as file, _replacement(target, mode) as copy:
        copyfileobj(file, copy)
    return target


@contextmanager
def _replacement(path: Path, mode: int) -> Generator[BinaryIO]:
    """Yield a temporary file that replaces `path` if the block succeeds.

    A device or a pipe, such as /dev/null, is written itself: it must not become a file.
    """
    from tempfile import mkstemp

    path = path.resolve() if path.is_symlink() else path
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("wb") as file:
            yield file
        return
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


# --- locks
#
# Not filelock: it truncates the file that it locks. Here the lock belongs to the open file itself.

_locked: set[int] = set()  # the open files with a lock of this process


def try_lock(file: int, *, shared: bool = False) -> bool:
    """Lock an open file until `close_locked`; return False if another process has the lock.

    The lock ends with this process, also if it is killed. Raises an OSError on a file system
    without locks.
    """
    import fcntl  # not on Windows

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    _locked.add(file)
    return True


def close_locked(file: int) -> None:
    """Close a file, and release its lock, if it has one."""
    import fcntl

    if file in _locked:
        _locked.remove(file)
        fcntl.flock(file, fcntl.LOCK_UN)  # a fork that has just begun has the file open, too
    os.close(file)


@contextmanager
def wait_for_lock(file: int) -> Generator[None]:
    """Wait for the lock of an open file, and release it at the end of the block."""
    import fcntl

    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)


def _leave_locks() -> None:
    """Leave the locks to the parent of this fork: they must end with it.

    A fork shares an open file with its parent, and with it the lock. Opened again, it is another.
    """
    import fcntl

    for file in _locked:
        with suppress(OSError):
            again = os.open(f"/proc/self/fd/{file}", fcntl.fcntl(file, fcntl.F_GETFL))
            os.dup2(again, file, inheritable=False)
            os.close(again)
    _locked.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_locks)


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


class RunFolder(msgspec.Struct, frozen=True):
    """A temporary folder: the working directory in it, and the place of the trace."""

    root: Path
    cwd: Path
    trace: Path


def make_run_folder() -> RunFolder:
    """Create a temporary folder with an empty working directory."""
    root = make_temp_folder()
    folder = RunFolder(root, root / "cwd", root / "trace.jsonl")
    folder.cwd.mkdir()
    return folder


class ReusedFolder:
    """A temporary folder for many runs, one after the other. Each gets it empty.

    To create and remove a folder takes longer than a run of a session.
    """

    def __init__(self) -> None:
        self._free: RunFolder | None = None

    def take(self) -> RunFolder:
        """Return the folder; while it is in use, another one."""
        folder, self._free = self._free, None
        return folder or make_run_folder()

    def give_back(self, folder: RunFolder) -> None:
        """Empty a folder for the next run; remove it if that fails, or if it is not needed."""
        if self._free is None:
            try:
                # Most runs write nothing: listdir() is the fastest way to know it.
                if os.listdir(folder.root) != ["cwd"] or os.listdir(folder.cwd):  # noqa: PTH208
                    _empty(folder.root)
                    folder.cwd.mkdir()
                self._free = folder
            except OSError:
                self._free = None
        if self._free is None:
            remove_temp_folder(folder.root)

    def remove(self) -> None:
        """Remove the folder."""
        if self._free is not None:
            remove_temp_folder(self._free.root)
            self._free = None


def _empty(folder: Path) -> None:
    from shutil import rmtree

    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            rmtree(entry.path)
        else:
            Path(entry.path).unlink()


# --- reading YAML

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
        if "\t" in text and "tab" in problem:
            rows = enumerate(text.splitlines(), 1)
            line = next((n for n, row in rows if "\t" in row and n >= (line or 1)), line)
            hint = "indent by spaces instead of tabs"
        elif "mapping values are not allowed" in problem:
            hint = 'put a text with ": " in it in quotes, and check the indentation'
        raise FormatError(f"invalid YAML: {problem}", path=path, line=line, hint=hint) from error
    except Exception:
        with parser_limits(path):
            raise


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


# --- editing YAML of a person


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
_LIST_BELOW = r"(?m)^( *)[^\s#-][^\n]*:[ \t]*\n(?:[ \t]*(?:#[^\n]*)?\n)*( *)-( +)\S"
_MAPPING_BELOW = r"(?m)^( *)[^\s#-][^\n]*:[ \t]*\n( +)[^\s#-]"


def _round_trip_editor(text: str) -> Any:
    """Return an editor that writes with the indentation of this text."""
    from ruamel.yaml import YAML

    editor = YAML(typ="rt", pure=True)
    editor.preserve_quotes = True
    editor.width = 1_000_000  # never fold a line that was not folded
    if match := re.search(_LIST_BELOW, text):
        offset = len(match[2]) - len(match[1])
        editor.indent(sequence=offset + 1 + len(match[3]), offset=offset)
    else:
        editor.indent(sequence=4, offset=2)  # as dump_yaml writes
    match = re.search(_MAPPING_BELOW, text)
    if match and len(match[2]) > len(match[1]):
        editor.indent(mapping=len(match[2]) - len(match[1]))
    return editor


# --- writing YAML


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
_UNPRINTABLE = "[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]"
_PLAIN = r"[A-Za-z][A-Za-z_./-]*(?: [A-Za-z_./-]+)*\Z"
# words that some YAML reader takes for something else than a text
_RESERVED = {"true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan", "inf"}


def _scalar(value: Any) -> str:
    if isinstance(value, str) and re.match(_PLAIN, value) and value.lower() not in _RESERVED:
        return value
    if isinstance(value, (dict, list, tuple)) and not value:
        return "{}" if isinstance(value, dict) else "[]"
    encoded = msgspec.json.encode(value).decode()  # JSON is YAML but for these characters
    if re.search(_UNPRINTABLE, encoded) is None:
        return encoded
    return re.sub(_UNPRINTABLE, lambda match: f"\\u{ord(match[0]):04x}", encoded)
