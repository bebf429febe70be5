"""The moves of a generated model: one for each request, and the script that they form.

A move is plain data, so that a search can shorten it, and each one can be written with the words
of a playbook. A value that came from a tool result is a `Place`: the number of the value among
those that the results contained. Ids differ from run to run, places do not.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import msgspec

from offbook.determinism.faults import INSTRUCTION, Fault
from offbook.exchange.messages import JSON, AnyBlock, Text, ToolCall
from offbook.exchange.model import Reply, Request, StopReason
from offbook.exchange.people import deny
from offbook.exchange.python_source import identifier, literal
from offbook.sources.matching import make_call_id
from offbook.sources.playbook.actions import ScriptedStop, Turn, call, fail, person, say, when

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from offbook.sources.playbook.actions import Action, Call

    Script = Turn | list[Turn | list[Turn]] | tuple[Turn, Turn]


LAST_WORDS = "Done."
SOON = 0.001  # seconds after which a client may retry: a search must not wait
MAX_VALUES = 32  # of the results; a table of a thousand rows has no more ids worth a try
MAX_VALUE_LENGTH = 200
MAX_DIGITS = 31
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
# What a text names: a URL, an address, a path, a file, a name with slashes such as `feature/login`,
# an amount, and a word with a digit in it: an id, a number, a date.
_NAMED = re.compile(
    r"https?://[^\s\"'<>)\]}]*[\w/]"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w.])(?:~|\.{1,2})?/[\w.@-]+(?:/[\w.@-]+)*"
    r"|(?<![\w.-])[\w-]+(?:/[\w.-]+)*\.(?:txt|md|json|csv|py|pdf|ya?ml|log|html?|xml|toml|db)\b"
    r"|(?<![\w.@/-])[A-Za-z][\w-]*(?:\.[\w-]+)*(?:/[A-Za-z][\w-]*(?:\.[\w-]+)*)+(?![\w/])"
    r"|(?<![\w.-])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w-])"
    r"|(?<![\w.-])(?=[\w.-]*\d)[\w-]+(?:\.[\w-]+)*"
)
# A list of words, such as "main, next" or "Users: Ada, Grace".
_WORDS = r"[\w/@-]+(?:\.[\w/@-]+)*"
_WISH = re.compile(r"Call \w+ with \\?\{.*?\}\.(?= Call |\s|$)")
_LISTED = re.compile(rf"(?:[\w ]{{1,40}}: )?({_WORDS}(?:(?:, |\n){_WORDS})+)\.?")


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

    def __repr__(self) -> str:
        """Return its source in a rendered script."""
        return f"str(seen[{self.index}])" if self.as_text else f"seen[{self.index}]"


class GeneratedCall(msgspec.Struct, frozen=True):
    """A tool call; its arguments may have places in them."""

    tool: str
    arguments: JSON = {}
    unknown: bool = False


class Move(msgspec.Struct, frozen=True):
    """One message of the model: calls, a text, or an error of the provider.

    If `denied`, people deny what the agent asks about the calls; `declined` is the text of a dialog
    that they decline while one of them runs. A move with a `prompt` is the next
    prompt of the user instead; with `fresh`, in a new conversation with the same agent, and with
    `beside`, at the same time as the one before it. One with a
    `fault` is a fault of the whole run, such as `tool_lost@1`. One that `obeys` does what the text
    of a tool says: its arguments are the text's, and not made simpler.
    """

    calls: tuple[GeneratedCall, ...] = ()
    text: str = ""
    stop: ScriptedStop = "stop"
    status: int = 0
    denied: bool = False
    declined: str = ""
    prompt: str = ""
    fresh: bool = False
    beside: bool = False
    fault: str = ""
    obeys: bool = False

    @property
    def questions(self) -> list[str]:
        """What people deny: a tool, or the text of a dialog."""
        tools = [made.tool for made in self.calls if self.denied]
        return [*tools, self.declined] if self.declined else tools

    @property
    def size(self) -> int:
        """The amount of text in it: a search prefers the smaller of two."""
        return 10 * (len(self.calls) or 1) + len(str(self.calls)) + len(self.text)


END = Move(text=LAST_WORDS)


def find_values(result: HasText) -> list[Any]:
    """Return the ids, numbers, addresses, paths and short texts in a tool result, each once.

    A script uses them where it needs an id that only exists while it runs:

        seen = []
        when("Plan", [
            call("propose", {…}).then(lambda result: seen.extend(find_values(result))),
            call("approve", lambda: {"id": seen[0]}),
            say("Done."),
        ])
    """
    return [*find_in_text(result.text)]


# The tools of an agent give the same few results again and again.
@lru_cache(maxsize=512)
def find_in_text(text: str) -> tuple[Any, ...]:
    """Return the ids, numbers, addresses and short texts in a text, each once."""
    found: list[Any] = []
    try:
        _collect(msgspec.json.decode(text), found)
    except (msgspec.DecodeError, UnicodeEncodeError):  # such as half a character
        _collect(text, found)
    return tuple(dict.fromkeys(found))[:MAX_VALUES]


def _collect(value: Any, found: list[Any]) -> None:
    match value:
        case bool() | None:
            return
        case int() | float():
            found.append(value)
        case str():
            value = remove_instruction(value)
            if listed := _LISTED.fullmatch(value):
                found += [_number_or_text(token) for token in re.split(r", |\n", listed[1])]
            elif 0 < len(value) <= MAX_VALUE_LENGTH and " " not in value:
                found.append(_number_or_text(value))
            else:
                found += [_number_or_text(token) for token in _NAMED.findall(value)]
        case dict():
            for item in cast("dict[str, Any]", value).values():
                _collect(item, found)
        case list():
            for item in cast("list[Any]", value):
                _collect(item, found)
        case _:
            return


def remove_instruction(text: str) -> str:
    """Return a text without the instruction of an attacker in it: a replayed one has another."""
    return _WISH.sub("", text).replace(INSTRUCTION, "").strip() if INSTRUCTION in text else text


def _number_or_text(token: str) -> Any:
    plain = token.replace(",", "")
    if not plain.isascii() or len(plain) > MAX_DIGITS or not _NUMBER.fullmatch(plain):
        return token
    return float(plain) if "." in plain else int(plain)


def map_values(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return a value with each part changed that is not an object and not a list."""
    match value:
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {name: map_values(item, change) for name, item in items}
        case list():
            return [map_values(item, change) for item in cast("list[Any]", value)]
        case _:
            return change(value)


