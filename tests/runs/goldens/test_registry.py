"""Components are found by name: ours, of live scripts, of packages, by import path."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.runs.goldens import registry as home
from offbook.runs.goldens.components.component import Component
from offbook.runs.goldens.components.harness import Harness
from offbook.runs.goldens.registry import Registry
from tests.runs.goldens.projects import make_project


def test_our_own_are_there(tmp_path: Path):
    registry = Registry(tmp_path)
    assert registry.find("hub") is Component
    assert registry.find("harness") is Harness
    assert registry.find("session").__name__ == "SessionComponent"


def test_an_import_path_is_a_name_as_well(tmp_path: Path):
    assert Registry(tmp_path).find("offbook.runs.goldens.components.harness:Harness") is Harness


def test_the_class_of_a_live_script_is_found(tmp_path: Path):
    registry = Registry(make_project(tmp_path) / "scripts" / "live")
    assert registry.find("till").__name__ == "Till"
    assert "till" in registry.names()


def test_a_package_may_bring_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    place = "offbook.runs.goldens.components.harness:Harness"
    brought = EntryPoint("door", place, "offbook.components")

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [brought] if group == "offbook.components" else []

    monkeypatch.setattr(home, "entry_points", entry_points)
    assert Registry(tmp_path).find("door") is Harness
    assert "door" in Registry(tmp_path).names()


@pytest.mark.parametrize(
    "name, message",
    [
        ("hubb", "did you mean 'hub'"),
        ("no.such.module:Thing", "cannot import no.such.module"),
        ("offbook.runs.goldens.components.harness:Harnes", "did you mean 'Harness'"),
        ("offbook.errors:UsageError", "is not a component"),
    ],
)
def test_what_is_not_there_is_told(tmp_path: Path, name: str, message: str):
    with pytest.raises(UsageError, match=message):
        Registry(tmp_path).find(name)


def test_a_component_without_a_live_script_cannot_be_recorded(tmp_path: Path):
    with pytest.raises(UsageError, match="has no live script"):
        Registry(tmp_path).takes("hub")
