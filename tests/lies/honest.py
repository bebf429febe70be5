"""Honest agents: what they do looks unusual on the wire, and no run of them may fail.

They are the agents of `agent.py` as well, changed in a way that misleads neither model nor user.
"""

from __future__ import annotations

import json
from threading import Thread
from typing import Any, NamedTuple

from offbook import call, fail, role, say, think
from tests.lies.agent import (
    JSON,
    LOOK,
    PROMPT,
    REFUND,
    Agent,
    Call,
    Item,
    Model,
    Request,
    Result,
    RunTool,
    User,
)
from tests.lies.forms import FORMS, Form
from tests.lies.loops import send_chat

LOOPS = ("chat", "responses", "anthropic", "gemini")
FRAMEWORKS = ("pydantic-ai", "openai-agents", "langgraph")
WIRE = (*LOOPS, *FRAMEWORKS)
EVERY = (*WIRE, "smolagents", "session")


class Honest(NamedTuple):
    """An honest agent in one form."""

    agent: type[Agent]
    form: Form

    def __str__(self) -> str:
        return f"{self.form.name}-{self.agent.__name__}"


# Each form with the agent that the lies change.
HONEST: list[Honest] = [Honest(Agent, form) for form in FORMS.values()]


def honest(*forms: str) -> Any:
    """Register a class of honest agents in these forms."""

    def register(agent: type[Agent]) -> type[Agent]:
        HONEST.extend(Honest(agent, FORMS[form]) for form in forms)
        return agent

    return register


# --- The form of the history


@honest(*WIRE)
class SplitsParallelCalls(Agent):
    """The history has each of two parallel calls in a message of its own, with its result."""

    def edit(self, request: Request, number: int) -> None:
        results = {result.call_id: result for result in request.results}
        items: list[Item] = []
        for item in request.items:
            if isinstance(item, Model) and item.calls:
                for index, made in enumerate(item.calls):
                    items.append(Model(item.text if index == 0 else "", [made]))
                    items.append(results[made.id])
            elif not isinstance(item, Result):
                items.append(item)
        request.items = items


@honest(*WIRE)
class SendsResultsInTheOrderOfTheirEnd(Agent):
    """The results of parallel calls come in another order than the calls."""

    def edit(self, request: Request, number: int) -> None:
        if number > 1:
            request.items[2], request.items[3] = request.items[3], request.items[2]


@honest(*LOOPS)
class SortsParallelCalls(Agent):
    """The history has parallel calls in another order, with their results."""

    def edit(self, request: Request, number: int) -> None:
        if number > 1:
            request.models[0].calls.reverse()
            request.items[2], request.items[3] = request.items[3], request.items[2]


@honest(*LOOPS)
class TrimsTexts(Agent):
    """The history has the model's text without the white space at its end."""

    steps = ([say("I look first. \n"), *LOOK[1:]], REFUND)

    def edit(self, request: Request, number: int) -> None:
        for model in request.models:
            model.text = model.text.strip()


@honest("chat")
class NormalisesJson(Agent):
    """The history has the arguments of calls as JSON in another layout."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            for message in options["messages"]:
                for made in message.get("tool_calls", ()):
                    function = made["function"]
                    function["arguments"] = json.dumps(json.loads(function["arguments"]), indent=2)

        request.wire = write


@honest("responses")
class NormalisesJsonOfItems(Agent):
    """The history has the arguments of calls as JSON in another layout."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            for item in options["input"]:
                if item.get("type") == "function_call":
                    item["arguments"] = json.dumps(
                        json.loads(item["arguments"]), separators=(",", ":")
                    )

        request.wire = write


@honest(*LOOPS)
class RewritesIds(Agent):
    """The history has ids of the client's own."""

    def edit(self, request: Request, number: int) -> None:
        ids = {made.id: f"client_{index}" for index, made in enumerate(request.calls)}
        for one in request.calls:
            one.id = ids[one.id]
        for result in request.results:
            result.call_id = ids[result.call_id]


@honest("anthropic")
class KeepsThinking(Agent):
    """The history has the model's thoughts, as the provider wants it."""

    steps = (think("Look at both."), LOOK, think("Fine."), REFUND)


@honest("anthropic")
class DropsThinking(Agent):
    """The history is without the model's thoughts."""

    steps = (think("Look at both."), LOOK, think("Fine."), REFUND)

    def edit(self, request: Request, number: int) -> None:
        for model in request.models:
            model.thinking = ""


@honest("chat", "responses", "gemini")
class NeverSeesThinking(Agent):
    """The model thinks, and the wire has no place for it."""

    steps = (think("Look at both."), LOOK, REFUND)


