"""Random choices against guidance by novelty: the behaviours until a planted bug is found.

    python bench/explore_ablation.py          seeds 0 to 2, all agents in this process
    python bench/explore_ablation.py 5 OpenAI seeds 0 to 4, agents with "OpenAI" in their name

Guided: every behaviour that reached a new state of the world is kept, and half of the behaviours
begin with the first moves of a kept one. Both use the same moves and seeds. It prints a table, and
exits with 1 if guidance finds the bugs in fewer behaviours: then `explore` should use it.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ["OPENAI_API_KEY"] = "none"

from offbook.exchange.model import Tool
from offbook.explore.argument_values import ArgumentValues
from offbook.explore.generated_model import GeneratedModel
from offbook.explore.moves import Move
from offbook.explore.playing import Job, Stage
from tests.explore.planted_bugs import PLANTED, PlantedBug

LIMIT, STEPS = 200, 5
logging.disable()


class GuidedModel(GeneratedModel):
    """A generated model that begins with given moves."""

    def __init__(self, values: ArgumentValues, *, seed: str, steps: int, first: list[Move]) -> None:
        super().__init__(values, seed=seed, steps=steps)
        self._first = first

    def _choose(self, offered: tuple[Tool, ...], kinds: tuple[str, ...]) -> Move:
        return self._first.pop(0) if self._first else super()._choose(offered, kinds)


def count_behaviours(bug: PlantedBug, seed: int, *, guided: bool) -> int:
    """Return the number of behaviours until an invariant is broken; the limit if none breaks it."""
    values = ArgumentValues(bug.values or {}, bug.prompt)
    states: set[str] = set()
    kept: list[tuple[Move, ...]] = []
    random = Random(seed)  # noqa: S311 - not for secrets
    with Stage(bug.broken, (bug.prompt,), bug.invariants, bug.gives_up) as stage:
        for number in range(LIMIT):
            first: list[Move] = []
            if guided and kept and random.random() < 0.5:
                moves = random.choice(kept)
                first = [*moves[: random.randint(1, len(moves))]]
            model = GuidedModel(values, seed=f"{seed}:{number}", steps=STEPS, first=first)
            behaviour = stage.play_model(model, Job(f"{seed}:{number}", STEPS))
            if behaviour.violations:
                return number + 1
            if behaviour.state not in states and behaviour.moves:
                states.add(behaviour.state)
                kept.append(behaviour.moves)
    return LIMIT


def main() -> int:
    """Measure, print the table, and return 1 if guidance needs fewer behaviours."""
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    totals = [0, 0]
    print(f"| agent | random, seeds 0 to {seeds[-1]} | guided |\n|---|---|---|")
    for name, bug in PLANTED.items():
        # A command is started for each behaviour: only if it is asked for.
        if word not in name or ("command" in name and word != "command"):
            continue
        rows = [
            [count_behaviours(bug, seed, guided=guided) for seed in seeds]
            for guided in (False, True)
        ]
        shown = [", ".join(f"{n}" if n < LIMIT else f"over {n}" for n in row) for row in rows]
        print(f"| {name} | {shown[0]} | {shown[1]} |", flush=True)
        totals = [total + sum(row) for total, row in zip(totals, rows, strict=True)]
    means = [total / len(seeds) for total in totals]
    print(f"| all, mean of the seeds | {means[0]:.0f} | {means[1]:.0f} |")
    return int(means[1] < means[0])


if __name__ == "__main__":
    sys.exit(main())
