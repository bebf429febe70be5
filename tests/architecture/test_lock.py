"""The lock files pin what pyproject.toml requires, and name no index and no machine."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

LOCKS = ["requirements.lock", "requirements-runtime.lock", "requirements-tools.lock"]


@pytest.fixture(scope="module", params=LOCKS)
def lock(root: Path, request: pytest.FixtureRequest) -> str:
    return (root / request.param).read_text()


def read_pins(path: Path) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+==\S+)", path.read_text(), flags=re.MULTILINE))


def test_a_lock_names_no_url_and_no_path(lock: str):
    pin = r"[a-z0-9.\[\]-]+==\S+( ; [^\\]+?)?"
    digest = r"    --hash=sha256:[0-9a-f]{64}"
    strange = [
        line for line in lock.splitlines() if not re.fullmatch(rf"({pin}|{digest})( \\)?", line)
    ]
    assert strange == []


def test_every_pin_has_a_hash(lock: str):
    for requirement in re.split(r"\n(?=\S)", lock.strip()):
        assert "--hash=sha256:" in requirement


def names_of(requirements: list[Any]) -> set[str]:
    texts = [text for text in requirements if isinstance(text, str)]
    names = {re.split(r"[^A-Za-z0-9.-]", text, maxsplit=1)[0] for text in texts}
    return {name.replace(".", "-") for name in names}


def test_every_dependency_is_locked(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    runtime = names_of(settings["project"]["dependencies"])
    development = names_of(settings["dependency-groups"]["dev"])
    locked = {pin.partition("==")[0] for pin in read_pins(root / "requirements.lock")}
    assert runtime | development <= locked, "run ./dev lock"


def test_every_tool_of_releases_is_locked(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    locked = {pin.partition("==")[0] for pin in read_pins(root / "requirements-tools.lock")}
    assert names_of(settings["dependency-groups"]["tools"]) <= locked, "run ./dev lock"


def test_the_runtime_lock_has_the_runtime_packages_in_the_versions_of_the_other(root: Path):
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    pins = read_pins(root / "requirements-runtime.lock")
    names = {pin.partition("==")[0] for pin in pins}
    assert names_of(settings["project"]["dependencies"]) <= names, "run ./dev lock"
    assert pins <= read_pins(root / "requirements.lock"), "run ./dev lock"
    assert not names & {"pytest", "openai", "pydantic-ai-slim"}