def resolve(value: Any, seen: Sequence[Any]) -> Any:
    """Return a value with the values of the results in its places."""

    def fill(part: Any) -> Any:
        if not isinstance(part, Place):
            return part
        # A shortened script may have fewer results than the one that it was made from.
        found = seen[part.index % len(seen)] if seen else part.index
        return str(found) if part.as_text else found

    return map_values(value, fill)


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


class Session(NamedTuple):
    """A prompt and the moves of the model; `fresh` if it begins a new conversation.

    One that is `beside` the one before it begins at the same time.
    """

    prompt: str
    moves: list[Move]
    fresh: bool = False
    beside: bool = False


def split_sessions(prompt: str, moves: Iterable[Move]) -> list[Session]:
    """Return the moves by prompt, each with an end: a text without calls."""
    sessions = [Session(prompt, [])]
    for move in moves:
        if move.prompt:
            sessions.append(Session(move.prompt, [], move.fresh, move.beside))
        elif not move.fault:
            sessions[-1].moves.append(move)
    for session in sessions:
        last = session.moves[-1] if session.moves else None
        # After a cut stream most agents ask again.
        if last is None or last.calls or last.status or last.stop == "cut":
            session.moves.append(END)
    return sessions


def list_faults(moves: Iterable[Move]) -> tuple[str, ...]:
    """Return the faults of the run."""
    return tuple(move.fault for move in moves if move.fault)


def build_turns(prompt: str, moves: Iterable[Move], seen: list[Any]) -> Script:
    """Return the playbook of these moves; `seen` gets the values of the results."""
    moves = [*moves]
    collects = uses_results(moves)
    conversations: list[list[Turn]] = []
    sessions = split_sessions(prompt, moves)
    if any(session.beside for session in sessions):
        first, second = (_build_turn(one, seen, collects=collects) for one in sessions)
        return first, second
    for session in sessions:
        turn = _build_turn(session, seen, collects=collects)
        if session.fresh or not conversations:
            conversations.append([])
        conversations[-1].append(turn)
    return join_turns(conversations)


def join_turns(conversations: list[list[Turn]]) -> Script:
    """Return conversations as they are written: one turn alone without a list."""
    parts = [turns[0] if len(turns) == 1 else turns for turns in conversations]
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Turn) else parts


def list_turns(script: Script) -> tuple[list[Turn], set[int]]:
    """Return the turns of a script, and the numbers of those that begin another conversation."""
    if isinstance(script, tuple):
        return [*script], {1}
    parts = [script] if isinstance(script, Turn) else script
    turns: list[Turn] = []
    fresh: set[int] = set()
    for part in parts:
        if turns:
            fresh.add(len(turns))
        turns += [part] if isinstance(part, Turn) else part
    return turns, fresh


def _build_turn(session: Session, seen: list[Any], *, collects: bool) -> Turn:
    actions: list[Action | list[Action]] = []
    for move in session.moves:
        if move.status:
            actions.append(fail(status=move.status, retry_after=SOON))
            continue
        group: list[Action] = [_build_call(made, seen, collects=collects) for made in move.calls]
        if move.text or not group or move.stop != "stop":
            group.append(say(move.text, stop=move.stop))
        actions.append(group if len(group) > 1 else group[0])
        actions += [person(about, deny) for about in move.questions]
    return when(session.prompt, actions)