@honest("chat")
class SendsTextsAsParts(Agent):
    """The first request has texts, the others have lists of parts."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            for message in options["messages"]:
                if message["content"] and message["role"] != "tool" and number > 1:
                    message["content"] = [{"type": "text", "text": message["content"]}]

        request.wire = write


@honest("anthropic")
class MovesTheCachePoint(Agent):
    """Each request marks another message for the cache of the provider."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            last = options["messages"][-1]
            if isinstance(last["content"], str):
                last["content"] = [{"type": "text", "text": last["content"]}]
            last["content"][-1]["cache_control"] = {"type": "ephemeral"}

        request.wire = write


@honest("anthropic")
class RemindsTheModel(Agent):
    """A text of the agent follows the results in the same message."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            for message in options["messages"]:
                if message["role"] == "user" and isinstance(message["content"], list):
                    message["content"].append({"type": "text", "text": "Be brief."})

        request.wire = write


@honest("chat")
class IsADeveloper(Agent):
    """The system prompt has the role of a developer, and messages have fields of the SDK."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            options["messages"][0]["role"] = "developer"
            for message in options["messages"]:
                if message["role"] == "assistant":
                    message |= {"refusal": None, "annotations": [], "audio": None}

        request.wire = write


@honest("responses")
class KeepsTheConversationAtTheProvider(Agent):
    """Each request names the last response, and has only what is new."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            if number > 1:
                options["previous_response_id"] = self.notes["last"]
                new = options["input"]
                options["input"] = new[
                    max(i for i, one in enumerate(new) if one.get("type") == "function_call") + 1 :
                ]

        request.wire = write

    def goes_on(self, reply: Model) -> bool:
        self.notes["last"] = reply.origin.id
        return super().goes_on(reply)


@honest(*LOOPS)
class BeginsWithExamples(Agent):
    """The first request has an example of a conversation before the prompt."""

    def begin(self, prompt: str) -> list[Item]:
        example = Model("", [Call("call_0", "find_order", {"number": 1})])
        found = Result("call_0", "find_order", "order 1: sold out")
        return [User("Find order 1"), example, found, Model("Sold out."), User(prompt)]


# --- Less than the whole history


@honest(*LOOPS)
class TruncatesFromTheFront(Agent):
    """The last request has the end of the conversation only."""

    more = (("And order 8?", "Not yet."), ("Thanks", "Bye."))

    def begin(self, prompt: str) -> list[Item]:
        items: list[Item] = self.notes.setdefault("items", [])
        items.append(User(prompt))
        return items

    def edit(self, request: Request, number: int) -> None:
        last = [i for i, item in enumerate(request.items) if isinstance(item, User)][-1]
        if request.items[last] == User("Thanks"):
            del request.items[:last]


@honest(*LOOPS)
class SummarisesAPrefix(Agent):
    """The last request has a summary in place of the first exchanges."""

    more = (("And order 8?", "Not yet."), ("Thanks", "Bye."))

    def begin(self, prompt: str) -> list[Item]:
        items: list[Item] = self.notes.setdefault("items", [])
        if prompt == "Thanks":
            del items[:-2]
            items.insert(0, User("Summary of the conversation: order 7 was refunded."))
            items.insert(1, Model("Understood."))
        items.append(User(prompt))
        return items


@honest(*LOOPS)
class KeepsTheConversation(Agent):
    """Three prompts in one conversation."""

    more = (("And order 8?", "Not yet."), ("Thanks", "Bye."))

    def begin(self, prompt: str) -> list[Item]:
        items: list[Item] = self.notes.setdefault("items", [])
        items.append(User(prompt))
        return items


@honest(*FRAMEWORKS, "smolagents", "session")
class ContinuesTheConversation(Agent):
    """Three prompts; the framework keeps the conversation."""

    more = (("And order 8?", "Not yet."), ("Thanks", "Bye."))


@honest("chat", "anthropic")
class BeginsAnew(Agent):
    """Each prompt begins a new conversation."""

    more = (("And order 8?", "Not yet."), ("Thanks", "Bye."))


@honest("chat", "anthropic")
class ResumesAnOldConversation(Agent):
    """The conversation began before the test."""

    def begin(self, prompt: str) -> list[Item]:
        made = Call("call_old", "find_order", {"number": 5})
        old = Result("call_old", "find_order", "order 5: one chair")
        return [User("Find order 5"), Model("", [made]), old, Model("A chair."), User(prompt)]


# --- Other requests


def ask_aside(agent: Agent, text: str) -> str:
    assert agent.send is not None
    return agent.send(Request([User(text)], system="You find titles.", tools={})).text


TITLE = role("titles", [say("A refund")], system="find titles")


@honest(*LOOPS)
class AsksForATitleBefore(Agent):
    """A side request comes before the first one."""

    roles = (TITLE,)

    def begin(self, prompt: str) -> list[Item]:
        ask_aside(self, prompt)
        return super().begin(prompt)


@honest(*LOOPS)
class AsksForATitleBetween(Agent):
    """A side request comes between two requests."""

    roles = (TITLE,)

    def edit(self, request: Request, number: int) -> None:
        if number == 2:
            ask_aside(self, PROMPT)


@honest(*LOOPS)
class AsksForATitleAfter(Agent):
    """A side request comes after the answer."""

    roles = (TITLE,)

    def answer(self, text: str) -> object:
        ask_aside(self, text)
        return text


@honest("chat", "anthropic")
class AsksForATitleMeanwhile(Agent):
    """A thread sends a side request while the loop goes on."""

    roles = (TITLE,)

    def edit(self, request: Request, number: int) -> None:
        if number == 1:
            self.notes["thread"] = Thread(target=ask_aside, args=(self, PROMPT))
            self.notes["thread"].start()

    def answer(self, text: str) -> object:
        self.notes["thread"].join()
        return text


@honest("chat", "responses", "anthropic", "langgraph", "smolagents")
class AsksASubagent(Agent):
    """A tool asks a model of its own, with its own history."""

    roles = (role("checker", [say("Fine."), say("Fine, too.")], system="You check"),)

    def inside(self, run: RunTool, made: Call) -> str:
        if made.name == "find_order":
            send = self.send or send_chat
            request = Request([User(f"Check order {made.arguments['number']}")], "You check.")
            send(request)
        return run(made)


# --- Errors of the provider


@honest("chat", "chat stream", "responses", "anthropic")
class RetriesBySdk(Agent):
    """The SDK sends a request again after errors of the provider."""

    steps = (fail("slow down", status=429), LOOK, fail("broken", status=500), REFUND)


@honest(*LOOPS)
class RetriesByItself(Agent):
    """The agent sends the request again."""

    steps = (LOOK, fail("no such thing", status=404), REFUND)

    def edit(self, request: Request, number: int) -> None:
        if number == 2:
            assert self.send is not None
            try:
                self.send(request)
            except Exception:  # noqa: BLE001 - the errors of four SDKs
                self.notes["failed"] = True


@honest(*LOOPS)
class AsksAgain(Agent):
    """The agent wants another answer than the first."""

    steps = (LOOK, say("Hm."), REFUND)

    def goes_on(self, reply: Model) -> bool:
        return bool(reply.calls) or reply.text == "Hm."

    def results(self, results: list[Result]) -> list[Item]:
        return [*results] or [User("Decide.")]


@honest(*LOOPS)
class GoesOnAfterTheLimit(Agent):
    """The model's message was cut at the limit of tokens."""

    steps = (say("Let me", stop="length"), LOOK, REFUND)

    def goes_on(self, reply: Model) -> bool:
        return bool(reply.calls) or reply.text == "Let me"

    def results(self, results: list[Result]) -> list[Item]:
        return [*results] or [User("Go on.")]


