"""The arguments of generated calls: from schemas, prompts, results and the code of the agent."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any, cast

import msgspec

from offbook.exchange.messages import JSON, RAW_ARGUMENTS
from offbook.exchange.schema_values import DATE_FORMATS, FORMATS, properties_of, resolve_schema
from offbook.exchange.tool_effects import split_words
from offbook.explore.dates import (
    Part,
    choose_date,
    find_dates,
    list_impossible_dates,
    list_near_dates,
    move_date,
)
from offbook.explore.moves import Place, find_in_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from offbook.exchange.model import Request, Tool


_QUOTED = re.compile(r"\"([^\"\n]{1,60})\"|'([^'\n]{1,60})'")
_WORD = re.compile(r"[A-Za-z][\w-]{2,}")
# The words after "such as", and lists after a colon: "a city: Berlin, Rome or Oslo".
_BETWEEN = r"(?:, (?:or |and )?| or | and )"
_ITEM = r"[\w-]+(?:[./@:][\w-]+)*"
_EXAMPLES = re.compile(
    r"(?:\b(?:such as|for example|for instance|one of|either)|\be\.g\.)[ :]+"
    rf"({_ITEM}(?:{_BETWEEN}{_ITEM})*)|\w: ({_ITEM}(?:{_BETWEEN}{_ITEM})+)",
    re.IGNORECASE,
)
_FILE = re.compile(r"[\w.-]*(?:[/.][\w-]+)+/?|[\w-]+/")
# How long a text may be: "at most 200 characters".
_LENGTH = re.compile(
    r"\b(\d{1,3}(?:[,_]\d{3})+|\d{1,6})[ -](?:\w+ )?"
    r"(characters?|chars?|letters?|symbols?|bytes?|words?)\b",
    re.IGNORECASE,
)
_LAST_NUMBER = re.compile(r"\d{1,9}(?=\D*$)")
_encode = msgspec.json.Encoder(enc_hook=repr).encode
MAX_WORDS = 8  # of a prompt that are used as values
VALUE_KEYWORDS = frozenset(
    "minimum maximum exclusiveMinimum exclusiveMaximum default example examples const enum".split()  # noqa: SIM905
)
NO_FORM = {"title", "description", "default", "examples"}
NOT_KNOWN: Any = object()
SAME_AGAIN = 0.3  # of the arguments, in behaviours with favourites: the last value of that name
NEAR_TEXTS = 0.1  # of the texts that are known from somewhere
MAX_DEPTH = 6  # of nested objects: a schema may refer to itself
PLAIN_TEXTS = ("a", "b", "test")
PLAIN_NUMBERS = (1, 2, 0)
# The tools of the agent really run, so no value names a file that exists.
ODD_PATHS = ("../a", "a/../../b", "..")
ODD_TEXTS = (
    *("", " ", "0", "\u0000", "é\u202e😀", "../a", "a" * 5_000, "' OR '1'='1", "null", "a\nb"),
    *("\ud83d", "e\u0301", "ﬁ", "İ", "-1", "$(id)", "{}", "<b>", "it's", "%"),
    # A digit that is no number, numbers that are none, the begin of a pattern, and a text that is
    # cut inside of a character wherever it is cut.
    *("²", "nan", "inf", "(", "é日😀" * 40),
)
# Longer than what a test has, and than a limit that nobody wrote down; also in more bytes.
LONG_TEXTS = ("a" * 700, "é日😀" * 300, "ab cd\n" * 150, "a" * 5_000, "日" * 5_000)
LONG = 0.25  # of the odd texts of a parameter that takes any length
AT_LENGTH = 0.5  # of those of a parameter with a known length
LONGEST = 20_000  # characters of a length that is tried
OWN_EXAMPLES = 0.4  # of the texts of a parameter whose description has an example
EMPTY_TEXTS = 0.02  # of the texts: an empty one is often equal to what is missing
SMALL = 0.001
ODD_NUMBERS = (0, -1, 2**31, 2**63, -(2**63))
BAD_JSON = ("{", "", "[]", "7", '"x"', "null", '{"a": }')
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
MARKS = {"email": "@", "uri": "://", "url": "://", "path": "/"}  # of the values of a format
# The words of the names of parameters that take a date.
DATE_WORDS = frozenset(
    """
    date day days deadline due since until checkin checkout arrival departure start end begin from
    when time at slot hour
    """.split()  # noqa: SIM905 - as above
)
DAY_WORDS, CLOCK_WORDS = (
    frozenset({"date", "day", "birthday"}),
    frozenset({"time", "hour", "clock"}),
)
# The kind of value that a parameter of such a name takes.
NAMED_KINDS = {
    "@": ("mail", "recipient", "address", "to", "sender"),
    "://": ("url", "link", "uri", "site", "page", "endpoint", "webhook"),
    "/": ("path", "file", "folder", "directory", "dir", "name"),
}


class Knowledge(msgspec.Struct, frozen=True):
    """The numbers and texts that something names: a prompt, the tools of an agent, its code.

    `lengths` are texts that are as long as it says, or nearly so.
    """

    numbers: tuple[Any, ...] = ()
    texts: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()


NOTHING = Knowledge()


@lru_cache(maxsize=256)
def learn(text: str) -> Knowledge:
    """Return what a text names."""
    quoted = [one or other for one, other in _QUOTED.findall(text)]
    lists = [one or other for one, other in _EXAMPLES.findall(text)]
    examples = [word for words in lists for word in re.split(_BETWEEN, words)]
    found = [*find_dates(text), *find_in_text(text), *quoted, *examples[:MAX_WORDS]]
    numbers = [value for value in found if not isinstance(value, str)]
    named = tuple(dict.fromkeys(map(str, found)))
    return Knowledge(tuple(dict.fromkeys(numbers)), named, _learn_lengths(text))


def _learn_lengths(text: str) -> tuple[str, ...]:
    """Return texts of the lengths that a description names, one more and one less."""
    texts: list[str] = []
    for digits, unit in _LENGTH.findall(text):
        length = int(re.sub("[,_]", "", digits))
        if not 0 < length <= LONGEST:
            continue
        one = "a " if unit.lower().startswith("word") else "a"
        texts += [one * length, one * (length + 1), one * (length - 1)]
        # Each of these has more than one byte.
        texts += ["é" * length, "日" * (length + 1), "日" * (length // 3 + 1)]
    return tuple(dict.fromkeys(texts))


def learn_request(request: Request) -> Knowledge:
    """Return what the system prompt and the tools of a request name."""
    return _learn_tools(request.system, request.tools) if request.tools else learn(request.system)


def _learn_tools(system: str, tools: Sequence[Tool]) -> Knowledge:
    descriptions = "\n".join(tool.description for tool in tools)
    raw = _encode([tool.schema for tool in tools])
    return _learn_texts(system, descriptions, raw)


@lru_cache(maxsize=64)
def _learn_texts(system: str, descriptions: str, schemas: bytes) -> Knowledge:
    parts = [learn(system), learn(descriptions), learn(schemas.decode())]
    limits: list[Any] = []
    texts: list[str] = []
    _collect_schema(msgspec.json.decode(schemas), limits, texts)
    numbers = [number for part in parts[:2] for number in part.numbers]
    texts += [text for part in parts[:2] for text in part.texts]
    lengths = [text for part in parts for text in part.lengths]
    return Knowledge(
        tuple(dict.fromkeys([*limits, *numbers])),
        tuple(dict.fromkeys(texts)),
        tuple(dict.fromkeys(lengths)),
    )


def _collect_schema(schema: Any, numbers: list[Any], texts: list[str]) -> None:
    """Collect the limits, defaults and examples of a schema, and what its descriptions name."""
    if isinstance(schema, list):
        for item in cast("list[Any]", schema):
            _collect_schema(item, numbers, texts)
    if not isinstance(schema, dict):
        return
    for key, value in cast("JSON", schema).items():
        if key == "description" and isinstance(value, str):
            known = learn(value)
            numbers += known.numbers
            texts += known.texts
        elif key in VALUE_KEYWORDS:
            for one in cast("list[Any]", value) if isinstance(value, list) else [value]:
                if isinstance(one, str):
                    texts.append(one)
                elif isinstance(one, (int, float)) and not isinstance(one, bool):
                    numbers.append(one)
        else:
            _collect_schema(value, numbers, texts)


def list_neighbours(number: Any) -> list[Any]:
    """Return what is near a limit: just over and under it, its parts, its double, its negative.

    Two calls with a little more than the half are under a limit each, and over it together.
    """
    if isinstance(number, float):
        return [number + 0.01, number - 0.01, number / 2, number / 2 + 0.01, 2 * number, -number]
    return [number + 1, number - 1, number // 2 + 1, number // 2, 2 * number, -number]


def list_near_texts(text: str) -> list[str]:
    """Return what is near a text: other days of a date, the next id, other case, and spaces.

    A number is also written in another way: `07` and `+7` are 7, too.
    """
    near = [f"{text} ", *({text.swapcase()} - {text})]
    if days := list_near_dates(text):
        return days
    if number := _LAST_NUMBER.search(text):
        start, end = number.span()
        near += [f"{text[:start]}{int(number[0]) + step}{text[end:]}" for step in (1, -1)]
        near += [f"{text[:start]}{more}{text[start:]}" for more in ("0", "+") if not start]
    return near


def find_ranges(arguments: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the parameters that may be the begin and the end of a range.

    They are neighbours, both are dates or times, or both are numbers.
    """
    names = [*arguments]
    return [
        (first, last)
        for first, last in pairwise(names)
        if (kind := _range_kind(arguments[first])) and kind == _range_kind(arguments[last])
    ]