def _build_call(made: GeneratedCall, seen: list[Any], *, collects: bool) -> Call:
    late: Callable[[], JSON] = lambda: resolve(made.arguments, seen)  # noqa: E731 - read below
    params = late if has_place(made.arguments) else made.arguments
    action = call(made.tool, params, unknown=made.unknown)
    return action.then(lambda result: seen.extend(find_values(result))) if collects else action


# ------------------------------------------------------------------------------ scripts
# Writes a found script as the playbook that a person pastes, and as a test file.

WIDTH = 96
INDENT = "    "
POLICIES = ("powerful", "untrusted")
COLLECT = ".then(lambda result: seen.extend(find_values(result)))"


def render_script(prompt: str, moves: Iterable[Move]) -> str:
    """Return the script in Python: `when(…, [call(…), say(…)])`.

    Several prompts are a list: each turn, or list of turns, is a separate conversation. A tuple
    has two conversations side by side.
    """
    moves = [*moves]
    collects = uses_results(moves)
    conversations: list[list[str]] = []
    sessions = split_sessions(prompt, moves)
    if any(session.beside for session in sessions):
        turns = _render_list(_render_turn(session, collects=collects) for session in sessions)
        return f"({turns[1:-1]})"
    for session in sessions:
        if session.fresh or not conversations:
            conversations.append([])
        conversations[-1].append(_render_turn(session, collects=collects))
    parts = [turns[0] if len(turns) == 1 else _render_list(turns) for turns in conversations]
    return parts[0] if len(parts) == 1 and len(conversations[0]) == 1 else _render_list(parts)


def _render_list(items: Iterable[str]) -> str:
    inner = "".join(f"{item},\n" for item in items)
    return "[\n" + "".join(f"{INDENT}{line}\n" for line in inner.splitlines()) + "]"


def _render_turn(session: Session, *, collects: bool) -> str:
    lines = [f"when({literal(session.prompt)}, ["]
    for move in session.moves:
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
        lines += [f"{INDENT}person({literal(about)}, deny)," for about in move.questions]
    return "\n".join([*lines, "])"])


def uses_results(moves: Iterable[Move]) -> bool:
    """Return whether a call takes a value from an earlier result."""
    return any(has_place(made.arguments) for move in moves for made in move.calls)


def run_rendered(script: str) -> Script:
    """Return the turns that a rendered script makes, exactly as if it had been pasted."""
    names = {"when": when, "call": call, "say": say, "fail": fail, "person": person, "deny": deny}
    return eval(script, {**names, "find_values": find_values, "seen": []})  # noqa: S307 - our own text


def render_tests(
    findings: Sequence[tuple[str, str, Sequence[str]]],
    *,
    imports: Sequence[str],
    world: str,
    invariants: Sequence[str],
    gives_up: Sequence[str] = (),
    uses: Sequence[str] = (),
) -> str:
    """Return a test file that plays scripts and checks the invariants.

    A finding is what was broken, its script, and the options of its replay. `uses` are the names of
    `offbook` that the world needs.
    """
    scripts = "".join(script for _, script, _ in findings)
    words = [word for word in ("call", "fail", "say", "when") if f"{word}(" in scripts]
    here = any("HERE" in line for line in imports)
    modules = ["import sys"] if any("sys.path" in line for line in imports) else []
    modules += ["from pathlib import Path", ""] if here else []
    own = ["find_values", "replay"] if "seen[" in scripts else ["replay"]
    own += [name for name in POLICIES if any(i.startswith(f"{name}(") for i in invariants)]
    people = ["from offbook.people import deny, person"] if "person(" in scripts else []
    names = dict.fromkeys(name for name, _, _ in findings)
    lines = [
        f'"""Found by `offbook explore`: {", ".join(names)}."""',
        "",
        *modules,
        f"from offbook import {', '.join(sorted([*uses, *words]))}",
        f"from offbook.explore import {', '.join(sorted(own))}",
        *people,
        *(["", "HERE = Path(__file__).parent"] if here else []),
        *imports,
    ]
    counts: Counter[str] = Counter()
    for name, script, own_options in findings:
        counts[name] += 1
        number = f"_{counts[name]}" if counts[name] > 1 else ""
        options = [f"gives_up=({', '.join(gives_up)},)"] if gives_up else []
        arguments = ", ".join([world, "script", *invariants, *options, *own_options])
        lines += ["", "", f"def test_{identifier(name)}{number}():"]
        lines += [f"{INDENT}seen = []"] if "seen[" in script else []
        lines += [f"{INDENT}{line}" for line in f"script = {script}".split("\n")]
        lines.append(f"{INDENT}replay({arguments})")
    return "\n".join(lines) + "\n"


def _render_call(made: GeneratedCall, *, collects: bool) -> str:
    options = ", unknown=True" if made.unknown else ""
    late = "lambda: " if has_place(made.arguments) else ""
    arguments = f", {late}{literal(made.arguments)}" if made.arguments else ""
    return f"call({literal(made.tool)}{arguments}{options}){COLLECT if collects else ''}"
