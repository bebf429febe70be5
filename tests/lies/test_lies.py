"""Agents that lie, in an otherwise empty test: each is red, shown, or caught by one line."""

from collections import Counter
from pathlib import Path

import pytest

from tests.lies.honest_frameworks import HONEST
from tests.lies.lies import COMMANDS, EVERY, LIES
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


# One for each form and script: many lies have the same.
TWINS = {(one.form.name, repr(one.agent.steps), one.agent.last): one for one in LIES}


@pytest.mark.parametrize("one", TWINS.values(), ids=str, indirect=True)
def test_the_same_agent_without_the_lie_is_green(one: Lie):
    twin = honest_twin(one)
    assert (twin.group, twin.message, twin.failed) == ("green", "", ())


def test_every_form_has_lies():
    lies = Counter(one.form.name for one in LIES)
    assert lies.keys() == {*EVERY, *COMMANDS, "chat stream", "session"}
    assert len(LIES) >= 90


def test_the_page_has_the_measured_numbers(root: Path):
    groups = Counter(one.expected.group for one in LIES)
    page = (root / PAGE).read_text()
    rows = [f"| {group} | {groups[group]} | {meaning} |" for group, meaning in GROUPS.items()]
    texts = [f"{len(LIES)} lying agents", f"{len(HONEST)} honest agents", *rows]
    assert [text for text in texts if text not in page] == []
