"""The planner, rehearsed: what the model would do, and what the planner makes of it."""

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
    """A session with the planner, in which the shell and the files are not real."""

    def begin(**options):
        mocks = {
            "bash": lambda params: f"ran {params['command']}",
            "write": "written",
            "edit": "edited",
        }
        return offbook.session(extensions=[PLANNER], mock_tools=mocks, **options)

    return begin


class Ids:
    """Keeps the ids of the plans that were proposed."""

    def __init__(self):
        self.all = []

    def keep(self, result):
        """What `.then()` calls."""
        self.all.append(re.search(r"PLAN-[0-9a-f]+", result.text)[0])

    def of(self, at=0):
        """Parameters for a later call, with an id that is not known yet."""
        return lambda: {"id": self.all[at]}


@pytest.fixture
def ids():
    return Ids()


def propose(ids, title="Cook omelette"):
    return call("plan_propose", {"title": title, "steps": STEPS}).then(ids.keep)


def text_of(run, tool, at=0):
    return run.results(tool)[at].text


# ---------------------------------------------------------------------------------------- plan mode


def test_plan_mode_goes_on_and_off_and_shows_it(planner):
    t = planner()
    run = t.run(when("Plan, then stop", [ON, OFF, say("ok")]))
    assert text_of(run, "plan_mode") == "Plan mode is now on: nothing can be changed."
    assert text_of(run, "plan_mode", 1) == "Plan mode is now off."
    assert [c.args for c in t.events.ui_calls_for("set_status")] == [
        ["plan-mode", "planning"],
        ["plan-mode", None],
    ]


@pytest.mark.parametrize("calls, word", [([ON, ON], "on"), ([OFF], "off")])
def test_plan_mode_that_is_there_already_changes_nothing(planner, calls, word):
    run = planner().run(when("Plan", [*calls, say("ok")]))
    assert run.results("plan_mode")[-1].text == f"Plan mode is already {word}."


def test_a_new_session_is_not_planning(planner):
    run = planner().run(when("Go", [call("write", {"path": "a", "content": "b"}), say("ok")]))
    assert text_of(run, "write") == "written"


# ----------------------------------------------------------------------------- what it lets through


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
    assert text_of(run, "bash") == f"ran {command}"


def test_reading_files_is_allowed_while_planning(planner, tmp_path):
    (tmp_path / "a.txt").write_text("contents")
    run = planner(cwd=tmp_path).run(when("Plan", [ON, call("read", {"path": "a.txt"}), say("ok")]))
    assert text_of(run, "read") == "contents"


def test_everything_is_allowed_again_after_leaving(planner):
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


def test_a_plan_is_proposed_approved_and_kept(planner, ids):
    t = planner(mock_ui={"confirm": True})
    t.run(
        when("Plan it", [ON, propose(ids), say("Plan created, awaiting approval.")]),
        when("Approve it", [call("plan_approve", ids.of()), say("Plan approved.")]),
    )
    (id_,) = ids.all
    assert re.fullmatch(r"PLAN-[0-9a-f]{8}", id_)
    assert t.events.tool_results_for("plan_approve")[0].text == f"{id_} approved."
    assert t.events.tool_sequence() == ["plan_mode", "plan_propose", "plan_approve"]
    (asked,) = t.events.ui_calls_for("confirm")
    assert asked.args == [
        f"Approve {id_}?",
        f"{id_} [proposed] Cook omelette\n1. Crack eggs (kitchen crack)",
    ]
    assert t.events.ui_calls_for("notify")[0].args[0] == "New plan: Cook omelette"


def test_the_id_of_a_plan_is_in_the_details_of_its_result(planner, ids):
    run = planner().run(when("Plan", [propose(ids), say("ok")]))
    assert run.results("plan_propose")[0].details == {"id": ids.all[0]}


