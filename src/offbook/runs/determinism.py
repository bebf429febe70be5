"""Runs a target several times with the same model, and names the first thing that differs.

With a cassette, or one beside the target, every pass replays it; without, the first pass asks the
real model and is recorded, and the others replay that. Each pass has a folder of its own and
another seed for the order of sets. Compared are what was printed, what was asked and answered,
what tools, people and hosts were told, and in which order all of it happened.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.errors import UsageError
from offbook.runs.taping import DEADLINE, run_with, tracing
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.normal import Normal, squeeze
from offbook.sources.cassette.replay import Replay
from offbook.sources.recording import Recording
from offbook.trace.events import ERROR, REPLY, REQUEST
from offbook.trace.reader import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.exchange.source import ModelSource
    from offbook.trace.events import Event

SEEDS = (0, 1, 4242, 31337)
RULES = {"patterns": {"$DURATION": True, "number": r"\b\d+\.\d+\b"}}
BESIDE = (".cassette.yaml", ".yaml")
SHOWN = 100
PAYLOADS = ("ui.", "host.", "tool.")


class Pass(msgspec.Struct, frozen=True):
    """What one run said and did."""

    number: int
    code: int
    stdout: tuple[str, ...]
    exchanges: tuple[str, ...]
    payloads: tuple[str, ...]
    events: tuple[str, ...]


class Divergence(msgspec.Struct, frozen=True):
    """The first thing in which a pass differs from the first one."""

    run: int
    what: str
    at: int
    first: str
    other: str

    def __str__(self) -> str:
        lines = (
            f"pass {self.run} differs from pass 1 at {self.what} {self.at}:",
            f"  pass 1: {_cut(self.first)}",
            f"  pass {self.run}: {_cut(self.other)}",
        )
        return "\n".join(lines)


class Report(msgspec.Struct, frozen=True):
    """How often a target ran, and what differed."""

    runs: int
    exchanges: int
    divergences: tuple[Divergence, ...]


def find_command(target: str) -> tuple[list[str], Path | None]:
    """How a target is run, and the cassette beside it."""
    file = Path(target.partition("::")[0])
    if not file.exists():
        raise UsageError(
            "there is no such target", where=target, hint="give a pytest node or a script"
        )
    tested = "::" in target or file.is_dir() or file.name.startswith("test_")
    absolute = str(file.resolve()) + target[len(str(target.partition("::")[0])) :]
    if tested:
        flags = ["-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider"]
        command = [sys.executable, "-m", "pytest", *flags, absolute]
    elif file.suffix == ".py":
        command = [sys.executable, absolute]
    else:
        command = [absolute]
    stem = file.with_suffix("") if file.suffix else file
    fixtures = (stem.with_name(stem.name + ending) for ending in BESIDE)
    return command, next((path for path in fixtures if path.is_file()), None)


def check_determinism(
    command: Sequence[str],
    *,
    cassette: Path | None = None,
    live: ModelSource | None = None,
    runs: int = 2,
    shuffle: bool = True,
    deadline: float = DEADLINE,
) -> Report:
    """Run a command several times and compare."""
    if runs < 2:  # noqa: PLR2004 - one run agrees with itself
        raise UsageError(f"{runs} runs cannot be compared", hint="at least 2")
    with tempfile.TemporaryDirectory(prefix="offbook-") as name:
        folder = Path(name).resolve()
        kept = cassette or folder / "recorded.yaml"
        passes: list[Pass] = []
        for number in range(1, runs + 1):
            seed = SEEDS[(number - 1) % len(SEEDS)] if shuffle else 0
            source = _source(kept, cassette, live, number, folder)
            passes.append(_run_once(command, source, number, seed, folder, deadline))
    found = (_compare(passes[0], other) for other in passes[1:])
    divergences = tuple(one for one in found if one is not None)
    return Report(runs, len(passes[0].exchanges), divergences)


def _source(
    kept: Path, cassette: Path | None, live: ModelSource | None, number: int, folder: Path
) -> ModelSource:
    roots = {"WORKSPACE": folder / f"pass{number}"}
    if cassette is None and number == 1:
        return Recording(live or _Nobody(), kept, roots=roots)
    if not len(load(kept)):
        return _Nobody()  # the first pass asked nothing
    return Replay(kept, strict=False, roots=roots)


class _Nobody:
    """No model: whoever asks one needs a cassette or a live one."""

    async def reply(self, request: Any, /) -> Any:  # noqa: ARG002 - the protocol's
        raise UsageError(
            "the target asks a model, and there is none",
            hint="give --cassette FILE, or --live to record the first pass",
        )


def _run_once(
    command: Sequence[str],
    source: ModelSource,
    number: int,
    seed: int,
    folder: Path,
    deadline: float,
) -> Pass:
    work, trace = folder / f"pass{number}", folder / f"pass{number}.jsonl"
    work.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    with tracing(trace, command[0]) as hub:
        done = run_with(
            source,
            command,
            hub=hub,
            deadline=deadline,
            echo=False,
            environment=environment,
            cwd=work,
        )
    if isinstance(source, (Recording, Replay)):
        source.close()
    if isinstance(done.failure, UsageError):
        raise done.failure
    normal = Normal(RULES, roots={"WORKSPACE": work})
    events, _ = read_trace(trace)
    return Pass(
        number,
        done.code,
        tuple(normal.tidy(line) for line in done.output.splitlines()),
        tuple(_told(normal, events, (REQUEST, REPLY, ERROR))),
        tuple(_told(normal, events, PAYLOADS)),
        tuple(event.event for event in events),
    )


IGNORED = {"before", "after", "head", "exchange", "metadata", "step", "id"}


def _told(normal: Normal, events: Iterable[Event], names: tuple[str, ...]) -> Iterable[str]:
    for event in events:
        if event.event.startswith(names):
            data = {name: held for name, held in event.data.items() if name not in IGNORED}
            yield f"{event.event} {squeeze(normal.tidy(_dump(data)))}"


def _dump(value: Any) -> str:
    return msgspec.json.Encoder(order="sorted", enc_hook=repr).encode(value).decode()


def _compare(first: Pass, other: Pass) -> Divergence | None:
    if first.code != other.code:
        return Divergence(other.number, "the exit code", 1, str(first.code), str(other.code))
    for what, field in (
        ("exchange", "exchanges"),
        ("call", "payloads"),
        ("event", "events"),
        ("line of stdout", "stdout"),
    ):
        pairs = zip_longest(getattr(first, field), getattr(other, field))
        for at, (one, two) in enumerate(pairs, 1):
            if one != two:
                return Divergence(other.number, what, at, *_differing(one, two))
    return None


def _differing(one: str | None, two: str | None) -> tuple[str, str]:
    """The two from where they differ, with a little of what comes before."""
    if one is None or two is None:
        return one or "nothing", two or "nothing"
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), 0)
    begin = max(0, same - SHOWN // 2)
    lead = "…" if begin else ""
    return lead + one[begin:], lead + two[begin:]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
