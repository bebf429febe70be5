"""A careful loop over the API of OpenAI, and loops that each have one weakness.

A loop is a function of the prompt with its own HTTP, so only its requests and its answer are seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

URL = "https://api.openai.com/v1/chat/completions"
NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": NUMBER}}
    for name in ("get_order", "refund")
]
TRIES = 3
MOST_TURNS = 40
FOR_EVER = 150  # turns or tries: as good as no limit, and a failing test ends
PASSES = {408, 409, 429, 500, 502, 503, 504, 529}  # the statuses after which a retry helps
JSON = dict[str, Any]
# What a loop returns in place of an error, by its weakness; not all of it is one.
ANSWERS: dict[str, object] = {
    "claims done": "The refund is done.",
    "always the same answer": "All done.",
    "a neutral answer": "Please call us.",
    "an object": {"status": "success", "error": None},
    "apologizes": "Sorry, that did not work.",
    "apologizes at once": "Sorry, that did not work.",
    "apologizes in German": "Leider ist der Dienst nicht erreichbar.",
    "an error object": {"status": None, "error": "the model is overloaded"},
}


class Unanswered(Exception):
    """The loop reports that it has no answer."""


class ErrorOfProvider(Exception):
    """A response that is none, with the text that had arrived."""

    def __init__(self, reason: str, *, passes: bool, part: str = "") -> None:
        super().__init__(reason)
        self.passes = passes
        self.part = part


def make_loop(weakness: str = "", *, stream: bool = False) -> Callable[[str], object]:
    """Return a loop with this weakness; without one, a careful loop."""

    def agent(prompt: str) -> object:
        return Loop(weakness, stream=stream).run(prompt)

    return agent


class Loop:
    """One conversation."""

    def __init__(self, weakness: str, *, stream: bool) -> None:
        self.weakness = weakness
        self.stream = stream
        self.part = ""

    def run(self, prompt: str) -> object:
        try:
            answer = self.talk(prompt)
        except Unanswered as error:
            if self.weakness == "quotes the error":
                return {"status": str(error)}
            if self.weakness in ANSWERS:
                return ANSWERS[self.weakness]
            raise
        return self.part + answer

    def talk(self, prompt: str) -> str:
        messages: list[JSON] = [{"role": "user", "content": prompt}]
        endless = self.weakness in {"asks for ever", "drops unknown calls"}
        turns = FOR_EVER if endless else MOST_TURNS
        for _ in range(turns):
            message, reason = self.ask(messages)
            text, calls = message.get("content") or "", read_calls(message)
            if message.get("refusal"):
                raise Unanswered(f"the model refused: {message['refusal']}")
            if reason == "length" and not calls:
                if self.weakness == "shows the cut text":
                    return f"{text} (cut off)"
                if self.weakness == "goes on after the cut":
                    messages += [message, {"role": "user", "content": "Go on."}]
                    self.part += text
                    continue
                raise Unanswered("the answer was cut")
            if text.strip() and (not calls or self.weakness == "answers early"):
                return text
            if self.weakness == "drops unknown calls" and any(is_unknown(c) for c in calls):
                continue
            if self.weakness == "only the first call" and calls:
                calls = calls[:1]
                message = {**message, "tool_calls": calls}
            messages.append(message if calls else {"role": "assistant", "content": text})
            for call in calls:
                result = {"role": "tool", "tool_call_id": call["id"], "content": self.call(call)}
                messages.append(result)
            if not calls:
                messages.append({"role": "user", "content": "Please answer."})
        raise Unanswered("too many turns")

    def call(self, call: JSON) -> str:
        try:
            number = read_number(call)
        except ValueError as error:
            match self.weakness:
                case "swallows the errors of tools":
                    return "ok"
                case "says nothing of the errors of tools":
                    return ""
                case _:
                    return f"error: {error}"
        return f"order {number}: 20 EUR"

    def ask(self, messages: list[JSON]) -> tuple[JSON, str]:
        """Return a message and the reason of its end; an error that passes is tried again."""
        tries = 0
        while True:
            tries += 1
            try:
                return self.send(messages)
            except ErrorOfProvider as error:
                if self.weakness == "retries for ever" and tries < FOR_EVER:
                    continue
                if self.weakness == "takes the part" and error.part:
                    return {"role": "assistant", "content": error.part}, "stop"
                if self.weakness == "keeps the part":
                    self.part += error.part
                if self.weakness == "forgets after an error":
                    del messages[1:]
                if not error.passes or tries == TRIES or self.weakness == "apologizes at once":
                    raise Unanswered(str(error)) from error

    def send(self, messages: list[JSON]) -> tuple[JSON, str]:
        body = {"model": "gpt-5", "messages": messages, "tools": TOOLS, "stream": self.stream}
        headers = {"authorization": "Bearer key"}
        text: list[str] = []
        try:
            with httpx.stream("POST", URL, json=body, headers=headers, timeout=1) as response:
                if not response.is_success:
                    passes = response.status_code in PASSES
                    raise ErrorOfProvider(read_error(response), passes=passes)
                if self.stream:
                    return read_stream(response, text)
                choice = json.loads(response.read())["choices"][0]
                return choice["message"], choice["finish_reason"]
        except (httpx.HTTPError, ValueError) as error:
            raise ErrorOfProvider(str(error), passes=True, part="".join(text)) from error


def read_calls(message: JSON) -> list[JSON]:
    return message.get("tool_calls") or []


def read_number(call: JSON) -> int:
    """Return the argument of a call, or raise a ValueError that says what is wrong."""
    name = call["function"]["name"]
    if is_unknown(call):
        raise ValueError(f"there is no tool {name}")
    match json.loads(call["function"]["arguments"]):
        case {"number": int(number), **others} if not others:
            return number
        case _:
            raise ValueError(f"{name} takes a number")


def is_unknown(call: JSON) -> bool:
    return call["function"]["name"] not in {"get_order", "refund"}


def read_error(response: httpx.Response) -> str:
    return str(json.loads(response.read())["error"]["message"])


def read_stream(response: httpx.Response, text: list[str]) -> tuple[JSON, str]:
    """Return a streamed message; `text` gets its parts as they arrive."""
    calls: dict[int, JSON] = {}
    refusal = reason = ""
    for chunk in read_chunks(response):
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text.append(delta.get("content") or "")
            refusal += delta.get("refusal") or ""
            reason = choice.get("finish_reason") or reason
            for part in delta.get("tool_calls") or ():
                empty = {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
                call = calls.setdefault(part["index"], empty)
                call["id"] = part.get("id") or call["id"]
                function: JSON = part.get("function") or {}
                call["function"]["name"] += function.get("name") or ""
                call["function"]["arguments"] += function.get("arguments") or ""
    if not reason:
        raise ErrorOfProvider("the stream has no end", passes=True, part="".join(text))
    message: JSON = {"role": "assistant", "content": "".join(text)}
    message |= {"refusal": refusal} if refusal else {}
    message |= {"tool_calls": [*calls.values()]} if calls else {}
    return message, reason


def read_chunks(response: httpx.Response) -> Iterator[JSON]:
    for line in response.iter_lines():
        data = line.removeprefix("data: ")
        if line.startswith("data: ") and data != "[DONE]":
            yield json.loads(data)
