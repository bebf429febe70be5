"""The moves of a generated model: one for each request, and the script that they form.

A move is plain data, so that a search can shorten it, and each one can be written with the words
of a playbook. A value that came from a tool result is a `Place`: the number of the value among
those that the results contained. Ids differ from run to run, places do not.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from offbook.determinism.faults import Fault
from offbook.exchange.messages import JSON, AnyBlock, Text, ToolCall
from offbook.exchange.model import Reply, Request, StopReason
from offbook.sources.matching import make_call_id
from offbook.sources.playbook.actions import ScriptedStop, call, fail, say, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offbook.sources.playbook.actions import Action, Call, Turn


LAST_WORDS = "Done."
SOON = 0.001  # seconds after which a client may retry: a search must not wait
MAX_VALUES = 32  # of the results; a table of a thousand rows has no more ids worth a try
MAX_VALUE_LENGTH = 200
# A word with a digit in it: an id, a number, a date.
_ID = re.compile(r"(?<![\w.-])(?=[\w.-]*\d)[\w-]+(?:\.[\w-]+)*")


class HasText(Protocol):
    """A tool result, as the agent sent it or as the trace has it."""

    @property
    def text(self) -> str:
        """Its text."""
        ...


class Place(msgspec.Struct, frozen=True):
    """The n-th value in the results so far; as text if the parameter takes one."""

    index: int
    as_text: bool = False


class GeneratedCall(msgspec.Struct, frozen=True):
    """A tool call; its arguments may have places in them."""

    tool: str
    arguments: JSON = {}
    unknown: bool = False


class Move(msgspec.Struct, frozen=True):
    """One message of the model: calls, a text, or an error of the provider."""

    calls: tuple[GeneratedCall, ...] = ()
    text: str = ""
    stop: ScriptedStop = "stop"
    status: int = 0

    @property
    def size(self) -> int:
        """The amount of text in it: a search prefers the smaller of two."""
        return 10 * (len(self.calls) or 1) + len(str(self.calls)) + len(self.text)


END = Move(text=LAST_WORDS)


def find_values(result: HasText) -> list[Any]:
    """Return the ids, numbers and short texts in a tool result, in order and each once.

    A script uses them where it needs an id that only exists while it runs:

        seen = []
        when("Plan", [
            call("propose", {…}).then(lambda result: seen.extend(find_values(result))),
            call("approve", lambda: {"id": seen[0]}),
            say("Done."),
        ])
    """
    return [*_find_in_text(result.text)]


# The tools of an agent give the same few results again and again.
@lru_cache(maxsize=512)
def _find_in_text(text: str) -> tuple[Any, ...]:
    found: list[Any] = []
    try:
        _collect(msgspec.json.decode(text), found)
    except msgspec.DecodeError:
        _collect(text, found)
    return tuple(dict.fromkeys(found))[:MAX_VALUES]


def _collect(value: Any, found: list[Any]) -> None:
    match value:
        case bool() | None:
            return
        case int() | float():
            found.append(value)
        case str():
            if 0 < len(value) <= MAX_VALUE_LENGTH and " " not in value:
                found.append(_number_or_text(value))
            else:
                found += [_number_or_text(token) for token in _ID.findall(value)]
        case dict():
            for item in cast("dict[str, Any]", value).values():
                _collect(item, found)
        case list():
            for item in cast("list[Any]", value):
                _collect(item, found)
        case _:
            return


def _number_or_text(token: str) -> Any:
    return int(token) if token.isascii() and token.isdigit() and len(token) < MAX_VALUES else token


def resolve(value: Any, seen: Sequence[Any]) -> Any:
    """Return a value with the values of the results in its places."""
    match value:
        case Place(index, as_text):
            # A shortened script may have fewer results than the one that it was made from.
            found = seen[index % len(seen)] if seen else index
            return str(found) if as_text else found
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {name: resolve(item, seen) for name, item in items}
        case list():
            return [resolve(item, seen) for item in cast("list[Any]", value)]
        case _:
            return value


def has_place(value: Any) -> bool:
    """Return whether a value depends on the results of a run."""
    match value:
        case Place():
            return True
        case dict():
            return any(map(has_place, cast("dict[str, Any]", value).values()))
        case list():
            return any(map(has_place, cast("list[Any]", value)))
        case _:
            return False


def build_reply(move: Move, request: Request, seen: Sequence[Any], first_call: int) -> Reply:
    """Return the message of the model; its calls are numbered from `first_call`."""
    blocks: list[AnyBlock] = [Text(move.text)] if move.text or not move.calls else []
    for number, made in enumerate(move.calls, first_call):
        arguments = resolve(made.arguments, seen)
        blocks.append(ToolCall(make_call_id(request, number), made.tool, arguments))
    if move.stop in {"stop", "cut"}:
        stop: StopReason = "tool_use" if move.calls else "stop"
    else:
        stop = cast("StopReason", move.stop)
    cut = Fault("cut", first_call) if move.stop == "cut" else None
    return Reply(tuple(blocks), stop, model=request.model, fault=cut)


def complete(moves: Iterable[Move]) -> list[Move]:
    """Return the moves with an end: a text without calls."""
    moves = [*moves]
    # After a cut stream most agents ask again.
    ends = bool(moves) and not moves[-1].calls and not moves[-1].status and moves[-1].stop != "cut"
    return moves if ends else [*moves, END]


def build_turn(prompt: str, moves: Iterable[Move], seen: list[Any]) -> Turn:
    """Return the playbook of these moves; `seen` gets the values of the results."""
    moves = complete(moves)
    collects = any(has_place(made.arguments) for move in moves for made in move.calls)
    actions: list[Action | list[Action]] = []
    for move in moves:
        if move.status:
            actions.append(fail(status=move.status, retry_after=SOON))
            continue
        group: list[Action] = [_build_call(made, seen, collects=collects) for made in move.calls]
        if move.text or not group or move.stop != "stop":
            group.append(say(move.text, stop=move.stop))
        actions.append(group if len(group) > 1 else group[0])
    return when(prompt, actions)


def _build_call(made: GeneratedCall, seen: list[Any], *, collects: bool) -> Call:
    late: Callable[[], JSON] = lambda: resolve(made.arguments, seen)  # noqa: E731 - read below
    params = late if has_place(made.arguments) else made.arguments
    action = call(made.tool, params, unknown=made.unknown)
    return action.then(lambda result: seen.extend(find_values(result))) if collects else action


# ------------------------------------------------------------------------------ scripts
# Writes a found script as the playbook that a person pastes, and as a test file.

WIDTH = 96
INDENT = "    "
COLLECT = ".then(lambda result: seen.extend(find_values(result)))"


def render_script(prompt: str, moves: Iterable[Move]) -> str:
    """Return the script in Python: `when(…, [call(…), say(…)])`."""
    moves = complete(moves)
    collects = uses_results(moves)
    lines = [f"when({literal(prompt)}, ["]
    for move in moves:
        if move.status:
            lines.append(f"{INDENT}fail(status={move.status}, retry_after={SOON}),")
            continue
        parts = [_render_call(made, collects=collects) for made in move.calls]
        if move.text or not parts or move.stop != "stop":
            stop = "" if move.stop == "stop" else f", stop={literal(move.stop)}"
            parts.append(f"say({literal(move.text)}{stop})")
        line = parts[0] if len(parts) == 1 else f"[{', '.join(parts)}]"
        if len(parts) > 1 and len(line) > WIDTH:
            inner = "".join(f"{INDENT * 2}{part},\n" for part in parts)
            line = f"[\n{inner}{INDENT}]"
        lines.append(f"{INDENT}{line},")
    return "\n".join([*lines, "])"])


def uses_results(moves: Iterable[Move]) -> bool:
    """Return whether a call takes a value from an earlier result."""
    return any(has_place(made.arguments) for move in moves for made in move.calls)


def run_rendered(script: str) -> Turn:
    """Return the turn that a rendered script makes, exactly as if it had been pasted."""
    names = {"when": when, "call": call, "say": say, "fail": fail}
    return eval(script, {**names, "find_values": find_values, "seen": []})  # noqa: S307 - our own text


def render_tests(
    findings: Sequence[tuple[str, str, float | None]],
    *,
    imports: Sequence[str],
    world: str,
    invariants: Sequence[str],
    gives_up: Sequence[str] = (),
    uses: Sequence[str] = (),
) -> str:
    """Return a test file that plays scripts and checks the invariants.

    A finding is what was broken, its script, and the deadline if it hangs. `uses` are the names of
    `offbook` that the world needs.
    """
    scripts = "".join(script for _, script, _ in findings)
    words = [word for word in ("call", "fail", "say", "when") if f"{word}(" in scripts]
    here = any("HERE" in line for line in imports)
    modules = ["import sys"] if any("sys.path" in line for line in imports) else []
    modules += ["from pathlib import Path", ""] if here else []
    own = ["find_values", "replay"] if "seen[" in scripts else ["replay"]
    names = dict.fromkeys(name for name, _, _ in findings)
    lines = [
        f'"""Found by `offbook explore`: {", ".join(names)}."""',
        "",
        *modules,
        f"from offbook import {', '.join(sorted([*uses, *words]))}",
        f"from offbook.explore import {', '.join(own)}",
        *(["", "HERE = Path(__file__).parent"] if here else []),
        *imports,
    ]
    counts: Counter[str] = Counter()
    for name, script, deadline in findings:
        counts[name] += 1
        number = f"_{counts[name]}" if counts[name] > 1 else ""
        options = [f"gives_up=({', '.join(gives_up)},)"] if gives_up else []
        options += [f"deadline={deadline:g}"] if deadline is not None else []
        arguments = ", ".join([world, "script", *invariants, *options])
        lines += ["", "", f"def test_{_identifier(name)}{number}():"]
        lines += [f"{INDENT}seen = []"] if "seen[" in script else []
        lines += [f"{INDENT}{line}" for line in f"script = {script}".split("\n")]
        lines.append(f"{INDENT}replay({arguments})")
    return "\n".join(lines) + "\n"


def _identifier(name: str) -> str:
    return "_".join("".join(c if c.isalnum() else " " for c in name.lower()).split())


def _render_call(made: GeneratedCall, *, collects: bool) -> str:
    options = ", unknown=True" if made.unknown else ""
    late = "lambda: " if has_place(made.arguments) else ""
    arguments = f", {late}{literal(made.arguments)}" if made.arguments else ""
    return f"call({literal(made.tool)}{arguments}{options}){COLLECT if collects else ''}"


def literal(value: Any) -> str:
    """Return a value as Python source, with double quotes as a formatter writes them."""
    match value:
        case Place(index, as_text):
            return f"str(seen[{index}])" if as_text else f"seen[{index}]"
        case str():
            if len(value) > WIDTH and len(set(value)) == 1:
                return f"{literal(value[0])} * {len(value)}"
            quoted = repr(value)
            plain = quoted[0] == "'" and '"' not in quoted and "\\'" not in quoted
            return f'"{quoted[1:-1]}"' if plain else quoted
        case dict():
            items = cast("dict[str, Any]", value).items()
            return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in items) + "}"
        case list():
            return "[" + ", ".join(map(literal, cast("list[Any]", value))) + "]"
        case _:
            return repr(value)
