"""The ids of scripted tool calls look like those of the provider."""

import re
from typing import Any

import pytest

from offbook.exchange import History, ModelSource, Request, Tool, user
from offbook.sources.mocks import Mocks
from offbook.sources.playbook import Playbook, call, when

FORMS = {
    "chat": r"call_[0-9A-Za-z]{24}",
    "responses": r"call_[0-9A-Za-z]{24}",
    "gemini": r"call_[0-9A-Za-z]{24}",
    "anthropic": r"toolu_01[0-9A-Za-z]{22}",
    "mistral": r"[0-9A-Za-z]{9}",
    "bedrock": r"tooluse_[0-9A-Za-z]{22}",
}


def scripted() -> Playbook:
    playbook = Playbook()
    playbook.load(when("Look", [[call("read"), call("read")]]))
    return playbook


def mocked() -> Mocks:
    return Mocks([{"tool_calls": [{"name": "read"}, {"name": "read"}]}])


async def call_ids(source: ModelSource, dialect: str) -> list[str]:
    head: Any = {"tools": (Tool("read"),), "metadata": {"dialect": dialect}}
    request = Request(History([user("Look")]), **head)
    return [tool_call.id for tool_call in (await source.reply(request)).calls]


@pytest.mark.parametrize("make_source", [scripted, mocked])
@pytest.mark.parametrize("dialect, form", FORMS.items())
async def test_ids_have_the_form_of_the_provider_and_differ(
    make_source: type[Playbook], dialect: str, form: str
):
    first, second = await call_ids(make_source(), dialect)
    assert re.fullmatch(form, first)
    assert re.fullmatch(form, second)
    assert first != second


@pytest.mark.parametrize("make_source", [scripted, mocked])
async def test_ids_are_the_same_in_every_run(make_source: type[Playbook]):
    assert await call_ids(make_source(), "chat") == await call_ids(make_source(), "chat")
