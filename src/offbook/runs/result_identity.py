"""The identity of a result: a digest of all that the result depends on. Unknown means changed.

A cache, a resumed run and a comparison use it to decide whether a result still holds. It has two
parts. `IdentityDigest` collects what is known before a run: settings, inputs, files by name.
`watch_used_files` records what a run of Python code turned out to use: the modules of the project
that are loaded, the files and folders that it read. What cannot be followed (another program, a
connection, a real model) is unknown, and such a result is never taken from a cache.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import site
import sys
import sysconfig
import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.machinery import PathFinder, all_suffixes
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from offbook.determinism.environment import read_environment
from offbook.determinism.run_context import watch_audit_events
from offbook.version import VERSION

SKIPPED = {".offbook", ".git", "__pycache__"}  # results of runs, history, and compiled files
# They differ from one terminal to the next, and say nothing about the agent.
VOLATILE = {
    *("PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES", "PYTEST_CURRENT_TEST"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONPYCACHEPREFIX"),
}
# The flags of Python that change what code computes. Whether it writes bytecode is none of them:
# a process that sets PYTHONDONTWRITEBYTECODE for its children has another flag than they have.
FLAGS = (
    *("optimize", "dev_mode", "utf8_mode", "int_max_str_digits", "bytes_warning"),
    *("hash_randomization", "isolated", "ignore_environment", "no_site", "no_user_site"),
    *("safe_path", "warn_default_encoding"),
)
MISSING = "missing"
REAL_MODEL = "the model is a real one"  # a reason why a result is not identified
IMPORTABLE = f"{os.sep}*.py"  # after a folder: what can be imported from it, not all its names
READS = {"open", "os.listdir", "os.scandir"}
WRITES = {"os.mkdir", "os.rename"}
UNKNOWN = {
    "subprocess.Popen": "it starts another program",
    "os.system": "it starts another program",
    "os.exec": "it starts another program",
    "os.posix_spawn": "it starts another program",
    "os.spawn": "it starts another program",
    "os.fork": "it starts another process",
    "socket.connect": "it opens a connection",
    "sqlite3.connect": "it opens a database",
}

_OWN_CODE = str(Path(__file__).parent.parent)
_encode = msgspec.json.Encoder(enc_hook=repr, order="deterministic").encode


class Surroundings:
    """The files, packages and variables around a run, as they are when it starts.

    Each is read once for the identities of all its results.
    """

    def __init__(self) -> None:
        self._files: dict[str, str] = {}  # by their texts: to hash a path takes longer
        self._python: bytes = b""

    def digest_of(self, path: Path) -> str:
        """Return the digest of a file's content; a missing one differs from an empty one."""
        digest = self._files.get(str(path))
        if digest is None:
            digest = self._files[str(path)] = digest_of(path)
        return digest

    @property
    def python(self) -> bytes:
        """A digest of the interpreter, its folder, the installed packages and the environment."""
        if not self._python:
            environment = {k: v for k, v in read_environment().items() if k not in VOLATILE}
            flags = attrgetter(*FLAGS)(sys.flags)
            parts = (sys.version, os.getcwd(), flags, installed_packages(), environment)  # noqa: PTH109 - a text
            self._python = hashlib.sha256(_encode(parts)).digest()
        return self._python


