"""The generated pages of docs/reference are current and complete."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from offbook.checks import ASSERTIONS, RUN_ASSERTIONS, assertion_class, parse_assertion
from offbook.files import parse_yaml

ROOT = Path(__file__).parents[2]
REFERENCE: dict[str, Any] = runpy.run_path(str(ROOT / "scripts" / "reference.py"))
PAGES: dict[Path, str] = REFERENCE["render_pages"]()
EXAMPLES: dict[str, str] = REFERENCE["ASSERTION_EXAMPLES"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_generated_page_is_current(page: Path):
    assert page.read_text("utf-8") == PAGES[page], "run ./dev docs"


def test_every_assertion_type_has_an_example():
    assert list(EXAMPLES) == list(ASSERTIONS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_assertion_example_is_parsed_as_its_type(name: str):
    assert isinstance(parse_assertion(parse_yaml(EXAMPLES[name])), assertion_class(name))


def test_every_assertion_on_a_run_is_in_a_scenario_that_runs():
    page = (ROOT / "docs" / "guides" / "assertions.md").read_text()
    assert set(re.findall(r"- \{type: (\w+)", page)) == set(RUN_ASSERTIONS)
