"""Published extensions of other authors, each driven by a playbook in the real pi.

`./dev clients` installs them. The versions are pinned in tests/matrix/homes.py.
"""

import json

import pytest
from pi_installed import PACKAGES, PI_0_87, needs_extensions, needs_pi_0_87

from offbook import call, drive, role, say, when
from offbook.clis import Pi

pytestmark = [pytest.mark.clients, needs_extensions]


def pi(package, **options):
    return Pi(extensions=[PACKAGES / package], **options)


def test_rpiv_todo_keeps_a_list_and_reports_an_unknown_task_as_a_success():
    with drive(pi("@juicesharp/rpiv-todo")) as t:
        run = t.run(
            when(
                "Plan the work",
                [
                    call("todo", {"action": "create", "subject": "Write tests"}),
                    call("todo", {"action": "update", "id": 1, "status": "in_progress"}),
                    call("todo", {"action": "update", "id": 99, "status": "completed"}),
                    call("todo", {"action": "list"}),
                    say("Planned."),
                ],
            )
        )
        created, _, unknown, listed = run.results("todo")
        assert "Write tests" in created.text
        assert "Write tests" in listed.text
        # The model reads an error, pi does not know of one.
        assert "#99 not found" in unknown.text
        assert not unknown.is_error


def test_ralph_wiggum_prompts_pi_itself_until_its_task_is_done():
    task = {"name": "tidy", "taskContent": "- [ ] one\n- [ ] two\n", "maxIterations": 5}
    with drive(pi("@tmustier/pi-ralph-wiggum")) as t:
        run = t.run(
            when("Tidy up in a loop", [call("ralph_start", task), say("Started.")]),
            when("tidy | Iteration 1/5", [call("ralph_done"), say("One done.")]),
            when("tidy | Iteration 2/5", [say("All done. <promise>COMPLETE</promise>")]),
            when("RALPH LOOP COMPLETE: tidy", [say("Bye.")]),
        )
        assert "Iteration 1 complete" in run.results("ralph_done")[0].text
        assert (t.cwd / ".ralph" / "tidy.md").exists()
        assert run.output == "Bye."


def test_pi_subagents_runs_a_child_that_a_role_answers():
    with drive(pi("@tintinweb/pi-subagents")) as t:
        run = t.run(
            role("explorer", [say("There are two modules.")], first="Count the modules"),
            when(
                "How many modules?",
                [
                    call(
                        "Agent",
                        {
                            "prompt": "Count the modules",
                            "description": "Count modules",
                            "subagent_type": "general-purpose",
                        },
                    ),
                    say("Two."),
                ],
            ),
        )
        assert "There are two modules." in run.results("Agent")[0].text


@needs_pi_0_87
def test_ask_user_question_sends_the_answer_of_the_user_to_the_model():
    question = {
        "question": "Which database?",
        "header": "Database",
        "options": [
            {"label": "Postgres", "description": "pg"},
            {"label": "SQLite", "description": "one file"},
        ],
    }

    def choose(_title, items):
        return next(item for item in items if "SQLite" in item)

    subject = pi(
        "@juicesharp/rpiv-ask-user-question", mock_ui={"select": choose}, program=str(PI_0_87)
    )
    with drive(subject) as t:
        run = t.run(
            when("Ask me", [call("ask_user_question", {"questions": [question]}), say("Noted.")])
        )
        assert "SQLite" in run.results("ask_user_question")[0].text


@needs_pi_0_87
def test_permission_system_asks_for_some_commands_and_denies_others():
    rules = {"permission": {"bash": {"*": "ask", "rm *": "deny"}}}
    subject = pi(
        "@gotgenes/pi-permission-system",
        program=str(PI_0_87),
        mock_tools={"bash": "ok"},
        mock_ui={"select": lambda title: "No" if "push" in title else "Yes"},
        home_files={
            ".pi/agent/extensions/pi-permission-system/config.json": json.dumps(rules),
        },
    )
    with drive(subject) as t:
        commands = ["rm -rf build", "ls", "git push"]
        run = t.run(
            when("Clean up", [*[call("bash", {"command": c}) for c in commands], say("Done.")])
        )
        assert [c.input["command"] for c in t.events.blocked_calls()] == [
            "rm -rf build",
            "git push",
        ]
        assert [tool.input["command"] for tool in run.executed] == ["ls"]


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="pi-plan-mode 0.2.4 calls ctx.modelRegistry.getApiKey, which pi no longer has. Its"
    " review of shell commands throws, and a command whose review fails is allowed.",
)
def test_plan_mode_blocks_a_command_that_deletes_files():
    with drive(pi("pi-plan-mode", mock_tools={"bash": "deleted"}), allow_unused_mocks=True) as t:
        run = t.run(
            # Its widget shows a summary of the plan, by a request of its own.
            role("summary", [say("Tidy up.")], first="Summarize this plan"),
            when("/plan tidy", []),
            when("Tidy up", [call("bash", {"command": "rm -rf build"}), say("Done.")]),
        )
        shown = [call.args[0] for call in t.events.ui_calls_for("notify")]
        assert run.tools == [], f"the command ran: {shown[-1]}"
