"""A model that plays against the agent: it looks at the tools of each request and makes a move.

The moves are random because nothing that was tried finds bugs in fewer runs. Guidance by new
states needs more of them: `bench/explore_ablation.py`, with the table in `docs/guides/explore.md`.
What matters is which moves there are.
"""

from __future__ import annotations

import re
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn, cast

from offbook.errors import ModelError, RunError
from offbook.exchange.messages import JSON, RAW_ARGUMENTS
from offbook.exchange.people import Answer, PersonQuestion, allow
from offbook.explore.moves import END, SOON, GeneratedCall, Move, Place, build_reply, find_values
from offbook.sources.playbook.playbook import Playbook

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from offbook.exchange.model import Reply, Request, Tool


MAX_DEPTH = 6  # of nested objects: a schema may refer to itself
PLAIN_TEXTS = ("a", "b", "test")
PLAIN_NUMBERS = (1, 2, 0)
ODD_TEXTS = ("", " ", "0", "\u0000", "é\u202e😀", "../a", "a" * 5_000, "'; --", "null", "a\nb")
ODD_NUMBERS = (0, -1, 2**31, 2**63, -(2**63))
BAD_JSON = ("{", "", "[]", "7", '"x"', "null", '{"a": }')
FORMATS = {
    "date": "2024-02-29",
    "date-time": "2024-02-29T12:00:00Z",
    "time": "12:00:00",
    "email": "a@example.com",
    "uri": "https://example.com/a",
    "url": "https://example.com/a",
    "uuid": "00000000-0000-4000-8000-000000000001",
    "ipv4": "127.0.0.1",
    "path": "a.txt",
}
# Keywords whose values are made here; every other one with an effect on validity is noted.
KNOWN = frozenset(
    """
    type enum const anyOf oneOf allOf $ref $defs definitions properties required items prefixItems
    minItems maxItems minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength
    maxLength format default examples title description additionalProperties nullable $schema
    strict discriminator deprecated readOnly writeOnly $id $comment uniqueItems
    """.split()  # noqa: SIM905 - a table of words reads better than a list of strings
)
PLAIN = KNOWN - {"$ref", "allOf"}
_TOKEN = re.compile(r"\"[^\"]+\"|'[^']+'|\b\d+(?:\.\d+)?\b|\b\w*\d\w*\b")


class Draw:
    """The random choices of one behaviour, and the values in the results so far."""

    __slots__ = ("choose", "random", "seen")

    def __init__(self, random: Random, seen: Sequence[Any]) -> None:
        self.random = random
        self.seen = seen
        self.choose = random.choice

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability


