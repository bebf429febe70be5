"""Runs a target several times with the same model, and names the first thing that differs.

With a cassette or mocks, or some beside the target, every pass is answered from there; without,
the first pass asks the real model and is recorded, and the others replay that. Each pass has a
folder of its own and another seed for the order of sets. Compared are what was printed, what was
asked and answered, what tools, people and hosts were told, and in which order all of it happened:
on the wire, and in every trace that the target itself writes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.clock import EPOCH
from offbook.determinism.frozen import frozen_environment
from offbook.errors import UsageError
from offbook.runs.commands.command import DEADLINE
from offbook.runs.commands.recording import Done, run_with
from offbook.runs.tracing import tracing
from offbook.sources.cassette.journal import load
from offbook.sources.cassette.normal import Normal, merge_rules, squeeze
from offbook.sources.cassette.replay import Replay
from offbook.sources.mocks.lines import read_mocks
from offbook.sources.mocks.mocks import Mocks
from offbook.sources.recording import Recording
from offbook.trace.events import ERROR, PROCESS_OUTPUT, REPLY, REQUEST
from offbook.trace.reader import read_trace
from offbook.trace.recorder import COLLECTION
from offbook.trace.redaction import Rules

if TYPE_CHECKING:
    from offbook.exchange.source import ModelSource
    from offbook.trace.events import Event

SEEDS = (0, 1, 4242, 31337)
PRINTED: dict[str, str | bool] = {"$TIMESTAMP": False, "$UUID": False, "$DURATION": True}
SHOWN = 100
CONTEXT = 2
EXCHANGES = (REQUEST, REPLY, ERROR)
PAYLOADS = (
    *EXCHANGES,
    *("tool.", "ui.", "host.", "step.", "handoff", "bus.", PROCESS_OUTPUT, "process.result"),
)


class Pass(msgspec.Struct, frozen=True):
    """What one run said and did."""

    number: int
    code: int
    stdout: tuple[str, ...]
    events: tuple[str, ...]

    @property
    def exchanges(self) -> int:
        """How often something was asked of a model, or answered."""
        return sum(event.startswith(EXCHANGES) for event in self.events)


class Divergence(msgspec.Struct, frozen=True):
    """The first thing in which a pass differs from the first one, and what came before it.

    `at` counts from 1; it is 0 for what there is only one of.
    """

    run: int
    what: str
    at: int
    first: str
    other: str
    before: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"at {self.what} {self.at}" if self.at else f"in its {self.what}"
        lines = [f"pass {self.run} differs from pass 1 {place}:"]
        lines += [f"  before: {_cut(one)}" for one in self.before]
        lines += [f"  pass 1: {_cut(self.first)}", f"  pass {self.run}: {_cut(self.other)}"]
        return "\n".join(lines)


class Report(msgspec.Struct, frozen=True):
    """How often a target ran, how it ended, and what differed."""

    runs: int
    code: int
    exchanges: int
    divergences: tuple[Divergence, ...]


class Trial(msgspec.Struct, frozen=True):
    """What is tried: a command, its model, and what is different in each pass and what is not."""

    command: tuple[str, ...]
    cassette: Path | None = None
    live: ModelSource | None = None
    shuffle: bool = True
    freeze: bool = False
    redactions: dict[str, Any] = {}
    deadline: float = DEADLINE


def check_determinism(trial: Trial, runs: int = 2) -> Report:
    """Run a command several times and compare."""
    if runs < 2:  # noqa: PLR2004 - one run agrees with itself
        raise UsageError(f"{runs} runs cannot be compared", hint="at least 2")
    with tempfile.TemporaryDirectory(prefix="offbook-") as name:
        folder = Path(name).resolve()
        passes = [_run_once(trial, number, folder) for number in range(1, runs + 1)]
    found = (_compare(passes[0], other) for other in passes[1:])
    divergences = tuple(one for one in found if one is not None)
    return Report(runs, passes[0].code, passes[0].exchanges, divergences)


def _source(trial: Trial, number: int, folder: Path) -> ModelSource:
    roots = {"WORKSPACE": folder / f"pass{number}"}
    kept = trial.cassette or folder / "recorded.yaml"
    if kept.suffix == ".jsonl":
        return Mocks(read_mocks(kept))
    if trial.cassette is None and number == 1:
        return Recording(trial.live or _Nobody(), kept, roots=roots, redactions=trial.redactions)
    if not len(load(kept)):
        return _Nobody()  # the first pass asked nothing
    return Replay(kept, strict=False, roots=roots, redactions=trial.redactions)


class _Nobody:
    """No model: whoever asks one needs a cassette or a live one."""

    async def reply(self, request: Any, /) -> Any:  # noqa: ARG002 - the protocol's
        raise UsageError(
            "the target asks a model, and there is none",
            hint="give --cassette FILE, or --live to record the first pass",
        )


def _run_once(trial: Trial, number: int, folder: Path) -> Pass:
    work, traces = folder / f"pass{number}", folder / f"traces{number}"
    for made in (work, traces):
        made.mkdir()
    source = _source(trial, number, folder)
    with tracing(traces / "wire.jsonl", subject=trial.command[0]) as hub:
        done = run_with(
            source,
            trial.command,
            hub=hub,
            deadline=trial.deadline,
            echo=False,
            environment={**os.environ, **_environment(trial, number, folder, traces)},
            cwd=work,
            keep=sys.maxsize,
        )
    if isinstance(source, (Recording, Replay)):
        source.close()
    if isinstance(done.failure, UsageError):
        raise done.failure
    return _read_pass(trial, number, done, work, traces)


def _environment(trial: Trial, number: int, folder: Path, traces: Path) -> dict[str, str]:
    seed = SEEDS[(number - 1) % len(SEEDS)] if trial.shuffle else 0
    frozen = frozen_environment(folder / "frozen", EPOCH) if trial.freeze else {}
    return {"PYTHONHASHSEED": str(seed), COLLECTION: str(traces), **frozen}


def _read_pass(trial: Trial, number: int, done: Done, work: Path, traces: Path) -> Pass:
    roots = {"WORKSPACE": work}
    normal = Normal(trial.redactions, roots=roots)
    printed = Normal(merge_rules(Rules(PRINTED), trial.redactions), roots=roots)
    events = [event for path in sorted(traces.iterdir()) for event in read_trace(path)[0]]
    return Pass(
        number,
        done.code,
        tuple(printed.tidy(line) for line in done.output.splitlines()),
        tuple(_tell(normal, event) for event in events),
    )


IGNORED = {"before", "after", "head", "exchange", "metadata", "step", "id"}


def _tell(normal: Normal, event: Event) -> str:
    """An event by its name, and by what it says where that has to be the same."""
    if not event.event.startswith(PAYLOADS):
        return event.event
    data = {name: held for name, held in event.data.items() if name not in IGNORED}
    return f"{event.event} {squeeze(normal.tidy(_dump(data)))}"


def _dump(value: Any) -> str:
    return msgspec.json.Encoder(order="sorted", enc_hook=repr).encode(value).decode()


def _compare(first: Pass, other: Pass) -> Divergence | None:
    for what, told, again in (
        ("event", first.events, other.events),
        ("line of stdout", first.stdout, other.stdout),
    ):
        for at, (one, two) in enumerate(zip_longest(told, again), 1):
            if one != two:
                before = told[max(0, at - 1 - CONTEXT) : at - 1]
                return Divergence(other.number, what, at, *_differing(one, two), before)
    if first.code != other.code:
        return Divergence(other.number, "exit code", 0, str(first.code), str(other.code))
    return None


def _differing(one: str | None, two: str | None) -> tuple[str, str]:
    """The two from where they differ, with a little of what comes before."""
    if one is None or two is None:
        return one or "nothing", two or "nothing"
    ends = min(len(one), len(two))
    same = next((at for at, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), ends)
    begin = max(0, same - SHOWN // 2)
    name = one.partition(" ")[0]
    if begin <= len(name):
        return one, two
    return f"{name} …{one[begin:]}", f"{name} …{two[begin:]}"


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
