"""The arguments that `offbook init` finds for a tool in the code of a project."""

from pathlib import Path
from typing import Any

import pytest

from offbook.explore import find_tool_values, scan_project

PLACES = {
    "a table in place": "def tool(city):\n    return {'Oslo': 'CET'}[city]\n",
    "a table in place with get": "def tool(city):\n    return {'Oslo': 'CET'}.get(city)\n",
    "a table of the module": "ZONES = {'Oslo': 'CET'}\ndef tool(city):\n    return ZONES[city]\n",
    "a branch of match": (
        "def execute(name, city):\n    match name:\n        case 'tool':\n"
        "            return {'Oslo': 'CET'}[city]\n"
    ),
    "an attribute with a default": (
        "ZONES = {'Oslo': 'CET'}\nclass Shop:\n    def __init__(self, zones=None):\n"
        "        self.zones = zones or ZONES\n    def tool(self, city):\n"
        "        return self.zones[city]\n"
    ),
    "a field of a dependency": (
        "class Shop:\n    zones: dict\ndef tool(ctx, city):\n    return ctx.deps.zones[city]\n"
        "shop = Shop({'Oslo': 'CET'})\n"
    ),
    "a named field of a dependency": (
        "class Shop:\n    zones: dict\ndef tool(ctx, city):\n    return ctx.deps.zones[city]\n"
        "shop = Shop(zones={'Oslo': 'CET'})\n"
    ),
}


def find(folder: Path, source: str) -> dict[str, list[Any]]:
    (folder / "shop.py").write_text(source)
    return find_tool_values("tool", scan_project(folder).modules)


@pytest.mark.parametrize("place", PLACES)
def test_a_key_of_a_table_is_an_argument(place: str, tmp_path: Path):
    assert "Oslo" in find(tmp_path, PLACES[place])[""]


def test_a_key_of_a_result_is_not_an_argument(tmp_path: Path):
    assert find(tmp_path, "def tool(city):\n    return {'zone': city}\n") == {}