# --- Results


def with_result(text: str) -> type[Agent]:
    """Return an agent whose tools return this text."""

    class WithResult(Agent):
        def inside(self, run: RunTool, made: Call) -> str:
            run(made)
            return text

    return WithResult


@honest(*LOOPS, *FRAMEWORKS, "session")
class HasEmptyResults(with_result("")):
    """The tools return nothing."""


@honest("chat", "anthropic", "gemini", "pydantic-ai", "session")
class HasHugeResults(with_result("one lamp " * 120_000)):
    """The tools return a megabyte."""


@honest(*EVERY)
class HasOtherLetters(with_result("Œuvre 注文 🪔 \u202e עברית \u00a0 é e\u0301")):
    """The tools return texts that are not ASCII."""


@honest("chat", "responses", "anthropic", "langgraph")
class HasControlCharacters(with_result("a\x00b\x1b[31mred\x7f\r\n\ttab")):
    """The tools return control characters."""


@honest(*LOOPS)
class HasTheSameResultTwice(with_result("ok")):
    """All tools return the same."""


@honest("anthropic")
class SendsAnImage(Agent):
    """A result is an image."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
            for message in options["messages"]:
                for block in message["content"]:
                    if isinstance(block, dict) and block["type"] == "tool_result":
                        block["content"] = [{"type": "image", "source": source}]

        request.wire = write


@honest(*LOOPS)
class AnswersLater(Agent):
    """The result says that the tool was started; its real result is a message later on."""

    steps = (LOOK, REFUND, say("I wait."))

    def goes_on(self, reply: Model) -> bool:
        return bool(reply.calls) or reply.text == "I wait."

    def results(self, results: list[Result]) -> list[Item]:
        for result in results:
            result.text = "started"
        return [*results] or [User("refunded order 7")]


@honest("anthropic", "gemini")
class SendsAnError(Agent):
    """A tool failed, and the result says so."""

    def results(self, results: list[Result]) -> list[Item]:
        results[0].failed, results[0].text = True, "no such order"
        return [*results]


@honest(*LOOPS, *FRAMEWORKS)
class IsAskedTheSameTwice(Agent):
    """The model makes the same call twice."""

    steps = ([say("Twice."), *[call("find_order", {"number": 7})] * 2], REFUND, REFUND)


@honest(*LOOPS)
class IsRefused(Agent):
    """The model refuses, and the agent ends."""

    steps = ()
    last = "I may not refund that."
