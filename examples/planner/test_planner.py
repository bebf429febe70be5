"""The planner, tested with a scripted model."""

import re
from pathlib import Path

import pytest

from offbook import call, say, when

PLANNER = Path(__file__).with_name("planner.py")
STEPS = [{"description": "Crack eggs", "tool": "kitchen", "operation": "crack"}]
ON = call("plan_mode", {"enable": True})
OFF = call("plan_mode", {"enable": False})


@pytest.fixture
def planner(offbook):
    """Return a function that starts a session with the planner and mocked tools."""

    def start(**options):
        mocks = {
            "bash": lambda params: f"ran {params['command']}",
            "write": "written",
            "edit": "edited",
        }
        # each test uses some of them
        return offbook.session(
            extensions=[PLANNER], mock_tools=mocks, allow_unused_mocks=True, **options
        )

    return start


class Ids:
    """The ids of the proposed plans."""

    def __init__(self):
        self.all = []

    def store(self, result):
        """Store the id in a result, as the callback of `.then()`."""
        self.all.append(re.search(r"PLAN-[0-9a-f]+", result.text)[0])

    def params(self, index=0):
        """Return the parameters of a later call, as a function: the id is not known yet."""
        return lambda: {"id": self.all[index]}


@pytest.fixture
def ids():
    return Ids()


def propose(ids, title="Cook omelette"):
    return call("plan_propose", {"title": title, "steps": STEPS}).then(ids.store)


def result_text(run, tool, index=0):
    return run.results(tool)[index].text


# ---------------------------------------------------------------------------------------- plan mode


def test_plan_mode_is_switched_and_shown_as_status(planner):
    t = planner()
    run = t.run(when("Plan, then stop", [ON, OFF, say("ok")]))
    assert result_text(run, "plan_mode") == "Plan mode is now on: nothing can be changed."
    assert result_text(run, "plan_mode", 1) == "Plan mode is now off."
    assert [c.args for c in t.events.ui_calls_for("set_status")] == [
        ["plan-mode", "planning"],
        ["plan-mode", None],
    ]


@pytest.mark.parametrize("calls, word", [([ON, ON], "on"), ([OFF], "off")])
def test_switching_to_the_current_mode_changes_nothing(planner, calls, word):
    run = planner().run(when("Plan", [*calls, say("ok")]))
    assert run.results("plan_mode")[-1].text == f"Plan mode is already {word}."


def test_plan_mode_is_off_in_a_new_session(planner):
    run = planner().run(when("Go", [call("write", {"path": "a", "content": "b"}), say("ok")]))
    assert result_text(run, "write") == "written"


# ----------------------------------------------------------------------------------- blocked tools


@pytest.mark.parametrize(
    "tool, params",
    [
        ("write", {"path": "a.txt", "content": "x"}),
        ("edit", {"path": "a.txt", "old": "x", "new": "y"}),
    ],
)
def test_writing_tools_are_blocked_while_planning(planner, tool, params):
    run = planner().run(when("Plan", [ON, call(tool, params), say("ok")]))
    (blocked,) = run.events.blocked_calls()
    assert blocked.tool_name == tool
    assert "Propose a plan" in blocked.block_reason
    assert run.results(tool)[0].is_error


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf build",
        "git push",
        "git push origin main",
        "git commit -m x",
        "git",
        "npm install left-pad",
        "pip install x",
        "mv a b",
        "echo x > a.txt",
        "echo x >> a.txt",
        "ls && rm a",
        "ls; rm a",
        "ls | xargs rm",
        "ls\nrm a",
        "cat $(rm a)",
        "cat `rm a`",
        "find . -delete",
        "find . -exec rm {} +",
        "sed -i s/a/b/ a.txt",
        "sort -o a.txt a.txt",
        "sudo ls",
        "python -c 'import os'",
        "X=1 rm a",
        "echo 'unclosed",
        "git diff --output=a.txt",
        "ls &>> a.txt",
        "tee a.txt",
    ],
)
def test_destructive_commands_are_blocked_while_planning(planner, command):
    run = planner().run(when("Plan", [ON, call("bash", {"command": command}), say("ok")]))
    (blocked,) = run.events.blocked_calls()
    assert blocked.block_reason.startswith("Plan mode: ")
    assert not run.results("bash")[0].mocked


@pytest.mark.parametrize(
    "command",
    [
        "ls",
        "ls -la src",
        "git status",
        "git log --oneline | head -5",
        "cat a.txt && wc -l a.txt",
        "grep -rn 'rm -rf' . 2>/dev/null",
        "find . -name '*.py'",
        "echo 'a > b; rm c'",
        "npm ls",
        "ls 2>&1",
    ],
)
def test_commands_that_only_read_are_allowed_while_planning(planner, command):
    run = planner().run(when("Plan", [ON, call("bash", {"command": command}), say("ok")]))
    assert run.events.blocked_calls() == []
    assert result_text(run, "bash") == f"ran {command}"


def test_reading_files_is_allowed_while_planning(planner, tmp_path):
    (tmp_path / "a.txt").write_text("contents")
    run = planner(cwd=tmp_path).run(when("Plan", [ON, call("read", {"path": "a.txt"}), say("ok")]))
    assert result_text(run, "read") == "contents"


def test_everything_is_allowed_after_leaving_plan_mode(planner):
    dangerous = [
        call("bash", {"command": "rm -rf build"}),
        call("write", {"path": "a", "content": "b"}),
    ]
    run = planner().run(when("Plan", [ON, *dangerous, OFF, *dangerous, say("ok")]))
    assert [c.blocked for c in run.events.tool_calls] == [False, True, True, False, False, False]


