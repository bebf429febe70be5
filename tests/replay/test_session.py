"""The agent session does what it did when its goldens were recorded."""

import pytest

from offbook.goldens.goldens_pytest import Goldens

pytestmark = pytest.mark.replay


def test_the_tools_that_the_model_calls_are_run(goldens: Goldens):
    goldens.replay("session/tool-calls")


def test_a_tool_that_fails_is_an_error_result(goldens: Goldens):
    goldens.replay("session/tool-error")


def test_a_session_goes_on_where_it_stopped(goldens: Goldens):
    goldens.replay("session/two-prompts")
