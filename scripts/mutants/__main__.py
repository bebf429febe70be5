"""Mutation testing of the code that decides pass or fail.

    python scripts/mutants                                   all mutants of all parts
    python scripts/mutants --part judge --sample 60 --seed 1 a sample of one part
    python scripts/mutants --list                            the mutants, without running them

A mutant is a copy of a source file with one change. It is killed if a test fails. A mutant that
survives shows a line that no test checks. `scripts/mutants.toml` has the parts, and the survivors
that were reviewed, each with its reason. The results are kept in .mutants/: an interrupted run
continues where it stopped.

Why not a published tool: mutmut 3.8 cannot collect tests under pytest 9.2, and changes no
property or context manager; cosmic-ray starts pytest anew for each mutant with all tests, which
takes fifty times as long, and writes its mutants into the checkout.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import tomllib
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_run
from operators import WHOLE_FILE, Mutant, list_mutants, rewrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CONFIG = Path("scripts/mutants.toml")
RESULTS = Path(".mutants/results.jsonl")
LIMIT = 0.10  # of the survivors that nobody has reviewed
# A mutant may loop for ever, or wait for ever. This is added to what its tests need.
SECONDS = 15
STATES = ("killed", "survived", "timeout", "broken")


@dataclass(frozen=True)
class Part:
    """Source files, and the tests that must notice a change of them."""

    name: str
    sources: list[str]
    tests: list[str]
    every_test: bool = False  # also those that do not seem to run the mutated line
    seconds: int = SECONDS


@dataclass(frozen=True)
class Result:
    """What became of a mutant; `killer` is the test that failed."""

    state: str
    killer: str = ""
    evidence: str = ""  # the hash of the files that it depends on


@dataclass
class Baseline:
    """The passing tests of a part: their seconds, and the lines that each of them runs."""

    lines: dict[str, dict[str, list[str]]]
    at_import: dict[str, list[int]]  # the lines that run outside of tests
    seconds: dict[str, float]
    processor_seconds: dict[str, float]
    failed: list[str]
    modules: list[str]
    trusted: set[str] = field(default_factory=set[str])  # they pass in a fork, too

    def tests_of(self, mutant: Mutant, *, every_test: bool) -> list[str]:
        """Return the tests that run the statement of a mutant, the fastest first."""
        lines = {int(line): tests for line, tests in self.lines.get(mutant.file, {}).items()}
        found = {test for line, tests in lines.items() if line in mutant.lines for test in tests}
        if len(found) == 1:
            # It may run once in a process, as a cache is filled: others may depend on it.
            found = {test for tests in lines.values() for test in tests}
        # A test may read a constant, and run no line of the file. A file without functions runs at
        # import only, and so do functions that make test data.
        constant = mutant.lines == WHOLE_FILE
        if every_test or constant or (not found and self.runs_at_import(mutant)):
            found = {*self.seconds}
        return sorted(found & self.seconds.keys(), key=lambda test: (self.seconds[test], test))

    def limit_of(self, tests: list[str], extra: int) -> pytest_run.Limit:
        """Return how long a mutant may run these tests."""
        return pytest_run.Limit(
            extra + 5 * int(sum(self.seconds[test] for test in tests)),
            extra + 5 * int(sum(self.processor_seconds[test] for test in tests)),
        )

    def runs_at_import(self, mutant: Mutant) -> bool:
        """Return whether the statement of a mutant runs before the first test."""
        lines = self.at_import.get(mutant.file, [])
        return any(line in mutant.lines for line in lines)


@dataclass
class Count:
    """The row of a part."""

    possible: int = 0
    states: dict[str, int] = field(default_factory=lambda: dict.fromkeys(STATES, 0))
    reviewed: int = 0  # of the survivors

    @property
    def share(self) -> float:
        """The share of the survivors that were not reviewed among the mutants that ran."""
        ran = sum(self.states.values()) - self.states["broken"]
        return (self.states["survived"] - self.reviewed) / ran if ran else 1.0


# ------------------------------------------------------------------------------------- the files


def read_config() -> tuple[list[Part], dict[tuple[str, str, str, str], str]]:
    """Return the parts, and the reasons of the reviewed mutants."""
    if not CONFIG.exists():
        sys.exit(f"mutants: {CONFIG} does not exist; run the command in the root of the project")
    config = tomllib.loads(CONFIG.read_text())
    parts = [Part(name, **content) for name, content in config["parts"].items()]
    reviewed = {
        (entry["file"], entry.get("function", ""), entry["statement"], entry["change"]): entry[
            "reason"
        ]
        for entry in config.get("reviewed", [])
    }
    return parts, reviewed


def digest(*values: object) -> str:
    """Return a short hash."""
    return hashlib.sha256(repr(values).encode()).hexdigest()[:16]


class Results:
    """The results of earlier runs, as long as they hold.

    A kill holds until the source or the file of the test that failed changes. Any other result
    holds until any source or test changes.
    """

    def __init__(self, part: Part) -> None:
        files = [file for folder in ("src", "tests") for file in Path(folder).rglob("*.py")]
        self._files = {file.as_posix(): digest(file.read_bytes()) for file in files}
        self._whole = digest(sorted(self._files.items()))
        self._part = part
        self._known: dict[str, Result] = {}
        for line in RESULTS.read_text().splitlines() if RESULTS.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):  # a torn last line
                entry = json.loads(line)
                self._known[entry["mutant"]] = Result(
                    entry["state"], entry["killer"], entry["evidence"]
                )

    def find(self, mutant: Mutant) -> Result | None:
        known = self._known.get(self._name(mutant))
        holds = known is not None and known.evidence == self._evidence(mutant, known)
        return known if holds else None

    def add(self, mutant: Mutant, result: Result) -> None:
        RESULTS.parent.mkdir(exist_ok=True)
        line = {
            "mutant": self._name(mutant),
            "state": result.state,
            "killer": result.killer,
            "evidence": self._evidence(mutant, result),
        }
        with RESULTS.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _name(self, mutant: Mutant) -> str:
        return f"{self._part.name} {digest(mutant.key)}"

    def _evidence(self, mutant: Mutant, result: Result) -> str:
        """Return the hash of the files that a result depends on."""
        if not result.killer:
            return self._whole
        test = result.killer.partition("::")[0]
        return digest(self._files.get(mutant.file), self._files.get(test, "none"))


# ------------------------------------------------------------------------------- running mutants


class Copy:
    """A copy of the project in a temporary folder, where one file at a time is mutated."""

    def __init__(self, sources: Iterable[str]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="offbook-mutants-"))
        self.folder = self.root / "project"
        ignored = shutil.ignore_patterns(".*", "__pycache__", "node_modules")
        shutil.copytree(Path.cwd(), self.folder, ignore=ignored, symlinks=True)
        self._originals = {source: rewrite(Path(source).read_text()) for source in sources}
        for source, text in self._originals.items():
            (self.folder / source).write_text(text)

    def mutate(self, mutant: Mutant) -> None:
        (self.folder / mutant.file).write_text(mutant.make_source())

    def restore(self, mutant: Mutant) -> None:
        (self.folder / mutant.file).write_text(self._originals[mutant.file])

    def keep_bytecode_of_others(self) -> None:
        """Forget the bytecode of the files to mutate: it is found by seconds, and these change."""
        for source in self._originals:
            path = self.folder / source
            for file in path.parent.glob(f"__pycache__/{path.stem}.*"):
                file.unlink()

    def fork(self, run: Callable[[], int], *, limit: pytest_run.Limit | None = None) -> int:
        """Start a process in the copy; return its id."""
        process = os.fork()
        if process == 0:
            code = 71
            try:
                pytest_run.enter(self.folder, self.root / "log", limit=limit)
                code = run()
            finally:
                os._exit(code)  # nothing of the parent is run twice
        return process

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def run_baseline(copy: Copy, part: Part) -> Baseline:
    """Run the tests of a part without a mutant."""
    report = copy.root / "baseline.json"
    process = copy.fork(lambda: pytest_run.run_baseline(part.tests, part.sources, report))
    code = pytest_run.wait(process, 1800)
    if code not in {pytest_run.PASSED, pytest_run.FAILED} or not report.exists():
        print((copy.root / "log").read_text(), file=sys.stderr)
        sys.exit(f"mutants: the tests of {part.name} do not run without a mutant (pytest: {code})")
    return Baseline(**json.loads(report.read_text()))


def run_mutant(
    copy: Copy, part: Part, mutant: Mutant, baseline: Baseline, server: pytest_run.Server
) -> Result:
    """Run the tests of a mutant until one fails."""
    report = copy.root / "killer"
    while order := baseline.tests_of(mutant, every_test=part.every_test):
        report.unlink(missing_ok=True)
        limit = baseline.limit_of(order, part.seconds)
        copy.mutate(mutant)
        try:
            code = server.run(mutant.file, order, report, limit)
            # In a fork, what ran while the tests were collected was not mutated. So a run of its
            # own decides, unless a test failed.
            if code != pytest_run.FAILED:
                run = partial(pytest_run.run_mutant, order, mutant.file, report)
                code = pytest_run.wait(copy.fork(run, limit=limit), limit.seconds)
        finally:
            copy.restore(mutant)
        # Without a test that failed, pytest could not collect the tests.
        if code == pytest_run.FAILED and (killer := report.read_text()):
            if is_trusted(killer, order, baseline, server, report, limit):
                return Result("killed", killer)
            continue
        if code == pytest_run.PASSED:
            return Result("survived")
        return Result("timeout" if code in {-signal.SIGXCPU, -signal.SIGKILL} else "broken")
    return Result("survived")


def is_trusted(
    killer: str,
    order: list[str],
    baseline: Baseline,
    server: pytest_run.Server,
    report: Path,
    limit: pytest_run.Limit,
) -> bool:
    """Return whether these tests pass without a mutant; the first that fails is not used again."""
    if killer not in baseline.trusted:
        server.run(None, order[: order.index(killer) + 1], report, limit)
        if failed := report.read_text():
            say(f"not used, as it fails without a mutant: {failed}")
            del baseline.seconds[failed]
            return False
        baseline.trusted.add(killer)
    return True


def import_packages(modules: Iterable[str]) -> None:
    """Import third-party packages once, for all processes that will be forked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in modules:
            with contextlib.suppress(Exception):
                importlib.import_module(name)


