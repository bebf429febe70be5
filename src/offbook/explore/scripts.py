"""Writes a found script as the playbook that a person pastes, and as a test file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from offbook.explore.moves import SOON, Move, Place, complete, find_values, has_place
from offbook.sources.playbook.actions import call, fail, say, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from offbook.explore.moves import GeneratedCall
    from offbook.sources.playbook.actions import Turn

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


def render_test(
    name: str,
    script: str,
    *,
    imports: Sequence[str],
    world: str,
    invariants: Sequence[str],
    gives_up: Sequence[str] = (),
    uses: Sequence[str] = (),
) -> str:
    """Return a test file that plays the script and checks the invariants.

    `uses` are the names of `offbook` that the world needs.
    """
    words = [word for word in ("call", "fail", "say", "when") if f"{word}(" in script]
    words = sorted([*uses, *words])
    paths = ["from pathlib import Path", ""] if any("Path(" in line for line in imports) else []
    seen = "seen" if "seen[" in script else ""
    own = ["find_values", "replay"] if seen else ["replay"]
    allowed = [f"gives_up=({', '.join(gives_up)},)"] if gives_up else []
    arguments = ", ".join([world, "script", *invariants, *allowed])
    body = [
        f"script = {line}" if not number else line for number, line in enumerate(script.split("\n"))
    ]
    lines = [
        f'"""Found by `offbook explore`: {name}."""',
        "",
        *paths,
        f"from offbook import {', '.join(words)}",
        f"from offbook.explore import {', '.join(own)}",
        *imports,
        "",
        "",
        f"def test_{_identifier(name)}():",
        *([f"{INDENT}seen = []"] if seen else []),
        *[f"{INDENT}{line}" for line in body],
        f"{INDENT}replay({arguments})",
    ]
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
