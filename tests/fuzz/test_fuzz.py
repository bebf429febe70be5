"""No input makes a parser raise anything but an error of Offbook: see ./dev fuzz."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz.mutations import Mutator
from tests.fuzz.targets import TARGETS, check_input, list_seeds
from tests.thorough import THOROUGH

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*/*"))
INPUTS = 1000 if THOROUGH else 25


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_input_that_was_a_finding_is_none_any_more(path: Path):
    check_input(path.parent.name, path.read_bytes())


@pytest.mark.parametrize("name", TARGETS)
def test_a_valid_input_and_its_changes_are_read_or_refused(name: str):
    seeds = list_seeds(name)
    assert seeds
    choice = random.Random(name)  # noqa: S311 - the same inputs in each run
    mutator = Mutator(seeds, choice)
    for _ in range(INPUTS):
        data = mutator.change(choice.choice(seeds), choice.choice(seeds))
        try:
            check_input(name, data)
        except Exception as error:  # noqa: BLE001 - any
            pytest.fail(f"{type(error).__name__}: {error}\nfor the input {data!r}")


@pytest.mark.parametrize("name", TARGETS)
def test_a_valid_input_is_accepted(name: str):
    refused = [seed for seed in list_seeds(name) if not check_input(name, seed)]
    assert refused == []