class ArgumentValues:
    """Chooses values for parameters.

    `hints` are values of the user by `tool.parameter` or by the name of the parameter alone. The
    prompt contributes its numbers, ids and quoted texts. `notes` are the keywords that could not
    be respected.
    """

    def __init__(self, hints: Mapping[str, Sequence[Any]], prompt: str) -> None:
        self._hints = hints
        tokens = [token.strip("\"'") for token in _TOKEN.findall(prompt)]
        self._prompt_texts = tokens
        self._prompt_numbers = [int(token) for token in tokens if token.isdigit()]
        self.notes: dict[str, str] = {}

    def arguments(self, schema: JSON, draw: Draw, tool: str, *, odd: bool = False) -> JSON:
        """Return arguments for a tool. Of odd ones, one parameter is at its limits."""
        resolved = self.resolve(schema, schema, tool)
        required = set(resolved.get("required", ()))
        properties = _properties(resolved)
        chosen = [name for name in properties if name in required or draw.happens(0.5)]
        strange = draw.choose(chosen) if odd and chosen else None
        return {
            name: self._value(
                properties[name], schema, draw, f"{tool}.{name}", odd=name == strange, depth=1
            )
            for name in chosen
        }

    def invalid_arguments(self, schema: JSON, draw: Draw, tool: str) -> JSON:
        """Return arguments that break the schema: a wrong type, a missing or an extra one."""
        arguments = self.arguments(schema, draw, tool)
        name = draw.choose(sorted(arguments)) if arguments else ""
        kind = draw.choose(["extra", "raw", "missing", "type"] if name else ["extra", "raw"])
        match kind:
            case "missing":
                return {key: value for key, value in arguments.items() if key != name}
            case "type":
                wrong: list[Any] = [None, [], {}, True, 7, "seven", [arguments[name]]]
                return {**arguments, name: draw.choose(wrong)}
            case "raw":
                return {RAW_ARGUMENTS: draw.choose(BAD_JSON)}
            case _:
                return {**arguments, "unexpected": 1}

    def few_arguments(self, schema: JSON, seen: Sequence[Any], tool: str, limit: int) -> list[JSON]:
        """Return the same few arguments for a tool every time, and every value of the user."""
        found: list[JSON] = []
        for attempt in range(limit * 4):
            # Seeded by the attempt: an enumeration of all scripts must repeat itself.
            random = Random(f"{tool}:{attempt}")  # noqa: S311 - not for secrets
            arguments = self.arguments(schema, Draw(random, seen), tool)
            if arguments not in found:
                found.append(arguments)
            if len(found) == limit:
                break
        for name in _properties(self.resolve(schema, schema, tool)):
            for value in self._hints.get(f"{tool}.{name}", self._hints.get(name, ())):
                if all(arguments.get(name) != value for arguments in found):
                    found.append({**found[0], name: value})
        return found

    def _value(  # noqa: PLR0911 - one for each kind of schema
        self, schema: Any, root: JSON, draw: Draw, path: str, *, odd: bool, depth: int
    ) -> Any:
        hinted = self._hints.get(path, self._hints.get(path.rpartition(".")[2]))
        if hinted and not (odd and draw.happens(0.5)):
            return draw.choose(list(hinted))
        schema = self.resolve(schema, root, path)
        if "const" in schema:
            return schema["const"]
        if schema.get("enum"):
            return draw.choose(schema["enum"])
        for keyword in ("anyOf", "oneOf"):
            if options := schema.get(keyword):
                return self._value(draw.choose(options), root, draw, path, odd=odd, depth=depth)
        own = [*schema.get("examples", ()), *([schema["default"]] if "default" in schema else ())]
        if own and not odd and draw.happens(0.5):
            return draw.choose(own)
        kinds = schema.get("type", "object" if "properties" in schema else "string")
        kind = draw.choose(cast("list[str]", kinds)) if isinstance(kinds, list) else kinds
        match kind:
            case "string":
                return self._text(schema, draw, odd=odd)
            case "integer" | "number":
                return self._number(schema, draw, odd=odd, whole=kind == "integer")
            case "boolean":
                return draw.happens(0.5)
            case "array":
                if odd and draw.happens(0.5):
                    return []
                fewest, most = schema.get("minItems", 0), schema.get("maxItems", 3)
                count = max(fewest, min(most, draw.random.randint(1, 2)))
                kinds = schema.get("prefixItems", [])
                item = schema.get("items", {"type": "string"})
                items = [*kinds, *[item] * count][: count if depth < MAX_DEPTH else fewest]
                return [
                    self._value(item, root, draw, path, odd=odd, depth=depth + 1) for item in items
                ]
            case "object":
                required = set(schema.get("required", ()))
                return {
                    name: self._value(item, root, draw, f"{path}.{name}", odd=odd, depth=depth + 1)
                    for name, item in _properties(schema).items()
                    if name in required or (depth < MAX_DEPTH and draw.happens(0.5))
                }
            case "null":
                return None
            case _:
                self.notes.setdefault(f"{path}: type {kind!r}", "a text is used")
                return "a"

    def _text(self, schema: JSON, draw: Draw, *, odd: bool) -> Any:
        longest = schema.get("maxLength")
        if odd:
            return draw.choose([*ODD_TEXTS, *(["a" * longest] if longest else [])])
        if example := FORMATS.get(schema.get("format", "")):
            return example
        # What exists already: an id of a result, and what the prompt speaks of.
        if draw.seen and draw.happens(0.6):
            return Place(draw.random.randrange(len(draw.seen)), as_text=True)
        text = draw.choose([*self._prompt_texts, *PLAIN_TEXTS])
        shortest = schema.get("minLength", 0)
        text *= shortest // len(text) + 1 if len(text) < shortest else 1
        return text if longest is None else text[:longest]

    def _number(self, schema: JSON, draw: Draw, *, odd: bool, whole: bool) -> Any:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        if odd:
            limits = [limit for limit in (low, high) if isinstance(limit, (int, float))]
            around = [limit + step for limit in limits for step in (-1, 0, 1)]
            return draw.choose([*ODD_NUMBERS, *around, *([] if whole else [0.5, 1e308])])
        numbers = [i for i, value in enumerate(draw.seen) if isinstance(value, (int, float))]
        if numbers and draw.happens(0.5):
            return Place(draw.choose(numbers))
        # The numbers of the prompt twice: they are the likeliest.
        value = draw.choose([*self._prompt_numbers, *self._prompt_numbers, *PLAIN_NUMBERS])
        if isinstance(low, (int, float)):
            value = max(value, low + ("exclusiveMinimum" in schema))
        if isinstance(high, (int, float)):
            value = min(value, high - ("exclusiveMaximum" in schema))
        step = schema.get("multipleOf")
        return value - value % step if step else value

    def resolve(self, schema: Any, root: JSON, path: str) -> JSON:
        """Return a schema without `$ref` and `allOf`; keywords that are not known are noted."""
        schema = cast("JSON", schema) if isinstance(schema, dict) else {}
        if schema.keys() <= PLAIN:
            return schema
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                break
            found = _follow(reference, root)
            if found is None:
                self.notes.setdefault(f"{path}: $ref {reference!r}", "a text is used")
            schema = {**(found or {}), **{k: v for k, v in schema.items() if k != "$ref"}}
        for part in schema.get("allOf", ()):
            other = self.resolve(part, root, path)
            properties = {**_properties(schema), **_properties(other)}
            required = [*schema.get("required", ()), *other.get("required", ())]
            schema = {**schema, **other, "properties": properties, "required": required}
        for keyword in sorted(set(schema) - KNOWN):
            self.notes.setdefault(f"{path}: {keyword}", "it is ignored, so values may break it")
        return schema


