"""Honest agents that use more of their wire format. `dialect_lies.py` makes liars of some."""

from __future__ import annotations

from typing import Any

from offbook import call, fail, role, say, think
from tests.lies.agent import (
    JSON,
    LOOK,
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
from tests.lies.honest import (
    RewritesIds,
    SendsResultsInTheOrderOfTheirEnd,
    SplitsParallelCalls,
    honest,
)
from tests.lies.honest_frameworks import HONEST

__all__ = ["HONEST"]

NATIVE = ("cohere", "converse", "invoke", "realtime")
honest(*NATIVE)(RewritesIds)
honest(*NATIVE, "mistral")(SplitsParallelCalls)
honest(*NATIVE, "mistral")(SendsResultsInTheOrderOfTheirEnd)


@honest("chat", "converse")
class ReturnsLongTexts(Agent):
    """The tools return more than a page."""

    def inside(self, run: RunTool, made: Call) -> str:
        return f"{run(made)}, {'paid in cash, ' * 20}never delivered"


@honest("anthropic", "gemini", "converse", "invoke")
class FailsToFind(Agent):
    """The first look fails, and the model is told."""

    def results(self, results: list[Result]) -> list[Item]:
        if results[0].name == "find_order":
            results[0].failed = True
        return [*results]


@honest("chat", "responses", "anthropic", "gemini", "converse")
class RetriesAfterAnError(Agent):
    """The provider fails once; the agent sends the request again."""

    steps = (LOOK, fail("no such thing", status=404), REFUND)

    def edit(self, request: Request, number: int) -> None:
        if number == 2:
            assert self.send is not None
            try:
                self.send(request)
            except Exception as error:  # noqa: BLE001 - the errors of several SDKs
                self.notes["error"] = error
        if "error" in self.notes:
            self.change(request)

    def change(self, request: Request) -> None:
        """Change the request that is sent again, and those after it."""


@honest("chat", "anthropic", "converse")
class AsksAChecker(Agent):
    """A second model checks the order, in a conversation of its own."""

    roles = (role("checker", [say("Order 7 was stolen.")], system="You check"),)

    def edit(self, request: Request, number: int) -> None:
        if number == 2:
            assert self.send is not None
            checker = Request([User("Check order 7")], "You check orders.", tools={})
            self.notes["checked"] = self.send(checker).text


@honest("chat", "responses", "anthropic", "converse")
class HandsOver(Agent):
    """Another agent, with another system prompt, does the refund."""

    shows = "what='system'"

    def edit(self, request: Request, number: int) -> None:
        if number > 1:
            request.system = "You only refund."
            self.hand_over(request)

    def hand_over(self, request: Request) -> None:
        """Change what the second agent gets."""


@honest("responses", "responses stream")
class Thinks(Agent):
    """The model thinks; the agent sends its thoughts back as they were."""

    steps = (think("Look at both."), LOOK, REFUND)


@honest("responses", "responses stream")
class SearchesByOpenAI(Agent):
    """OpenAI searches the web; the agent sends the item back as it was."""

    steps = (
        [call("web_search", {"query": "lamps", "sources": ["https://a.example"]}), *LOOK],
        REFUND,
    )

    def edit(self, request: Request, number: int) -> None:
        request.wire = lambda options: options["tools"].append({"type": "web_search"})
        for model in request.models[:1]:
            self.change(model)

    def change(self, model: Model) -> None:
        """Change the message with the search."""


@honest("anthropic", "anthropic stream")
class SearchesByAnthropic(Agent):
    """Anthropic searches the web; the agent sends call and result back as they were."""

    steps = (
        [
            call("web_search", {"query": "lamps", "results": [{"url": "https://a.example"}]}),
            *LOOK,
        ],
        REFUND,
    )

    def edit(self, request: Request, number: int) -> None:
        tool = {"type": "web_search_20250305", "name": "web_search"}
        request.wire = lambda options: options["tools"].append(tool)
        for model in request.models[:1]:
            self.change(model)

    def change(self, model: Model) -> None:
        """Change the message with the search."""


@honest("chat", "anthropic", "gemini", "mistral")
class ShowsImages(Agent):
    """The prompt has two images."""

    def images(self, number: int) -> list[str]:
        """Return the images of the prompt, as base64."""
        return ["AAAA", "BBBB"]

    def edit(self, request: Request, number: int) -> None:
        images = self.images(number)

        def write(options: JSON) -> None:
            if "contents" in options:
                parts = [{"inline_data": {"mime_type": "image/png", "data": i}} for i in images]
                options["contents"][0]["parts"] += parts
                return
            message: Any = next(m for m in options["messages"] if m["role"] == "user")
            source = {"type": "base64", "media_type": "image/png"}
            shown = (
                [{"type": "image", "source": {**source, "data": image}} for image in images]
                if "max_tokens" in options
                else [
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
                    for image in images
                ]
            )
            message["content"] = [{"type": "text", "text": message["content"]}, *shown]

        request.wire = write


@honest("anthropic", "invoke")
class ReturnsAnImage(Agent):
    """The first result is an image."""

    def image(self, number: int) -> str:
        """Return the image, as base64."""
        return "AAAA"

    def edit(self, request: Request, number: int) -> None:
        image = self.image(number)

        def write(options: JSON) -> None:
            source = {"type": "base64", "media_type": "image/png", "data": image}
            for message in options["messages"][2:3]:
                message["content"][0]["content"] = [{"type": "image", "source": source}]

        request.wire = write


@honest("chat", "mistral")
class NamesTheToolsOfResults(Agent):
    """A result has the id of its call, and the name of its tool."""

    def edit(self, request: Request, number: int) -> None:
        names = {made.id: made.name for made in request.calls}

        def write(options: JSON) -> None:
            for message in options["messages"]:
                if message["role"] == "tool":
                    message["name"] = names[message["tool_call_id"]]

        request.wire = write


@honest("chat", "mistral")
class SignsResults(Agent):
    """A result has the name of the agent that ran the tool."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            for message in options["messages"]:
                if message["role"] == "tool":
                    message["name"] = "shop"

        request.wire = write


@honest("responses")
class RefersToItems(Agent):
    """The history has the ids of what the model said, in place of the items."""

    def edit(self, request: Request, number: int) -> None:
        def write(options: JSON) -> None:
            items: list[Any] = []
            for item in request.items:
                if isinstance(item, Model):
                    ids = [one.id for one in item.origin.output]
                    items += [{"type": "item_reference", "id": one} for one in ids]
                elif isinstance(item, Result):
                    output: JSON = {"type": "function_call_output", "call_id": item.call_id}
                    items.append({**output, "output": item.text})
                else:
                    items.append({"role": "user", "content": item.text})
            options["input"] = items

        request.wire = write


@honest("chat", "anthropic", "converse")
class CutsOldResults(ReturnsLongTexts):
    """Later requests have the beginning of old results, and say so."""

    shows = "what='dropped'"

    def edit(self, request: Request, number: int) -> None:
        if number > 2:
            for result in request.results[:2]:
                result.text = f"{result.text[:40]} [truncated]"


@honest("chat", "anthropic", "converse")
class ShortensOldResultsInOwnWords(ReturnsLongTexts):
    """Later requests have the beginning of an old result, or only a word about it."""

    shows = "what='dropped'"

    def edit(self, request: Request, number: int) -> None:
        if number > 2:
            first, second = request.results[:2]
            first.text = f"{first.text[:39]} [shortened; look it up again if you need it]"
            second.text = "[old tool result cleared]"


@honest("mistral", "cohere", "ollama")
class WritesThoughtsBack(Agent):
    """The history has the model's thoughts, in the form of its provider."""

    steps = ([think("Look at both."), *LOOK], REFUND)

    def edit(self, request: Request, number: int) -> None:
        if number > 1:
            request.wire = write_thought("Look at both.")


def write_thought(text: str) -> Any:
    """Return what writes a thought into the first message of the model, as three providers do."""

    def write(options: JSON) -> None:
        model = next(m for m in options["messages"] if m["role"] == "assistant")
        if "options" in options:  # Ollama
            model["thinking"] = text
            return
        is_cohere = "tool_plan" in model
        thought = text if is_cohere else [{"type": "text", "text": text}]
        texts = [] if is_cohere else [{"type": "text", "text": model["content"]}]
        model["content"] = [{"type": "thinking", "thinking": thought}, *texts]

    return write
