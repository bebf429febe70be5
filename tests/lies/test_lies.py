"""Agents that lie, in an otherwise empty test: each is red, shown, or caught by one line."""

from collections import Counter
from pathlib import Path

import pytest

from tests.lies.dialect_lies import LIES
from tests.lies.honest_dialects import HONEST
from tests.lies.lies import COMMANDS, EVERY, OTHERS
from tests.lies.verdicts import GROUPS, Lie, honest_twin, try_lie

PAGE = "docs/explanation/what-green-means.md"


@pytest.fixture
def one(request: pytest.FixtureRequest) -> Lie:
    found: Lie = request.param
    if found.form.missing:
        pytest.skip(found.form.missing)
    return found


@pytest.mark.parametrize("one", LIES, ids=str, indirect=True)
def test_a_lie_is_in_its_group_and_is_named(one: Lie):
    outcome = try_lie(one)
    assert outcome.group == one.expected.group, outcome.message
    assert [word for word in one.expected.words if word not in outcome.message] == []


# One for each form, script and honest class: many lies have the same.
TWINS = {
    (one.form.name, one.agent.__base__, repr(one.agent.steps), one.agent.last): one for one in LIES
}


@pytest.mark.parametrize("one", TWINS.values(), ids=str, indirect=True)
def test_the_same_agent_without_the_lie_is_green(one: Lie):
    twin = honest_twin(one)
    assert twin.group == ("shown" if one.agent.shows else "green")
    assert one.agent.shows in twin.message
    assert twin.failed == ()


def test_every_form_has_lies():
    lies = Counter(one.form.name for one in LIES)
    assert lies.keys() == {*EVERY, *COMMANDS, *OTHERS, "session"}
    assert len(LIES) >= 90


def test_the_page_has_the_measured_numbers(root: Path):
    groups = Counter(one.expected.group for one in LIES)
    page = (root / PAGE).read_text()
    rows = [f"| {group} | {groups[group]} | {meaning} |" for group, meaning in GROUPS.items()]
    forms = len({one.form.name for one in LIES})
    lying = f"{len(LIES)} lying agents in {forms} forms"
    texts = [lying, f"{len(HONEST)} honest agents", *rows]
    assert [text for text in texts if text not in page] == []
