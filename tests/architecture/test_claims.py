"""The metadata claims what is tested, and the words are as plain as in other projects."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

CLAIM = "Programming Language :: Python :: "
PHRASE = re.compile(r"^ +(?P<found>[\d.]+)  \((?P<highest>[\d.]+)\)  (?P<name>.+)$", re.MULTILINE)
FACTOR = 3  # times the highest rate among the projects that `plain` was measured on


@pytest.fixture
def classifiers(root: Path) -> list[str]:
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["classifiers"]


def test_the_claimed_pythons_are_those_that_dev_pythons_runs(root: Path, classifiers: list[str]):
    claimed = [name.removeprefix(CLAIM) for name in classifiers if name.startswith(f"{CLAIM}3.")]
    command = re.search(
        r"^pythons\(\) {.*?for version in ([\d. ]+);",
        (root / "dev").read_text(),
        re.DOTALL | re.MULTILINE,
    )
    assert command is not None
    assert claimed == command[1].split()


def test_linux_is_the_only_system_that_is_claimed(classifiers: list[str]):
    systems = [name for name in classifiers if name.startswith("Operating System")]
    assert systems == ["Operating System :: POSIX :: Linux"]


@pytest.mark.external
def test_no_turn_of_phrase_is_much_more_frequent_than_elsewhere(root: Path, shared_data: Path):
    counted = subprocess.run(
        [sys.executable, shared_data.parent / "tools" / "plain"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rates = {m["name"]: (float(m["found"]), float(m["highest"])) for m in PHRASE.finditer(counted)}
    assert rates, counted
    too_many = {name: rate for name, rate in rates.items() if rate[0] > FACTOR * rate[1]}
    assert too_many == {}, counted