def test_a_plan_that_the_person_does_not_want_stays_proposed(planner, ids):
    t = planner(mock_ui={"confirm": False})
    run = t.run(
        when("Plan", [propose(ids), call("plan_approve", ids.of()), call("plan_list"), say("ok")])
    )
    assert "was not approved" in text_of(run, "plan_approve")
    assert "[proposed]" in text_of(run, "plan_list")


def test_there_are_no_plans_at_first(planner):
    run = planner().run(when("List", [call("plan_list"), say("None.")]))
    assert text_of(run, "plan_list") == "No plans found."


def test_plans_are_listed_with_their_status_and_by_it(planner, ids):
    run = planner().run(
        when(
            "Plan",
            [
                [propose(ids, "One"), propose(ids, "Two")],
                call("plan_reject", ids.of(1)),
                call("plan_list"),
                call("plan_list", {"status": "rejected"}),
                say("ok"),
            ],
        )
    )
    one, two = ids.all
    assert text_of(run, "plan_list") == f"{one} [proposed] One\n{two} [rejected] Two"
    assert text_of(run, "plan_list", 1) == f"{two} [rejected] Two"


def test_a_plan_is_read_with_its_steps(planner, ids):
    run = planner().run(when("Plan", [propose(ids), call("plan_get", ids.of()), say("ok")]))
    assert text_of(run, "plan_get").splitlines()[1:] == ["1. Crack eggs (kitchen crack)"]


def test_a_rejected_plan_tells_why(planner, ids):
    def why():
        return {"id": ids.all[0], "reason": "too many eggs"}

    run = planner().run(
        when(
            "Plan", [propose(ids), call("plan_reject", why), call("plan_get", ids.of()), say("ok")]
        )
    )
    assert "Rejected: too many eggs" in text_of(run, "plan_get")


@pytest.mark.parametrize("tool", ["plan_get", "plan_approve", "plan_reject"])
def test_a_plan_that_is_not_there_is_an_error(planner, tool):
    run = planner().run(when("Plan", [call(tool, {"id": "PLAN-none"}), say("ok")]))
    (result,) = run.results(tool)
    assert (result.is_error, result.text) == (True, "There is no plan PLAN-none.")


def test_an_id_that_is_nearly_right_is_corrected(planner, ids):
    run = planner().run(
        when("Plan", [propose(ids), call("plan_get", lambda: {"id": ids.all[0][:-1]}), say("ok")])
    )
    assert f"Did you mean {ids.all[0]}?" in text_of(run, "plan_get")


@pytest.mark.parametrize(
    "first, second, status",
    [
        ("plan_approve", "plan_approve", "approved"),
        ("plan_approve", "plan_reject", "approved"),
        ("plan_reject", "plan_approve", "rejected"),
        ("plan_reject", "plan_reject", "rejected"),
    ],
)
def test_what_was_decided_is_decided(planner, ids, first, second, status):
    run = planner().run(
        when("Plan", [propose(ids), call(first, ids.of()), call(second, ids.of()), say("ok")])
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
def test_a_plan_that_is_no_plan_is_refused(planner, params):
    run = planner().run(when("Plan", [call("plan_propose", params), call("plan_list"), say("ok")]))
    assert run.results("plan_propose")[0].is_error
    assert text_of(run, "plan_list") == "No plans found."


def test_the_command_shows_the_plans(planner, ids):
    t = planner()
    t.run(when("/plans", []), when("Plan", [propose(ids), say("ok")]), when("/plans", []))
    first, second = t.events.ui_calls_for("set_widget")
    assert first.args == ["plans", ["No plans."]]
    assert second.args == ["plans", [f"{ids.all[0]} [proposed] Cook omelette"]]


async def test_it_is_the_same_in_an_async_test(offbook, ids):
    t = offbook.session(extensions=[PLANNER])
    run = await t.run(when("Plan", [ON, propose(ids), say("ok")]))
    assert run.tools == ["plan_mode", "plan_propose"]