# ----------------------------------------------------------------------------------- the command


def run_part(part: Part, mutants: list[Mutant]) -> Iterator[tuple[Mutant, Result]]:
    """Yield the result of each mutant, known or new."""
    results = Results(part)
    known = {mutant.key: results.find(mutant) for mutant in mutants}
    yield from ((m, result) for m in mutants if (result := known[m.key]) is not None)
    unknown = [mutant for mutant in mutants if known[mutant.key] is None]
    if not unknown:
        return
    copy = Copy(part.sources)
    server = None
    try:
        say(f"{part.name}: running its tests without a mutant")
        baseline = run_baseline(copy, part)
        if baseline.failed:
            say(f"{part.name}: not used, as they fail or skip: {len(baseline.failed)} tests")
        import_packages(baseline.modules)
        gc.freeze()  # the collector of a forked process leaves these packages alone
        copy.keep_bytecode_of_others()
        server = pytest_run.Server()
        server.start(copy.fork(partial(server.serve, part.tests, part.sources)))
        survived = 0
        for number, mutant in enumerate(unknown, 1):
            result = run_mutant(copy, part, mutant, baseline, server)
            results.add(mutant, result)
            survived += result.state == "survived"
            if number % 10 == 0 or number == len(unknown):
                say(f"{part.name}: {number} of {len(unknown)}, {survived} survived")
            yield mutant, result
    finally:
        if server is not None:
            server.stop()
        copy.remove()


