"""Functions: any callable that takes a prompt, for agents without a framework."""

from __future__ import annotations

import asyncio
from inspect import (
    Parameter,
    isasyncgen,
    isawaitable,
    iscoroutinefunction,
    isgenerator,
    signature,
)
from traceback import clear_frames
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from offbook.errors import UsageError
from offbook.subjects.frameworks.framework import NoToolAccess, parameter_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from offbook.trace.hub import Hub


# Methods that run an agent, and keyword arguments that take its prompt, in other frameworks.
RUN_METHODS = ("run", "arun", "ainvoke", "invoke", "kickoff", "achat", "chat", "ask", "query")
# Agents that need another line, by their class: their method takes messages or inputs, or the
# first of the methods above does something else.
RUN_LINES = {
    "ag2.agent.Agent": "drive(agent.ask)",
    "crewai.crew.Crew": "drive(lambda p: crew.kickoff({'prompt': p}))",
    "haystack.components.agents.agent.Agent": (
        "drive(lambda p: agent.run([ChatMessage.from_user(p)]))"
    ),
    "semantic_kernel.agents.agent.Agent": "drive(agent.get_response)",
}
PROMPT_NAMES = ("prompt", "task", "input", "user_msg", "message", "query", "question", "text")


class FunctionAdapter(NoToolAccess):
    """A function of the prompt, plain or async; it keeps its conversation itself.

    `options` are passed as keyword arguments. A plain function runs in a thread, so that it can
    start an event loop. A function without a parameter for the prompt sends its own prompts.
    """

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.function = function  # a search looks for its tools
        self._options = options
        self._keyword = find_prompt_keyword(function)
        self.takes_prompt = self._keyword is not None

    @property
    def concurrent(self) -> bool:
        """Whether two conversations can be in one event loop; those of threads cannot."""
        return iscoroutinefunction(self.function)

    @property
    def name(self) -> str:
        """Name of the function."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def option_names(self) -> Collection[str] | None:
        """Return the parameters after the prompt."""
        if self._keyword:
            return parameter_names(self.function, skip=0, reserved=[self._keyword])
        return parameter_names(self.function, skip=1 if self.takes_prompt else 0)

    async def prompt(self, text: str, hub: Hub, /) -> object:
        """Call the function."""
        arguments = [text] if self._keyword == "" else []
        options = {**self._options, **({self._keyword: text} if self._keyword else {})}
        if iscoroutinefunction(self.function):
            return await self.function(*arguments, **options)
        requests: list[object] = []
        unsubscribe = hub.subscribe(requests.append, "model.*")
        try:
            answer = await asyncio.to_thread(self.function, *arguments, **options)
        except RuntimeError as error:
            # Some plain functions start a task and return it, so they need the loop of this thread.
            if "no running event loop" not in str(error) or requests:
                raise
            # Coroutines that the first call made are dropped here, without a warning for each.
            with catch_warnings():
                simplefilter("ignore", RuntimeWarning)
                clear_frames(error.__traceback__)
            answer = self.function(*arguments, **options)
        finally:
            unsubscribe()
        # A generator that nothing consumed has not run the agent.
        if not requests and (isgenerator(answer) or isasyncgen(answer)):
            raise UsageError(
                f"{self.name} returned a generator, which did not run",
                hint="drive a function that consumes it and returns the answer",
            )
        # A plain function may return a coroutine, as a lambda around an async function does.
        return await answer if isawaitable(answer) else answer

    def output(self, result: Any, /) -> object:
        """Return the value that the function returned."""
        return result


def find_prompt_keyword(function: Callable[..., Any]) -> str | None:
    """Return the keyword that takes the prompt, "" for the first argument, None without either."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # functions written in C may have no signature
        return ""
    keyword = {Parameter.KEYWORD_ONLY, Parameter.VAR_KEYWORD}
    if any(parameter.kind not in keyword for parameter in parameters):
        return ""
    names = {parameter.name for parameter in parameters}
    return next((name for name in PROMPT_NAMES if name in names), None)


def suggest_function(agent: object) -> str:
    """Return a line that drives an agent of an unknown framework, or "" if none is found."""
    for kind in type(agent).__mro__:
        if line := RUN_LINES.get(f"{kind.__module__}.{kind.__qualname__}"):
            return line
    for name in RUN_METHODS:
        method = getattr(agent, name, None)
        if callable(method) and (keyword := find_prompt_keyword(method)) is not None:
            argument = f"{keyword}=p" if keyword else "p"
            return f"drive(lambda p: agent.{name}({argument}))"
    return ""
