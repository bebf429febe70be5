"""The person's prompt is told apart from the texts that a client adds to it."""

import json
from pathlib import Path
from typing import Any

import pytest

from offbook.errors import ScriptMismatch
from offbook.exchange import History, Request, detect_dialect, strip_injected, user
from offbook.exchange.dialects import ConversationStore, HttpRequest
from offbook.sources.playbook import Playbook, role, say, when

REMINDER = "<system-reminder>\nNever commit to main.\n</system-reminder>\n"


@pytest.mark.parametrize(
    "text, written",
    [
        ("Refund order 7", "Refund order 7"),
        (REMINDER, ""),
        (f"{REMINDER}Refund order 7", "Refund order 7"),
        (f"{REMINDER}Refund it{REMINDER}", "Refund it"),
        ("<system-reminder>a </system-reminder> b</system-reminder>", ""),
        ("<environment_context>\n<shell>bash</shell>\n</environment_context>", ""),
        ("<user_instructions>\nUse tabs.\n</user_instructions>", ""),
        ("# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>", ""),
        ("<session_context>\nThis is the Gemini CLI.\n</session_context>", ""),
        # A prompt may have tags of its own, and a tag that is never closed ends nothing.
        ("<task>Fix <b>it</b></task>", "<task>Fix <b>it</b></task>"),
        ("what does <system-reminder> mean?", "what does <system-reminder> mean?"),
    ],
)
def test_texts_of_the_client_are_not_part_of_the_prompt(text: str, written: str):
    assert strip_injected(text) == written


def captured(folder: Path) -> Request:
    """Return the first request of a captured client, decoded by its dialect."""
    capture: dict[str, Any] = json.loads((folder / "01.json").read_text())
    body = json.dumps(capture["body"]).encode()
    http_request = HttpRequest(capture["method"], capture["path"], capture["headers"], body)
    dialect = detect_dialect(http_request, rules=frozenset())
    assert dialect is not None
    return dialect.decode(http_request, ConversationStore())


@pytest.mark.external
@pytest.mark.parametrize(
    "client, prompt",
    [
        ("claude-code", "say hello using bash"),
        ("codex", "say hello using the shell"),
        ("gemini-cli", "say hello using the shell"),
        ("claude-agent-sdk-bash", "say hello using bash"),
    ],
)
def test_the_prompt_of_a_real_client_is_what_the_person_wrote(
    shared_data: Path, client: str, prompt: str
):
    request = captured(shared_data / "wire" / client)
    assert request.latest_prompt == request.first_prompt == prompt


@pytest.mark.external
@pytest.mark.parametrize("client, injected", [("claude-code", "commit"), ("codex", "timezone")])
async def test_when_does_not_match_text_that_the_client_injected(
    shared_data: Path, client: str, injected: str
):
    playbook = Playbook()
    playbook.load(when(injected, [say("never")]))
    with pytest.raises(ScriptMismatch) as caught:
        await playbook.reply(captured(shared_data / "wire" / client))
    assert 'got: a user message: "say hello using' in str(caught.value)


async def test_a_reminder_after_the_last_step_does_not_open_the_next_turn():
    playbook = Playbook()
    playbook.load(when("Refund", [say("done")]), when("commit", [say("never")]))
    await playbook.reply(Request(History([user("Refund it")])))
    with pytest.raises(
        Exception, match='a message of the client alone, after the prompt "Refund it"'
    ):
        await playbook.reply(Request(History([user("Refund it"), user(REMINDER)])))


async def test_a_role_matches_the_first_prompt_not_the_environment():
    playbook = Playbook()
    playbook.load(role("sub", [say("found")], first="Find out"))
    request = Request(History([user(REMINDER), user("Find out why")]))
    assert (await playbook.reply(request)).text == "found"