def say(text: str) -> None:
    """Print progress."""
    print(f"mutants: {text}", file=sys.stderr, flush=True)


def print_table(counts: dict[str, Count]) -> None:
    """Print one row for each part."""
    print(f"{'part':<12}{'mutants':>8}{'run':>6}", end="")
    print("".join(f"{state:>10}" for state in STATES), f"{'reviewed':>10}{'left':>8}")
    for name, count in counts.items():
        run = sum(count.states.values())
        states = "".join(f"{count.states[state]:>10}" for state in STATES)
        print(f"{name:<12}{count.possible:>8}{run:>6}{states} {count.reviewed:>10}", end="")
        print(f"{count.share:>8.1%}")


def parse_arguments(names: list[str]) -> argparse.Namespace:
    """Return the options of the command."""
    parser = argparse.ArgumentParser(
        prog="./dev mutants",
        description="Change the code that decides pass or fail, and see whether a test fails.",
        epilog="example: ./dev mutants --part judge --sample 60 --seed 1",
    )
    parser.add_argument("--part", action="append", choices=names, help="only this part; repeatable")
    parser.add_argument("--sample", type=int, metavar="N", help="N random mutants of each part")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the sample")
    parser.add_argument("--list", action="store_true", help="list the mutants, run nothing")
    arguments = parser.parse_args()
    if arguments.sample is not None and arguments.sample < 1:
        parser.error("--sample: expected a number from 1")
    return arguments


