"""The directory of a run: its plan, one line for each result, and a small summary.

    .offbook/evals/20261115-120000-slack/
        run.json         the packs, their hashes and the options
        results.jsonl    one result a line, as they come
        summary.json     the counts, written at the end
        traces/          the traces of subjects that were run

A killed run loses at most the line that it was writing; `--resume` continues it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from offbook.errors import FormatError, UsageError, did_you_mean
from offbook.evals.case_results import CaseResult
from offbook.evals.run_summary import RunSummary
from offbook.files import read_lines, write_atomic
from offbook.secrets import hide_bytes, known_secret_bytes

ROOT = Path(".offbook/evals")
RESULTS = "results.jsonl"
SUMMARY = "summary.json"
PLAN = "run.json"
TRACES = "traces"
CACHE = "cache"
LOCK = "lock"

_decode = msgspec.json.Decoder(CaseResult).decode
_encode = msgspec.json.Encoder(enc_hook=repr).encode


class RunPlan(msgspec.Struct, frozen=True):
    """The settings with which a run was started."""

    id: str
    packs: list[str]
    digests: list[str]
    started: str
    version: str
    options: dict[str, Any] = {}


class RunDirectory:
    """The directory of a run, open for writing: a second writer is refused."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise UsageError(
                "another run is writing to this directory",
                where=str(path),
                hint="wait for its end, or choose another --output",
            ) from error
        _locks.add(self._lock)
        self._file: int | None = None
        self._secrets = known_secret_bytes()

    @property
    def has_results(self) -> bool:
        """True if a run has written results here."""
        return (self.path / RESULTS).exists()

    def begin(self, plan: RunPlan) -> None:
        """Write the plan, and open the results for appending."""
        write_atomic(self.path / PLAN, msgspec.json.format(_encode(plan)), durable=False)
        self._file = os.open(self.path / RESULTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def repair(self) -> int:
        """Remove a torn last line, as a killed run leaves it; return the number of bytes."""
        path = self.path / RESULTS
        size = path.stat().st_size
        with path.open("rb+") as file:
            data = file.read()
            end = data.rfind(b"\n") + 1
            if end < size:
                file.truncate(end)
        return size - end

    def append(self, result: CaseResult) -> None:
        """Write one result with a single call: a killed process loses no earlier one."""
        assert self._file is not None  # noqa: S101 - begin() comes first
        os.write(self._file, hide_bytes(_encode(result), self._secrets) + b"\n")

    def finish(self, summary: RunSummary) -> None:
        """Write the summary."""
        write_atomic(self.path / SUMMARY, msgspec.json.format(_encode(summary)) + b"\n")

    def close(self) -> None:
        """Release the directory."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        _locks.discard(self._lock)
        os.close(self._lock)


_locks: set[int] = set()  # of the open directories


def _close_locks() -> None:
    """Leave the locks to the parent of this fork: its end must release them."""
    for lock in _locks:
        os.close(lock)
    _locks.clear()


os.register_at_fork(after_in_child=_close_locks)


def new_run_id(name: str, now: datetime | None = None) -> str:
    """Return an id that sorts by time: 20261115-120000-123-slack."""
    now = now or datetime.now(UTC)
    slug = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:40]
    return f"{now:%Y%m%d-%H%M%S}-{now.microsecond // 1000:03}-{slug}"


# --- Reading


def read_results(folder: Path) -> Iterator[CaseResult]:
    """Return the results of a run in the order of their lines; a torn last line is skipped."""
    path = folder / RESULTS
    if not path.is_file():
        raise FormatError("no results in this directory", path=folder)
    return read_lines(path, _decode, "result")


def find_results(folder: Path, case: str) -> list[CaseResult]:
    """Return the results of one case, found by the beginning of their lines."""
    path = folder / RESULTS
    if not path.is_file() or not path.stat().st_size:
        return []
    start = b'{"id":' + msgspec.json.encode(case)
    found: list[CaseResult] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        position = data.find(start)
        while position >= 0:
            end = data.find(b"\n", position)
            if end < 0:
                break
            if position == 0 or data[position - 1] == 10:  # noqa: PLR2004 - a line break
                found.append(_decode(data[position:end]))
            position = data.find(start, end)
    return found


def read_summary(folder: Path) -> RunSummary:
    """Return the summary of a run; one that was killed has none."""
    path = folder / SUMMARY
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunSummary)
    except FileNotFoundError as error:
        if (folder / RESULTS).exists():
            hint = f"finish it with: offbook eval run PACK --resume {folder}"
            raise FormatError("the run did not end", path=folder, hint=hint) from error
        raise FormatError("not the directory of a run", path=folder) from error
    except msgspec.MsgspecError as error:
        raise FormatError(f"invalid summary: {error}", path=path) from error


def read_plan(folder: Path) -> RunPlan:
    """Return the plan of a run."""
    try:
        return msgspec.json.decode((folder / PLAN).read_bytes(), type=RunPlan)
    except FileNotFoundError as error:
        raise FormatError("not the directory of a run", path=folder) from error
    except msgspec.MsgspecError as error:
        raise FormatError(f"invalid plan: {error}", path=folder / PLAN) from error


def list_runs(root: Path = ROOT) -> list[Path]:
    """Return the directories of all runs, the latest first."""
    if not root.is_dir():
        return []
    return sorted((path.parent for path in root.glob(f"*/{PLAN}")), reverse=True)


def find_run(name: str, root: Path = ROOT) -> Path:
    """Return the directory of a run: a path, an id, the beginning of one, or `latest`."""
    if Path(name, PLAN).is_file():
        return Path(name)
    runs = list_runs(root)
    if name == "latest" and runs:
        return runs[0]
    matching = [run for run in runs if run.name == name] or [
        run for run in runs if run.name.startswith(name)
    ]
    if len(matching) == 1:
        return matching[0]
    ids: Iterable[str] = [run.name for run in (matching or runs)]
    problem = "several runs begin with" if matching else "no run"
    raise UsageError(f"{problem} {name!r} in {root}", hint=did_you_mean(name, ids))
