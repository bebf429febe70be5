"""The parts of `./dev mutants` name files that exist: nothing would check a missing file."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / "scripts/mutants.toml").read_text())


@pytest.mark.parametrize("part", CONFIG["parts"])
def test_a_part_names_files_that_exist(part: str):
    files = [*CONFIG["parts"][part]["sources"], *CONFIG["parts"][part]["tests"]]
    assert [file for file in files if not (ROOT / file).exists()] == []


def test_a_reviewed_mutant_is_in_a_file_of_a_part():
    sources = {file for part in CONFIG["parts"].values() for file in part["sources"]}
    assert {entry["file"] for entry in CONFIG["reviewed"]} - sources == set()
