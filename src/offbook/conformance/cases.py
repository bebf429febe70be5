"""The cases of a suite: source files, each with an expectation in the same folder.

    sum.py            the source
    sum.expected      the exact standard output; the command succeeds
    divide.py
    divide.error      a part of the message; the command fails

A line of `.error` is a text, or a regular expression after `re:`. Of several lines, one has to be
found. A source that is known to fail says so in one of its first lines: `# @xfail: the reason`. The
settings of a suite have the command of each extension.
"""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING

import msgspec

from offbook.errors import UsageError
from offbook.files import convert, parse_toml, read_text
from offbook.trace.matching import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


EXPECTED, ERROR = ".expected", ".error"
REGEX = "re:"
XFAIL = re.compile(rb"@xfail\b:?[ \t]*(.*)")
XFAIL_LINES = 50
COMMENT_ENDS = ("*/", "-->", "*)", "--}}")


class ConformanceCase(msgspec.Struct, frozen=True):
    """A source file and its expectation; without one, the case fails."""

    name: str
    source: str
    command: tuple[str, ...]
    expected: bytes | None = None
    error: str | None = None
    xfail: str = ""
    problem: str = ""


def find_cases(
    folder: Path, settings: SuiteSettings, name_filter: str = ""
) -> list[ConformanceCase]:
    """Return the cases of a folder and its subfolders, sorted by name.

    The settings have the command of each extension. With one command for all, the extensions are
    those of the files that have an expectation.
    """
    if not folder.is_dir():
        raise UsageError("no such folder", where=str(folder))
    check_filter(name_filter)
    sources, expectations = _list_files(folder, settings)
    refused = [
        f"{stem}{EXPECTED} and {stem.name}{ERROR}"
        for stem, suffixes in sorted(expectations.items())
        if len(suffixes) > 1
    ]
    if refused:
        raise UsageError(
            f"two expectations for one case: {', '.join(refused)}",
            hint="a case either succeeds or fails: remove one of the files",
        )
    cases: list[ConformanceCase] = []
    for path in sources:
        name = path.relative_to(folder).as_posix()
        if matches_filter(name_filter, name):
            suffix = next(iter(expectations.get(path.with_suffix(""), ())), "")
            cases.append(_read_case(path, name, suffix, settings))
    stems = {path.with_suffix("") for path in sources}
    for stem, (suffix, *_) in sorted(expectations.items()):
        name = f"{stem.relative_to(folder).as_posix()}{suffix}"
        if stem not in stems and matches_filter(name_filter, name):
            others = [path.suffix for path in stem.parent.glob(f"{escape(stem.name)}.*")]
            kinds = sorted({*others} - {EXPECTED, ERROR})
            problem = (
                f"no command for {', '.join(kinds)}: --run '{kinds[0]}=COMMAND {{file}}'"
                if kinds
                else "no source file for this expectation"
            )
            cases.append(ConformanceCase(name, str(stem) + suffix, (), problem=problem))
    return sorted(cases, key=lambda case: case.name)


def _list_files(folder: Path, settings: SuiteSettings) -> tuple[list[Path], dict[Path, list[str]]]:
    """Return the source files, and the kinds of expectations by their path without suffix."""
    files: list[Path] = []
    expectations: defaultdict[Path, list[str]] = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") for part in relative.parts):
            continue
        if any(fnmatchcase(relative.as_posix(), pattern) for pattern in settings.exclude):
            continue
        if path.suffix in (EXPECTED, ERROR):
            expectations[path.with_suffix("")].append(path.suffix)
        else:
            files.append(path)
    extensions = {f".{name}" for name in settings.run}
    if "*" in settings.run:
        extensions |= {path.suffix for path in files if path.with_suffix("") in expectations}
    return [path for path in files if path.suffix in extensions], expectations


