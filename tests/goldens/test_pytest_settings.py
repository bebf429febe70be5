"""The commands find the root folder and the import path that pytest has."""

from pathlib import Path

import pytest

from offbook.errors import FormatError
from offbook.goldens import find_pytest_settings

pytest_plugins = ["pytester"]

# the files of a project; pytest starts in packages/till
LAYOUTS: dict[str, dict[str, str]] = {
    "no settings": {"fixtures/golden/a.jsonl": ""},
    "fixtures in the package, settings at the root": {
        "pytest.ini": "[pytest]\npythonpath = src lib\n",
        "packages/till/fixtures/a.jsonl": "",
    },
    "settings in the package": {
        "pytest.ini": "[pytest]\n",
        "packages/till/pytest.ini": "[pytest]\npythonpath = .\n",
    },
    "empty pytest.ini": {"pytest.ini": "", "packages/setup.py": ""},
    "hidden pytest.ini": {".pytest.ini": "[pytest]\npythonpath = src\n"},
    "pyproject.toml": {"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['src']\n"},
    "text in pyproject.toml": {"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = 'a b'\n"},
    "pyproject.toml of a package without settings": {
        "pytest.ini": "[pytest]\n",
        "packages/till/pyproject.toml": "[project]\nname = 'till'\n",
    },
    "pyproject.toml without settings only": {
        "pyproject.toml": "",
        "packages/pyproject.toml": "[tool.ruff]\n",
    },
    "tox.ini": {"tox.ini": "[pytest]\npythonpath = src\n", "packages/tox.ini": "[tox]\n"},
    "setup.cfg": {"setup.cfg": "[tool:pytest]\npythonpath =\n  src\n  lib\n"},
    "percent sign": {"tox.ini": "[pytest]\nlog_format = %(message)s\npythonpath = src\n"},
    "setup.py": {"packages/setup.py": ""},
}


@pytest.mark.parametrize("files", LAYOUTS.values(), ids=LAYOUTS)
def test_root_and_import_path_are_those_of_pytest(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, files: dict[str, str]
):
    start = pytester.path / "packages" / "till"
    start.mkdir(parents=True)
    for name, text in files.items():
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(start)
    config = pytester.parseconfig()
    settings = find_pytest_settings(start)
    assert settings.root == config.rootpath
    assert settings.pythonpath == config.getini("pythonpath")


@pytest.mark.parametrize("name, text", [("pyproject.toml", "[tool"), ("tox.ini", "x")])
def test_broken_settings_are_reported_with_their_file(tmp_path: Path, name: str, text: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(FormatError, match=name):
        find_pytest_settings(tmp_path)