def _follow(reference: str, root: JSON) -> JSON | None:
    """Return the schema that a local reference such as `#/$defs/Order` names."""
    found: Any = root
    for part in reference.removeprefix("#").strip("/").split("/") if reference != "#" else ():
        found = cast("JSON", found).get(part) if isinstance(found, dict) else None
    return cast("JSON", found) if isinstance(found, dict) else None


def _properties(schema: JSON) -> dict[str, Any]:
    properties = schema.get("properties")
    return cast("dict[str, Any]", properties) if isinstance(properties, dict) else {}


# ---------------------------------------------------------------------- generated model

UNKNOWN_TOOLS = ("no_such_tool", "multi_tool_use.parallel", "bash ")
LONG_TEXT = "and so on " * 2_000
PATIENCE = 20  # requests after the last move, before the agent counts as endless

# How often each kind of move is made. Several calls in one message are an everyday move: agents
# that are right for one call after the other often are not for two at once.
MOVES = {
    "call": 40,
    "several calls": 14,
    "odd arguments": 12,
    "repeat": 8,
    "same call twice": 7,
    "wrong arguments": 6,
    "text": 4,
    "unknown tool": 3,
    "provider error": 2,
    "empty": 1,
    "refusal": 1,
    "cut short": 1,
    "long text": 1,
}
STREAM_MOVES = {**MOVES, "cut stream": 6}  # only a stream can be cut
# Each kind as often as its weight: one draw from a tuple is the fastest weighted choice.
DRAWS, STREAM_DRAWS = (
    tuple(kind for kind, weight in moves.items() for _ in range(weight))
    for moves in (MOVES, STREAM_MOVES)
)


def raise_endless() -> NoReturn:
    """Raise the error for an agent that goes on after the model has ended the conversation."""
    raise RunError(
        f"the agent does not end: it sent {PATIENCE} requests after the last move of the model"
    )