def _range_kind(value: Any) -> str:
    if isinstance(value, str):
        return "date" if find_dates(value) == [value] else ""
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else ""


def move_value(value: Any, steps: int) -> Any:
    """Return a later date or time, or a number that is so much higher; "" if there is none."""
    return move_date(value, steps) if isinstance(value, str) else value + steps


class Draw:
    """The random choices of one behaviour, the values in the results so far, and what is known.

    In half of the behaviours there are `favourites`: a number, a text, and the last value of each
    parameter. What goes wrong often needs the same value twice, in calls of different tools.
    """

    __slots__ = ("choose", "dates", "favourites", "known", "random", "seen")

    def __init__(
        self,
        random: Random,
        seen: Sequence[Any],
        known: Knowledge = NOTHING,
        favourites: dict[str, Any] | None = None,
    ) -> None:
        self.random = random
        self.seen = seen
        self.known = known
        self.favourites = favourites
        # The last ones: many tools take the first day and the last.
        self.dates: dict[Part, str] = {}
        self.choose = random.choice

    def happens(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random.random() < probability


class ArgumentValues:
    """Chooses values for parameters.

    `hints` are values of the user by `tool.parameter` or by the name of the parameter alone. The
    prompt contributes its numbers, ids, addresses, quoted texts and words; `constants` are those
    that the code of the agent compares with. `notes` are the keywords that could not be respected.
    """

    def __init__(
        self, hints: Mapping[str, Sequence[Any]], prompt: str, constants: Iterable[Any] = ()
    ) -> None:
        self._hints = hints
        known = learn(prompt)
        words = [word for word in _WORD.findall(prompt) if word not in known.texts]
        self._prompt_texts = [*known.texts, *known.texts, *words[:MAX_WORDS]]
        self._prompt_numbers = known.numbers
        given = list(constants)
        self._code_texts = [value for value in given if isinstance(value, str)]
        self._code_numbers = [value for value in given if not isinstance(value, str)]
        self.notes: dict[str, str] = {}

    def list_constants(self) -> list[Any]:
        """Return the constants of the code that the prompt does not name."""
        named = {*self._prompt_texts, *self._prompt_numbers}
        return [v for v in (*self._code_texts, *self._code_numbers) if v not in named]

    def arguments(self, schema: JSON, draw: Draw, tool: str, *, odd: bool = False) -> JSON:
        """Return arguments for a tool. Of odd ones, one parameter is at its limits."""
        resolved = self.resolve(schema, schema, tool)
        required = set(resolved.get("required", ()))
        properties = properties_of(resolved)
        chosen = [name for name in properties if name in required or draw.happens(0.5)]
        strange = draw.choose(chosen) if odd and chosen else None
        arguments: JSON = {}
        for name in chosen:
            value, part = NOT_KNOWN, properties[name]
            path = f"{tool}.{name}"
            keeps = draw.favourites is not None and name != strange
            if keeps and path not in self._hints and draw.happens(SAME_AGAIN):
                value = _recall(draw.favourites or {}, name, part)
            if value is NOT_KNOWN:
                value = self._value(part, schema, draw, path, odd=name == strange, depth=1)
            if draw.favourites is not None and keeps:
                draw.favourites[f"={name}"] = (_form_of(part), value)
            arguments[name] = value
        return arguments

    def likely_arguments(self, schema: JSON, draw: Draw, tool: str) -> JSON:
        """Return the arguments that the prompt asks for, as far as it names values for them."""
        arguments = self.arguments(schema, draw, tool)
        properties = properties_of(self.resolve(schema, schema, tool))
        for name in arguments:
            part = self.resolve(properties[name], schema, f"{tool}.{name}")
            fitting = _find_fitting(name, self._prompt_texts)
            if part.keys() & {"enum", "const"} or f"{tool}.{name}" in self._hints:
                continue
            if part.get("type") in {"integer", "number"} and self._prompt_numbers:
                arguments[name] = draw.choose(self._prompt_numbers)
            elif part.get("type", "string") == "string" and fitting:
                arguments[name] = self._prompt_texts[draw.choose(fitting)]
        return arguments

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
        for name in properties_of(self.resolve(schema, schema, tool)):
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
                return self._text(schema, draw, path, odd=odd, part=_find_part(path, schema, root))
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
                required, parts = set(schema.get("required", ())), properties_of(schema)
                others: Any = schema.get("additionalProperties", True)
                if not parts and others is not False and depth < MAX_DEPTH:
                    if odd and draw.happens(0.5):
                        return {}
                    # Any keys: the names of files, labels or headers.
                    count = draw.random.randint(1, 2)
                    texts = [self._text({}, draw, path, odd=False) for _ in range(count)]
                    item = {"type": "string"} if others is True else others
                    parts = dict.fromkeys(sorted(required) or filter(_is_text, texts), item)
                    required = {*parts}
                return {
                    name: self._value(item, root, draw, f"{path}.{name}", odd=odd, depth=depth + 1)
                    for name, item in parts.items()
                    if name in required or (depth < MAX_DEPTH and draw.happens(0.5))
                }
            case "null":
                return None
            case _:
                self.notes.setdefault(f"{path}: type {kind!r}", "a text is used")
                return "a"

    def _text(self, schema: JSON, draw: Draw, path: str, *, odd: bool, part: Part = "") -> Any:
        longest = schema.get("maxLength")
        bounded = longest is not None or "minLength" in schema or "format" in schema
        form = schema.get("format", "")
        dated = form in DATE_FORMATS or (not form and self._takes_date(path, draw, part))
        if odd:
            return draw.choose(self._odd_texts(schema, draw, path, dated=dated))
        if not (bounded or dated) and draw.happens(EMPTY_TEXTS):
            return ""
        favourites = draw.favourites
        if favourites is not None and not (bounded or dated) and draw.happens(0.3):
            if "text" not in favourites:
                favourites["text"] = self._free_text(draw, path)
            return favourites["text"]
        if form or dated:
            value = self._formatted(form, draw, part)
            if value:
                return value
        # An id such as the one that its own description names.
        if (own := _learn_examples(schema)) and not bounded and draw.happens(OWN_EXAMPLES):
            text = draw.choose(own)
            return draw.choose(list_near_texts(text)) if draw.happens(0.3) else text
        # What exists already: an id of a result, and what the prompt speaks of.
        text = self._free_text(draw, path)
        if isinstance(text, Place):
            return text
        shortest = schema.get("minLength", 0)
        text = text or "a" * shortest
        text *= shortest // len(text) + 1 if len(text) < shortest else 1
        return text if longest is None else text[:longest]

    def _odd_texts(self, schema: JSON, draw: Draw, path: str, *, dated: bool) -> Sequence[str]:
        """Return texts that are unusual for a parameter, half of the time those of its kind."""
        if "/" in _kinds_of(path) and draw.happens(0.5):
            # A folder that is allowed may only be the beginning of a path.
            return self._odd_paths(draw)
        if dated and draw.happens(0.5):
            known = [*self._prompt_texts, *draw.known.texts, *self._code_texts]
            return list_impossible_dates(known) or ODD_TEXTS
        longest = schema.get("maxLength")
        own = [*learn(str(schema.get("description", ""))).lengths]
        if isinstance(longest, int) and 0 < longest <= LONGEST:
            own += ["a" * longest, "a" * (longest + 1), "日" * longest]
        if (lengths := own or draw.known.lengths) and draw.happens(AT_LENGTH):
            return lengths
        return LONG_TEXTS if draw.happens(LONG) else ODD_TEXTS

    def _odd_paths(self, draw: Draw) -> list[str]:
        """Return paths that lead out of a folder: to a file that is known, or to none."""
        seen = [value for value in draw.seen if isinstance(value, str)]
        known = [
            text
            for text in (*self._prompt_texts, *draw.known.texts, *seen)
            if ":" not in text and _FILE.fullmatch(text)
        ]
        folders = {text.partition("/")[0] for text in known if "/" in text} - {"", ".."}
        return [
            *ODD_PATHS,
            *(f"{name}/../a" for name in sorted(folders)),
            *(
                f"{name}/../{text}"
                for name in sorted(folders)
                for text in dict.fromkeys(known)
                if not text.startswith(f"{name}/") and not text.endswith("/")
            ),
        ]

    def _takes_date(self, path: str, draw: Draw, part: Part) -> bool:
        """Return whether a parameter without a format takes a date: by its name, and one is known.

        It may be written in another way than ours, so it is not always one.
        """
        if not (part or _names_date(path)) or draw.happens(0.1 if part else 0.3):
            return False
        return any(map(find_dates, (*self._prompt_texts, *draw.known.texts)))

    def _formatted(self, form: str, draw: Draw, part: Part = "") -> Any:
        """Return a value of a format, or a date as it is written, near those that are known.

        It is None for another format.
        """
        texts = [*self._prompt_texts, *draw.known.texts, *self._code_texts]
        if not form or form in DATE_FORMATS:
            # One of a result as it is: another day may have others.
            seen = [
                i for i, v in enumerate(draw.seen) if isinstance(v, str) and find_dates(v) == [v]
            ]
            if seen and draw.happens(0.3):
                return Place(draw.choose(seen), True)
            numbers = [*self._prompt_numbers, *draw.known.numbers, *self._code_numbers]
            numbers += [value for value in draw.seen[-8:] if isinstance(value, (int, float))]
            last = draw.dates.get(part)
            if last and draw.happens(0.7):
                texts = [last]
            draw.dates[part] = chosen = choose_date(form, texts, numbers, draw.random, part)
            return chosen
        mark = MARKS.get(form, "")
        seen = [i for i, v in enumerate(draw.seen) if mark and isinstance(v, str) and mark in v]
        if seen and draw.happens(0.5):
            return Place(draw.choose(seen), True)
        fitting = [text for text in texts if mark and mark in text]
        return draw.choose(fitting) if fitting and draw.happens(0.7) else FORMATS.get(form)

    def _free_text(self, draw: Draw, path: str) -> Any:
        """Return a text that was seen somewhere, those of the parameter's kind first."""
        if draw.seen and draw.happens(0.6):
            fitting = _find_fitting(path, draw.seen)
            index = draw.choose(fitting) if fitting and draw.happens(0.7) else None
            return Place(draw.random.randrange(len(draw.seen)) if index is None else index, True)
        other = [*draw.known.texts, *self._code_texts]
        if other and draw.happens(0.3):
            fitting = _find_fitting(path, other)
            text = other[draw.choose(fitting)] if fitting else draw.choose(other)
        else:
            text = draw.choose([*self._prompt_texts, *PLAIN_TEXTS]) or "a"
        return draw.choose(list_near_texts(text)) if draw.happens(NEAR_TEXTS) else text

    def _number(self, schema: JSON, draw: Draw, *, odd: bool, whole: bool) -> Any:
        low = schema.get("minimum", schema.get("exclusiveMinimum"))
        high = schema.get("maximum", schema.get("exclusiveMaximum"))
        if odd:
            limits = [limit for limit in (low, high) if isinstance(limit, (int, float))]
            around = [limit + step for limit in limits for step in (-1, 0, 1)]
            near = [self._near(draw, whole=whole)]
            return draw.choose(
                [*ODD_NUMBERS, *around, *near, *([] if whole else [0.5, SMALL, 1e308])]
            )
        numbers = [i for i, value in enumerate(draw.seen) if isinstance(value, (int, float))]
        favourites = draw.favourites
        if favourites is not None and draw.happens(0.4):
            if "number" not in favourites:
                favourites["number"] = self._near(draw, whole=whole)
            value = favourites["number"]
        elif numbers and draw.happens(0.5):
            return Place(draw.choose(numbers))
        elif draw.happens(0.25):
            value = self._near(draw, whole=whole)
        else:
            # The numbers of the prompt twice: they are the likeliest.
            value = draw.choose([*self._prompt_numbers, *self._prompt_numbers, *PLAIN_NUMBERS])
        if whole:
            value = int(value)
        beyond = 1 if whole else SMALL  # a limit that is left out
        if isinstance(low, (int, float)):
            value = max(value, low + beyond * ("exclusiveMinimum" in schema))
        if isinstance(high, (int, float)):
            value = min(value, high - beyond * ("exclusiveMaximum" in schema))
        step = schema.get("multipleOf")
        return value - value % step if step else value

    def _near(self, draw: Draw, *, whole: bool) -> Any:
        """Return a number that is known from somewhere, or one that is near it."""
        seen = [value for value in draw.seen if isinstance(value, (int, float))]
        known = [*self._prompt_numbers, *draw.known.numbers, *self._code_numbers, *seen[-8:]]
        number = draw.choose(known or PLAIN_NUMBERS)
        if draw.happens(0.7):
            number = draw.choose(list_neighbours(number))
        return int(number) if whole else number

    def resolve(self, schema: Any, root: JSON, path: str) -> JSON:
        """Return a schema without `$ref` and `allOf`; keywords that are not known are noted."""
        schema = cast("JSON", schema) if isinstance(schema, dict) else {}
        if schema.keys() <= PLAIN:
            return schema
        schema = resolve_schema(schema, root)
        if "$ref" in schema:
            self.notes.setdefault(f"{path}: $ref {schema['$ref']!r}", "a text is used")
        for keyword in sorted(set(schema) - KNOWN):
            self.notes.setdefault(f"{path}: {keyword}", "it is ignored, so values may break it")
        return schema


def _is_text(value: object) -> bool:
    return isinstance(value, str)  # a place in a result is none


def _learn_examples(schema: JSON) -> list[str]:
    """Return the examples with a digit in a description: "such as PO-17"."""
    description = schema.get("description")
    if not isinstance(description, str):
        return []
    return [text for text in learn(description).texts if any(map(str.isdigit, text))]


def takes_any_text(schema: Any) -> bool:
    """Return whether a parameter takes any text, by its schema."""
    parts = cast("JSON", schema) if isinstance(schema, dict) else {}
    return parts.get("type") == "string" and parts.keys() <= {"type", "title", "description"}


def _recall(favourites: Mapping[str, Any], name: str, schema: Any) -> Any:
    """Return the last value of a parameter of this name and form, or NOT_KNOWN."""
    form, value = favourites.get(f"={name}", (None, NOT_KNOWN))
    return value if form == _form_of(schema) else NOT_KNOWN


def _form_of(schema: Any) -> str:
    """Return what decides whether a value of one parameter fits another of the same name."""
    parts = cast("JSON", schema) if isinstance(schema, dict) else {}
    return repr({key: parts[key] for key in parts if key not in NO_FORM})


@lru_cache(maxsize=256)
def _names_date(path: str) -> bool:
    """Return whether a parameter takes a date, by its name."""
    return not DATE_WORDS.isdisjoint(split_words(path.rpartition(".")[2]))


def _find_part(path: str, schema: JSON, root: JSON) -> Part:
    """Return whether a parameter takes a day or a time of day, by its description or its name.

    A parameter such as `start` beside one such as `day` takes a time of day.
    """
    if schema.get("format"):
        return ""
    own = _named_part(path.rpartition(".")[2], str(schema.get("description", "")))
    if own or not _names_date(path):
        return own
    for name, part in properties_of(root).items():
        other: JSON = cast("JSON", part) if isinstance(part, dict) else {}
        described = str(other.get("description", ""))
        if other.get("format") == "date" or _named_part(name, described) == "day":
            return "clock"
    return ""


@lru_cache(maxsize=256)
def _named_part(name: str, description: str) -> Part:
    has_day, has_clock = "YYYY" in description, "HH:MM" in description.upper()
    if has_day != has_clock:
        return "day" if has_day else "clock"
    words = {*split_words(name)}
    if words & DAY_WORDS:
        return "day"
    return "clock" if words & CLOCK_WORDS else ""


@lru_cache(maxsize=256)
def _kinds_of(path: str) -> tuple[str, ...]:
    """Return the marks of the kinds of value that a parameter takes, by its name."""
    name = path.rpartition(".")[2].lower()
    marks = [mark for mark, names in NAMED_KINDS.items() if any(word in name for word in names)]
    return tuple(marks)


def _find_fitting(path: str, values: Sequence[Any]) -> list[int]:
    """Return the places of the values of the kind that a parameter takes, by its name."""
    if not (marks := _kinds_of(path)):
        return []
    return [
        index
        for index, value in enumerate(values)
        if isinstance(value, str) and any(mark in value for mark in marks)
    ]
