"""Honest agents pass, however unusual their requests are."""

import pytest

from tests.lies.honest import Honest
from tests.lies.honest_dialects import HONEST
from tests.lies.verdicts import rehearse


@pytest.mark.parametrize("one", HONEST, ids=str)
def test_an_honest_agent_is_green(one: Honest):
    if one.form.missing:
        pytest.skip(one.form.missing)
    outcome = rehearse(one.agent(), one.form)
    if one.agent.shows:  # it passes, and the run shows what it does
        assert (outcome.group, one.agent.shows in outcome.message) == ("shown", True)
    else:
        assert (outcome.group, outcome.message) == ("green", "")


def test_there_are_enough_of_them():
    assert len(HONEST) >= 40