class IdentityDigest:
    """Collects what a result depends on; `unknown` says why that is not all."""

    def __init__(self, surroundings: Surroundings | None = None) -> None:
        self._surroundings = surroundings or Surroundings()
        self._digest = hashlib.sha256()
        self.unknown = ""
        self.add(VERSION)

    @property
    def hex(self) -> str:
        """The digest of all that was added so far."""
        return self._digest.hexdigest()[:32]

    def add(self, *values: Any) -> None:
        """Add values: structs and all that JSON can express."""
        for value in values:
            # With the length before each part, two lists of parts never have the same bytes.
            data = _encode(value)
            self._digest.update(len(data).to_bytes(8, "little") + data)

    def add_unknown(self, reason: str) -> None:
        """Say that the result depends on more than can be named; the first reason is kept."""
        self.unknown = self.unknown or reason

    def add_file(self, path: Path) -> None:
        """Add the content of a file; a missing one differs from an empty one."""
        self.add(self._surroundings.digest_of(path))

    def add_folder(self, folder: Path) -> None:
        """Add the names and contents of all files in a folder."""
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not SKIPPED & set(name.parts):
                self.add(name.as_posix(), self._surroundings.digest_of(path))

    def add_command(self, words: Sequence[str], folder: Path) -> None:
        """Add the files of a command: the program, and the words that are files of a folder.

        What else the program reads is unknown.
        """
        self.add(list(words))
        for number, word in enumerate(words):
            found = shutil.which(word) if number == 0 else None
            path = Path(found) if found else folder / word
            if path.is_file():
                self.add_file(path)
        self.add_unknown("another program may read any file")

    def add_python(self, file: Path | None) -> None:
        """Add a file of Python code, the packages that are installed, and the environment.

        The modules that it imports are known when it has run: see `watch_used_files`.
        """
        if file is not None:
            self.add_file(file)
        self._digest.update(self._surroundings.python)


def digest_of(path: Path | str) -> str:
    """Return the digest of a file's content, or of the names in a folder."""
    try:
        if str(path).endswith(IMPORTABLE):
            return _digest_names(_list_importable(str(path).removesuffix(IMPORTABLE)))
        if os.path.isdir(path):  # noqa: PTH112 - a path of an audit event is a text
            return _digest_names(name for name in os.listdir(path) if name not in SKIPPED)  # noqa: PTH208 - as above
        with open(path, "rb") as file:  # noqa: PTH123 - as above
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return MISSING


def _digest_names(names: Iterable[str]) -> str:
    text = "\0".join(sorted(names))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _list_importable(folder: str) -> Generator[str]:
    """Yield the names of the modules in a folder, and of the folders that have modules."""
    suffixes = tuple(all_suffixes())
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(suffixes):
                yield entry.name
            elif entry.name.isidentifier() and entry.name not in SKIPPED and entry.is_dir():
                with suppress(OSError):
                    if any(name.endswith(suffixes) for name in os.listdir(entry.path)):  # noqa: PTH208 - a text
                        yield entry.name


def _is_import() -> bool:
    """Return whether the import system raised the audit event that is being handled."""
    frame = sys._getframe()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - documented
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_CODE):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")


def find_module_file(module: str) -> Path | None:
    """Return the file of a module without importing it, or None."""
    places: Sequence[str] | None = [os.getcwd(), *sys.path]  # noqa: PTH109 - a text
    spec = None
    for number in range(module.count(".") + 1):
        name = ".".join(module.split(".")[: number + 1])
        spec = PathFinder.find_spec(name, places)
        if spec is None:
            return None
        places = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec is not None and spec.origin else None


@lru_cache(maxsize=1)
def _library_folders() -> tuple[str, ...]:
    """Return the folders of code that is not of the project: they change with a version."""
    paths = sysconfig.get_paths()
    found = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {*site.getsitepackages(), site.getusersitepackages()}
    found.add(str(Path(__file__).parent.parent))  # ourselves
    found |= {os.path.realpath(folder) for folder in found}
    return (*(f"{folder}{os.sep}" for folder in sorted(found)), "/proc/", "/sys/", "/dev/")


def installed_packages() -> list[str]:
    """Return the packages that are installed, with their versions."""
    names: set[str] = set()
    for folder in {sysconfig.get_paths()["purelib"], *site.getsitepackages()}:
        if os.path.isdir(folder):  # noqa: PTH112 - a text
            names.update(name for name in os.listdir(folder) if name.endswith("-info"))  # noqa: PTH208 - as above
    return sorted(names)


