"""The lock holds what pyproject.toml asks for, and says nothing about where it was made."""

import re
import tomllib
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def lock(root: Path) -> str:
    return (root / "requirements.lock").read_text()


def test_the_lock_names_no_address_and_no_path(lock: str):
    pin = r"[a-z0-9.\[\]-]+==\S+( ; [^\\]+?)?"
    digest = r"    --hash=sha256:[0-9a-f]{64}"
    strange = [
        line for line in lock.splitlines() if not re.fullmatch(rf"({pin}|{digest})( \\)?", line)
    ]
    assert strange == []


def test_every_pin_has_a_hash(lock: str):
    for requirement in re.split(r"\n(?=\S)", lock.strip()):
        assert "--hash=sha256:" in requirement


def test_every_dependency_is_in_the_lock(root: Path, lock: str):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["dev"]]
    names = {re.split(r"[^A-Za-z0-9-]", requirement, maxsplit=1)[0] for requirement in wanted}
    locked = set(re.findall(r"^([a-z0-9-]+)", lock, flags=re.MULTILINE))
    assert names <= locked, "run ./dev lock"
