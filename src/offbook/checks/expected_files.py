"""The store of expected files: snapshots, goldens of requests, golden transcripts.

A check that fails proposes the file as it would have to be, as `FILE.proposed` next to the approved
one; `pytest --offbook-update` writes the approved one instead. A check that passes withdraws its
proposal. In CI nothing is proposed, updated or decided.

    write_or_propose(path, text, missing="there is no golden yet")

A review accepts proposals, which replaces the approved files, or rejects them, which deletes the
proposed ones. Each decision is done as a whole or not at all, and can be undone while the review is
open. A capability adds changes with other files, such as recordings: `pending_change(…)`.

    review = Review(list_proposed(Path.cwd()))
    review.accept(review.changes[0])
    review.undo()

A snapshot is the files of a folder; two of them are compared line by line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import msgspec

from offbook.determinism.run_context import thread_variable
from offbook.errors import CheckFailed, FormatError, UsageError, require_known
from offbook.files import is_hard_linked, write_atomic
from offbook.secrets import hide_secrets

if TYPE_CHECKING:
    from offbook.trace.redaction import Redaction


UPDATE = "--offbook-update"
REVIEW = "offbook review"
SUFFIX = ".proposed"
IGNORED_FOLDERS = {"node_modules", "__pycache__"}  # and those whose name begins with a dot
ALL = "all"
DecisionName = Literal["accepted", "rejected"]
FileContents = dict[Path, bytes | None]  # None: there is no such file

update_goldens = thread_variable("offbook_update")
"""True while `--offbook-update` is given."""


# ------------------------------------------------------------------------------------ proposals


def write_or_propose(golden: Path, text: str, *, missing: str) -> bool:
    """Write an expected file if these are updated, and return True; else propose it for a review.

    Both are written without secrets. `missing` is the error if there is no such file yet.
    """
    text = hide_secrets(text)
    if update_goldens.get():
        if in_ci():  # nothing is approved there
            raise UsageError("goldens are not updated in CI", hint=f"remove {UPDATE}")
        write_atomic(golden, text)
        withdraw(golden)
        return True
    propose(golden, text)
    if not golden.is_file():
        hint = f"write it, then review and commit it: {_update_command()}\nor review it: {REVIEW}"
        raise CheckFailed(missing, where=str(golden), hint=hint)
    return False


def update_hint() -> str:
    """Return the fix of a check that fails because its expected file has to change."""
    return f"if this is intended: {_update_command()}\nor review it: {REVIEW}"


def _update_command() -> str:
    # pytest sets this variable to the id of the test, for a command that works when pasted.
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    return shlex.join(["pytest", UPDATE, *filter(None, [test])])


def proposal_path(golden: Path) -> Path:
    """Return the path of the proposal for an expected file."""
    return golden.with_name(f"{golden.name}{SUFFIX}")


def propose(golden: Path, text: str) -> None:
    """Write what an expected file would have to be; not in CI."""
    if not in_ci():
        with suppress(OSError):  # a folder without write permission: the check fails either way
            write_atomic(proposal_path(golden), text)


def withdraw(golden: Path) -> None:
    """Remove the proposal for an expected file: its check passed."""
    with suppress(OSError):
        proposal_path(golden).unlink(missing_ok=True)


def list_proposed(root: Path) -> list[PendingChange]:
    """Return the proposals below a folder.

    The name of a change is the id of a snapshot, or the path of the expected file in the folder.
    """
    changes: list[PendingChange] = []
    for folder, folders, files in os.walk(root):
        # in place: os.walk enters those that are left
        folders[:] = sorted(
            name for name in folders if name not in IGNORED_FOLDERS and not name.startswith(".")
        )
        for file in sorted(name for name in files if name.endswith(SUFFIX)):
            path = Path(folder, file)
            golden = path.with_name(file.removesuffix(SUFFIX))
            title = golden.relative_to(root).as_posix()
            before, _ = _read_expected(golden, golden, title)
            after, is_snapshot = _read_expected(path, golden, title)
            difference = compare_snapshots(before, after)
            if difference.empty:
                continue
            name = golden.stem if is_snapshot else title
            moves = [FileMove(str(path), str(golden))]
            kind = "snapshot" if is_snapshot else "golden"
            changes.append(pending_change(kind, name, moves, difference))
    return changes


Finder = Callable[[str], "list[PendingChange] | None"]


def list_pending(words: Sequence[str], finders: Iterable[Finder]) -> list[PendingChange]:
    """Return the pending changes that words name: folders, workspaces, or changes of this folder.

    `finders` are those of the capabilities; without words, everything in this folder is listed.
    """
    asked = list(finders)
    changes: list[PendingChange] = []
    here: list[PendingChange] | None = None
    for word in words or (".",):
        found = [pending for find in asked if (pending := find(word)) is not None]
        if Path(word).is_dir():
            changes += list_proposed(Path(word))
        elif not found:
            here = list_pending([], asked) if here is None else here
            found = [[change for change in here if word in {change.name, change.path}]]
            if not found[0]:
                known = [change.name for change in here]
                require_known("no folder and no pending change", word, known)
        changes += [change for pending in found for change in pending]
    return changes


def _read_expected(path: Path, golden: Path, title: str) -> tuple[Snapshot, bool]:
    """Return a stored snapshot, or another file as one of a single file, and which of the two."""
    if not path.is_file():
        return Snapshot(), False
    if golden.suffix == ".json":
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_StoredSnapshot)
            return Snapshot(stored.files), True
        except msgspec.ValidationError:
            pass  # a golden of another kind
        except msgspec.DecodeError as error:
            raise FormatError(f"not a snapshot: {error}", path=path) from error
    return Snapshot({title: path.read_text("utf-8", "replace")}), False


class _StoredSnapshot(msgspec.Struct, forbid_unknown_fields=True):
    files: dict[str, str]


# -------------------------------------------------------------------------------------- changes


class FileMove(NamedTuple):
    """A proposed file and the approved one; without the first, the second is removed."""

    pending: str
    approved: str


class PendingChange(msgspec.Struct, frozen=True):
    """A proposal that awaits a review, with its difference from what is approved.

    `digest` identifies the content that was shown: a decision about another content is refused.
    `check` raises if the change must not be accepted, such as a recording that does not replay.
    """

    kind: str
    name: str
    path: str
    new: bool
    difference: SnapshotDiff
    moves: tuple[FileMove, ...]
    digest: str
    check: Callable[[], None] | None = None


def pending_change(
    kind: str,
    name: str,
    moves: Sequence[FileMove],
    difference: SnapshotDiff,
    check: Callable[[], None] | None = None,
) -> PendingChange:
    """Return the change that these files propose; the last of them is its main file."""
    path, approved = moves[-1]
    is_new = not Path(approved).is_file()
    digest = _digest(_read(_paths(moves)))
    return PendingChange(kind, name, path, is_new, difference, tuple(moves), digest, check)


class Decision(NamedTuple):
    """A decision, the files before it, and the digest of the files after it."""

    change: PendingChange
    name: DecisionName
    before: FileContents
    after: str


class ReviewResult(msgspec.Struct, frozen=True):
    """The paths of the changes that were accepted, rejected and left pending."""

    accepted: list[str]
    rejected: list[str]
    left: list[str]


class Review:
    """Decisions about pending changes."""

    def __init__(self, changes: Sequence[PendingChange]) -> None:
        self.changes = list(changes)
        self.decisions: list[Decision] = []

    @property
    def left(self) -> list[PendingChange]:
        """The changes without a decision."""
        decided = {id(decision.change) for decision in self.decisions}
        return [change for change in self.changes if id(change) not in decided]

    @property
    def result(self) -> ReviewResult:
        """The decisions until now."""
        paths: dict[DecisionName, list[str]] = {"accepted": [], "rejected": []}
        for decision in self.decisions:
            paths[decision.name].append(decision.change.path)
        left = [change.path for change in self.left]
        return ReviewResult(sorted(paths["accepted"]), sorted(paths["rejected"]), left)

    def accept(self, change: PendingChange) -> None:
        """Replace the approved files by the proposed ones."""
        before = self._start(change)
        if change.check is not None:
            change.check()
        with self._decide(change, "accepted", before):
            for pending, approved in change.moves:
                content = before[Path(pending)]
                if content is None:
                    Path(approved).unlink(missing_ok=True)
                else:
                    write_atomic(Path(approved), content)

    def reject(self, change: PendingChange) -> None:
        """Delete the proposed files."""
        with self._decide(change, "rejected", self._start(change)):
            pass

    def undo(self) -> PendingChange | None:
        """Restore the files before the last decision; return its change, or None without one."""
        if not self.decisions:
            return None
        change, _, before, after = self.decisions[-1]
        if _digest(_read(before)) != after:
            raise UsageError(
                f"the files of {change.name} have changed since the decision",
                where=change.moves[-1].approved,
                hint="it cannot be undone",
            )
        _restore(before)
        self.decisions.pop()
        return change

    def decide(self, *, accept: Iterable[str] = (), reject: Iterable[str] = ()) -> ReviewResult:
        """Accept and reject changes by name, by path, or `all`."""
        accepted, rejected = self._select(accept), self._select(reject)
        for change in accepted:
            if change in rejected:
                raise UsageError(f"{change.path} cannot be accepted and rejected")
        for change in accepted:
            self.accept(change)
        for change in rejected:
            self.reject(change)
        return self.result

    def _select(self, words: Iterable[str]) -> list[PendingChange]:
        left = self.left
        selected: list[PendingChange] = []
        for word in words:
            found = [each for each in left if word in {ALL, each.name, each.path}]
            if not found and word != ALL:
                require_known("no pending change", word, [each.name for each in left])
            selected += [each for each in found if each not in selected]
        return selected

    def _start(self, change: PendingChange) -> FileContents:
        """Return the files before a decision, or raise if it is not permitted."""
        if in_ci():
            raise UsageError(
                f"{change.kind}s cannot be approved in CI", hint="review them on your machine"
            )
        contents = _read(_paths(change.moves))
        if _digest(contents) != change.digest:
            raise UsageError(
                f"the {change.kind} {change.name} has changed since it was shown",
                where=change.path,
                hint="start the review again",
            )
        return contents

    @contextmanager
    def _decide(
        self, change: PendingChange, name: DecisionName, before: FileContents
    ) -> Generator[None]:
        """Delete the proposed files after the block, and keep the decision.

        All files are restored if this is interrupted or fails, as on a full disk.
        """
        try:
            yield
            for pending, _ in change.moves:
                Path(pending).unlink(missing_ok=True)
        except BaseException:
            _restore(before)
            raise
        self.decisions.append(Decision(change, name, before, _digest(_read(before))))


def _restore(contents: FileContents) -> None:
    for path, content in contents.items():
        if content is None:
            path.unlink(missing_ok=True)
        else:
            write_atomic(path, content)


def _paths(moves: Iterable[FileMove]) -> Iterator[Path]:
    return (Path(path) for move in moves for path in move)


def _read(paths: Iterable[Path]) -> FileContents:
    return {path: path.read_bytes() if path.is_file() else None for path in paths}


def _digest(contents: FileContents) -> str:
    from hashlib import sha256

    digest = sha256()
    for path, content in contents.items():
        digest.update(f"{path}\0{-1 if content is None else len(content)}\0".encode())
        digest.update(content or b"")
    return digest.hexdigest()


# --- Snapshots


MAX_TEXT_SIZE = 1024 * 1024
CONTEXT_LINES = 3
NO_NEWLINE = "\\ No newline at end of file"
# The limits of FileStates, whose changes go to the trace.
MAX_STATES = 2_000
MAX_STATE_TEXT = 16 * 1024
MAX_STATE_TEXTS = 256 * 1024  # of one call; further files are hashes
FALSE_WORDS = {"", "0", "false", "no"}
# Files that the tools themselves write, or that differ in every run.
ALWAYS_EXCLUDED = (".offbook/**", ".git/**", ".agent/home/**")
OWN_FILES = "own_files"
"""The folder next to that of an agent with the digests of what Offbook itself wrote into it."""


class Snapshot(msgspec.Struct, frozen=True):
    """The texts of files by path; a binary or large file is represented by its digest."""

    files: dict[str, str] = {}


class Hunk(msgspec.Struct, frozen=True):
    """A group of changed lines as in a unified diff, with its line numbers in the newer file."""

    start: int
    end: int
    content: str


class FileDiff(msgspec.Struct, frozen=True):
    """The changes of one file."""

    additions: int
    deletions: int
    hunks: list[Hunk]


class SnapshotDiff(msgspec.Struct, frozen=True):
    """The changes between two snapshots."""

    changed_files: list[str]
    added_files: list[str]
    deleted_files: list[str]
    diffs: dict[str, FileDiff]

    @property
    def empty(self) -> bool:
        """True if the snapshots are the same."""
        return not self.diffs


class FileStates:
    """The files of a folder, and what has changed in them since the last call.

    A text of up to 16 KiB is given as it is, another file as its size and hash. Folders with one of
    the names `skipped`, and files that a pattern of `exclude` matches, are left out. A folder with
    too many files is `truncated`.
    """

    def __init__(
        self, root: Path, skipped: Collection[str] = (), exclude: Sequence[str] = ()
    ) -> None:
        self.truncated = False
        self._root = root
        self._skipped = skipped
        self._exclude = exclude
        self._known: dict[str, tuple[int, int, int]] = {}

    def changes(self) -> tuple[dict[str, str], list[str]]:
        """Return the new and changed files with their texts, and the names of the deleted ones."""
        written: dict[str, str] = {}
        room = MAX_STATE_TEXTS
        with suppress(OSError):  # the agent may remove files meanwhile, or the whole folder
            for name, path in self._find_changed():
                written[name] = _describe(path, min(MAX_STATE_TEXT, room))
                room = max(0, room - len(written[name]))
        # Not seen is not deleted: the list of files may have ended before.
        deleted = sorted(name for name in self._known if not os.path.lexists(self._root / name))
        for name in deleted:
            del self._known[name]
        return written, deleted

    def skip(self) -> None:
        """Leave out the changes until now, without reading a file."""
        with suppress(OSError):
            for _ in self._find_changed():
                pass

    def read(self, name: str) -> str | None:
        """Return the text of a file as `changes` does, or None if there is none."""
        with suppress(OSError):
            if os.path.lexists(path := self._root / name):
                return _describe(path, MAX_STATE_TEXT)
        return None

    def _find_changed(self) -> Iterator[tuple[str, Path]]:
        files = list_files(self._root, exclude=self._exclude, skipped=self._skipped)
        for number, (name, path) in enumerate(files):
            if number == MAX_STATES:
                self.truncated = True
                return
            stat = path.lstat()
            state = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if state != self._known.get(name):
                yield name, path
                self._known[name] = state


def in_ci() -> bool:
    """Return whether the environment variable CI is set: there nothing is approved or updated."""
    return os.environ.get("CI", "").lower() not in FALSE_WORDS


def capture_snapshot(
    root: Path, include: Sequence[str] = (), exclude: Sequence[str] = ()
) -> Snapshot:
    """Read the files of a folder; a link is stored as a link and never followed."""
    return Snapshot({name: _describe(path) for name, path in list_files(root, include, exclude)})


def list_files(
    root: Path,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    skipped: Collection[str] = (),
) -> Iterator[tuple[str, Path]]:
    """Yield the relative name and the path of each selected file in a folder.

    `*` matches within a folder, `**` across folders; a pattern without a slash matches at any
    depth. Folders with one of the names `skipped` are not entered. A file that Offbook itself wrote
    into the folder is left out, unless it was changed since.
    """
    own = root.parent / OWN_FILES
    has_own = own.is_dir()
    excluded = [_compile_glob(pattern) for pattern in (*ALWAYS_EXCLUDED, *exclude)]
    included = [_compile_glob(pattern) for pattern in include]
    for path in _walk(root, skipped):
        name = path.relative_to(root).as_posix()
        if included and not any(pattern.match(name) for pattern in included):
            continue
        if any(pattern.match(name) for pattern in excluded):
            continue
        if not (has_own and _is_unchanged(path, own / name)):
            yield name, path


@contextmanager
def write_own_files(root: Path, *paths: Path) -> Generator[None]:
    """Note that Offbook writes these files in the folder of an agent inside the block.

    Snapshots leave them out: inside always, and afterwards until the agent changes them.
    """
    own, folder = root.parent / OWN_FILES, root.resolve()
    notes = {path: own / path.resolve().relative_to(folder) for path in paths}
    for note in notes.values():
        write_atomic(note, "", durable=False)
    try:
        yield
    finally:
        for path, note in notes.items():
            if path.is_file():
                write_atomic(note, _file_digest(path), durable=False)
            else:
                note.unlink(missing_ok=True)


def _is_unchanged(path: Path, note: Path) -> bool:
    """Return whether a file is as Offbook wrote it, or is being written."""
    if path.is_symlink() or not path.is_file() or not note.is_file():
        return False
    return note.read_text() in {"", _file_digest(path)}


def _file_digest(path: Path) -> str:
    from hashlib import file_digest  # late: most files are small texts

    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def read_small_text(path: Path, max_size: int = MAX_TEXT_SIZE) -> str | None:
    """Return the text of a file, or None if it is binary, large, a link or a hard link."""
    # A link could point at a file outside of the folder, such as a key in the home directory.
    if path.is_symlink() or not path.is_file() or is_hard_linked(path):
        return None
    if path.stat().st_size > max_size:
        return None
    try:
        return path.read_bytes().decode()
    except UnicodeDecodeError:
        return None


def redact_snapshot(snapshot: Snapshot, redaction: Redaction) -> Snapshot:
    """Return the snapshot with redacted texts."""
    redacted = cast("dict[str, Any] | str", redaction.value({"files": snapshot.files}))
    files = redacted if isinstance(redacted, str) else redacted["files"]
    if isinstance(files, str):  # a path such as `$..*` matches more than the texts
        raise UsageError(
            "a redaction path replaces the whole snapshot", hint="paths: [\"$.files['a.txt']\"]"
        )
    return Snapshot({name: str(text) for name, text in files.items()})


def compare_snapshots(before: Snapshot, after: Snapshot) -> SnapshotDiff:
    """Return the changes from one snapshot to the other."""
    old, new = before.files, after.files
    changed = sorted(name for name in old.keys() & new.keys() if old[name] != new[name])
    added, deleted = sorted(new.keys() - old.keys()), sorted(old.keys() - new.keys())
    names = sorted((*changed, *added, *deleted))
    diffs = {name: diff_texts(old.get(name, ""), new.get(name, "")) for name in names}
    return SnapshotDiff(changed, added, deleted, diffs)


def diff_texts(old: str, new: str) -> FileDiff:
    """Return the changes from one text to the other as a unified diff."""
    from offbook.trace.matching import align_runs  # for differences only

    before, after = split_lines(old), split_lines(new)
    line_end = f"\n{NO_NEWLINE}\n" if old.endswith("\n") != new.endswith("\n") else "\n"
    hunks: list[Hunk] = []
    additions = deletions = 0
    lines: list[str] = []
    start = 0
    runs = align_runs(before, after)

    def end_hunk(end: int) -> None:
        text = "".join(line if line.endswith("\n") else f"{line}{line_end}" for line in lines)
        hunks.append(Hunk(start + 1, end, text.removesuffix("\n")))
        lines.clear()

    for number, (equal, a, b, c, d) in enumerate(runs):
        if not equal:
            if not lines:  # the first of a hunk: with the lines before it
                shown = min(CONTEXT_LINES, a)
                start = c - shown
                lines += [f" {line}" for line in before[a - shown : a]]
            lines += [f"-{line}" for line in before[a:b]] + [f"+{line}" for line in after[c:d]]
            deletions += b - a
            additions += d - c
            if number == len(runs) - 1:
                end_hunk(d)
        elif lines:
            joins = b - a <= 2 * CONTEXT_LINES and number < len(runs) - 1
            shown = b - a if joins else min(CONTEXT_LINES, b - a)
            lines += [f" {line}" for line in before[a : a + shown]]
            if not joins:
                end_hunk(c + shown)
    return FileDiff(additions, deletions, hunks)


def split_lines(text: str) -> list[str]:
    """Split a text at line feeds only, as git does; `str.splitlines` knows ten more separators."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def _walk(root: Path, skipped: Collection[str]) -> Iterator[Path]:
    for path in sorted(root.iterdir()):
        if path.is_dir() and not path.is_symlink():
            if path.name not in skipped:
                yield from _walk(path, skipped)
        else:
            yield path


def _describe(path: Path, max_size: int = MAX_TEXT_SIZE) -> str:
    if path.is_symlink():
        return f"link to {path.readlink()}"
    if not path.is_file():
        return "no file"
    if (text := read_small_text(path, max_size)) is not None:
        return text
    size = path.stat().st_size
    digest = _file_digest(path)
    kind = "hard link" if is_hard_linked(path) else "binary" if size <= max_size else "large"
    return f"{kind}, {size} bytes, sha256 {digest}"


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    # glob.translate does this from Python 3.13 on.
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern if "/" in pattern else f"**/{pattern}")
    wildcards = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(wildcards.get(part, re.escape(part)) for part in parts) + r"\Z")