class _ProjectModules:
    """The files of the modules of the project that are loaded.

    There are hundreds of modules, so they are looked at again only after one was loaded.
    """

    def __init__(self) -> None:
        self.loaded_one = True  # a module was read from a compiled file
        self._files: list[str] = []
        self._state: object = None

    def find(self) -> list[str]:
        """Return the files."""
        modules = sys.modules
        # A module that is loaded, or loaded again, is the last one.
        state = len(modules), id(modules[next(reversed(modules))])
        if self.loaded_one or state != self._state:
            files = {getattr(module, "__file__", None) for module in list(modules.values())}
            paths = {os.path.abspath(file) for file in files if isinstance(file, str)}  # noqa: PTH100 - a text
            self._files = sorted(p for p in paths if not p.startswith(_library_folders()))
            self._state, self.loaded_one = state, False
        return self._files


_modules = _ProjectModules()


class UsedFiles:
    """The files and folders that code used, each with its digest when it was first read."""

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        self.unknown = ""
        self.written: set[str] = set()
        self._reading = threading.local()

    def observe(self, event: str, args: tuple[Any, ...]) -> None:
        """Note an audit event of Python. It is called before the operation, in any thread."""
        if getattr(self._reading, "now", False):
            return  # our own
        if event in UNKNOWN:
            from offbook.subjects.process import starts_watcher

            if not starts_watcher(event, args):
                self.unknown = self.unknown or UNKNOWN[event]
            return
        self._reading.now = True
        try:
            path = args[1] if event == "os.rename" else args[0]
            if isinstance(path, int):
                return  # an open file: its path was noted before
            path = os.path.abspath(os.fsdecode(path or "."))  # noqa: PTH100 - of a text
            if event in WRITES or (event == "open" and not self._reads(args[1], args[2])):
                self.written.add(path)
            else:
                # An import looks at all names of a folder for those of modules.
                by_import = event == "os.listdir" and _is_import()
                self.add(path + IMPORTABLE if by_import else path)
        except (OSError, TypeError, ValueError):
            self.unknown = self.unknown or f"it used a file that cannot be named: {args[0]!r}"
        finally:
            self._reading.now = False

    def _reads(self, mode: str | None, flags: int) -> bool:
        if mode is not None:
            return "r" in mode or mode.startswith("a+")
        return flags & os.O_ACCMODE != os.O_WRONLY and not flags & (os.O_TRUNC | os.O_EXCL)

    def add(self, path: str) -> None:
        """Note a file or a folder, unless it is of a library or was written before."""
        if path in self.digests or path in self.written or path.startswith(_library_folders()):
            return
        if "__pycache__" in path:
            _modules.loaded_one = True
            return  # the module itself is noted
        self.digests[path] = digest_of(path)

    def add_modules(self) -> None:
        """Note the modules of the project that are loaded."""
        for file in _modules.find():
            self.add(file)


@contextmanager
def watch_used_files(before: UsedFiles | None = None) -> Generator[UsedFiles]:
    """Record the files that code uses inside of the block, in all threads.

    `before` are those that it used when it was imported.
    """
    used = UsedFiles()
    if before is not None:
        used.digests.update(before.digests)
        used.unknown = before.unknown
    _watching.add(used)
    try:
        yield used
    finally:
        _watching.remove(used)
        used.add_modules()


class _Watching:
    """The open blocks of `watch_used_files`.

    The first one adds the handler of audit events for good: to add it for each trial takes longer.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: tuple[UsedFiles, ...] = ()  # replaced, never changed: any thread reads it
        self._started = False

    def add(self, used: UsedFiles) -> None:
        with self._lock:
            self._open = (*self._open, used)
            if not self._started:
                self._started = True
                watch_audit_events({*READS, *WRITES, *UNKNOWN}, self._observe)

    def remove(self, used: UsedFiles) -> None:
        with self._lock:
            self._open = tuple(item for item in self._open if item is not used)

    def _observe(self, event: str, args: tuple[Any, ...]) -> None:
        for used in self._open:
            used.observe(event, args)


_watching = _Watching()


def find_change(digests: Mapping[str, str]) -> str:
    """Return the first file that is not as it was; "" if all are."""
    return next((path for path, digest in digests.items() if digest_of(path) != digest), "")
