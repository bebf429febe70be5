"""How a target is run: a test, a script, a scenario, or any program; and the model beside it."""

from __future__ import annotations

import os
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.determinism.clock import EPOCH, frozen_environment
from offbook.errors import UsageError
from offbook.runs.commands import DEADLINE, CommandResult, run_with_source
from offbook.runs.run_files import record_trace
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.normalize import Normalizer, collapse_whitespace, merge_rules
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.mocks.mock_file import read_mocks
from offbook.sources.mocks.mocks import Mocks
from offbook.trace.events import ERROR, PROCESS_OUTPUT, REPLY, REQUEST
from offbook.trace.reader import read_trace
from offbook.trace.recorder import COLLECT_TRACES
from offbook.trace.redaction import RedactionRules

if TYPE_CHECKING:
    from offbook.exchange.model import ModelSource
    from offbook.trace.events import Event


# --- How a target is run: a test, a script, a scenario, or any program; and the model beside it.

SCENARIOS = {".yaml", ".yml", ".json"}
BESIDE = (".cassette.yaml", ".mocks.jsonl")
PYTEST = ("-m", "pytest", "-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider")
OFFBOOK = ("-m", "offbook", "run", "--jobs", "1", "--reports", "reports")


def resolve_target(target: str) -> tuple[list[str], Path | None]:
    """The words that run a target, and the cassette or the mocks beside it."""
    name, colons, test = target.partition("::")
    file = Path(name)
    if not file.exists():
        raise UsageError(
            "there is no such target",
            where=target,
            hint="give a pytest node, a script, a scenario or a program",
        )
    place = str(file.resolve())
    if colons or file.is_dir() or (file.suffix == ".py" and file.name.startswith("test_")):
        command = [sys.executable, *PYTEST, place + colons + test]
    elif file.suffix in SCENARIOS:
        command = [sys.executable, *OFFBOOK, place]
    elif file.suffix == ".py":
        command = [sys.executable, place]
    else:
        command = [place]
    stem = file.with_suffix("") if file.suffix else file
    fixtures = (stem.with_name(stem.name + ending) for ending in BESIDE)
    return command, next((path for path in fixtures if path.is_file()), None)


# --- Runs a target several times with the same model, and names the first thing that differs.

SEEDS = (0, 1, 4242, 31337)
PRINTED: dict[str, str | bool] = {"$TIMESTAMP": False, "$UUID": False, "$DURATION": True}
SHOWN = 100
CONTEXT = 2
EXCHANGES = (REQUEST, REPLY, ERROR)
PAYLOADS = (
    *EXCHANGES,
    *("tool.", "ui.", "host.", "step.", "handoff", "bus.", PROCESS_OUTPUT, "process.result"),
)


class PassResult(msgspec.Struct, frozen=True):
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


class DeterminismReport(msgspec.Struct, frozen=True):
    """How often a target ran, how it ended, and what differed."""

    runs: int
    code: int
    exchanges: int
    divergences: tuple[Divergence, ...]


class DeterminismTrial(msgspec.Struct, frozen=True):
    """What is tried: a command, its model, and what is different in each pass and what is not."""

    command: tuple[str, ...]
    cassette: Path | None = None
    live: ModelSource | None = None
    shuffle: bool = True
    freeze: bool = False
    redactions: dict[str, Any] = {}
    deadline: float = DEADLINE


def check_determinism(trial: DeterminismTrial, runs: int = 2) -> DeterminismReport:
    """Run a command several times and compare."""
    if runs < 2:  # noqa: PLR2004 - one run agrees with itself
        raise UsageError(f"{runs} runs cannot be compared", hint="at least 2")
    with tempfile.TemporaryDirectory(prefix="offbook-") as name:
        folder = Path(name).resolve()
        passes = [_run_once(trial, number, folder) for number in range(1, runs + 1)]
    found = (_compare(passes[0], other) for other in passes[1:])
    divergences = tuple(one for one in found if one is not None)
    return DeterminismReport(runs, passes[0].code, passes[0].exchanges, divergences)


def _source(trial: DeterminismTrial, number: int, folder: Path) -> ModelSource:
    roots = {"WORKSPACE": folder / f"pass{number}"}
    kept = trial.cassette or folder / "recorded.yaml"
    if kept.suffix == ".jsonl":
        return Mocks(read_mocks(kept))
    if trial.cassette is None and number == 1:
        return Recording(trial.live or _Nobody(), kept, roots=roots, redactions=trial.redactions)
    if not len(load_cassette(kept)):
        return _Nobody()  # the first pass asked nothing
    return Cassette(kept, strict=False, roots=roots, redactions=trial.redactions)


class _Nobody:
    """No model: whoever asks one needs a cassette or a live one."""

    async def reply(self, request: Any, /) -> Any:  # noqa: ARG002 - the protocol's
        raise UsageError(
            "the target asks a model, and there is none",
            hint="give --cassette FILE, or --live to record the first pass",
        )


def _run_once(trial: DeterminismTrial, number: int, folder: Path) -> PassResult:
    work, traces = folder / f"pass{number}", folder / f"traces{number}"
    for made in (work, traces):
        made.mkdir()
    source = _source(trial, number, folder)
    with record_trace(traces / "wire.jsonl", subject=trial.command[0]) as hub:
        done = run_with_source(
            source,
            trial.command,
            hub=hub,
            deadline=trial.deadline,
            echo=False,
            environment={**os.environ, **_environment(trial, number, folder, traces)},
            cwd=work,
            keep=sys.maxsize,
        )
    if isinstance(source, (Recording, Cassette)):
        source.close()
    if isinstance(done.failure, UsageError):
        raise done.failure
    return _read_pass(trial, number, done, work, traces)


def _environment(
    trial: DeterminismTrial, number: int, folder: Path, traces: Path
) -> dict[str, str]:
    seed = SEEDS[(number - 1) % len(SEEDS)] if trial.shuffle else 0
    frozen = frozen_environment(folder / "frozen", EPOCH) if trial.freeze else {}
    return {"PYTHONHASHSEED": str(seed), COLLECT_TRACES: str(traces), **frozen}


def _read_pass(
    trial: DeterminismTrial, number: int, done: CommandResult, work: Path, traces: Path
) -> PassResult:
    roots = {"WORKSPACE": work}
    normal = Normalizer(trial.redactions, roots=roots)
    printed = Normalizer(merge_rules(RedactionRules(PRINTED), trial.redactions), roots=roots)
    events = [event for path in sorted(traces.iterdir()) for event in read_trace(path)[0]]
    return PassResult(
        number,
        done.code,
        tuple(printed.clean_text(line) for line in done.output.splitlines()),
        tuple(_tell(normal, event) for event in events),
    )


IGNORED = {"before", "after", "head", "exchange", "metadata", "step", "id"}


def _tell(normal: Normalizer, event: Event) -> str:
    """An event by its name, and by what it says where that has to be the same."""
    if not event.event.startswith(PAYLOADS):
        return event.event
    data = {name: held for name, held in event.data.items() if name not in IGNORED}
    return f"{event.event} {collapse_whitespace(normal.clean_text(_dump(data)))}"


def _dump(value: Any) -> str:
    return msgspec.json.Encoder(order="sorted", enc_hook=repr).encode(value).decode()


def _compare(first: PassResult, other: PassResult) -> Divergence | None:
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
