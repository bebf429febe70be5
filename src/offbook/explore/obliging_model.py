"""A model that plays along: it calls each tool once with arguments that fit its schema, and ends.

It gives a structured output where one is required. A tool with side effects is not called, unless
it is mocked.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import JSON, Text, ToolCall
from offbook.exchange.model import Reply
from offbook.explore.argument_values import ArgumentValues, Draw
from offbook.explore.generated_model import PATIENCE, raise_endless
from offbook.explore.moves import LAST_WORDS
from offbook.sources.matching import answer_side_request, make_call_id

if TYPE_CHECKING:
    from offbook.exchange.model import Request, Tool

PROMPT = "Hello"
MOST_CALLS = 12
MOST_VALUES = 6  # of a parameter that are tried
# Calls that end a run in known frameworks, and those that hand over to another agent.
LAST_TOOLS = re.compile(r"^(final_result|final_answer)|^submit$")
HANDOFFS = re.compile(r"^(transfer|handoff|hand_off|delegate)_(back_)?to_")
SIDE_EFFECTS = {
    "send": "sends",
    "email": "sends mail",
    "mail": "sends mail",
    "sms": "sends a message",
    "notify": "sends a message",
    "publish": "publishes",
    "tweet": "publishes",
    "upload": "uploads",
    "deploy": "deploys",
    "pay": "pays",
    "payment": "pays",
    "charge": "pays",
    "refund": "pays",
    "purchase": "pays",
    "buy": "pays",
    "checkout": "pays",
    "write": "writes files",
    "save": "writes files",
    "delete": "deletes",
    "remove": "deletes",
    "unlink": "deletes",
    "shell": "runs commands",
    "bash": "runs commands",
    "exec": "runs commands",
    "execute": "runs commands",
}
READS = frozenset("get find list lookup look search read show check fetch count describe".split())  # noqa: SIM905
EFFECTS_IN_TEXT = re.compile(
    r"\b(?:(?P<mail>sends? (?:an? |the )?(?:e-?mail|message|sms|notification))"
    r"|(?P<pay>(?:charges?|pays?|refunds?) (?:an? |the |money|customer|for))"
    r"|(?P<file>writes? (?:\w+ )*(?:file|disk))|(?P<delete>(?:deletes?|removes?) (?:an? |the )))",
    re.IGNORECASE,
)
EFFECT_NAMES = {
    "mail": "sends a message",
    "pay": "pays",
    "file": "writes files",
    "delete": "deletes",
}
# Values for parameters whose schema says no more than their type, by a part of their name.
PLAUSIBLE: tuple[tuple[str, Any], ...] = (
    (r"city|location|place|destination", "Paris"),
    (r"country", "France"),
    (r"e?mail|recipient", "ada@example.com"),
    (r"date|day", "2024-02-29"),
    (r"time", "12:00"),
    (r"url|link", "https://example.com"),
    (r"expression|formula|equation", "2 + 2"),
    (r"currency", "EUR"),
    (r"language|locale", "en"),
    (r"file|path", "notes.txt"),
    (r"(user|customer|person|full)_?name|^name$|author", "Ada"),
    (r"query|question|search|topic|keyword|term", "tea"),
    (r"amount|price|total|quantity|count|limit|number|days", 2),
    (r"id$|_id$|key$|code$", "1"),
)
EXAMPLE_IN_TEXT = re.compile(
    r"(?:e\.g\.,?|for example,?|such as|example:|like)\s+[\"'`]?([\w.@:/-]+(?: [A-Z][\w-]*)*)",
    re.IGNORECASE,
)


def _first(values: Any) -> Any:
    return values[0]


class FirstChoice(Draw):
    """The same simple choice every time: the first value, and nothing optional."""

    def __init__(self) -> None:
        super().__init__(Random(0), ())  # noqa: S311 - not for secrets
        self.choose = _first

    def happens(self, probability: float) -> bool:  # noqa: ARG002 - the signature of a draw
        """Return False."""
        return False


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
        values = ArgumentValues({}, self._settings.prompt)
        return json.dumps(values.arguments(_require_all(schema), FirstChoice(), "output"))

    def _arguments(self, tool: Tool) -> JSON:
        """Return arguments that fit the schema; each choice has other values."""
        ends = bool(LAST_TOOLS.search(tool.name)) or tool.name in self._settings.last
        schema = tool.schema
        properties = cast("dict[str, Any]", schema.get("properties") or {})
        if ends and set(properties) == {"answer"}:
            return {"answer": LAST_WORDS}
        literals = self._settings.values.get(tool.name, {})
        hints: dict[str, list[Any]] = {}
        number = self._settings.choices.get(tool.name, 0)
        alternatives = 1
        for name, rules in properties.items():
            known = cast("JSON", rules) if isinstance(rules, dict) else {}
            values = _values_for(name, known, literals)
            if values:
                hints[f"{tool.name}.{name}"] = [values[min(number, len(values) - 1)]]
                alternatives = max(alternatives, len(values))
        self.alternatives[tool.name] = alternatives
        values = ArgumentValues(hints, self._settings.prompt)
        return values.arguments(schema, FirstChoice(), tool.name)


def find_side_effect(tool: Tool) -> str:
    """Return the side effect of a tool, by its name and description, or ""."""
    if HANDOFFS.search(tool.name):
        return ""
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", tool.name).lower().replace("-", "_").split("_")
    if words[0] not in READS:
        for word in words:
            if effect := SIDE_EFFECTS.get(word):
                return effect
    found = EFFECTS_IN_TEXT.search(tool.description) if words[0] not in READS else None
    return EFFECT_NAMES[found.lastgroup or "mail"] if found else ""


def find_output_schema(parameters: Any) -> JSON | None:
    """Return the schema that the options of a request require of the answer, or None."""
    if not isinstance(parameters, dict):
        return None
    for key, value in cast("JSON", parameters).items():
        if isinstance(value, dict):
            if key in {"schema", "responseSchema", "responseJsonSchema"} or (
                key in {"response_schema", "response_json_schema"}
            ):
                return _lower_types(value)
            inner = find_output_schema(cast("JSON", value))
            if key not in {"tools", "tool_choice"} and (found := inner):
                return found
    return None


def _lower_types(schema: Any) -> Any:
    """Return a schema of Gemini, whose types are written in capitals, as JSON Schema."""
    if isinstance(schema, dict):
        return {
            key: value.lower() if key == "type" and isinstance(value, str) else _lower_types(value)
            for key, value in cast("JSON", schema).items()
        }
    return (
        [_lower_types(item) for item in cast("list[Any]", schema)]
        if isinstance(schema, list)
        else schema
    )


def _require_all(schema: JSON) -> JSON:
    return {**schema, "required": [*schema.get("properties", {})]}


def _values_for(name: str, rules: JSON, literals: dict[str, list[Any]]) -> list[Any]:
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
    found += [value for pattern, value in PLAUSIBLE if re.search(pattern, name.lower())]
    found += ["test", "1"] if wanted is str else [1, 2]
    if wanted is not str:
        found = [int(v) if isinstance(v, str) and v.isdigit() else v for v in found]
    # A name of the schema in the source is not a value.
    fitting = [v for v in found if isinstance(v, wanted) and not isinstance(v, bool) and v != name]
    low, high = rules.get("minimum", float("-inf")), rules.get("maximum", float("inf"))
    if wanted is not str:
        fitting = [v for v in fitting if low <= v <= high]
    return list(dict.fromkeys(fitting))[:MOST_VALUES]
