"""The extension planner.ts in the real pi: propose a plan, capture its id, approve it."""

import re
from pathlib import Path

import pytest
from pi_installed import needs_pi

from offbook import call, say, when
from offbook.errors import ToolFailed
from offbook.testing import create_test_session

PLANNER = Path(__file__).with_name("planner.ts")
OMELETTE = {"title": "Cook omelette", "steps": [{"description": "Crack eggs"}]}

pytestmark = [pytest.mark.clients, needs_pi]


def test_a_plan_is_proposed_and_approved():
    plan_id = ""

    def keep_id(result):
        nonlocal plan_id
        plan_id = re.search(r"PLAN-[0-9a-f]+", result.text)[0]

    with create_test_session(
        extensions=[PLANNER],
        mock_tools={"bash": lambda params: f"$ {params['command']}\nok"},
        mock_ui={"confirm": True},
    ) as t:
        t.run(
            when(
                "Enter plan mode and propose a plan",
                [
                    call("plan_mode", {"enable": True}),
                    call("bash", {"command": "rm -rf eggs"}),
                    call("plan_propose", OMELETTE).then(keep_id),
                    say("Plan created, awaiting approval."),
                ],
            ),
            when(
                "Approve it",
                [
                    call("plan_approve", lambda: {"id": plan_id}),
                    call("bash", {"command": "crack eggs"}),
                    say("Plan approved."),
                ],
            ),
        )

        assert not t.events.tool_results_for("plan_propose")[0].is_error
        assert t.events.tool_results_for("plan_approve")[0].text == f"{plan_id} approved."
        assert t.events.ui_calls_for("confirm")[0].args == [f"Approve {plan_id}?", "Crack eggs"]
        blocked, ran = t.events.tool_calls_for("bash")
        assert blocked.block_reason == "bash is off until a plan is approved"
        assert not ran.blocked


def test_an_unknown_plan_fails_the_run():
    unknown = pytest.raises(ToolFailed, match="Unknown plan PLAN-0")
    with create_test_session(extensions=[PLANNER]) as t, unknown:
        t.run(when("Approve", [call("plan_approve", {"id": "PLAN-0"}), say("Done.")]))
