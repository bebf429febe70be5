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


def test_every_promise_of_a_specification_has_a_test():
    specifications = REFERENCE["read_specifications"]()
    assert len(specifications) == 5
    assert all(len(each["promises"]) >= 5 for each in specifications.values())
    assert list(REFERENCE["unproven_promises"](specifications)) == []


@pytest.mark.parametrize(
    "promise, problem",
    [
        ([], "no test"),
        (
            "docs/test_reference.py::test_nothing",
            "no test tests/docs/test_reference.py::test_nothing",
        ),
        ("docs/test_nothing.py::test_a", "no test tests/docs/test_nothing.py::test_a"),
        ({"differs": "It is Python."}, "no test"),
        ({"differs": " ", "tests": ["docs/test_links.py"]}, "no reason for the difference"),
    ],
)
def test_a_promise_without_a_test_or_a_reason_is_named(promise: Any, problem: str):
    specifications = {"hub": {"promises": {"Events": {"An event has an id": promise}}}}
    found = list(REFERENCE["unproven_promises"](specifications))
    assert found[0] == f"hub, Events: An event has an id: {problem}"


def test_every_assertion_type_has_an_example():
    assert list(EXAMPLES) == list(ASSERTIONS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_assertion_example_is_parsed_as_its_type(name: str):
    assert isinstance(parse_assertion(parse_yaml(EXAMPLES[name])), assertion_class(name))


def test_every_assertion_on_a_run_is_in_a_scenario_that_runs():
    page = (ROOT / "docs" / "guides" / "assertions.md").read_text()
    assert set(re.findall(r"- \{type: (\w+)", page)) == set(RUN_ASSERTIONS)
