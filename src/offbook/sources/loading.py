"""Opens the source in a file by its content: mocks, a cassette or a playbook.

A playbook is a Python file with a list `playbook`, or the same in YAML or JSON:

    - when: Refund order 7
      do:
        - call: find_order
          with: {id: 7}
          result: one kettle                                 # a text that the result contains
        - [{call: refund, with: {id: 7}}, {call: notify}]    # two calls in one message
        - [{call: refund}, {say: "", stop: cut}]             # the stream ends in this message
        - say: Done.
    - role: titles
      system: title generator
      do:
        - say: A refund
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from offbook.errors import FormatError, OffbookError, PlaybookError, ScriptError
from offbook.files import (
    find_kind,
    find_line,
    read_document,
    read_text,
    require_kind,
    run_source,
)
from offbook.secrets import excerpt

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from offbook.errors import ScriptUnfinished
    from offbook.exchange.messages import ToolResult
    from offbook.exchange.model import ModelSource, Reply, Request
    from offbook.exchange.people import Answer, PersonQuestion
    from offbook.sources.playbook.actions import Action, Actions, Call, Role, Turn
    from offbook.sources.playbook.playbook import Playbook


E = TypeVar("E", bound=OffbookError)

# The code of a source is imported when a file needs it: a server starts 15 ms earlier.

SCRIPT_KINDS = ("playbook", "mocks", "cassette")
SCRIPT_SUFFIXES = {".py", ".yaml", ".yml", ".json"}


def open_source(path: Path) -> Callable[[], ModelSource]:
    """Read a file, and return a function that makes its source, once for each run.

    The file is read and checked now, so that an error appears before a run starts.
    """
    if path.suffix == ".jsonl":
        require_kind(path, "mocks")
        from offbook.sources.mocks.mock_file import read_mocks
        from offbook.sources.mocks.mocks import Mocks

        mocks = read_mocks(path)
        return lambda: Mocks(mocks)
    if path.suffix not in SCRIPT_SUFFIXES:
        if not path.is_file():
            read_text(path)  # it names the nearest file
        require_kind(path, *SCRIPT_KINDS)
        raise FormatError(
            f"unsupported file type {path.suffix!r}" if path.suffix else "file without a suffix",
            path=path,
            hint="mocks are a .jsonl file, a cassette a .yaml, a playbook a .py, .yaml or .json",
        )
    # A cassette and a playbook may both be YAML: only a cassette has interactions.
    if find_kind(path) == "cassette":
        from offbook.sources.cassette.journal import load_cassette
        from offbook.sources.cassette.replay import Cassette

        file = load_cassette(path)
        return lambda: Cassette(file)
    from offbook.sources.playbook.playbook import Playbook

    script = read_script(path)

    class FilePlaybook(Playbook):
        """A playbook whose errors name its file, with fixes in the syntax of the file."""

        async def reply(self, request: Request, /) -> Reply:
            try:
                return await super().reply(request)
            except ScriptError as error:
                raise _locate(error, path)  # noqa: B904 - it is the same error

        async def answer(self, question: PersonQuestion, /) -> Answer:
            try:
                return await super().answer(question)
            except ScriptError as error:
                raise _locate(error, path)  # noqa: B904 - as above

        def unfinished(self) -> ScriptUnfinished | None:
            error = super().unfinished()
            return None if error is None else _locate(error, path)

    def make_playbook() -> Playbook:
        playbook = FilePlaybook()
        playbook.load(*script)
        return playbook

    return make_playbook


def _locate(error: E, path: Path, line: int | None = None) -> E:
    """Add the file to an error of its script, and write the fix in the syntax of the file."""
    if error.where.startswith(str(path)):
        return error
    yaml = path.suffix != ".py"
    where = _as_yaml(error.where) if yaml else error.where
    hint = _as_yaml(error.hint) if yaml else error.hint
    place = f"{path}:{line}" if line else str(path)
    if isinstance(error, FormatError):
        error.path, error.line = str(path), line
    OffbookError.__init__(
        error, error.what, where=f"{place}: {where}" if where else place, hint=hint
    )
    return error


def _as_yaml(text: str) -> str:
    """Return a fix with `unknown: true` for `unknown=True`, and so on."""
    text = re.sub(r"\b(unknown|unanswered|invalid)=True", r"\1: true", text)
    text = re.sub(
        r"""role\("([^"]*)", \[say\("…"\)\], (.*)\)""",
        lambda found: (
            f"- {{role: {found[1]}, "
            + re.sub(r"\b(system|first|model|tools)=", r"\1: ", found[2])
            + ", do: [{say: …}]}"
        ),
        text,
    )
    text = re.sub(r"""\bwhen\((['"])(.*?)\1(, …)?\)""", r"when: \2", text)
    text = re.sub(r"""\bperson\((['"])(.*?)\1, allow\)""", r"- {person: \2, allow: true}", text)
    return re.sub(r"\b(when|role|call|say|think|fail|person)\(…\)", r"- \1: …", text)


