"""Components are found by name: built in, in live scripts, in packages, by import path."""

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from offbook.errors import UsageError
from offbook.goldens import Component, ComponentRegistry, Harness
from offbook.goldens import live_scripts as home
from tests.goldens.sample_project import make_project


def test_builtin_components_are_found(tmp_path: Path):
    registry = ComponentRegistry(tmp_path)
    assert registry.find("hub") is Component
    assert registry.find("harness") is Harness
    assert registry.find("session").__name__ == "SessionComponent"


def test_import_path_is_a_name(tmp_path: Path):
    assert ComponentRegistry(tmp_path).find("offbook.goldens.components:Harness") is Harness


def test_class_of_a_live_script_is_found(tmp_path: Path):
    registry = ComponentRegistry(make_project(tmp_path) / "scripts" / "live")
    assert registry.find("till").__name__ == "Till"
    assert "till" in registry.names()


def test_component_of_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = "offbook.goldens.components:Harness"
    entry = EntryPoint("door", path, "offbook.components")

    def entry_points(*, group: str) -> list[EntryPoint]:
        return [entry] if group == "offbook.components" else []

    monkeypatch.setattr(home, "entry_points", entry_points)
    assert ComponentRegistry(tmp_path).find("door") is Harness
    assert "door" in ComponentRegistry(tmp_path).names()


@pytest.mark.parametrize(
    "name, message",
    [
        ("hubb", "did you mean 'hub'"),
        ("no.such.module:Thing", "cannot import no.such.module"),
        ("offbook.goldens.components:Harnes", "did you mean 'Harness'"),
        ("offbook.errors:UsageError", "is not a component"),
    ],
)
def test_unknown_component_is_reported(tmp_path: Path, name: str, message: str):
    with pytest.raises(UsageError, match=message):
        ComponentRegistry(tmp_path).find(name)


def test_component_without_live_script_has_no_scenarios(tmp_path: Path):
    with pytest.raises(UsageError, match="has no live script"):
        ComponentRegistry(tmp_path).scenarios("hub")
