"""The agent session replays its goldens as recorded."""

import pytest

from offbook.goldens import Goldens

pytestmark = pytest.mark.replay


def test_tools_called_by_the_model_run(goldens: Goldens):
    goldens.replay("session/tool-calls")


def test_failing_tool_is_an_error_result(goldens: Goldens):
    goldens.replay("session/tool-error")


def test_session_continues_with_a_second_prompt(goldens: Goldens):
    goldens.replay("session/two-prompts")