def main() -> int:
    """Run the command; return its exit code."""
    parts, reviewed = read_config()
    arguments = parse_arguments([part.name for part in parts])
    chosen = [part for part in parts if not arguments.part or part.name in arguments.part]
    counts: dict[str, Count] = {}
    survivors: list[Mutant] = []
    stale: list[str] = []
    code = 0
    for number in (signal.SIGINT, signal.SIGTERM):  # both leave no copy behind
        signal.signal(number, signal.default_int_handler)
    try:
        for part in chosen:
            mutants = [m for s in part.sources for m in list_mutants(s, Path(s).read_text())]
            if not mutants:
                sys.exit(f"mutants: {part.name} has no mutant")
            keys = {mutant.key for mutant in mutants}
            stale += [
                f"reviewed, but no longer a mutant: {' | '.join(key)}"
                for key in reviewed
                if key[0] in part.sources and key not in keys
            ]
            if arguments.list:
                print(*mutants, sep="\n")
                continue
            count = counts[part.name] = Count(len(mutants))
            size = min(arguments.sample or len(mutants), len(mutants))
            sample = random.Random(f"{part.name} {arguments.seed}").sample(mutants, size)  # noqa: S311 - no secret
            for mutant, result in run_part(part, sample):
                count.states[result.state] += 1
                if mutant.key not in reviewed:
                    survivors += [mutant] if result.state == "survived" else []
                elif result.state == "survived":
                    count.reviewed += 1
                else:
                    stale.append(f"reviewed, but {result.state}: {' | '.join(mutant.key)}")
    except KeyboardInterrupt:
        say("interrupted; the next run continues here")
        code = 130
    if survivors:
        print(f"\nsurvivors that were not reviewed: {len(survivors)}")
        print(*survivors, sep="\n")
    if stale:
        print(*stale, sep="\n")
    if counts:
        print()
        print_table(counts)
    too_many = [name for name, count in counts.items() if count.share >= LIMIT]
    if too_many:
        print(f"\n{LIMIT:.0%} or more survived: {', '.join(too_many)}")
    return code or int(bool(too_many or stale))


if __name__ == "__main__":
    sys.exit(main())
