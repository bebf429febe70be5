"""Programs that send prompts of their own: one script plays them in process and as a command."""

from pathlib import Path
from typing import Any

import pytest

from offbook import drive, role, say, session, when
from offbook.errors import PlaybookError, ScriptExhausted, ScriptMismatch, ScriptUnfinished
from offbook.sources import read_script
from offbook.surfaces.cli import main as run_offbook
from tests.forked import forked_command
from tests.runs import self_prompting

PROGRAMS = {
    "react": "- {when: Who?, do: [{say: 'Act: look'}, {say: 'Act: read'}, {say: 'Final: Ada'}]}",
    "retry_json": "- {when: Count, do: [{say: 'one'}, {say: '[1'}, {say: '[1]'}]}",
    "round_robin": "- {when: A story, do: [{say: Once}, {say: upon}, {say: a time}]}",
    "ralph": """
- {when: Build it, do: [{say: started}]}
- {when: Iteration 2, do: [{say: half}]}
- {when: Iteration 3, do: [{say: done}]}
""",
    "pipeline": """
- {when: Write a draft, do: [{say: Tea.}]}
- {when: Review this draft, do: [{say: Good.}]}
- {when: Find a title, do: [{say: On tea}]}
""",
    "guarded": """
- {role: guardrail, system: guardrail, do: [{say: 'yes'}]}
- {role: assistant, system: assistant, do: [{say: Done.}]}
""",
    # The first request is the role's; its second one belongs to the turn.
    "planned": """
- {role: planner, system: engineer, do: [{say: one step}]}
- {when: a bridge, do: [{say: built}]}
""",
}
PROMPTS = {
    "react": "Who?",
    "retry_json": "Count",
    "round_robin": "A story",
    "ralph": "Build it",
    "planned": "a bridge",
}


pytestmark = pytest.mark.usefixtures("api_key")


@pytest.fixture
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_plays_a_program_in_process(name: str, tmp_path: Path):
    path = tmp_path / "script.yaml"
    path.write_text(PROGRAMS[name])
    with drive(getattr(self_prompting, name)) as rehearsal:
        rehearsal.run(*read_script(path))
        assert rehearsal.playbook.remaining == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_script_plays_the_program_as_a_command(name: str, tmp_path: Path):
    path = tmp_path / "script.yaml"
    path.write_text(PROGRAMS[name])
    program = forked_command(self_prompting.__file__, name, *filter(None, [PROMPTS.get(name)]))
    with pytest.raises(SystemExit) as ended:
        run_offbook(["run", "--script", str(path), "--", *program])
    assert ended.value.code == 0


def test_a_turn_that_the_agent_sent_itself_is_not_prompted_again():
    prompts: list[str] = []

    def agent(prompt: str) -> None:
        prompts.append(prompt)
        self_prompting.ask(prompt)
        if prompt == "one":
            self_prompting.ask("now two")

    with drive(agent) as rehearsal:
        rehearsal.run(*(when(text, [say("ok")]) for text in ("one", "two", "three")))
    assert prompts == ["one", "three"]


def test_a_repeated_prompt_does_not_take_the_next_turn_with_the_same_text():
    answers: list[str] = []

    def asks_twice(prompt: str) -> None:
        answers.append(self_prompting.ask(prompt))
        answers.append(self_prompting.ask(prompt))

    with drive(asks_twice) as rehearsal, pytest.raises(ScriptExhausted):
        rehearsal.run(when("again", [say("1")]), when("again", [say("2")]))
    assert answers == ["1"]


def test_the_run_of_a_program_has_the_turns_of_the_script():
    turns = [when(text, [say("a")]) for text in ("Write a draft", "Review", "Find a title")]
    with drive(self_prompting.pipeline) as rehearsal:
        rehearsal.run(*turns)
        assert rehearsal.events.named("_meta.run_start")[0].data["turns"] == 3


def test_a_program_that_sends_fewer_prompts_leaves_turns_unfinished():
    with drive(self_prompting.pipeline) as rehearsal, pytest.raises(ScriptUnfinished) as caught:
        rehearsal.run(
            when("Write a draft", [say("a")]),
            when("Review this draft", [say("b")]),
            when("Find a title", [say("c")]),
            when("Print it", [say("d")]),
        )
    assert "when('Print it')" in str(caught.value)


def test_a_program_that_sends_another_prompt_is_a_mismatch():
    with drive(self_prompting.pipeline) as rehearsal, pytest.raises(ScriptMismatch) as caught:
        rehearsal.run(when("Write a draft", [say("a")]), when("Revise this draft", [say("b")]))
    assert "Review this draft" in str(caught.value)


def test_a_function_without_parameters_gets_its_options():
    seen: list[int] = []

    def main(*, rounds: int) -> None:
        seen.append(rounds)
        for number in range(rounds):
            self_prompting.ask(f"round {number}")

    with drive(main, rounds=2) as rehearsal:
        rehearsal.run(when("round 0", [say("a")]), when("round 1", [say("b")]))
    assert seen == [2]


def test_roles_alone_are_refused_if_the_agent_needs_a_prompt():
    cast: Any = role("all", [say("ok")], system="x")
    with session() as rehearsal, pytest.raises(PlaybookError) as caught:
        rehearsal.run(cast)
    assert 'when("the prompt", [])' in caught.value.hint


def test_a_turn_without_actions_leaves_its_requests_to_the_roles():
    def agent(prompt: str) -> str:
        return self_prompting.ask(prompt, system="You translate.")

    cast = role("translator", [say("Bonjour"), say("Adieu")], system="translate")
    with drive(agent) as rehearsal:
        rehearsal.run(cast, when("Hello", []), when("Bye", []))
        assert rehearsal.playbook.remaining == 0


def test_an_unused_role_fails_a_turn_without_actions():
    def silent(prompt: str) -> None: ...

    with drive(silent) as rehearsal, pytest.raises(ScriptUnfinished):
        rehearsal.run(role("translator", [say("Bonjour")], system="translate"), when("Hello", []))


def test_the_rest_of_a_turn_that_the_agent_never_asks_for_fails_with_a_fix():
    with session() as rehearsal, pytest.raises(ScriptUnfinished) as caught:
        rehearsal.run(when("Hi", [say("Hello."), say("Bye.")]))
    assert "most agents stop at a text" in str(caught.value)
