"""Half a character that the model wrote: no provider takes it back, which is no finding."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter

from offbook import call, drive, say, when
from offbook.errors import InvariantBroken
from offbook.explore import replay

URL = "https://generativelanguage.googleapis.com/v1beta/models/gemini-3-flash:generateContent"
NOTE: dict[str, Any] = {
    "name": "note",
    "parameters": {"type": "object", "properties": {"text": {}}},
}


def send(contents: list[Any]) -> dict[str, Any]:
    body = {"contents": contents, "tools": [{"functionDeclarations": [NOTE]}]}
    # Half a character becomes an escape.
    reply = httpx.post(URL, content=json.dumps(body), headers={"x-goog-api-key": "none"})
    return reply.raise_for_status().json()["candidates"][0]["content"]


def run_agent(prompt: str, *, cuts: bool = False, logs: bool = False) -> str:
    """Answer each call with its text; a careless agent sends the first 16 bits of it."""
    contents: list[Any] = [{"role": "user", "parts": [{"text": prompt}]}]
    while calls := [p["functionCall"] for p in send_all(contents) if "functionCall" in p]:
        text = calls[0]["args"]["text"]
        if logs:
            TypeAdapter(str).dump_json(text)
        text = text.encode("utf-16-le", "surrogatepass")[:2].decode("utf-16-le", "surrogatepass")
        result = {"text": text if cuts else "noted"}
        part = {"functionResponse": {"name": "note", "response": result}}
        contents.append({"role": "user", "parts": [part]})
    return contents[-1]["parts"][0]["text"]


def send_all(contents: list[Any]) -> list[Any]:
    contents.append(send(contents))
    return contents[-1]["parts"]


def cutting_agent(prompt: str) -> str:
    return run_agent(prompt, cuts=True)


def logging_agent(prompt: str) -> str:
    return run_agent(prompt, logs=True)


def write(text: str) -> Any:
    return when("Keep a note", [call("note", {"text": text}), say("Done.")])


def test_half_a_character_of_the_model_is_no_finding():
    replay(lambda: drive(run_agent), write("\ud83d"))


def test_a_library_that_refuses_half_a_character_of_the_model_is_no_finding():
    replay(lambda: drive(logging_agent), write("\ud83d"))


def test_half_a_character_that_the_agent_made_is_one():
    with pytest.raises(InvariantBroken, match="the provider refused the request"):
        replay(lambda: drive(cutting_agent), write("😀"))