# ---------------------------------------------------------------------------- playbooks

EXAMPLE = 'playbook = [when("…", [call("…", {…}), say("…")])]'


# The words, and the options that go with each.
WORDS = {
    "call": ("params", "unknown", "invalid", "unanswered", "result"),
    "say": ("stop",),
    "think": (),
    "fail": ("status", "retry_after"),
    "person": ("answer", "allow", "deny"),
}
WORD_LIST = ", ".join(f"{word}:" for word in WORDS)


class _ActionEntry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """An action in a file: exactly one of the first five fields is set."""

    call: str | None = None
    say: str | None = None
    think: str | None = None
    fail: str | None = None
    person: str | None = None
    params: dict[str, Any] | None = msgspec.field(name="with", default=None)
    unknown: bool | None = None
    invalid: bool | None = None
    unanswered: bool | None = None
    result: str | None = None
    stop: str | None = None
    status: int | None = None
    retry_after: float | None = None
    answer: Any = None
    allow: bool | dict[str, Any] | None = None
    deny: bool | str | None = None


class _ScriptEntry(msgspec.Struct, forbid_unknown_fields=True):
    """A turn or a role in a file."""

    do: list[_ActionEntry | list[_ActionEntry]]
    when: str | None = None
    role: str | None = None
    system: str | None = None
    model: str | None = None
    first: str | None = None
    tools: list[str] | None = None


def read_script(path: Path) -> tuple[Turn | Role, ...]:
    """Read the turns and roles of a playbook file, and validate them without an agent."""
    from offbook.sources.playbook.actions import validate
    from offbook.sources.playbook.playbook import Playbook

    require_kind(path, "playbook")
    try:
        script = _run_python(path) if path.suffix == ".py" else _read_data(path)
        validate(script)
        Playbook().load(*script)  # it checks what concerns the order of the actions
    except PlaybookError as error:
        raise _locate(error, path) from error
    if not script:
        raise FormatError("the playbook is empty", path=path, hint=f"write {EXAMPLE}")
    return script


def _run_python(path: Path) -> tuple[Turn | Role, ...]:
    """Execute a Python file and return its `playbook`; it may import its neighbours."""
    from importlib.util import module_from_spec, spec_from_file_location  # few scripts are Python

    read_text(path)  # its message for a missing file is better than the import system's
    spec = spec_from_file_location(f"offbook_playbook_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FormatError("not a Python file", path=path)
    module = module_from_spec(spec)
    # As if the file were run as a script.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        run_source(module, path)
    except OffbookError:
        raise
    except Exception as error:
        line, hint = _explain_exception(error, path)
        problem = f"it raised {type(error).__name__}: {error}"
        raise FormatError(problem, path=path, line=line, hint=hint) from error
    finally:
        sys.path.pop(0)
    script = getattr(module, "playbook", None)
    if not isinstance(script, (list, tuple)):
        raise FormatError("missing a list called playbook", path=path, hint=f"write {EXAMPLE}")
    return tuple(cast("list[Turn | Role]", script))


def _explain_exception(error: Exception, path: Path) -> tuple[int | None, str]:
    """Return the line of the file that raised, and a fix."""
    from traceback import extract_tb

    from offbook.sources.playbook import actions

    if isinstance(error, SyntaxError):
        return error.lineno, "correct the syntax of this line"
    lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == str(path)]
    line = lines[-1] if lines else None
    if isinstance(error, NameError) and hasattr(actions, str(error.name)):
        return line, f"add: from offbook import {error.name}"
    return line, f"run it to see the whole traceback: python {path}"


