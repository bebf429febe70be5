"""A check that a target is deterministic: run it several times with the same model and compare.

With a cassette or mocks, given or next to the target, every pass is answered from there. Otherwise
the first pass is recorded from the real model and the others replay it. Each pass has its own
folder and another hash seed, which changes the order of sets. The output, the requests and
responses, the events of tools, UI and hosts and the order of all events are compared, on the wire
and in every trace that the target itself writes.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from offbook.checks.comparison import without_repeated_executions
from offbook.determinism.frozen_time import frozen_environment
from offbook.determinism.run_context import EPOCH
from offbook.errors import DeadlineExceeded, Interrupted, UsageError
from offbook.runs.agents import ANY_EXIT_CODE, NoModel
from offbook.runs.commands import DEADLINE, run_command
from offbook.secrets import excerpt, outgoing
from offbook.sources.cassette.format import Normalizer, collapse_whitespace, merge_rules
from offbook.sources.cassette.journal import load_cassette
from offbook.sources.cassette.mismatch import find_differences
from offbook.sources.cassette.recording import Recording
from offbook.sources.cassette.replay import Cassette
from offbook.sources.mocks.mock_file import read_mocks
from offbook.sources.mocks.mocks import Mocks
from offbook.trace.events import ERROR, PROCESS_OUTPUT, REPLY, REQUEST, TAPE
from offbook.trace.matching import split_words
from offbook.trace.reader import read_trace
from offbook.trace.recorder import COLLECT_TRACES
from offbook.trace.redaction import Redaction, RedactionRules, suggest_redactions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from offbook.exchange.model import ModelSource
    from offbook.trace.events import Event

HASH_SEEDS = (0, 1, 4242, 31337)
# Redactions of printed lines: values that differ in every pass and matter to no test.
OUTPUT_REDACTIONS: dict[str, str | bool] = {
    "$TIMESTAMP": False,
    "$UUID": False,
    "$DURATION": True,
}
MAX_SHOWN = 100
CONTEXT_EVENTS = 2
TIMES = {"timestamps", "dates", "times", "epochs"}  # descriptions of redactions
MODEL_EVENTS = (REQUEST, REPLY, ERROR)
# Events whose data is compared; of all others, only the name.
COMPARED_EVENTS = (
    *MODEL_EVENTS,
    *("tool.", "ui.", "host.", "step.", "handoff", "bus.", PROCESS_OUTPUT, "process.result"),
)
IGNORED_FIELDS = {"before", "after", "exchange", "metadata", "step", "id", "ms"}
SCENARIO_SUFFIXES = {".yaml", ".yml", ".json"}
FIXTURE_SUFFIXES = (".cassette.yaml", ".mocks.jsonl", ".llm-mock.jsonl")  # the last of Harn
PYTEST = ("-m", "pytest", "-q", "--no-header", "-p", "no:randomly", "-p", "no:cacheprovider")
RUN_SCENARIO = ("-m", "offbook", "scenario", "run", "--jobs", "1", "--reports", "reports")


class PassResult(msgspec.Struct, frozen=True):
    """The output and the events of one pass, normalized for comparison."""

    number: int
    exit_code: int
    stdout: tuple[str, ...]
    events: tuple[str, ...]


class Divergence(msgspec.Struct, frozen=True):
    """The first difference between a pass and the first pass, and the events before it.

    `at` is the number of the event or line, from 1; it is 0 for an exit code.
    """

    run: int
    what: str
    at: int
    first: str
    other: str
    before: tuple[str, ...] = ()
    cause: str = ""

    def __str__(self) -> str:
        position = f"at {self.what} {self.at}" if self.at else f"in its {self.what}"
        lines = [f"pass {self.run} differs from pass 1 {position}:"]
        lines += [f"  before: {excerpt(event, MAX_SHOWN)}" for event in self.before]
        lines.append(f"  pass 1: {excerpt(self.first, MAX_SHOWN)}")
        lines.append(f"  pass {self.run}: {excerpt(self.other, MAX_SHOWN)}")
        lines += [f"  cause: {self.cause}"] if self.cause else []
        return "\n".join(lines)


class DeterminismReport(msgspec.Struct, frozen=True):
    """The number of passes, their exit code, and the differences."""

    runs: int
    code: int
    exchanges: int
    divergences: tuple[Divergence, ...]


class DeterminismTrial(msgspec.Struct, frozen=True):
    """A command, its model, and the conditions of the passes."""

    command: tuple[str, ...]
    cassette: Path | None = None
    live: ModelSource | None = None
    shuffle: bool = True
    freeze: bool = False
    redactions: dict[str, Any] = {}
    deadline: float = DEADLINE


def resolve_target(target: str) -> tuple[list[str], Path | None]:
    """Return the command that runs a target, and the cassette or mocks next to it.

    A target is a pytest node, a folder of tests, a script, a scenario file, or a program.
    """
    name, separator, test = target.partition("::")
    file = Path(name)
    if not file.exists():
        raise UsageError(
            "target not found",
            where=target,
            hint="pass a pytest node, a script, a scenario or a program",
        )
    path = str(file.resolve())
    if separator or file.is_dir() or (file.suffix == ".py" and file.name.startswith("test_")):
        command = [sys.executable, *PYTEST, path + separator + test]
    elif file.suffix in SCENARIO_SUFFIXES:
        command = [sys.executable, *RUN_SCENARIO, path]
    elif file.suffix == ".py":
        command = [sys.executable, path]
    else:
        command = [path]
    stem = file.with_suffix("") if file.suffix else file
    fixtures = (stem.with_name(stem.name + suffix) for suffix in FIXTURE_SUFFIXES)
    return command, next((fixture for fixture in fixtures if fixture.is_file()), None)


def check_determinism(trial: DeterminismTrial, runs: int = 2) -> DeterminismReport:
    """Run a command several times and compare the passes."""
    if runs < 2:  # noqa: PLR2004 - a comparison needs two
        raise UsageError(f"cannot compare {runs} runs", hint="at least 2 runs are needed")
    with tempfile.TemporaryDirectory(prefix="offbook-") as name:
        folder = Path(name).resolve()
        first, *others = [_run_pass(trial, number, folder) for number in range(1, runs + 1)]
    comparisons = (_compare(first, other) for other in others)
    divergences = tuple(divergence for divergence in comparisons if divergence is not None)
    exchanges = sum(event.startswith(MODEL_EVENTS) for event in first.events)
    return DeterminismReport(runs, first.exit_code, exchanges, divergences)


def _run_pass(trial: DeterminismTrial, number: int, folder: Path) -> PassResult:
    cwd, traces = folder / f"pass{number}", folder / f"traces{number}"
    for created in (cwd, traces):
        created.mkdir()
    roots = {"WORKSPACE": cwd}
    no_model = NoModel(
        UsageError(
            "the target needs a model, and none is configured",
            hint="add --cassette FILE, or --live to record the first pass",
        )
    )
    cassette = trial.cassette or folder / "recorded.yaml"
    if cassette.suffix == ".jsonl":
        source: ModelSource = Mocks(read_mocks(cassette))
    elif trial.cassette is None and number == 1:
        live = trial.live or no_model
        source = Recording(live, cassette, roots=roots, redactions=trial.redactions)
    elif not len(load_cassette(cassette)):
        source = no_model  # the first pass made no request
    else:
        source = Cassette(cassette, strict=False, roots=roots, redactions=trial.redactions)
        source.continued = True  # the comparison shows what was not replayed
    # Python orders sets of strings by their hash, which the seed changes.
    seed = HASH_SEEDS[(number - 1) % len(HASH_SEEDS)] if trial.shuffle else 0
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(seed),
        COLLECT_TRACES: str(traces),
        **(frozen_environment(folder / "frozen", EPOCH) if trial.freeze else {}),
    }
    result = run_command(
        source,
        trial.command,
        trace=traces / "wire.jsonl",
        deadline=trial.deadline,
        echo=False,
        environment=environment,
        cwd=cwd,
        max_output=sys.maxsize,
        codes=ANY_EXIT_CODE,
    )
    # A recording is written when it is closed; the next pass replays it.
    if isinstance(source, (Recording, Cassette)):
        source.close()
    # Other failures are part of the comparison: a target may be expected to fail.
    if isinstance(result.failure, (Interrupted, DeadlineExceeded)):
        raise result.failure
    events = Normalizer(trial.redactions, roots=roots)
    rules = merge_rules(RedactionRules(OUTPUT_REDACTIONS), trial.redactions)
    output = Normalizer(rules, roots=roots)
    return PassResult(
        number,
        result.exit_code or 0,
        tuple(output.clean_text(line) for line in result.output.splitlines()),
        tuple(
            line
            for path in sorted(traces.iterdir())
            for line in _render_events(events, without_repeated_executions(read_trace(path)[0]))
        ),
    )


def _render_events(normalizer: Normalizer, events: Iterable[Event]) -> Iterator[str]:
    """Yield the name of each event, followed by its normalized data if that is compared."""
    heads: dict[str, int] = {}  # the first request with a head contains it, later ones its digest
    for event in events:
        if event.event == TAPE:  # the first pass records what the others replay
            continue
        if not event.event.startswith(COMPARED_EVENTS):
            yield event.event
            continue
        data = {name: value for name, value in event.data.items() if name not in IGNORED_FIELDS}
        if "head" in data:
            data["head"] = heads.setdefault(data["head"], len(heads) + 1)
        text = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode(data).decode()
        yield f"{event.event} {collapse_whitespace(normalizer.clean_text(text))}"


def _compare(first: PassResult, other: PassResult) -> Divergence | None:
    # Events first: a different output is often the consequence of a different event.
    for what, expected, actual in (
        ("event", first.events, other.events),
        ("stdout line", first.stdout, other.stdout),
    ):
        for number, (one, two) in enumerate(zip_longest(expected, actual), 1):
            if one != two:
                before = expected[max(0, number - 1 - CONTEXT_EVENTS) : number - 1]
                pair = _first_difference(one, two) if what == "event" else (one, two)
                shown = _cut_common(*pair)
                return Divergence(other.number, what, number, *shown, before, _likely_cause(*pair))
    if first.exit_code != other.exit_code:
        codes = str(first.exit_code), str(other.exit_code)
        return Divergence(other.number, "exit code", 0, *codes)
    return None


def _first_difference(one: str | None, two: str | None) -> tuple[str | None, str | None]:
    """Return the path and the text that differ in two events of one name, in place of all data."""
    if one is None or two is None:
        return one, two
    (name, _, data), (other_name, _, other_data) = one.partition(" "), two.partition(" ")
    if name != other_name or not data or not other_data:
        return one, two
    try:
        values = msgspec.json.decode(data), msgspec.json.decode(other_data)
    except msgspec.DecodeError:  # a redaction has changed the JSON
        return one, two
    difference = next(find_differences(*values), None)
    if difference is None:
        return one, two
    texts = (
        "nothing" if text is None else text for text in (difference.recorded, difference.current)
    )
    first, second = (f"{name} {difference.path}: {text}" for text in texts)
    return first, second


def _likely_cause(one: str | None, two: str | None) -> str:
    """Return why two texts may differ, and what to do about it; empty if that is not known."""
    if one is None or two is None:
        return ""
    if sorted(split_words(one)) == sorted(split_words(two)):
        return "the same words in another order, as of a set: sort them"
    for hint in suggest_redactions([("$", one, two)]):
        redaction = Redaction(hint.rules, environment={})
        if redaction.text(one) == redaction.text(two):
            rules = msgspec.json.encode(hint.rules).decode()
            clock = " stop the clock with --freeze-clock, or" if hint.description in TIMES else ""
            return (
                f"{hint.description} differ:{clock} ignore them with --redact {shlex.quote(rules)}"
            )
    return ""


def _cut_common(one: str | None, two: str | None) -> tuple[str, str]:
    """Return both texts from shortly before their first difference, after the event's name."""
    if one is None or two is None:
        return one or "nothing", two or "nothing"
    one, two = outgoing(one), outgoing(two)
    split = len(os.path.commonprefix([one, two]))  # noqa: RUF071 - texts, not paths
    start = max(0, split - MAX_SHOWN // 2)
    name = one.partition(" ")[0]
    if start <= len(name):
        return one, two
    return f"{name} …{one[start:]}", f"{name} …{two[start:]}"