def _read_case(path: Path, name: str, suffix: str, settings: SuiteSettings) -> ConformanceCase:
    words = settings.command(path.suffix.removeprefix(".")) or []
    command = tuple(word.replace("{file}", str(path)) for word in words)
    found = XFAIL.search(b"\n".join(path.read_bytes().split(b"\n", XFAIL_LINES)[:XFAIL_LINES]))
    reason = found[1].decode("utf-8", "replace").strip() if found else ""
    for end in COMMENT_ENDS:
        reason = reason.removesuffix(end).rstrip()
    if found and not reason:
        raise UsageError("@xfail has no reason", where=str(path), hint="# @xfail: the reason")
    case = ConformanceCase(name, str(path), command, xfail=reason)
    if not suffix:
        beside = f"{path.with_suffix(EXPECTED).name} or {path.with_suffix(ERROR).name}"
        return msgspec.structs.replace(case, problem=f"no expectation: write {beside}")
    target = path.with_suffix(suffix)
    if suffix == EXPECTED:
        return msgspec.structs.replace(case, expected=target.read_bytes())
    spec = target.read_text(encoding="utf-8", errors="replace")
    for number, line in enumerate(spec.splitlines(), 1):
        if line.startswith(REGEX):  # an invalid one is refused before anything runs
            compile_pattern(line.removeprefix(REGEX).strip(), f"{target}:{number}")
    return msgspec.structs.replace(case, error=spec)


def matches_error(spec: str, actual: str) -> bool:
    """Return whether a message matches an `.error` file; an empty file matches every message.

    An invalid regular expression matches nothing.
    """
    lines = [line for line in spec.rstrip().split("\n") if line.strip()]
    return not lines or any(_contains(line, actual) for line in lines)


def _contains(line: str, actual: str) -> bool:
    if not line.startswith(REGEX):
        return line.rstrip("\r") in actual
    try:
        return compile_pattern(line.removeprefix(REGEX).strip()).search(actual) is not None
    except UsageError:
        return False


def matches_filter(name_filter: str, name: str) -> bool:
    """Return whether a filter selects a case: a part of its name, a glob, `re:…`, or `a|b`."""
    if name_filter.startswith(REGEX):
        return _contains(name_filter, name)
    # Of the special characters of fnmatch only `*` and `?`: names have brackets.
    return any(
        fnmatchcase(name, f"*{part.replace('[', '[[]')}*") for part in name_filter.split("|")
    )


def check_filter(name_filter: str) -> None:
    """Raise an error for a filter that is an invalid regular expression."""
    if name_filter.startswith(REGEX):
        compile_pattern(name_filter.removeprefix(REGEX).strip(), "--filter")


# --- Settings of a suite


SETTINGS_FILE = "conformance.toml"
FILE = "{file}"
ANY = "*"  # the command for every extension
EXTENSION = re.compile(r"\.(\w+)=(.*)", re.DOTALL)


class SuiteSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commands by extension, and limits.

    - `run`: the command of each extension, or of `*` for every file that has an expectation.
    - `timeout`: seconds before a case is killed, with all its processes.
    - `max_output`: bytes of output before a case is killed.
    - `exclude`: source files that are not cases, as patterns of paths in the suite.
    """

    run: dict[str, str] = {}
    timeout: float = 30.0
    max_output: int = 8 * 1024 * 1024
    exclude: list[str] = []

    def command(self, extension: str) -> list[str] | None:
        """Return the words of the command for an extension, or None."""
        text = self.run.get(extension, self.run.get(ANY))
        return None if text is None else shlex.split(text)


def read_suite_settings(folder: Path, run: Sequence[str] = ()) -> SuiteSettings:
    """Read the settings of a folder. Commands of the command line come first.

    `run` are commands, each for all files or for one extension: `.js=node {file}`.
    """
    path = folder / SETTINGS_FILE
    settings = SuiteSettings()
    if path.is_file():
        settings = convert(parse_toml(read_text(path), path), SuiteSettings, path=path)
    given = {
        match[1] if (match := EXTENSION.fullmatch(text)) else ANY: match[2] if match else text
        for text in run
    }
    # A command for all files replaces those of the settings.
    commands = given if ANY in given else {**settings.run, **given}
    if not commands:
        raise UsageError(
            "no command to run the cases with",
            where=str(folder),
            hint=f"--run 'python {FILE}', or a table [run] in {path}",
        )
    for extension, text in commands.items():
        where = "--run" if extension in given else f"{path}, run.{extension}"
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"invalid command {text!r}: {error}", where=where) from error
        if not any(FILE in word for word in words):
            raise UsageError(
                f"the command {text!r} does not name the file",
                where=where,
                hint=f"write {FILE} where its path belongs: '{text} {FILE}'",
            )
    for name in ("timeout", "max_output"):
        if getattr(settings, name) <= 0:
            raise UsageError(f"{name} must be greater than 0", where=str(path))
    return msgspec.structs.replace(settings, run=commands)
