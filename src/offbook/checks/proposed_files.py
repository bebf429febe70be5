"""Proposals of failed checks: the golden as it would have to be, beside the approved one.

A check of requests or of a transcript that fails writes `NAME.yaml.proposed`. `offbook golden
review` accepts or rejects it; a check that passes removes it.
"""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from offbook.checks.pending_changes import FileMove, PendingChange, pending_change
from offbook.checks.snapshot import Snapshot, compare_snapshots, in_ci
from offbook.errors import CheckFailed, UsageError
from offbook.files import write_atomic
from offbook.secrets import hide_secrets

if TYPE_CHECKING:
    from collections.abc import Iterator

UPDATE = "--offbook-update"
SUFFIX = ".proposed"
REVIEW = "offbook golden review"
IGNORED_FOLDERS = {"node_modules", "__pycache__"}  # and those whose name begins with a dot


def write_or_propose(golden: Path, text: str, *, update: bool, missing: str) -> bool:
    """Write a golden if goldens are updated, and return True; else propose it for a review.

    `missing` is the error if there is no golden yet.
    """
    if update:
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
    """Return the fix of a check that fails because its golden has to change."""
    return f"if this is intended: {_update_command()}\nor review it: {REVIEW}"


def _update_command() -> str:
    # pytest sets this variable to the id of the test, for a command that works when pasted.
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    return shlex.join(["pytest", UPDATE, *filter(None, [test])])


def propose(golden: Path, text: str) -> None:
    """Write what a golden would have to be, without secrets; not in CI."""
    if not in_ci():
        with suppress(OSError):  # a folder without write permission: the check fails either way
            write_atomic(_proposal(golden), hide_secrets(text).encode())


def withdraw(golden: Path) -> None:
    """Remove the proposal for a golden: its check passed."""
    with suppress(OSError):
        _proposal(golden).unlink(missing_ok=True)


def list_proposed(root: Path) -> list[PendingChange]:
    """Return the proposals below a folder; a name is the path of the golden in it."""
    changes = [_read(path, root) for path in _find(root)]
    return [change for change in changes if not change.difference.empty]


def _proposal(golden: Path) -> Path:
    return golden.with_name(f"{golden.name}{SUFFIX}")


def _find(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        # in place: os.walk enters those that are left
        folders[:] = sorted(
            name for name in folders if name not in IGNORED_FOLDERS and not name.startswith(".")
        )
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(SUFFIX))


def _read(path: Path, root: Path) -> PendingChange:
    golden = path.with_name(path.name.removesuffix(SUFFIX))
    name = golden.relative_to(root).as_posix()
    before, after = (
        Snapshot({name: each.read_text("utf-8", "replace")} if each.is_file() else {})
        for each in (golden, path)
    )
    moves = [FileMove(str(path), str(golden))]
    return pending_change("golden", name, moves, compare_snapshots(before, after))