def test_two_sessions_do_not_share_their_mode(planner):
    planner().run(when("Plan", [ON, say("ok")]))
    run = planner().run(when("Go", [call("write", {"path": "a", "content": "b"}), say("ok")]))
    assert run.events.blocked_calls() == []


# -------------------------------------------------------------------------------------------- plans


def test_a_plan_is_proposed_and_approved(planner, ids):
    t = planner(mock_ui={"confirm": True})
    t.run(
        when("Plan it", [ON, propose(ids), say("Plan created, awaiting approval.")]),
        when("Approve it", [call("plan_approve", ids.params()), say("Plan approved.")]),
    )
    (id_,) = ids.all
    assert re.fullmatch(r"PLAN-[0-9a-f]{8}", id_)
    assert t.events.tool_results_for("plan_approve")[0].text == f"{id_} approved."
    assert t.events.tool_sequence() == ["plan_mode", "plan_propose", "plan_approve"]
    (confirm,) = t.events.ui_calls_for("confirm")
    assert confirm.args == [
        f"Approve {id_}?",
        f"{id_} [proposed] Cook omelette\n1. Crack eggs (kitchen crack)",
    ]
    assert t.events.ui_calls_for("notify")[0].args[0] == "New plan: Cook omelette"


def test_the_id_of_a_plan_is_in_the_details_of_its_result(planner, ids):
    run = planner().run(when("Plan", [propose(ids), say("ok")]))
    assert run.results("plan_propose")[0].details == {"id": ids.all[0]}


def test_a_declined_plan_stays_proposed(planner, ids):
    t = planner(mock_ui={"confirm": False})
    run = t.run(
        when(
            "Plan", [propose(ids), call("plan_approve", ids.params()), call("plan_list"), say("ok")]
        )
    )
    assert "was not approved" in result_text(run, "plan_approve")
    assert "[proposed]" in result_text(run, "plan_list")


def test_a_new_session_has_no_plans(planner):
    run = planner().run(when("List", [call("plan_list"), say("None.")]))
    assert result_text(run, "plan_list") == "No plans found."


def test_plans_are_listed_and_filtered_by_status(planner, ids):
    run = planner().run(
        when(
            "Plan",
            [
                [propose(ids, "One"), propose(ids, "Two")],
                call("plan_reject", ids.params(1)),
                call("plan_list"),
                call("plan_list", {"status": "rejected"}),
                say("ok"),
            ],
        )
    )
    one, two = ids.all
    assert result_text(run, "plan_list") == f"{one} [proposed] One\n{two} [rejected] Two"
    assert result_text(run, "plan_list", 1) == f"{two} [rejected] Two"


def test_a_plan_is_read_with_its_steps(planner, ids):
    run = planner().run(when("Plan", [propose(ids), call("plan_get", ids.params()), say("ok")]))
    assert result_text(run, "plan_get").splitlines()[1:] == ["1. Crack eggs (kitchen crack)"]


def test_a_rejected_plan_has_a_reason(planner, ids):
    def rejection():
        return {"id": ids.all[0], "reason": "too many eggs"}

    run = planner().run(
        when(
            "Plan",
            [
                propose(ids),
                call("plan_reject", rejection),
                call("plan_get", ids.params()),
                say("ok"),
            ],
        )
    )
    assert "Rejected: too many eggs" in result_text(run, "plan_get")


@pytest.mark.parametrize("tool", ["plan_get", "plan_approve", "plan_reject"])
def test_an_unknown_plan_is_an_error(planner, tool):
    run = planner().run(when("Plan", [call(tool, {"id": "PLAN-none"}), say("ok")]))
    (result,) = run.results(tool)
    assert (result.is_error, result.text) == (True, "Unknown plan PLAN-none.")


def test_the_nearest_id_is_suggested(planner, ids):
    run = planner().run(
        when("Plan", [propose(ids), call("plan_get", lambda: {"id": ids.all[0][:-1]}), say("ok")])
    )
    assert f"Did you mean {ids.all[0]}?" in result_text(run, "plan_get")


@pytest.mark.parametrize(
    "first, second, status",
    [
        ("plan_approve", "plan_approve", "approved"),
        ("plan_approve", "plan_reject", "approved"),
        ("plan_reject", "plan_approve", "rejected"),
        ("plan_reject", "plan_reject", "rejected"),
    ],
)
def test_a_decision_is_final(planner, ids, first, second, status):
    run = planner().run(
        when(
            "Plan", [propose(ids), call(first, ids.params()), call(second, ids.params()), say("ok")]
        )
    )
    result = run.results(second)[-1]
    assert result.is_error
    assert f"is {status} already" in result.text


@pytest.mark.parametrize(
    "params",
    [
        {"title": "x"},
        {"title": "", "steps": STEPS},
        {"title": "x", "steps": []},
        {"title": "x", "steps": [{"tool": "bash"}]},
        {"title": "x", "steps": STEPS, "urgent": True},
    ],
)
def test_an_invalid_plan_is_rejected(planner, params):
    wrong = call("plan_propose", params, invalid=True)
    run = planner().run(when("Plan", [wrong, call("plan_list"), say("ok")]))
    assert run.results("plan_propose")[0].is_error
    assert result_text(run, "plan_list") == "No plans found."


def test_the_command_shows_the_plans(planner, ids):
    t = planner()
    t.run(when("/plans", []), when("Plan", [propose(ids), say("ok")]), when("/plans", []))
    first, second = t.events.ui_calls_for("set_widget")
    assert first.args == ["plans", ["No plans."]]
    assert second.args == ["plans", [f"{ids.all[0]} [proposed] Cook omelette"]]


async def test_the_planner_works_in_an_async_test(offbook, ids):
    t = offbook.session(extensions=[PLANNER])
    run = await t.run(when("Plan", [ON, propose(ids), say("ok")]))
    assert run.tools == ["plan_mode", "plan_propose"]
