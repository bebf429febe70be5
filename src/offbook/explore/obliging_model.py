"""A model that plays along: it calls each tool once with arguments that fit its schema, and ends.

It gives a structured output where one is required. A tool with side effects is not called, unless
it is mocked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import JSON, Text, ToolCall
from offbook.exchange.model import Reply
from offbook.exchange.schema_values import (
    find_output_schema,
    list_plausible,
    make_answer,
    make_arguments,
    properties_of,
)
from offbook.exchange.tool_effects import HANDOFFS, LAST_TOOLS, find_side_effect
from offbook.explore.generated_model import PATIENCE, raise_endless
from offbook.explore.moves import LAST_WORDS
from offbook.sources.matching import answer_side_request, make_call_id

if TYPE_CHECKING:
    from offbook.exchange.model import Request, Tool

PROMPT = "Hello"
MOST_CALLS = 12
MOST_VALUES = 6  # of a parameter that are tried
EXAMPLE_IN_TEXT = re.compile(
    r"(?:e\.g\.,?|for example,?|such as|example:|like)\s+[\"'`]?([\w.@:/-]+(?: [A-Z][\w-]*)*)",
    re.IGNORECASE,
)


class PlayedCall(msgspec.Struct, frozen=True):
    """A message of the model: a call, or a text if it has no tool."""

    tool: str = ""
    arguments: JSON = {}
    text: str = ""


class Settings(msgspec.Struct):
    """What an observed run should do differently from the first one.

    `choices` are the numbers of the arguments that each tool gets, `values` the literals of the
    project that may fit its parameters, `last` the tools that end the run.
    """

    root: str = ""
    prompt: str = PROMPT
    mocks: list[str] = []
    skipped: list[str] = []
    last: list[str] = []
    choices: dict[str, int] = {}
    values: dict[str, dict[str, list[Any]]] = {}
    arguments: dict[str, str] = {}  # expressions of the user for parameters
    stdin: bool = False


class ObligingModel:
    """A source that calls each tool once, and then ends the conversation."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.played: list[PlayedCall] = []
        self.alternatives: dict[str, int] = {}
        self.effects: dict[str, str] = {}  # tools that were not called because of a side effect
        self.offered: dict[str, Tool] = {}
        self.systems: list[str] = []
        self.prompts: list[str] = []
        self.requests = 0

    async def reply(self, request: Request, /) -> Reply:
        """Return the next call, or the end."""
        if request.metadata and (side := answer_side_request(request)) is not None:
            return side
        self.requests += 1
        if self.requests > MOST_CALLS + PATIENCE:
            raise_endless()
        self.systems.append(request.system)
        self.prompts.append(request.first_prompt)
        self.offered.update({tool.name: tool for tool in request.tools})
        tool = self._choose(request)
        if tool is None:
            text = self._end(request)
            self.played.append(PlayedCall(text=text))
            return Reply((Text(text),), "stop", model=request.model)
        arguments = self._arguments(tool)
        self.played.append(PlayedCall(tool.name, arguments))
        call = ToolCall(make_call_id(request, len(self.played)), tool.name, arguments)
        return Reply((call,), "tool_use", model=request.model)

    def _choose(self, request: Request) -> Tool | None:
        """Return the next tool to call: first those that work, then handoffs, then the last one."""
        called = [played.tool for played in self.played]
        waiting: list[tuple[int, int, Tool]] = []
        functions = [tool for tool in request.tools if tool.kind == "function"]
        for number, tool in enumerate(functions):
            name = tool.name
            effect = find_side_effect(tool)
            ends = bool(LAST_TOOLS.search(name)) or name in self._settings.last
            if effect and name not in self._settings.mocks and not ends:
                self.effects[name] = effect
            elif name not in called and name not in self._settings.skipped:
                waiting.append((2 * ends + bool(HANDOFFS.search(name)), number, tool))
        if waiting and len(called) < MOST_CALLS:
            return min(waiting)[2]
        forced: Any = request.parameters.get("tool_choice")
        if isinstance(forced, dict):
            options = cast("JSON", forced)
            names = json.dumps(options)
            chosen = [tool for tool in functions if f'"{tool.name}"' in names]
            forced = chosen or options.get("type") == "any"
            if chosen:
                return chosen[0]
        last = [t for t in functions if LAST_TOOLS.search(t.name) or t.name in self._settings.last]
        if last or (forced in {"required", "any"} or forced is True):
            return (last or functions or [None])[-1]
        return None

    def _end(self, request: Request) -> str:
        schema = find_output_schema(request.parameters)
        if schema is None:
            return LAST_WORDS
        return json.dumps(make_answer(schema, self._settings.prompt))

    def _arguments(self, tool: Tool) -> JSON:
        """Return arguments that fit the schema; each choice has other values."""
        ends = bool(LAST_TOOLS.search(tool.name)) or tool.name in self._settings.last
        properties = properties_of(tool.schema)
        if ends and set(properties) == {"answer"}:
            return {"answer": LAST_WORDS}
        literals = self._settings.values.get(tool.name, {})
        given: JSON = {}
        number = self._settings.choices.get(tool.name, 0)
        alternatives = 1
        for name, rules in properties.items():
            known = cast("JSON", rules) if isinstance(rules, dict) else {}
            values = _values_for(name, known, literals, self._settings.prompt)
            if values:
                given[name] = values[min(number, len(values) - 1)]
                alternatives = max(alternatives, len(values))
        self.alternatives[tool.name] = alternatives
        return make_arguments(tool.schema, self._settings.prompt, given)


def _values_for(name: str, rules: JSON, literals: dict[str, list[Any]], prompt: str) -> list[Any]:
    """Return values that a parameter may take, the likeliest first; none if its schema has them."""
    options: list[JSON] = [*rules.get("anyOf", ())] or [rules]
    for option in reversed([o for o in options if o.get("type") != "null"]):
        rules = {**rules, **option}
    if rules.keys() & {"enum", "const", "format", "$ref"}:
        return []
    kind = str(rules.get("type", "string")).lower()
    types_of = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    wanted = types_of.get(kind)
    if wanted is None or wanted is bool:
        return []
    found: list[Any] = [*rules.get("examples", ())]
    if match := EXAMPLE_IN_TEXT.search(str(rules.get("description", ""))):
        found.append(match[1].rstrip("."))
    found += literals.get(name, [])
    found += literals.get("", [])
    found += list_plausible(name, prompt)
    found += ["test", "1"] if wanted is str else [1, 2]
    if wanted is not str:
        found = [int(v) if isinstance(v, str) and v.isdigit() else v for v in found]
    # A name of the schema in the source is not a value.
    fitting = [v for v in found if isinstance(v, wanted) and not isinstance(v, bool) and v != name]
    low, high = rules.get("minimum", float("-inf")), rules.get("maximum", float("inf"))
    if wanted is not str:
        fitting = [v for v in fitting if low <= v <= high]
    return list(dict.fromkeys(fitting))[:MOST_VALUES]