class PatientPlaybook(Playbook):
    """A playbook that answers a limited number of requests after its last step."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self._extra = 0

    async def answer(self, question: PersonQuestion, /) -> Answer:
        """Allow everything: the search is for what the model does."""
        del question
        return allow

    async def reply(self, request: Request, /) -> Reply:
        """Return the next step; after the last one, the end of the conversation."""
        if self.consumed and not self.remaining:
            self._extra += 1
            if self._extra > PATIENCE:
                raise_endless()
        return await super().reply(request)


class GeneratedModel:
    """A source that makes up to `steps` moves, then ends the conversation.

    The same seed gives the same moves for the same requests. `moves` are those made so far, and
    `tools` the tools that the agent has offered.
    """

    def __init__(self, values: ArgumentValues, *, seed: str, steps: int) -> None:
        self._values = values
        self._random = Random(seed)  # noqa: S311 - not for secrets
        self._steps = steps
        self._calls = 0
        self._seen: list[Any] = []
        self._noted: set[str] = set()
        # In most behaviours only a few of the tools are called: what goes wrong needs some of them
        # in some order, and each other tool makes that order rarer.
        self._favourites = self._random.choice([0, 2, 3, 4])
        self._chosen: tuple[str, ...] = ()
        self._offered: tuple[Tool, ...] = ()
        self.requests = 0
        self.announce: Callable[[Move], object] = id
        self.moves: list[Move] = []
        self.tools: dict[str, Tool] = {}

    async def reply(self, request: Request, /) -> Reply:
        """Return the next move."""
        self.requests += 1
        if self.requests > self._steps + PATIENCE:
            raise_endless()
        for result in request.results:
            if result.call_id not in self._noted:
                self._noted.add(result.call_id)
                self._seen += find_values(result)
        if request.tools is not self._offered:
            self._offered = request.tools
            self.tools.update({tool.name: tool for tool in request.tools})
        if self.requests > self._steps:
            return build_reply(END, request, (), 0)
        move = self._choose(request.tools, STREAM_DRAWS if request.stream else DRAWS)
        self.moves.append(move)
        self.announce(move)
        if move.status:
            raise ModelError("the model is overloaded", status=move.status, retry_after=SOON)
        reply = build_reply(move, request, self._seen, self._calls + 1)
        self._calls += len(move.calls)
        return reply

    def _choose(  # noqa: PLR0911 - one for each kind
        self, offered: tuple[Tool, ...], kinds: tuple[str, ...]
    ) -> Move:
        random = self._random
        draw = Draw(random, self._seen)
        kind = random.choice(kinds)
        functions = self._narrow([tool for tool in offered if tool.kind == "function"])
        made = [one for move in self.moves for one in move.calls]
        if not functions and kind not in {"text", "empty", "refusal", "long text", "cut short"}:
            kind = "text"
        match kind:
            case "several calls":
                count = random.choice([2, 2, 3])
                # The same id for two tools is what a race needs.
                shared: JSON | None = {} if draw.happens(0.5) else None
                return Move(tuple(self._call(functions, draw, shared) for _ in range(count)))
            case "odd arguments":
                return Move((self._call(functions, draw, odd=True),))
            case "repeat" if made:
                return Move((random.choice(made),))
            case "same call twice":
                return Move((self._call(functions, draw),) * 2)
            case "wrong arguments":
                tool = random.choice(functions)
                arguments = self._values.invalid_arguments(tool.schema, draw, tool.name)
                return Move((GeneratedCall(tool.name, arguments),))
            case "unknown tool":
                names = {tool.name for tool in offered}
                unknown = [name for name in UNKNOWN_TOOLS if name not in names]
                return Move((GeneratedCall(random.choice(unknown), {}, unknown=True),))
            case "provider error":
                return Move(status=random.choice([429, 500, 529]))
            case "text":
                return Move(text=random.choice([END.text, "I am not sure. What should I do?"]))
            case "empty":
                return Move()
            case "refusal":
                return Move(text="I cannot help with that.", stop="refusal")
            case "cut stream":
                return Move((self._call(functions, draw),), stop="cut")
            case "cut short":
                calls = (self._call(functions, draw),) if functions else ()
                return Move(calls, "Let me", "length")
            case "long text":
                return Move(text=LONG_TEXT)
            case _:
                return Move((self._call(functions, draw),))

    def _narrow(self, functions: list[Tool]) -> list[Tool]:
        """Return the tools that this behaviour calls."""
        if not self._favourites or len(functions) <= self._favourites:
            return functions
        if not self._chosen:
            names = [tool.name for tool in functions]
            self._chosen = tuple(self._random.sample(names, self._favourites))
        # The tools may change during a run.
        return [tool for tool in functions if tool.name in self._chosen] or functions

    def _call(
        self,
        functions: list[Tool],
        draw: Draw,
        shared: JSON | None = None,
        *,
        odd: bool = False,
    ) -> GeneratedCall:
        """Return a call; parameters with the name of a shared value get that value."""
        tool = draw.choose(functions)
        arguments = self._values.arguments(tool.schema, draw, tool.name, odd=odd)
        if shared is not None:
            arguments = {name: shared.setdefault(name, arguments[name]) for name in arguments}
        return GeneratedCall(tool.name, arguments)