def _read_data(path: Path) -> tuple[Turn | Role, ...]:
    """Read a YAML or JSON file."""
    # First without a type: the message for a file with another outer shape shows an example.
    document = read_document(path, cast("Any", Any))
    if not isinstance(document, list):
        kind = "an empty file" if document is None else "a mapping"
        kind = kind if document is None or isinstance(document, dict) else "a single value"
        raise FormatError(
            f"a playbook must be a list of turns and roles, got {kind}",
            path=path,
            hint='begin each turn with a dash: - {when: "…", do: [{say: "…"}]}',
        )
    entries = cast("list[_ScriptEntry]", read_document(path, cast("Any", list[_ScriptEntry])))
    script: list[Turn | Role] = []
    for index, entry in enumerate(entries):
        at = ""  # the action that is read, for the line of an error
        try:
            actions: list[Action | list[Action]] = []
            for number, message in enumerate(entry.do):
                at = f".do[{number}]"
                several = isinstance(message, list)
                group = [_read_action(part) for part in (message if several else [message])]
                actions.append(group if several else group[0])
            at = ""
            script.append(_read_entry(entry, actions))
        except (FormatError, PlaybookError) as error:
            error.where = error.where or f"entry {index + 1}"
            _locate(error, path, find_line(read_text(path), f"$[{index}]{at}"))
            raise
    return tuple(script)


def _read_entry(entry: _ScriptEntry, actions: Actions) -> Turn | Role:
    from offbook.sources.playbook.actions import role, when

    system, model, first, tools = entry.system, entry.model, entry.first, entry.tools
    has_conditions = (system, model, first, tools) != (None,) * 4
    if entry.when is not None and entry.role is None and not has_conditions:
        return when(entry.when, actions)
    if entry.role is not None and entry.when is None:
        return role(entry.role, actions, system=system, model=model, first=first, tools=tools)
    raise FormatError(
        "neither a turn nor a role",
        hint="a turn has when: and do:; a role has role:, its conditions, and do:",
    )


def _read_action(entry: _ActionEntry) -> Action:
    given = {
        name: value for name, value in msgspec.structs.asdict(entry).items() if value is not None
    }
    words = [name for name in given if name in WORDS]
    # Exactly one word, and no option of another: `{say: a, call: b}` is an error.
    if len(words) != 1:
        shown = " and ".join(f"{word}:" for word in words) or "none"
        raise FormatError(
            f"an action has {shown}, expected one of {WORD_LIST}",
            hint="begin each action with its own dash: - say: …",
        )
    word = words[0]
    if wrong := given.keys() - {word, *WORDS[word]}:
        names = [f"{name.replace('params', 'with')}:" for name in (*WORDS[word], *sorted(wrong))]
        known, extra = names[: len(WORDS[word])], names[len(WORDS[word]) :]
        raise FormatError(
            f"{word}: does not go with {', '.join(extra)}",
            hint=f"{word}: goes with {', '.join(known) or 'nothing else'}",
        )
    from offbook.sources.playbook import actions

    if word == "person":
        return _read_person(given)
    build: Callable[..., Action] = getattr(actions, word)
    expected = given.pop("result", None)
    action = build(given.pop(word), **given)
    if expected is None:
        return action
    actions.require_condition(expected, "call: has an empty result")

    def check_result(result: ToolResult) -> tuple[bool, str]:
        message = f"the result does not contain {expected!r}, got {excerpt(result.text, 200)!r}"
        return expected in result.text, message

    return cast("Call", action).then(check_result)


def _read_person(given: Mapping[str, Any]) -> Action:
    from offbook.exchange.people import Allow, Deny
    from offbook.sources.playbook.actions import person

    about, *others = given.values()
    name = [name for name in given if name != "person"]
    if len(others) != 1 or given.get("allow") is False or given.get("deny") is False:
        raise FormatError(
            "person: has no single answer",
            hint="add one of allow: true, allow: {the changed parameters}, deny: true,"
            " deny: the reason, answer: a value",
        )
    answer = others[0]
    if name == ["allow"]:
        answer = Allow(None if answer is True else answer)
    elif name == ["deny"]:
        answer = Deny("" if answer is True else answer)
    return person(about, answer)
